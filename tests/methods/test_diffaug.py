"""DiffAug against its equations, text by text: every term and gradient under prefixes, adapters and LoRA, the vectors of the
test, and what stage 1 is watched by."""

import numpy as np
import pytest
import torch
from bert_equations import LAYERS, WIDTH, Change, adapters_of, encode, joined, leaves, lora_of
from method_oracle import LIMIT, MemoryRows, _tokenizer, grown, make, total
from tiny_models import sentences
from transformers import BertConfig, BertModel

from stsbench import losses
from stsbench.methods.diffaug.method import DiffAug, PrefixEncoder
from stsbench.training.api.batch import Shares
from stsbench.training.engine.selection import live_encoder
from stsbench.training.modules.soft_prompt import Prefix
from stsbench.training.rows.batches import to_batch

TEMPLATES = {"bert": "the man : {} means [MASK] .", "roberta": "the man : ' {} ' means [MASK]."}
# no token, one, the mask token, more than fit, and others
TEXTS = ["", "cat", "the big cat plays a red guitar in the blue park with food .", "the {mask} runs", *sentences(20, 7, 9)]
PLAIN = {"sentence": [TEXTS[i] for i in (4, 0, 2, 5)]}
PAIRS = {"anchor": [TEXTS[i] for i in (4, 2, 1)], "positive": [TEXTS[i] for i in (6, 3, 7)]}
TRIPLETS = {**PAIRS, "negative": [TEXTS[i] for i in (0, 8, 9)]}
QUADRUPLES = {**TRIPLETS, "negative2": [TEXTS[i] for i in (10, 11, 12)]}
SHORT = {role: ["cat", "dog"] for role in TRIPLETS}
NLI = {"anchor": [TEXTS[i] for i in (13, 2, 14, 1)], "positive": [TEXTS[i] for i in (15, 3, 16, 17)],
       "negative": [TEXTS[i] for i in (18, 19, 0, 20)]}
VARIANTS = [{"module": "adapter", "joint_trains": "model"}, {"module": "adapter", "rank": 2, "adapter_activation": "gelu"},
            {"module": "lora", "rank": 2, "lora_scale": 2.5}]


def with_mask(folder, texts):
    """The texts, their mask token that of the model."""
    return [text.replace("{mask}", _tokenizer(folder).mask_token) for text in texts]


def ids_of(folder, text):
    return _tokenizer(folder)(text, truncation=False, padding=False)["input_ids"]


def rows_of(folder, texts):
    return MemoryRows(folder, {role: with_mask(folder, column) for role, column in texts.items()})


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
    method.backbone.engine = engine
    method.start_stage(stage)
    return method


def batch_for(method, data, labelled=None, padding=3):
    """The whole batch for one process. padding: columns that no row needs."""
    tok, labelled_only = method.backbone.tokenizer, method.stage == "prefix"

    def batch_of_rows(views, texts):
        rows = rows_of(method.backbone.folder, texts)
        return to_batch(views(rows, np.random.default_rng(0)), Shares((len(rows),)), tok.pad_token_id, torch.device("cpu"))

    batch = batch_of_rows(method.labelled_views if labelled_only else method.views, data)
    batch.labelled_only = labelled_only
    batch = grown(method, batch, padding)
    batch.labelled = batch_of_rows(method.labelled_views, labelled) if labelled else None
    return batch


def prefix_of(weights, slots):
    """Embedding, Linear, tanh, Linear to 2 * layers * d; then layer i has [2i], [2i + 1]. weights: the encoder's by name."""
    inner = torch.tanh(weights["embedding.weight"][slots] @ weights["inner.weight"].T + weights["inner.bias"])
    cut = (inner @ weights["outer.weight"].T + weights["outer.bias"]).split(WIDTH, dim=1)
    return Change(keys=list(cut[::2]), values=list(cut[1::2]))


class Oracle:
    """The method's weights in copies that gather gradients of their own, and its equations. changes: one a set."""

    def __init__(self, method):
        options, self.options, self.folder = method.options, method.options, method.backbone.folder
        self.own, self.tokenizer = leaves(method), _tokenizer(self.folder)
        self.weights, sets = self.below("backbone.model."), 1 if options.views == "same" else 2
        if options.module == "prefix":
            weights, length = self.below("modules_of_views.prefix."), options.prefix_length
            self.changes = [prefix_of(weights, slice(at * length, (at + 1) * length)) for at in range(sets)]
        elif options.module == "adapter":
            weights = self.below("modules_of_views.bottlenecks.")
            self.changes = adapters_of(weights["down"], weights["up"], options.adapter_activation)
        else:
            self.changes = lora_of(self.weights, sets, options.lora_scale)
        self.shift = sets * options.prefix_length if options.module == "prefix" else 0  # positions before every text
        self.first = {"bert": 0, "roberta": 2}[self.folder.name]
        before, after = TEMPLATES[self.folder.name].replace("[MASK]", self.tokenizer.mask_token).split("{}")
        self.before, self.after = ids_of(self.folder, before.rstrip())[:-1], ids_of(self.folder, after)[1:]

    def below(self, prefix):
        return {name.removeprefix(prefix): weight for name, weight in self.own.items() if name.startswith(prefix)}

    def at_mask(self, ids, change, positions=None):
        start = self.first + self.shift
        positions = list(range(start, start + len(ids))) if positions is None else positions
        place = len(ids) - len(self.after) + self.after.index(self.tokenizer.mask_token_id)
        return encode(self.weights, ids, positions, change)[place]

    def inner(self, text):
        """A sentence's tokens: alone, or those that it has within the template; so many as fit."""
        return ids_of(self.folder, f" {text}" if self.options.text == "inside" else text)[1:-1][: LIMIT - 2]

    def states(self, texts, view, denoise=False):
        """[text] -> the state at the template's mask in a view: 0 under the first set, others under the last. denoise: less
        that of the template around no text, its end where the tokens would have pushed it."""
        change, actual = self.changes[min(view, len(self.changes) - 1)], []
        for text in with_mask(self.folder, texts):
            inner = self.inner(text)
            actual.append(self.at_mask([*self.before, *inner, *self.after], change))
            if denoise:
                start = self.shift + (0 if self.options.denoise_start == "zero" else self.first)
                tail = start + len(self.before) + len(inner) + self.options.denoise_offset
                places = [*range(start, start + len(self.before)), *range(tail, tail + len(self.after))]
                actual[-1] = actual[-1] - self.at_mask([*self.before, *self.after], change, places)
        return torch.stack(actual)

    def views(self, columns, denoise=False):
        head = self.own["head.dense.weight"], self.own["head.dense.bias"]
        return [torch.tanh(self.states(texts, view, denoise) @ head[0].T + head[1]) for view, texts in enumerate(columns)]

    def terms(self, stage, data, labelled=None):
        """name -> (value, weight, count): Eq. 4, in which entailment is 1 and contradiction 0, and InfoNCE between views."""
        options, columns = self.options, list(data.values())
        if stage == "prefix":
            (premises, *others), n = self.views(columns), len(columns[0])
            labels, classifier = torch.tensor([1] * n + [0] * n), self.below("classifier.linear.")
            value = losses.sbert_nli(torch.cat([premises] * 2), torch.cat(others), labels, *classifier.values())
            return {"nli": (value, 1.0, 2 * n)}
        queries, keys, *negatives = self.views(columns * 2 if len(columns) == 1 else columns, options.denoise)
        how = {"temperature": options.temperature, "similarity": options.similarity}
        value = losses.diffaug(queries, keys, torch.cat(negatives) if negatives else None, **how)
        nli = self.terms("prefix", labelled)["nli"] if labelled else None
        return {"contrastive": (value, 1.0, len(queries)), **({"nli": (nli[0], options.aux_weight, nli[2])} if nli else {})}

    def tested(self, texts):
        """(n, d) test vectors, whole texts in the template: neither head nor denoising; the mean over what is seen."""
        both = [joined(self.changes)] if len(self.changes) == 2 else self.changes
        seen = {"both": both, "first": self.changes[:1], "second": self.changes[1:], "average": self.changes}
        filled = TEMPLATES[self.folder.name].replace("[MASK]", self.tokenizer.mask_token)
        whole = [ids_of(self.folder, filled.replace("{}", text)) for text in with_mask(self.folder, texts)]
        with torch.no_grad():
            by_change = [torch.stack([self.at_mask(ids, change) for ids in whole]) for change in seen[self.options.at_test]]
        return torch.stack(by_change).mean(0).numpy()


@pytest.mark.parametrize(("stage", "family", "data", "labelled", "engine", "options"), [
    ("prefix", "roberta", NLI, None, "padded", {"views": "same", "clip_frozen": True}),
    ("prefix", "bert", NLI, None, "packed", {"prefix_length": 3, "text": "inside"}),
    ("prefix", "bert", NLI, None, "padded", VARIANTS[2]),
    ("joint", "bert", QUADRUPLES, None, "packed", {"view": "given", "temperature": 0.3, "joint_trains": "model"}),
    ("joint", "roberta", PLAIN, None, "auto", {"denoise": False, "text": "inside", "joint_trains": "module"}),
    ("joint", "bert", PLAIN, None, "auto", {**VARIANTS[0], "similarity": "dot"}),
    ("joint", "roberta", PLAIN, None, "auto", {"module": "lora", "views": "same", "joint_trains": "module"}),
    ("joint", "roberta", PLAIN, SHORT, "packed", {"aux_weight": 1e-3, "denoise_start": "zero", "denoise_offset": 8}),
    ("joint", "roberta", TRIPLETS, NLI, "padded", {"view": "given", "aux_weight": 0.5, **VARIANTS[1]}),
    ("joint", "bert", TRIPLETS, NLI, "auto", {"view": "given", "aux_weight": 0.5, **VARIANTS[2]})])
def test_losses_and_gradients_are_those_of_the_equations(masked_lms, stage, family, data, labelled, engine, options):
    """The template alone runs under the view's own module, too, and is never taken off labelled rows."""
    method = diffaug(masked_lms, family, stage=stage, engine=engine, **options)
    oracle, batch = Oracle(method), batch_for(method, data, labelled)
    expected, terms = oracle.terms(stage, data, labelled), method(batch)
    assert {name: (term.weight, term.count) for name, term in terms.items()} == {
        name: tuple(rest) for name, (_, *rest) in expected.items()}
    assert method.counts(batch) == ({"nli": len(labelled["anchor"])} if labelled else {})
    for name, (value, *_) in expected.items():
        assert terms[name].value.item() == pytest.approx(value.item(), rel=1e-8, abs=1e-8)
    total(terms).backward()
    sum(weight * value for value, weight, _ in expected.values()).backward()
    trained = set()
    for name, weight in method.named_parameters():
        theirs = oracle.own[name.replace(".base_layer", "")].grad
        if weight.grad is None:
            assert not weight.requires_grad or theirs is None or not theirs.any(), name
            continue
        assert weight.requires_grad
        trained.add("module" if "lora_" in name or name.startswith("modules_of_views.") else name.partition(".")[0])
        gradient = torch.zeros_like(weight) if theirs is None else theirs
        assert (weight.grad - gradient).abs().max() < 1e-7 * max(1.0, float(gradient.abs().max())), name
    if stage == "prefix":
        parts = {"module", "classifier"} | ({"backbone", "head"} if "clip_frozen" in options else set())
        assert method.rates() == ({"backbone.": 0.0, "head.": 0.0} if "clip_frozen" in options else {})
    else:
        parts = {"model": {"backbone", "head"}, "module": {"module", "head"}}.get(
            options.get("joint_trains"), {"backbone", "head", "module"})
    assert trained == parts | ({"classifier"} if labelled else set())


def test_sizes_for_bert_base_are_those_that_are_published():
    """294,912 numbers at test, .3 % of the model; 14.78 million in training, with the network."""
    with torch.device("meta"):
        encoder = PrefixEncoder(2 * DiffAug.Options().prefix_length, 768, 12, 0.1)
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


def vectors_of(method, texts):
    return live_encoder(method.inference(), "live").run(with_mask(method.backbone.folder, texts)).vectors


def near(vectors, expected):
    return np.abs(vectors - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("options", "slots"), [  # plain keys and values, without the network that made them
    ({"at_test": "both"}, [4]), ({"at_test": "average"}, [2, 2]), ({"at_test": "second"}, [2]), (VARIANTS[1], []),
    ({**VARIANTS[2], "at_test": "first"}, [])], ids=str)
def test_the_encoder_of_the_test_is_that_of_the_equations(masked_lms, options, slots):
    """And leaves the method as it was. Its export: test_method_contract.py, tests/training/runs/test_prompt_export.py."""
    method, read = diffaug(masked_lms, "roberta", dropout=0.1, **options), [*TEXTS[:4], TEXTS[9]]
    state = {name: value.clone() for name, value in method.state_dict().items()}
    assert near(vectors_of(method, read), Oracle(method).tested(read)) and all(part.training for part in method.modules())
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    tested = method.inference()
    assert tested.prompt.settings()["prefixes"] == slots and tested.pooler == "mask"
    if options.get("module") == "lora":
        assert tested.model is not method.backbone.model
        assert not [name for name in tested.model.state_dict() if "lora" in name]


def test_a_full_stop_where_asked_for(masked_lms):
    stopped, plain = (vectors_of(diffaug(masked_lms, full_stop=flag), ["the cat", "the cat ."]) for flag in (True, False))
    assert near(stopped[1], plain[1]) and not near(stopped[0], plain[0]) and not near(plain[0], plain[1])


def naive_kappa(oracle, texts):
    """Mean norms of the keys and values that every layer computes of its own tokens, less those of the slots."""
    text_norms = {(layer, kind): [] for layer in range(LAYERS) for kind in ("key", "value")}
    slot_norms = {place: [] for place in text_norms}
    for change in (oracle.changes[0], oracle.changes[-1]):
        for text in texts:
            ids, start = [*oracle.before, *oracle.inner(text), *oracle.after], oracle.first + oracle.shift
            read = encode(oracle.weights, ids, list(range(start, start + len(ids))), change, every=True)
            for layer, kind in text_norms:
                name = f"encoder.layer.{layer}.attention.self.{kind}"
                rows = read[layer] @ oracle.weights[f"{name}.weight"].T + oracle.weights[f"{name}.bias"]
                text_norms[layer, kind] += rows.norm(dim=1).tolist()
                slot_norms[layer, kind] += (change.keys if kind == "key" else change.values)[layer].norm(dim=1).tolist()
    return np.mean([np.mean(text_norms[place]) - np.mean(slot_norms[place]) for place in text_norms])


@pytest.mark.parametrize("options", [{}, {"module": "adapter", "views": "same"}], ids=str)
def test_delta_is_the_distance_of_the_views_and_kappa_the_prefix_s_norm_beside_the_text_s(masked_lms, options):
    data = {"anchor": [*PLAIN["sentence"], *NLI["anchor"]]}
    method = diffaug(masked_lms, stage="prefix", diagnose=20, dropout=0.1, **options)
    method.prepare(rows_of(masked_lms["bert"], data))
    with torch.no_grad():
        measured = method.diagnose()
    assert all(part.training for part in method.modules())
    oracle = Oracle(method)
    u, v = (oracle.states(data["anchor"], view) for view in (0, 1))
    delta = (u - v).norm(dim=1).mean().item()
    assert measured["delta"] == pytest.approx(delta, rel=1e-8, abs=1e-8)
    unit = (u / u.norm(dim=1, keepdim=True) - v / v.norm(dim=1, keepdim=True)).norm(dim=1).mean().item()
    assert measured["delta_normalised"] == pytest.approx(unit, rel=1e-8, abs=1e-8)
    assert (delta == 0) == (options.get("views") == "same")
    assert measured["delta_dropout"] > 0 and measured["delta_dropout_normalised"] > 0
    assert ("kappa" in measured) == ("module" not in options)
    if "kappa" in measured:
        assert measured["kappa"] == pytest.approx(naive_kappa(oracle, with_mask(oracle.folder, data["anchor"])), rel=1e-8)
    method.start_stage("joint")
    assert method.diagnose() == diffaug(masked_lms, stage="prefix", diagnose=0).diagnose() == {}
