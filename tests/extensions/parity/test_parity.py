"""Two encoders of which one has a planted fault: each fault is named, and nothing else; what no part of A explains is named
by nothing. B is made by transformers and numpy alone, text by text. Two ways to compute one encoder are equal. The commands
say what the functions say, end by an exit code for CI, and write JSON, a page or a canary of vectors."""

import json
import shutil
from functools import cache

import numpy as np
import pytest
import torch
from clirun import cli, place  # noqa: F401 - fixtures
from model_folders import WIDTH, adapter, declare, dense, normalize, pooling, tokenizer, transformer, weights
from sentence_transformers import SentenceTransformer
from tiny_decoders import decoder_folder
from tiny_models import sentences
from tokenizers import pre_tokenizers
from transformers import AutoModel, AutoTokenizer

import stsbench
from stsbench import load_encoder
from stsbench.errors import DegenerateError
from stsbench.extensions.parity.canary import check_canary, make_canary
from stsbench.extensions.parity.measures import Scores, cosines, stretched, turned
from stsbench.extensions.parity.parity import parity
from stsbench.extensions.parity.texts import TEXTS
from stsbench.metrics.paired import Difference

PROMPT = "query: "
LIMIT = 90


def bert(folder, *modules, limit=LIMIT, layers=1, **settings):
    """A folder of sentence-transformers: a tiny BERT, mean pooling, Normalize."""
    model, behind = transformer(folder, max_position_embeddings=520, num_hidden_layers=layers), modules or (normalize(),)
    return declare(model, pooling("mean"), *behind, limit=limit, settings=settings or None)


class Naive:
    """transformers' own pass, a text at a time."""

    def __init__(self, folder, limit=LIMIT, prompt="", **changes):
        """changes: pool, head (of (d,) to (k,)), lower, drop_first, model, reads (of the tokenizer's call)."""
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


PROBE = ["", *(TEXTS[kind][1] for kind in ("short", "sentence", "case", "special tokens")), *TEXTS["long"][:2]]


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    root = tmp_path_factory.mktemp("planted")
    made = {"plain": bert(root / "plain")}
    made["prompt"] = bert(root / "prompt", prompts={"query": PROMPT}, default_prompt_name="query")
    # A model whose inner numbers go beyond 65,504 where a text holds certain tokens; its vectors do not.
    folder = root / "half"
    bert(folder, layers=2)

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


opened = cache(load_encoder)  # the same few folders are compared again and again


def told(a, b, **how):
    result = parity(a if how else opened(a), b, texts=PROBE, **how)
    assert result.verdict != "equal" and not result.equal
    causes = result.explanation.causes
    assert all(cause.certain for cause in causes if cause.kind != "precision")
    return {cause.kind: str(cause) for cause in causes}, result


FAULTS = {  # of a folder, B's changes -> the only cause
    "prompt twice": ("prompt", {"prompt": PROMPT * 2}, f"the prompt {PROMPT!r} stands before a text twice"),
    "cut at 61": ("plain", {"limit": 61}, f"texts are cut at 61 tokens instead of {LIMIT}"),
    "special tokens": ("plain", {"reads": {"split_special_tokens": True}},
                       "the tokenizer reads special tokens in a text as words"),
    "case": ("plain", {"lower": True}, "texts are lower-cased")}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_the_only_cause(homes, fault):
    folder, changes, said = FAULTS[fault]
    causes, result = told(homes[folder], Naive(homes[folder], **changes))
    assert [*causes.values()] == [said]
    if fault.startswith("cut"):
        assert 0 < sum(result.cosines < 1 - 1e-8) < len(PROBE)


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
    naive = Naive(homes["llama"], 1024, drop_first=True, pool=lambda states: states[-1], head=lambda vector: vector)
    texts = [text for text in PROBE if text.strip()]
    result = parity(homes["llama"], naive, texts=texts, a_options={"pooler": "last"})
    assert result.causes == ("<s> before a text is missing",)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_int8(homes):
    plain = AutoModel.from_pretrained(homes["plain"]).eval()
    model = torch.ao.quantization.quantize_dynamic(plain, {torch.nn.Linear}, dtype=torch.qint8)
    causes, _ = told(homes["plain"], Naive(homes["plain"], model=model))
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
    cut = Naive(homes["plain"], limit=61, pool=lambda states: states[0], head=lambda vector: vector)
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
     {"normalisation": "vectors are not normalised at the end"})])
def test_no_cause_says_of_a_what_it_does_not_do(square, kept, words, last, of_length):
    folder, layers = square

    def head(vector):
        for number in kept:
            vector = layers[number]({"sentence_embedding": vector[None]})["sentence_embedding"][0]
        return last(vector)

    with torch.no_grad():
        causes, _ = told(folder, Naive(folder, head=head))
    assert causes == {"module": words, **of_length}


def test_a_of_another_width_that_is_not_normalised_is_said_to_be_none_by_its_vectors(tmp_path):
    folder = bert(tmp_path / "bare", dense(10, activation_function=torch.nn.Identity()))
    causes, result = told(folder, Naive(folder))
    assert result.verdict == "of different dimensions"
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
    moved = parity(Naive(homes["plain"]), Padded(homes["revision"]), texts=SHORT)  # no parts of A are known: few are tried
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


def test_equal_pairs(homes):
    """Whatever the batches, the passes and the library are: sentence-transformers' own, and a pair in memory."""
    prompt, llama = homes["prompt"], homes["llama"]
    pair = AutoModel.from_pretrained(llama), AutoTokenizer.from_pretrained(llama)
    for a, b, options in (
        (prompt, SentenceTransformer(str(prompt), device="cpu").encode, {}),
        (llama, load_encoder(pair, pooler="last"), {"pooler": "last"})):
        result = parity(a, b, texts=PROBE[bool(options):], a_options=options)  # llama reads no text without a token
        assert result.verdict == "equal" and result.equal and result.explanation is None and result.causes == ()
        assert result.largest < 1e-5 and "\nequal: on " in str(result)


CLS, MEAN = ("pooler=cls", "pooler=mean")


@pytest.fixture
def lines(place):
    path = place / "lines.txt"
    path.write_text("the cat sleeps\n\na man plays the guitar in the park\nred\nthe cat sleeps\n", "utf-8")
    return path


def test_json_and_page(cli, folder, lines, place):
    code, out, _ = cli("parity", folder, folder, "--a", CLS, "--b", MEAN, "--texts", lines, "--json", "-",
                       "--page", "p.html")
    made = json.loads(out)
    texts = list(dict.fromkeys(lines.read_text("utf-8").splitlines()))
    a, b = (load_encoder(folder, pooler=pooler).encode(texts).astype(np.float64) for pooler in ("cls", "mean"))
    cosine = ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min()
    assert code == 3 and made["verdict"] == "different" and made["causes"][0]["kind"] == "pooling"
    assert made["texts"]["count"] == 4 and made["b"]["spec"]["pooler"] == "mean" and "torch" in made["a"]["libraries"]
    assert made["cosines"]["quantiles"]["0"] == pytest.approx(cosine, abs=1e-6) and len(made["worst"]) == 4
    html = (place / "p.html").read_text("utf-8")
    assert "pooling is mean instead of cls" in html and "a man plays the guitar" in html and made["a"]["fingerprint"] in html
    assert "http" not in html.replace("https://example.org", "") and "<script" not in html and html.count("<table") == 3


def test_scores_and_an_equivalence_verdict(cli, folder, place):
    code, out, _ = cli("parity", folder, folder, "--a", MEAN, "--b", MEAN, "--b", "dtype=bfloat16", "--no-why", "--sample",
                       "--protocol", "sts:all", "--tasks", "STS-B", "--resamples", "100", "--margin", "30",
                       "--json", "m.json")
    made = json.loads((place / "m.json").read_text("utf-8"))
    row = made["scores"][0]
    assert code == 0 and row["verdict"] == "equivalent" and abs(row["difference"] - (row["b"] - row["a"])) < 1e-9
    assert -30 < row["low"] <= row["difference"] <= row["high"] < 30 and made["verdict"] == "different"
    assert "why:" not in out and f"{row['difference']:+.3f}" in out and "equivalent (margin 30)" in out


@pytest.mark.parametrize(("low", "high", "verdict"), [
    (-0.9, 0.9, "equivalent"), (-1.0, 0.9, "undecided"), (-0.9, 1.0, "undecided"), (1.1, 2.0, "not equivalent"),
    (-2.0, -1.1, "not equivalent"), (None, None, "undecided")])
def test_two_scores_are_equivalent_where_their_interval_lies_within_the_margin(low, high, verdict):
    difference = Difference(0.5, low, high)
    assert Scores("sts", "spearman", "STS-B", 42, 80.0, 80.5, difference, margin=1.0).verdict == verdict


def test_two_functions_whose_parts_are_not_known():
    def a(texts):
        return [[len(text), text.count("e") + 1, 3] for text in texts]

    texts = ["one", "three", "eleven", "seventeen"]
    result = stsbench.parity(a, lambda texts: [[1, 9, 0] for _ in texts], texts=texts)
    assert repr(result) == "<Parity: different>" and "nothing that was tried explains it" in str(result)
    assert result.to_arrow().num_rows == 4 and "<table" in result._repr_html_() and "the parts of A" in result.notes[0]
    assert stsbench.parity(a, lambda texts: -2.0 * np.array(a(texts)), texts=texts).verdict == "different"
    scaled = stsbench.parity(a, lambda texts: 2.0 * np.array(a(texts)), texts=texts)
    assert (scaled.verdict, scaled.causes) == ("equal up to scale", ("vectors are 2 times as long",))
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


def test_a_canary_names_a_changed_pooler_without_the_other_model(folder, tmp_path):
    folder, path = str(folder), tmp_path / "c.npz"
    make_canary(folder, path, texts=sentences(6), options={"pooler": "mean"})
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
