"""Two encoders of which one has a planted fault: each fault is named, and nothing else; what no part of A explains is named
by nothing. B is made by transformers and numpy alone, text by text. Two ways to compute one encoder are equal. The commands
say what the functions say, end by an exit code for CI, and write JSON, a page or a canary of vectors."""

import copy
import json
import shutil

import numpy as np
import pytest
import tiny_models
import torch
from clirun import cli, place  # noqa: F401 - fixtures
from model_folders import WIDTH, adapter, declare, dense, normalize, pooling, tokenizer, transformer, weights
from sentence_transformers import SentenceTransformer
from tiny_decoders import decoder_folder
from tiny_models import sentences
from tokenizers import pre_tokenizers
from transformers import AutoModel, AutoTokenizer

import stsbench
from stsbench.encoders.load import load_encoder
from stsbench.errors import DegenerateError
from stsbench.extensions.parity.canary import check_canary, make_canary
from stsbench.extensions.parity.measures import cosines, stretched, turned
from stsbench.extensions.parity.parity import parity
from stsbench.extensions.parity.texts import TEXTS

PROMPT = "query: "
LIMIT = 200
LONG = {"max_position_embeddings": 520}


def bert(folder, *modules, limit=LIMIT, **settings):
    """A folder of sentence-transformers: a tiny BERT, mean pooling, Normalize."""
    behind = modules or (normalize(),)
    return declare(transformer(folder, **LONG), pooling("mean"), *behind, limit=limit, settings=settings or None)


class Naive:
    """transformers' own pass, a text at a time."""

    def __init__(self, folder, limit=LIMIT, prompt="", **changes):
        """changes: pool, head (of (d,) to (k,)), lower, drop_first, model, reads (of the
        tokenizer's call)."""
        self.model = changes.get("model") or AutoModel.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.limit, self.prompt, self.changes = limit, prompt, changes
        self.known = {}  # a diagnosis asks again and again

    def ids(self, text):
        """With special tokens, cut between them."""
        text = self.prompt + (text.lower() if self.changes.get("lower") else text)
        size = self.limit + (1 if self.changes.get("drop_first") else 0)
        ids = self.tokenizer(text, truncation=True, max_length=size, **self.changes.get("reads", {}))["input_ids"]
        return ids[1:] if self.changes.get("drop_first") else ids

    def __call__(self, texts):
        with torch.no_grad():
            self.known |= {text: self.vector(text) for text in texts if text not in self.known}
        return np.stack([self.known[text] for text in texts])

    def vector(self, text):
        """(k,) of one text."""
        states = self.model(input_ids=torch.tensor([self.ids(text)])).last_hidden_state[0]
        pool = self.changes.get("pool", lambda states: states.float().mean(0))
        head = self.changes.get("head", lambda vector: vector / vector.norm())
        return head(pool(states).float()).numpy()


def moved_weights(folder, target, by=0.05):
    """Another revision: every weight matrix moved a little, at random."""
    shutil.copytree(folder, target)
    generator = torch.Generator().manual_seed(3)

    def edit(tensors):
        for tensor in tensors.values():
            if tensor.dim() == 2:
                tensor += by * tensor.std() * torch.randn(tensor.shape, generator=generator)

    weights(target / "model.safetensors", edit)
    return target


def quantised(folder):
    model = AutoModel.from_pretrained(folder).eval()
    return torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {torch.nn.Linear}, dtype=torch.qint8)


PROBE = ["", *(TEXTS[kind][1] for kind in ("short", "sentence", "case", "languages", "special tokens")), *TEXTS["long"][3:5]]


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    root = tmp_path_factory.mktemp("planted")
    made = {"plain": bert(root / "plain")}
    made["dense"] = bert(root / "dense", dense(10), normalize())
    made["prompt"] = bert(root / "prompt", prompts={"query": PROMPT}, default_prompt_name="query")
    # A model whose inner numbers go beyond 65,504 where a text holds certain tokens; its vectors do not.
    folder = root / "half"
    bert(folder)

    def edit(tensors):
        for name, tensor in tensors.items():
            if name.endswith("layer.1.intermediate.dense.weight"):
                tensor[0] *= 20000
            if name.endswith("layer.1.output.dense.weight"):
                tensor[:, 0] *= 1e-3

    weights(folder / "model.safetensors", edit)
    made["half"] = folder
    made["revision"] = moved_weights(made["plain"], root / "revision")
    made["llama"] = decoder_folder(root / "llama", ends="bos")
    made["adapted"] = adapter(root / "adapted", made["plain"])
    return made


def told(a, b, **how):
    result = parity(a, b, texts=PROBE, **how)
    assert result.verdict != "equal" and not result.equal
    causes = result.explanation.causes
    assert all(cause.certain for cause in causes if cause.kind != "precision")
    return {cause.kind: str(cause) for cause in causes}, result


FAULTS = {  # of a folder, B's changes -> the only cause
    "prompt twice": ("prompt", {"prompt": PROMPT * 2}, f"the prompt {PROMPT!r} stands before a text twice"),
    "cut at 131": ("plain", {"limit": 131}, f"texts are cut at 131 tokens instead of {LIMIT}"),
    "special tokens": ("plain", {"reads": {"split_special_tokens": True}},
                       "the tokenizer reads special tokens in a text as words"),
    "case": ("plain", {"lower": True}, "texts are lower-cased"),
    "no length": ("plain", {"head": lambda vector: vector}, "vectors are not normalised at the end"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_the_only_cause(homes, fault):
    folder, changes, said = FAULTS[fault]
    causes, result = told(homes[folder], Naive(homes[folder], **changes))
    assert [*causes.values()] == [said]
    assert (result.verdict == "equal up to scale") == (fault == "no length")
    if fault.startswith("cut"):
        assert 0 < sum(result.cosines < 1 - 1e-8) < len(PROBE)


def test_a_missing_dense_layer_is_another_dimension(homes):
    causes, result = told(homes["dense"], Naive(homes["plain"]))
    assert list(causes) == ["module"] and "Dense" in causes["module"] and result.verdict == "of different dimensions"


def test_float16_that_overflows(homes):
    causes, result = told(homes["half"], Naive(homes["half"], model=Naive(homes["half"]).model.half()))
    lost = int((~np.isfinite(result.b).all(1)).sum())
    assert 0 < lost < len(PROBE) and list(causes) == ["precision"]
    assert "computed in float16" in causes["precision"] and f"it overflows: {lost} text" in causes["precision"]


def test_another_tokenizer(homes, tmp_path):
    other = shutil.copytree(homes["plain"], tmp_path / "other")
    tok = tokenizer()
    tok.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tok.save_pretrained(other)
    causes, result = told(homes["plain"], other)
    assert causes == {"tokenizer": "the tokenizer is another one"}
    assert 0 < (result.cosines < 1 - 1e-8).sum() < len(PROBE)


def test_a_missing_bos(homes):
    asked = {"a_options": {"pooler": "last"}}
    naive = Naive(homes["llama"], 1024, drop_first=True, pool=lambda states: states[-1], head=lambda vector: vector)
    texts = [text for text in PROBE if text.strip()]
    result = parity(homes["llama"], naive, texts=texts, **asked)
    assert result.causes == ("<s> before a text is missing",)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_int8(homes):
    causes, _ = told(homes["plain"], Naive(homes["plain"], model=quantised(homes["plain"])))
    assert list(causes) == ["precision"] and causes["precision"].startswith("consistent with: int8 weights")


def test_another_revision_behind_a_function_is_what_is_left(homes, tmp_path):
    """What moves at random, however little, is never called a rounding."""
    causes, result = told(homes["plain"], Naive(moved_weights(homes["plain"], tmp_path / "revision", 1e-3)))
    assert not causes and "nothing that was tried explains it" in str(result)
    assert "another revision" in str(result) and len(result.explanation.tried) > 20


def test_other_weights_an_adapter_and_a_post_processing_left_out_and_two_faults(homes, tmp_path):
    causes, _ = told(homes["plain"], homes["revision"])
    assert list(causes) == ["weights"] and "tensors differ" in causes["weights"]
    naive = Naive(homes["plain"], head=lambda vector: vector)
    causes, _ = told(homes["adapted"], naive, a_options={"pooler": "mean", "max_length": LIMIT})
    assert causes == {"adapter": "the adapter is not applied"}
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(sentences(80)), "utf-8")
    fitted = stsbench.fit("whitening", homes["plain"], texts, tmp_path / "white")
    assert told(fitted, homes["plain"])[0] == {"post-processing": "the post-processing whitening is left out"}
    cut = Naive(homes["plain"], limit=131, pool=lambda states: states[0], head=lambda vector: vector)
    assert set(told(homes["plain"], cut)[0]) == {"truncation", "pooling", "normalisation"}


@pytest.fixture(scope="module")
def square(tmp_path_factory):
    """mean, Dense with tanh, Dense, Normalize, all of one width; and the two as functions."""
    layers = [dense(WIDTH), dense(WIDTH, activation_function=torch.nn.Identity())]
    return bert(tmp_path_factory.mktemp("square") / "model", *layers, normalize()), layers


@pytest.mark.parametrize(("kept", "words", "last", "of_length"), [
    ((), "all modules but Normalize behind the pooling are left out", lambda vector: 2 * vector / vector.norm(),
     {"scale": "vectors are 2 times as long"}),
    ((1,), "Dense 1 behind the pooling is left out", lambda vector: vector,
     {"normalisation": "vectors are not normalised at the end"}),
])
def test_no_cause_says_of_a_what_it_does_not_do(square, kept, words, last, of_length):
    folder, layers = square

    def head(vector):
        for number in kept:
            vector = layers[number]({"sentence_embedding": vector[None]})["sentence_embedding"][0]
        return last(vector)

    with torch.no_grad():
        causes, _ = told(folder, Naive(folder, head=head))
    assert causes == {"module": words, **of_length}


def test_a_that_is_not_normalised_is_said_to_be_none_by_its_vectors(tmp_path):
    folder = bert(tmp_path / "bare", dense(WIDTH, activation_function=torch.nn.Identity()))
    causes, _ = told(folder, Naive(folder))
    assert causes == {"module": "Dense behind the pooling is left out",
                      "normalisation": "vectors are normalised to length 1, which A does not do"}


class Padded(Naive):
    """Reads padding as words: a text's vector depends on the longest one of its call."""

    def __call__(self, texts):
        listed = [self.ids(text) for text in texts]
        longest = max(map(len, listed))
        with torch.no_grad():
            return np.stack([self.padded(ids, longest) for ids in listed])

    def padded(self, ids, longest):
        ids = torch.tensor([ids + [self.tokenizer.pad_token_id] * (longest - len(ids))])
        vector = self.model(input_ids=ids).last_hidden_state[0].mean(0)
        return (vector / vector.norm()).numpy()


SHORT = [text for text in PROBE if text.strip()][:8]


def test_what_depends_on_its_batch_is_said_to_and_explained_by_each_text_alone(homes):
    other = parity(homes["prompt"], Padded(homes["plain"]), texts=SHORT)
    assert [cause.kind for cause in other.explanation.causes] == ["batch", "prompt"]
    assert str(other.explanation.causes[0]).startswith("B's vectors depend on the batch: a text's alone")
    moved = parity(homes["plain"], Padded(homes["revision"]), texts=SHORT)
    assert not moved.causes and any(note.startswith("B's vectors depend on the batch") for note in moved.notes)
    result = parity(Padded(homes["plain"]), Padded(homes["plain"]), texts=SHORT)
    assert result.equal and result.explanation is None
    assert [note[:32] for note in result.notes] == ["A's vectors depend on the batch:", "B's vectors depend on the batch:"]


def test_a_side_that_draws_is_said_to_and_nothing_else(homes):
    class Drawing(Naive):
        def __call__(self, texts):
            self.known.clear()
            self.model.train()
            return super().__call__(texts)

    plain, drawing = homes["plain"], Drawing(homes["plain"])
    for pair, letter in (((plain, drawing), "B"), ((drawing, plain), "A")):
        result = parity(*pair, texts=SHORT)
        (cause,) = result.explanation.causes
        assert cause.kind == "draws" and str(cause).startswith(f"{letter} draws: two calls for the same texts differ")
        assert "other weights" not in str(result)


# Equal encoders.


def of_library(folder):
    """A function of sentence-transformers' own."""
    return SentenceTransformer(str(folder), device="cpu").encode


LLAMA = {"pooler": "last"}
PAIRS = {
    "transformers alone": lambda home: (home["plain"], Naive(home["plain"]), {}),
    "prompt": lambda home: (home["prompt"], of_library(home["prompt"]), {}),
    "llama, pair in memory": lambda home: (home["llama"], load_encoder(
        (AutoModel.from_pretrained(home["llama"]), AutoTokenizer.from_pretrained(home["llama"])), **LLAMA),
        {"a_options": LLAMA}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equal_pairs(name, homes):
    """Whatever the batches, the passes and the library are."""
    a, b, how = PAIRS[name](homes)
    texts = [text for text in PROBE if text.strip()] if "llama" in name else PROBE
    result = parity(a, b, texts=texts, **how)
    assert result.verdict == "equal" and result.equal and result.explanation is None and result.causes == ()
    assert result.largest < 1e-5 and "\nequal: on " in str(result)


CLS, MEAN = ("pooler=cls", "pooler=mean")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_models.build(tmp_path_factory.mktemp("parity") / "tiny")


@pytest.fixture
def lines(place):
    path = place / "lines.txt"
    path.write_text("the cat sleeps\n\na man plays the guitar in the park\nred\nthe cat sleeps\n", "utf-8")
    return path


def test_equal_is_0_and_different_is_3(cli, tiny, lines):
    code, out, _ = cli("parity", tiny, tiny, "--a", CLS, "--b", CLS, "--texts", lines)
    assert code == 0 and "equal: on 4 distinct texts" in out
    code, out, _ = cli("parity", tiny, tiny, "--a", CLS, "--b", MEAN, "--texts", lines, "--no-why")
    assert code == 3 and "why" not in out and "beyond float32's tolerance" in out


def test_json_and_page(cli, tiny, lines, place):
    code, out, _ = cli("parity", tiny, tiny, "--a", CLS, "--b", MEAN, "--texts", lines, "--json", "-", "--page", "p.html")
    made = json.loads(out)
    result = stsbench.parity(tiny, tiny, a_options={"pooler": "cls"}, b_options={"pooler": "mean"}, texts="lines.txt")
    assert code == 3 and made == json.loads(result.to_json()) and made["causes"][0]["kind"] == "pooling"
    assert made["texts"]["count"] == 4 and made["b"]["spec"]["pooler"] == "mean" and "torch" in made["a"]["libraries"]
    assert np.isclose(made["cosines"]["quantiles"]["0"], result.cosines.min()) and len(made["worst"]) == 4
    html = (place / "p.html").read_text("utf-8")
    assert "pooling is mean instead of cls" in html and "a man plays the guitar" in html and made["a"]["fingerprint"] in html
    assert "http" not in html.replace("https://example.org", "") and "<script" not in html and html.count("<table") == 3


def test_scores_and_an_equivalence_verdict(cli, tiny):
    words = ("--a", MEAN, "--b", MEAN, "--b", "dtype=bfloat16", "--no-why", "--sample", "--protocol", "sts:all",
             "--tasks", "STS-B", "--resamples", "100")
    code, out, _ = cli("parity", tiny, tiny, *words, "--margin", "30", "--json", "-")
    row = json.loads(out)["scores"][0]
    assert code == 0 and row["verdict"] == "equivalent" and abs(row["difference"] - (row["b"] - row["a"])) < 1e-9
    assert -30 < row["low"] <= row["difference"] <= row["high"] < 30 and json.loads(out)["verdict"] == "different"
    code, out, _ = cli("parity", tiny, tiny, *words, "--margin", "0.0001")
    assert code == 3 and "undecided" in out


def test_a_result_in_python():
    vectors = {text: [1.0, i] for i, text in enumerate(("a", "b", "c"))}
    result = stsbench.parity(lambda texts: [vectors[t] for t in texts], lambda texts: [[1, 9] for _ in texts],
                             texts=["a", "b", "c"])
    assert repr(result) == "<Parity: different>" and "nothing that was tried explains it" in str(result)
    assert result.to_arrow().num_rows == 3 and "<table" in result._repr_html_() and "the parts of A" in result.notes[0]


def test_scaled_and_swapped_without_known_parts():
    def a(texts):
        return [[len(text), text.count("e") + 1, 3] for text in texts]

    texts = ["one", "three", "eleven", "seventeen"]
    assert stsbench.parity(a, lambda texts: -2.0 * np.array(a(texts)), texts=texts).verdict == "different"
    assert stsbench.parity(a, lambda texts: 2.0 * np.array(a(texts)), texts=texts).causes == ("vectors are 2 times as long",)
    swapped = stsbench.parity(a, lambda texts: a(texts)[::-1], texts=texts)
    assert swapped.causes[0].startswith("rows stand in another order (4 rows")


def test_distances():
    a, b = np.array([[3.0, 4], [0, 0], [0, 0], [1, 0], [np.nan, 1]]), np.array([[4.0, 3], [0, 0], [1, 0], [0, 1], [1, 1]])
    assert np.allclose(cosines(a, b)[:4], [24 / 25, 1, 0, 0]) and np.isnan(cosines(a, b)[4])
    assert np.allclose(turned(a, b)[:2], [np.sqrt(2 - 48 / 25), 0]) and np.isinf(turned(a, b)[4])
    assert np.allclose(stretched(a, b)[:2], 1) and np.isinf(stretched(a, b)[2])
    tiny = np.array([[1.0, 0]]), np.array([[1.0, 1e-9]])
    assert 0 < 1 - cosines(*tiny)[0] <= 1e-15 or turned(*tiny)[0] == pytest.approx(1e-9)


def test_texts_for_which_b_refuses_are_left_without_a_vector():
    """An encoder in float16 raises for a whole batch: the other texts' vectors are had one by one."""
    def overflows(texts):
        if "large" in texts:
            raise DegenerateError("b returned infinity for 1 text")
        return [[len(text), 1] for text in texts]

    result = stsbench.parity(lambda texts: [[len(text), 1] for text in texts], overflows, texts=["a", "large", "four"])
    assert result.verdict == "different" and np.isnan(result.b[1]).all()
    assert np.array_equal(result.a[[0, 2]], result.b[[0, 2]])
    assert "b returned infinity for 1 text" in result.notes and result.worst()[0] == 1 and "not finite" in str(result)


def test_a_canary_names_a_changed_pooler_without_the_other_model(tiny, tmp_path):
    folder, path = str(tiny), tmp_path / "c.npz"
    make_canary(folder, path, texts=tiny_models.sentences(6), options={"pooler": "mean"})
    assert check_canary(folder, path, options={"pooler": "mean"}).verdict == "equal"
    changed = check_canary(folder, path, options={"pooler": "cls"})
    assert changed.verdict == "different" and changed.causes == ("pooling is mean instead of cls",)
    texts = np.load(path)["texts"].tolist()
    stored, now = (stsbench.load_encoder(name, pooler=pooler).encode(texts) for name, pooler in (
        (f"vectors:{path}", None), (folder, "mean")))
    np.testing.assert_allclose(stored, now, atol=1e-6)


def test_the_commands_of_canaries(place, cli):
    assert cli("canary", "make", "lexical:char-ngrams", "c.npz")[0] == 0
    code, out, err = cli("canary", "check", "lexical:char-ngrams", "c.npz")
    assert code == 0 and "equal: on the 118 texts of the package" in out and "the canary c.npz is of " in err
    assert cli("canary", "check", "lexical:token-set", "c.npz", "--no-why")[0] == 3
