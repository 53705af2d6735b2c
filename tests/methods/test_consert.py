"""ConSERT against its equations, text by text: numbers are set to 0 in loops by what was drawn, layers are transformers'."""


import numpy as np
import pytest
import torch
from info_nce_oracle import naive_nt_xent
from method_oracle import MemoryRows, _reference, make, tokens, total
from tiny_models import build, sentences
from training_runs import make_text, one_thread  # noqa: F401
from transformers import AutoModel

import stsbench
from stsbench import losses
from stsbench.encoders.load import load_encoder
from stsbench.errors import EncoderError, StsbenchError
from stsbench.methods.consert.method import ConSERT
from stsbench.methods.consert.options import ConSERTOptions
from stsbench.training.api.batch import Shares
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.rows.batches import to_batch

TEXTS = ["the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue"]
LENGTHS = [9, 4, 10, 5, 3]  # in tokens, special ones included
LABELS = [2, 0, 1, 1, 0]
START = {"bert": 0, "roberta": 2}  # the position id of a text's first token
RATES = {"none": None, "shuffle": None, "token_cutoff": 0.3, "feature_cutoff": 0.3, "dropout": 0.2, "span": 0.5}
ADVERSARIAL = {"setting": "joint", "joint_views": ("none", "adversarial"), "joint_rates": (None, None)}
MAX_SQUARE = ("u", "v", "difference", "max_square")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("consert")
    return {family: build(place / family, family) for family in START}


@pytest.fixture(params=START)
def family(request):
    return request.param


def plain(folder):
    return MemoryRows(folder, {"sentence": TEXTS})


def pairs(folder):
    texts = {"premise": TEXTS, "hypothesis": sentences(len(TEXTS), longest=6, seed=3)}
    return MemoryRows(folder, texts, values=LABELS)


def consert(folder, pooler="mean", **options):
    """In float64 and train mode; with the classifier where there is one."""
    method = make(ConSERT, folder, options, pooler=pooler)
    if method.classifier is not None:
        torch.manual_seed(5)
        method.classifier.set_shape(method.backbone.width, 3)
        method.double()
    return method


def batch_for(method, rows, seed=0, more_padding=2):
    """(a batch, the views it was made of), padded by columns that no text needs."""
    labelled = "premise" in rows.roles
    views = (method.labelled_views if labelled else method.views)(rows, np.random.default_rng(seed))
    pad, grow = method.backbone.tokenizer.pad_token_id, torch.nn.functional.pad
    batch = to_batch(views, Shares((len(rows.rows),)), pad, torch.device("cpu"))
    batch.labelled_only = labelled
    batch.ids, batch.mask = grow(batch.ids, (0, more_padding), value=pad), grow(batch.mask, (0, more_padding))
    batch.extra = {name: grow(values, (0, more_padding), value=pad) for name, values in batch.extra.items()}
    batch.by_row = {  # elements of padding: whatever they are, nothing reads them
        name: grow(values, (0, 0, 0, more_padding), value=True) if values.ndim == 3 else values
        for name, values in batch.by_row.items()}
    return batch, views


def embedded(folder, family, ids, positions=None):
    """(1, n, d) the embedding output of one text. positions: ids, or None for the model's own."""
    positions = [START[family] + index for index in range(len(ids))] if positions is None else positions
    return _reference(AutoModel, folder).embeddings(
        input_ids=torch.tensor([list(map(int, ids))]), position_ids=torch.tensor([positions]))


def pooled(folder, states, pooler="mean"):
    """(d,) the vector of one text from its embeddings (1, n, d)."""
    hidden = _reference(AutoModel, folder).encoder(states).last_hidden_state[0]
    return {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0).values}[pooler]


def vectors(folder, family, views, slot, name, text=0, pooler="mean"):
    """(n, d) of one view of all texts, by what was drawn for it. text: 0, or 1 for hypotheses."""
    rows = []
    for row, ids in enumerate(views.tokens[text]):
        ids = views.extra[f"{slot} ids"][text][row] if name == "span" else ids
        order = views.extra[f"{slot} order"][text][row] if name == "shuffle" else range(len(ids))
        states = embedded(folder, family, ids, [START[family] + int(index) for index in order]).detach().clone()
        for index in range(len(ids)):
            for feature in range(states.shape[2]):
                if ((name == "token_cutoff" and views.extra[f"{slot} cut"][text][row][index])
                        or (name == "feature_cutoff" and views.by_row[f"{slot} cut"][text][row][feature])
                        or (name == "dropout" and views.by_row[f"{slot} cut"][text][row][index][feature])):
                    states[0, index, feature] = 0
        rows.append(pooled(folder, states, pooler).detach())
    return torch.stack(rows)


def contrastive(first, second, temperature=0.1):
    return naive_nt_xent(first, second, temperature).mean()


@pytest.mark.parametrize(("name", "pooler"), [*((name, "mean") for name in RATES), ("dropout", "cls"), ("dropout", "max")])
def test_a_view_is_what_given_positions_and_zeroed_entries_make_it(folders, family, name, pooler):
    method = consert(folders[family], pooler, views=("none", name), rates=(None, RATES[name]))
    batch, views = batch_for(method, plain(folders[family]))
    expected = [vectors(folders[family], family, views, slot, kind, pooler=pooler)
                for slot, kind in (("first", "none"), ("second", name))]
    for method.backbone.engine in ("packed", "padded"):
        with torch.no_grad():
            found = [method._view(batch, slot, "unsup") for slot in ("first", "second")]
        assert max(float((one - other).abs().max()) for one, other in zip(found, expected, strict=True)) < 1e-10
    assert ((found[1] - found[0]).abs().max(1).values > 1e-4).sum() >= (3 if name != "none" else 0)


def draws(folder, name, rate, count):
    """[draw] -> what was drawn for the second view of the texts."""
    method = consert(folder, views=("none", name), rates=(None, rate))
    every = [method.views(plain(folder), np.random.default_rng(seed)) for seed in range(count)]
    return [(views.extra | views.by_row)[f"second {'ids' if name == 'span' else 'cut'}"][0] for views in every]


@pytest.mark.parametrize("rate", [0.15, 0.7])
def test_counts_are_rounded_down_and_every_place_may_be_cut(folders, rate):
    folder = folders["bert"]
    assert [len(row) for row in tokens(folder, TEXTS)] == LENGTHS
    chosen = draws(folder, "token_cutoff", rate, 40)
    for row, length in enumerate(LENGTHS):
        assert all(sum(cut[row]) == int(length * rate) for cut in chosen)
    if rate >= 0.34:  # special tokens among them
        assert all(any(cut[row][index] for cut in chosen) for row in (0, 2) for index in (0, -1))
    features = draws(folder, "feature_cutoff", rate, 2)
    assert all(part.sum(1).tolist() == [int(32 * rate)] * 5 for part in features)
    assert len({tuple(row) for part in features for row in part.tolist()}) == 10  # each row and each draw its own
    for part in draws(folder, "dropout", rate, 3):
        assert part.sum((1, 2)).tolist() == [int(length * 32 * rate) for length in LENGTHS]
        assert not any(part[row, length:].any() for row, length in enumerate(LENGTHS))
    for part in draws(folder, "span", rate, 10):
        for text, row in zip(tokens(folder, TEXTS), part, strict=True):
            kept = np.flatnonzero(row)  # no token of a text is 0 here
            assert len(kept) == max(int(len(text) * (1 - rate)), 1) == kept[-1] - kept[0] + 1
            assert [text[index] for index in kept] == row[kept].tolist()


@pytest.mark.parametrize(("options", "factor"), [
    ({}, 1), ({"temperature": 1.0}, 1), ({"nt_xent": "sum", "weigh_unsup": True}, 2 * 0.15)])
def test_unsup_is_equation_2_of_which_the_released_code_has_three_tenths(folders, family, options, factor):
    method = consert(folders[family], **options)
    batch, views = batch_for(method, plain(folders[family]))
    first, second = (vectors(folders[family], family, views, *view)
                     for view in (("first", "feature_cutoff"), ("second", "shuffle")))
    terms = method(batch)
    assert set(terms) == {"contrastive"} and terms["contrastive"].count == len(TEXTS)
    assert abs(total(terms) - factor * contrastive(first, second, options.get("temperature", 0.1))) < 1e-10


@pytest.mark.parametrize(("names", "rates", "features"), [
    (None, None, MAX_SQUARE), (("none", "token_cutoff"), (None, 0.3), MAX_SQUARE), (("none", "shuffle"), (None, None), None),
    (("dropout", "span"), (0.2, 0.5), MAX_SQUARE),
])
def test_joint_adds_the_contrast_of_premises_and_of_hypotheses_to_the_cross_entropy_of_sup(
    folders, family, names, rates, features
):
    folder, features = folders[family], features or MAX_SQUARE[:3]
    joint = {"setting": "joint", "joint_views": names, "joint_rates": rates} if names else {"setting": "sup"}
    method = consert(folder, features=features, **joint)
    batch, views = batch_for(method, pairs(folder))
    terms, linear = method(batch), method.classifier.linear
    u, v = (vectors(folder, family, views, "first", "none", text) for text in (0, 1))
    expected = losses.sbert_nli(u, v, torch.tensor(LABELS), linear.weight, linear.bias, features=features)
    assert abs(terms["nli"].value - expected) < 1e-10 and terms["nli"].weight == 1
    for text in (0, 1) if names else ():
        first, second = (vectors(folder, family, views, slot, name, text)
                         for slot, name in zip(("first", "second"), names, strict=True))
        expected += 0.15 * contrastive(first, second)
    assert abs(total(terms) - expected) < 1e-10 and ("contrastive" in terms) == bool(names)


def test_the_adversarial_view_is_a_step_along_the_gradient_of_the_cross_entropy(folders, family):
    folder = folders[family]
    method = consert(folder, **ADVERSARIAL, adversarial_norm=0.4)
    batch, views = batch_for(method, pairs(folder))
    linear = method.classifier.linear
    starts = [[embedded(folder, family, row).detach().requires_grad_() for row in part] for part in views.tokens]
    u, v = (torch.stack([pooled(folder, start) for start in part]) for part in starts)
    logits = torch.cat([u, v, (u - v).abs()], 1) @ linear.weight.detach().T + linear.bias.detach()
    loss = torch.stack([-logits[row].log_softmax(0)[label] for row, label in enumerate(LABELS)]).mean()
    loss.backward()
    expected = float(loss.detach())
    for part, first in zip(starts, (u, v), strict=True):
        second = []
        for start in part:
            moved = start.detach().clone()
            for index in range(moved.shape[1]):
                gradient = start.grad[0, index]
                moved[0, index] += 0.4 * gradient / (gradient.square().sum().sqrt() + 1e-10)
            second.append(pooled(folder, moved).detach())
        expected += 0.15 * float(contrastive(first.detach(), torch.stack(second)))
    for engine in ("packed", "padded"):
        method.backbone.engine = engine
        assert abs(float(total(method(batch)).detach()) - expected) < 1e-8
        with torch.no_grad():  # as held-out rows are scored
            assert abs(float(total(method(batch)).detach()) - expected) < 1e-8


@pytest.mark.parametrize("setting", ["unsup", "sup", "joint-unsup"])
def test_a_setting_names_its_stages_which_train_the_classifier_but_for_unsup(folders, setting):
    method = consert(folders["bert"], setting=setting)
    assert ConSERT.stages_for(method.options) == tuple(setting.split("-"))
    assert (method.classifier is None) == (setting == "unsup")
    assert method.inference().pooler == "last2" and method.dev_inference().pooler == "mean"
    for stage in ConSERT.stages_for(method.options):
        assert MethodPlan(ConSERT, method.options).labelled(stage) == ("none" if stage == "unsup" else "only")
        method.start_stage(stage)
        weights = [weight.requires_grad for weight in method.classifier.parameters()] if method.classifier else []
        assert set(weights) <= {stage != "unsup"}
        assert all(weight.requires_grad for weight in method.backbone.parameters())


@pytest.mark.parametrize(("options", "dropout"), [
    ({}, False), ({"views": ("none", "none"), "rates": (None, None)}, True), ({"setting": "sup"}, False),
    ({"setting": "joint", "joint_views": ("none", "none"), "joint_rates": (None, None)}, True)])
def test_only_unchanged_views_need_dropout(options, dropout):
    assert ConSERT.needs(ConSERTOptions(**options)).dropout == dropout


def test_a_model_whose_embeddings_cannot_be_changed_trains_sup_alone(folders, tmp_path):
    distilbert = load_backbone(build(tmp_path / "other", "distilbert"), "tiny", "mean", 10)
    with pytest.raises(EncoderError):
        ConSERT(distilbert, ConSERTOptions())
    ConSERT(distilbert, ConSERTOptions(setting="sup"))
    with pytest.raises(StsbenchError):
        consert(folders["bert"], pooler="last")


def test_a_run_on_the_sentences_of_sts_says_so_wherever_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    values = {"backbone.model": str(build(tmp_path / "model", pooler=False)), "training.max_steps": 1,
              "selection.by": "none", "precision": "float32", "backbone.max_length": 12, "training.batch_size": 16}
    summary = stsbench.train("consert", output=tmp_path / "run", settings=values, device="cpu", sample=True)
    assert summary["data"]["unsup"]["file"] == "sts-texts-sample.txt" and summary["data"]["unsup"]["rows"] == 950
    assert summary["data"]["unsup"]["texts_of"][:2] == ["sts12", "sts13"]
    best = tmp_path / "run" / "best"
    assert "transductive" in (best / "README.md").read_text("utf-8")
    records = stsbench.evaluate(str(best), output=tmp_path / "eval", protocols=["sts"], sample=True, resamples=0).records
    assert all({"sts12", "stsb", "sick-r"} <= set(record.provenance["trained_on"]) for record in records)
    encoder = load_encoder(str(best))
    assert any("transductive" in line for line in encoder.notes)
    later = values | {"backbone.model": str(tmp_path / "run"), "data.file": str(make_text(tmp_path, 64))}
    stsbench.train("consert", output=tmp_path / "later", settings=later, device="cpu", sample=True)
    # what it started from had seen them
    assert set(load_encoder(str(tmp_path / "later")).traits.trained_on) == set(encoder.traits.trained_on)
