"""DiffAug against its equations, text by text (diffaug_oracle): the two losses and every gradient under prefixes, adapters
and LoRA, the vectors of the test, and what stage 1 is watched by."""

import numpy as np
import pytest
import torch
from diffaug_oracle import LAYERS, TEMPLATES, encode, ids_of, joined, oracle_of, tokenizer_of
from method_oracle import LIMIT, MemoryRows, grown, make
from safetensors.torch import load_file
from tiny_models import sentences
from transformers import BertConfig, BertModel

from stsbench.encoders.load import load_encoder
from stsbench.methods.diffaug.method import DiffAug, PrefixEncoder
from stsbench.methods.diffaug.options import DiffAugOptions
from stsbench.training.api.batch import Shares
from stsbench.training.engine.selection import live_encoder
from stsbench.training.export.export import export_model
from stsbench.training.modules.soft_prompt import Prefix
from stsbench.training.rows.batches import to_batch

# no token, one, the mask token, more than fit, and others
TEXTS = ["", "cat", "the big cat plays a red guitar in the blue park with food .", "the {mask} runs", *sentences(20, 7, 9)]
PIECES = LIMIT - 2
PLAIN = {"sentence": [TEXTS[i] for i in (4, 0, 2, 5)]}
PAIRS = {"anchor": [TEXTS[i] for i in (4, 2, 1)], "positive": [TEXTS[i] for i in (6, 3, 7)]}
TRIPLETS = {**PAIRS, "negative": [TEXTS[i] for i in (0, 8, 9)]}
QUADRUPLES = {**TRIPLETS, "negative2": [TEXTS[i] for i in (10, 11, 12)]}
SHORT = {role: ["cat", "dog"] for role in TRIPLETS}
NLI = {"anchor": [TEXTS[i] for i in (13, 2, 14, 1)], "positive": [TEXTS[i] for i in (15, 3, 16, 17)],
       "negative": [TEXTS[i] for i in (18, 19, 0, 20)]}
VARIANTS = [
    {"module": "adapter"}, {"module": "adapter", "rank": 2, "adapter_activation": "gelu"}, {"module": "lora"},
    {"module": "lora", "rank": 2, "lora_scale": 2.5},
]
ALIKE = [{"module": "adapter", "views": "same"}, {"module": "lora", "views": "same", "joint_trains": "module"}]


def with_mask(folder, texts):
    """The texts, their mask token that of the model."""
    return [text.replace("{mask}", tokenizer_of(folder).mask_token) for text in texts]


class Texts(MemoryRows):
    """Rows in memory, their mask token that of the model, cut as a method has them."""

    def __init__(self, folder, texts, rows=None):
        super().__init__(folder, {role: with_mask(folder, column) for role, column in texts.items()}, rows)

    def __len__(self):
        return len(self.rows)

    def ids(self, role):
        whole = (ids_of(self.folder, text) for text in self.texts(role))
        return [np.array([*row[:-1][: LIMIT - 1], row[-1]], np.int32) for row in whole]

    def at(self, rows):
        return Texts(self.folder, self.all, rows)


def diffaug(masked_lms, family="bert", *, stage="joint", dropout=0.0, engine="auto", **options):
    """The method in a stage, float64, in train mode; everything beside the model is far from zero."""
    options = {"template": TEMPLATES[family], "prefix_length": 2, **options}
    if options.get("module", "prefix") != "prefix":
        del options["prefix_length"]
    method = make(DiffAug, masked_lms[family], options, dropout=dropout, pooler="mask")
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if not name.startswith("backbone.") or ".lora_" in name:
                weight.normal_(std=0.3)
    method.backbone.engine, method.family = engine, family
    method.start_stage(stage)
    return method


def batch_for(method, data, labelled=None, padding=3):
    """The whole batch for one process. padding: columns that no row needs."""
    tok, labelled_only = method.backbone.tokenizer, method.stage == "prefix"

    def batch_of_rows(views, texts):
        rows = Texts(method.backbone.folder, texts)
        shares = Shares((len(rows),))
        return to_batch(views(rows, np.random.default_rng(0)), shares, tok.pad_token_id, torch.device("cpu"))

    batch = batch_of_rows(method.labelled_views if labelled_only else method.views, data)
    batch.labelled_only = labelled_only
    batch = grown(method, batch, padding)
    batch.labelled = batch_of_rows(method.labelled_views, labelled) if labelled else None
    return batch


def expected_terms(oracle, options, stage, data, labelled=None):
    columns = {role: with_mask(oracle.folder, texts) for role, texts in data.items()}
    if stage == "prefix":
        return {"nli": (oracle.cross_entropy(columns, PIECES), 1.0, 2 * len(data["anchor"]))}
    texts = list(columns.values())
    value = oracle.contrastive(
        texts * 2 if len(texts) == 1 else texts, PIECES, temperature=options.temperature, similarity=options.similarity,
        denoise=options.denoise, offset=options.denoise_offset, zero=options.denoise_start == "zero",
    )
    terms = {"contrastive": (value, 1.0, len(texts[0]))}
    if labelled:
        nli = expected_terms(oracle, options, "prefix", labelled)["nli"]
        terms["nli"] = (nli[0], options.aux_weight, nli[2])
    return terms


def check(method, data, labelled=None):
    """Values and gradients against the oracle's; the terms, and the parts of the method that have a gradient."""
    oracle, weights = oracle_of(method, method.backbone.folder, method.family)
    expected = expected_terms(oracle, method.options, method.stage, data, labelled)
    batch = batch_for(method, data, labelled)
    terms = method(batch)
    assert {name: (term.weight, term.count) for name, term in terms.items()} == {
        name: tuple(rest) for name, (_, *rest) in expected.items()}
    assert method.counts(batch) == ({"nli": len(labelled["anchor"])} if labelled else {})
    for name, (value, *_) in expected.items():
        assert terms[name].value.item() == pytest.approx(value.item(), rel=1e-8, abs=1e-8)
    sum(term.weight * term.value for term in terms.values()).backward()
    sum(weight * value for value, weight, _ in expected.values()).backward()
    parts = set()
    for name, weight in method.named_parameters():
        if weight.grad is None:
            assert not weight.requires_grad or weights[name].grad is None or not weights[name].grad.any(), name
            continue
        assert weight.requires_grad
        parts.add("module" if "lora_" in name or name.startswith("modules_of_views.") else name.partition(".")[0])
        gradient = torch.zeros_like(weight) if weights[name].grad is None else weights[name].grad
        assert (weight.grad - gradient).abs().max() < 1e-7 * max(1.0, float(gradient.abs().max())), name
    return terms, parts


LOSSES = [  # stage, family, data, labelled rows beside them, engine, options
    ("prefix", "bert", NLI, None, "packed", {}), ("prefix", "roberta", NLI, None, "padded", {"views": "same"}),
    ("prefix", "roberta", NLI, None, "packed", {"prefix_length": 3, "text": "inside"}),
    ("prefix", "bert", NLI, None, "padded", VARIANTS[3]), ("prefix", "bert", NLI, None, "auto", VARIANTS[0]),
    ("prefix", "bert", NLI, None, "auto", {"clip_frozen": True}),
    ("joint", "roberta", PLAIN, None, "padded", {}), ("joint", "bert", PAIRS, None, "padded", {"view": "given"}),
    ("joint", "bert", QUADRUPLES, None, "packed", {"view": "given"}),
    ("joint", "bert", PLAIN, None, "packed", {"similarity": "dot", "prefix_length": 1}),
    ("joint", "bert", PLAIN, None, "auto", {"temperature": 0.3, "denoise_offset": 8}),
    ("joint", "roberta", PLAIN, None, "auto", {"denoise": False}),
    ("joint", "roberta", PLAIN, None, "auto", {"text": "inside", "views": "same", "prefix_length": 5}),
    ("joint", "bert", PLAIN, None, "auto", {"joint_trains": "model"}),
    ("joint", "bert", PLAIN, None, "auto", {"joint_trains": "module"}),
    ("joint", "bert", PLAIN, None, "auto", {"module": "adapter", "joint_trains": "model"}),
    ("joint", "roberta", PLAIN, None, "auto", VARIANTS[1]), ("joint", "bert", PLAIN, None, "auto", VARIANTS[2]),
    ("joint", "roberta", PLAIN, None, "auto", ALIKE[1]),
    ("joint", "roberta", PLAIN, SHORT, "packed", {"aux_weight": 1e-3}),
    ("joint", "bert", TRIPLETS, NLI, "auto", {"view": "given", "aux_weight": 0.5, **VARIANTS[1]}),
    ("joint", "bert", TRIPLETS, NLI, "auto", {"view": "given", "aux_weight": 0.5, **VARIANTS[2]}),
]


@pytest.mark.parametrize(("stage", "family", "data", "labelled", "engine", "options"), LOSSES)
def test_losses_and_gradients_are_those_of_the_equations(masked_lms, stage, family, data, labelled, engine, options):
    """The template alone runs under the view's own module, too, and is never taken off labelled rows."""
    method = diffaug(masked_lms, family, stage=stage, engine=engine, **options)
    _, trained = check(method, data, labelled)
    if stage == "prefix":
        parts = {"module", "classifier"} | ({"backbone", "head"} if "clip_frozen" in options else set())
        assert method.rates() == ({"backbone.": 0.0, "head.": 0.0} if "clip_frozen" in options else {})
    else:
        parts = {"model": {"backbone", "head"}, "module": {"module", "head"}}.get(
            options.get("joint_trains"), {"backbone", "head", "module"})
    assert trained == parts | ({"classifier"} if labelled else set())


@pytest.mark.parametrize(("engine", "offset"), [("packed", 0), ("padded", 8)])
def test_the_released_code_s_start_of_roberta_s_template_alone(masked_lms, engine, offset):
    values = [check(diffaug(masked_lms, "roberta", engine=engine, denoise_start=start, denoise_offset=offset), PLAIN)[0]
              for start in ("own", "zero")]
    assert abs(values[0]["contrastive"].value.item() - values[1]["contrastive"].value.item()) > 1e-3


def test_sizes_for_bert_base_are_those_that_are_published():
    """294,912 numbers at test, .3 % of the model; 14.78 million in training, with the network."""
    with torch.device("meta"):
        encoder = PrefixEncoder(2 * DiffAugOptions().prefix_length, 768, 12, 0.1)
        plain = encoder.plain()
        model = sum(weight.numel() for weight in BertModel(BertConfig()).parameters())
    trained = sum(weight.numel() for weight in encoder.parameters())
    assert plain.keys.numel() + plain.values.numel() == encoder.effective == 294_912
    assert trained == 16 * 768 + (768 + 1) * 768 + (768 + 1) * 24 * 768 == 14_777_088
    assert round(100 * encoder.effective / model, 1) == 0.3


def test_a_prefix_has_dropout_of_its_own_for_each_row_and_the_model_keeps_its_own(masked_lms):
    method = diffaug(masked_lms, stage="prefix", dropout=0.5)
    prefix = method.modules_of_views.prefix(torch.ones(6, 4, dtype=torch.bool))
    assert isinstance(prefix, Prefix) and prefix.keys.shape == (LAYERS, 6, 4, 32)
    assert 0.4 < (prefix.keys == 0).double().mean() < 0.6
    assert not torch.equal(prefix.keys[:, 0], prefix.keys[:, 1])
    batch = batch_for(method, NLI)
    assert method(batch)["nli"].value.item() != method(batch)["nli"].value.item()


def vectors_of(method, texts=TEXTS):
    return live_encoder(method.inference(), "live").run(with_mask(method.backbone.folder, texts)).vectors


def expected_vectors(method):
    oracle, _ = oracle_of(method, method.backbone.folder, method.family)
    changes = oracle.changes
    both = [joined(changes)] if len(changes) == 2 else changes
    tested = {"both": both, "first": changes[:1], "second": changes[1:], "average": changes}[method.options.at_test]
    with torch.no_grad():
        return oracle.at_test(with_mask(method.backbone.folder, TEXTS), tested).numpy()


def near(vectors, expected):
    return np.abs(vectors - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("options", "held"), [  # plain keys and values, without the network that made them
    ({"at_test": "both"}, {f"prefix.0.{kind}": (LAYERS, 4, 32) for kind in ("keys", "values")}),
    ({"at_test": "average"}, {f"prefix.{i}.{kind}": (LAYERS, 2, 32) for i in (0, 1) for kind in ("keys", "values")}),
    ({"at_test": "second"}, {f"prefix.0.{kind}": (LAYERS, 2, 32) for kind in ("keys", "values")}),
    (VARIANTS[1], {"bottlenecks.down": (1, LAYERS, 2, 32, 4), "bottlenecks.up": (1, LAYERS, 2, 4, 32)}),
    ({**VARIANTS[3], "at_test": "both"}, {}), ({**VARIANTS[3], "at_test": "first"}, {}), (ALIKE[1], {}),
], ids=str)
def test_the_encoder_of_the_test_live_and_exported_is_that_of_the_equations(masked_lms, options, held, tmp_path):
    """An export holds what a test needs, and a live one leaves the method as it was."""
    method = diffaug(masked_lms, "roberta", dropout=0.1, **options)
    state = {name: value.clone() for name, value in method.state_dict().items()}
    found = vectors_of(method)
    assert near(found, expected_vectors(method)) and all(part.training for part in method.modules())
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    if options.get("module") == "lora":
        tested = method.inference().model
        assert tested is not method.backbone.model and not [name for name in tested.state_dict() if "lora" in name]
    export_model(method.float().inference(), tmp_path / "out", card="", method="diffaug")
    loaded, prompt = load_encoder(str(tmp_path / "out"), device="cpu"), tmp_path / "out" / "prompt.safetensors"
    assert near(loaded.run(with_mask(method.backbone.folder, TEXTS)).vectors, found)
    stored = load_file(prompt) if prompt.exists() else {}
    if held is not None:
        assert {name: tuple(weight.shape) for name, weight in stored.items()} == held
    names = load_file(tmp_path / "out" / "model.safetensors").keys()
    assert not [name for name in names if "lora" in name or "base_layer" in name or "prefix" in name]
    assert (loaded.spec.pooler, loaded.spec.template) == ("mask", TEMPLATES["roberta"])


def test_a_full_stop_where_asked_for(masked_lms):
    stopped, plain = (vectors_of(diffaug(masked_lms, full_stop=flag), ["the cat", "the cat ."]) for flag in (True, False))
    assert near(stopped[1], plain[1]) and not near(stopped[0], plain[0]) and not near(plain[0], plain[1])


def naive_kappa(oracle, changes, texts):
    """Mean norms of the keys and values that every layer computes of its own tokens, less those of the slots."""
    before, after = oracle.parts()
    text_norms = {(layer, kind): [] for layer in range(LAYERS) for kind in ("key", "value")}
    slot_norms = {place: [] for place in text_norms}
    for change in changes:
        for text in texts:
            inner = [*before, *Texts(oracle.folder, {"anchor": [text]}).ids("anchor")[0][1:-1].tolist(), *after]
            positions = list(range(oracle.shift, oracle.shift + len(inner)))
            for layer, states in enumerate(encode(oracle.weights, inner, positions, change, every=True)[:LAYERS]):
                for kind, slots in (("key", change.keys), ("value", change.values)):
                    name = f"encoder.layer.{layer}.attention.self.{kind}"
                    rows = states @ oracle.weights[f"{name}.weight"].T + oracle.weights[f"{name}.bias"]
                    text_norms[layer, kind] += [row.norm().item() for row in rows]
                    slot_norms[layer, kind] += [row.norm().item() for row in slots[layer]]
    means = [np.mean(text_norms[place]) - np.mean(slot_norms[place]) for place in text_norms]
    return sum(means) / len(means)


@pytest.mark.parametrize("options", [{}, {"views": "same"}, VARIANTS[0]], ids=str)
def test_delta_is_the_distance_of_the_views_and_kappa_the_prefix_s_norm_beside_the_text_s(masked_lms, options):
    data = {"anchor": [*PLAIN["sentence"], *NLI["anchor"]]}
    method = diffaug(masked_lms, stage="prefix", diagnose=20, dropout=0.1, **options)
    method.prepare(Texts(masked_lms["bert"], data))
    with torch.no_grad():
        measured = method.diagnose()
    assert all(part.training for part in method.modules())
    oracle, _ = oracle_of(method, masked_lms["bert"], "bert")
    changes = [oracle.changes[0], oracle.changes[-1]]
    pairs = [[oracle.vector(text, change, 8)[0] for change in changes] for text in data["anchor"]]
    delta = np.mean([(u - v).norm().item() for u, v in pairs])
    assert measured["delta"] == pytest.approx(delta, rel=1e-8, abs=1e-8)
    unit = np.mean([(u / u.norm() - v / v.norm()).norm().item() for u, v in pairs])
    assert measured["delta_normalised"] == pytest.approx(unit, rel=1e-8, abs=1e-8)
    assert (delta == 0) == (options.get("views") == "same")
    assert measured["delta_dropout"] > 0 and measured["delta_dropout_normalised"] > 0
    assert ("kappa" in measured) == ("module" not in options)
    if "kappa" in measured:
        assert measured["kappa"] == pytest.approx(naive_kappa(oracle, changes, data["anchor"]), rel=1e-8)


def test_nothing_is_watched_in_stage_joint_or_without_texts(masked_lms):
    for stage, count in (("prefix", 0), ("joint", 4)):
        method = diffaug(masked_lms, stage=stage, diagnose=count)
        method.prepare(Texts(masked_lms["bert"], PLAIN))
        assert method.diagnose() == {}
