"""ConSERT's views against its equations, text by text: numbers are set to 0 in loops by what was drawn, layers are
transformers'. What its terms make of them: test_terms.py."""

import numpy as np
import pytest
import torch
from info_nce_oracle import naive_nt_xent
from method_oracle import MemoryRows, _reference, make, tokens, total
from tiny_models import sentences
from transformers import AutoModel

import stsbench
from stsbench.encoders.load import load_encoder
from stsbench.methods.consert.method import ConSERT
from stsbench.methods.consert.options import ConSERTOptions
from stsbench.training.api.batch import Shares
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.rows.batches import to_batch

TEXTS = ["the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue"]
LENGTHS = [9, 4, 10, 5, 3]  # in tokens, special ones included
LABELS = [2, 0, 1, 1, 0]
START = {"bert": 0, "roberta": 2}  # the position id of a text's first token
RATES = {"none": None, "shuffle": None, "token_cutoff": 0.3, "feature_cutoff": 0.3, "dropout": 0.2, "span": 0.5}
VIEWS = [(number % 2, name, ("mean", "cls", "max")[number % 3]) for number, name in enumerate(RATES)]


def rows_of(folder, labelled=False):
    if not labelled:
        return MemoryRows(folder, {"sentence": TEXTS})
    return MemoryRows(folder, {"premise": TEXTS, "hypothesis": sentences(len(TEXTS), longest=6, seed=3)}, values=LABELS)


def consert(folder, pooler="mean", **options):
    """In float64 and train mode; with the classifier where there is one."""
    method = make(ConSERT, folder, options, pooler=pooler)
    if method.classifier is not None:
        torch.manual_seed(5)
        method.classifier.set_shape(method.backbone.width, 3)
        method.double()
    return method


def batch_for(method, labelled=False, seed=0, more_padding=2):
    """(a batch, the views it was made of), padded by columns that no text needs."""
    rows = rows_of(method.backbone.folder, labelled)
    views = (method.labelled_views if labelled else method.views)(rows, np.random.default_rng(seed))
    pad, grow = method.backbone.tokenizer.pad_token_id, torch.nn.functional.pad
    batch = to_batch(views, Shares((len(TEXTS),)), pad, torch.device("cpu"))
    batch.labelled_only = labelled
    batch.ids, batch.mask = grow(batch.ids, (0, more_padding), value=pad), grow(batch.mask, (0, more_padding))
    batch.extra = {name: grow(values, (0, more_padding), value=pad) for name, values in batch.extra.items()}
    batch.by_row = {  # elements of padding: whatever they are, nothing reads them
        name: grow(values, (0, 0, 0, more_padding), value=True) if values.ndim == 3 else values
        for name, values in batch.by_row.items()}
    return batch, views


def embedded(folder, ids, positions=None):
    """(1, n, d) the embedding output of one text. positions: ids, or None for the model's own."""
    positions = [START[folder.name] + index for index in range(len(ids))] if positions is None else positions
    return _reference(AutoModel, folder).embeddings(
        input_ids=torch.tensor([list(map(int, ids))]), position_ids=torch.tensor([positions])).detach()


def pooled(folder, states, pooler="mean"):
    """(d,) the vector of one text from its embeddings (1, n, d)."""
    hidden = _reference(AutoModel, folder).encoder(states).last_hidden_state[0]
    return {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0).values}[pooler]


def vectors(folder, views, slot, name, pooler):
    """(v * n, d) of one view of all texts, by what was drawn for it."""
    rows = []
    for text, row in ((text, row) for text in range(len(views.tokens)) for row in range(len(TEXTS))):
        ids = views.extra[f"{slot} ids"][text][row] if name == "span" else views.tokens[text][row]
        order = views.extra[f"{slot} order"][text][row] if name == "shuffle" else range(len(ids))
        states = embedded(folder, ids, [START[folder.name] + int(index) for index in order])
        for index in range(len(ids)):
            for feature in range(states.shape[2]):
                if ((name == "token_cutoff" and views.extra[f"{slot} cut"][text][row][index])
                        or (name == "feature_cutoff" and views.by_row[f"{slot} cut"][text][row][feature])
                        or (name == "dropout" and views.by_row[f"{slot} cut"][text][row][index][feature])):
                    states[0, index, feature] = 0
        rows.append(pooled(folder, states, pooler).detach())
    return torch.stack(rows)


@pytest.mark.parametrize(("family", "name", "pooler"), VIEWS)
def test_a_view_is_what_given_positions_and_zeroed_entries_make_it(encoders, family, name, pooler):
    folder, rate = encoders[list(START)[family]], RATES[name]
    joint = {"setting": "joint", "joint_views": ("none", name), "joint_rates": (None, rate)}
    for stage, options in (("unsup", {"views": ("none", name), "rates": (None, rate)}), ("joint", joint)):
        method = consert(folder, pooler, **options)
        batch, views = batch_for(method, stage == "joint")
        expected = [vectors(folder, views, slot, kind, pooler) for slot, kind in (("first", "none"), ("second", name))]
        for method.backbone.engine in ("packed", "padded"):
            with torch.no_grad():
                actual = [method._view(batch, slot, stage) for slot in ("first", "second")]
            assert max(float((one - other).abs().max()) for one, other in zip(actual, expected, strict=True)) < 1e-10
        assert ((actual[1] - actual[0]).abs().max(1).values > 1e-4).sum() >= (3 if name != "none" else 0)


def draws(folder, name, rate, count):
    """[draw] -> what was drawn for the second view of the texts."""
    method = consert(folder, views=("none", name), rates=(None, rate))
    every = [method.views(rows_of(folder), np.random.default_rng(seed)) for seed in range(count)]
    return [(views.extra | views.by_row)[f"second {'ids' if name == 'span' else 'cut'}"][0] for views in every]


def test_counts_are_rounded_down_and_every_place_may_be_cut(encoders):
    folder, rate = encoders["bert"], 0.7
    assert [len(row) for row in tokens(folder, TEXTS)] == LENGTHS
    chosen = draws(folder, "token_cutoff", rate, 40)
    for row, length in enumerate(LENGTHS):
        assert all(sum(cut[row]) == int(length * rate) for cut in chosen)
    assert all(any(cut[row][index] for cut in chosen) for row in (0, 2) for index in (0, -1))  # special tokens among them
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


def test_the_adversarial_view_is_a_step_along_the_gradient_of_the_cross_entropy(encoders):
    folder = encoders["roberta"]
    method = consert(folder, setting="joint", joint_views=("none", "adversarial"), joint_rates=(None, None),
                     adversarial_norm=0.4)
    batch, views = batch_for(method, labelled=True)
    linear = method.classifier.linear
    starts = [[embedded(folder, row).requires_grad_() for row in part] for part in views.tokens]
    u, v = (torch.stack([pooled(folder, start) for start in part]) for part in starts)
    logits = torch.cat([u, v, (u - v).abs()], 1) @ linear.weight.detach().T + linear.bias.detach()
    loss = torch.stack([-logits[row].log_softmax(0)[label] for row, label in enumerate(LABELS)]).mean()
    loss.backward()
    expected = float(loss.detach())
    for part, first in zip(starts, (u, v), strict=True):
        second = []
        for start in part:
            step = start.grad / (start.grad.square().sum(2, keepdim=True).sqrt() + 1e-10)
            second.append(pooled(folder, start.detach() + 0.4 * step).detach())
        expected += 0.15 * float(naive_nt_xent(first.detach(), torch.stack(second), 0.1).mean())
    for method.backbone.engine in ("packed", "padded"):
        assert abs(float(total(method(batch)).detach()) - expected) < 1e-8
        with torch.no_grad():  # as held-out rows are scored
            assert abs(float(total(method(batch)).detach()) - expected) < 1e-8


@pytest.mark.parametrize("setting", ["unsup", "sup", "joint-unsup"])
def test_a_setting_names_its_stages_which_train_the_classifier_but_for_unsup(encoders, setting):
    method = consert(encoders["bert"], setting=setting)
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


def test_a_run_on_the_sentences_of_sts_says_so_wherever_it_is_read(encoders, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    values = {"backbone.model": str(encoders["bert"]), "training.max_steps": 1,
              "selection.by": "none", "precision": "float32", "backbone.max_length": 12, "training.batch_size": 16}
    summary = stsbench.train("consert", output=tmp_path / "run", settings=values, device="cpu", sample=True)
    assert summary["data"]["unsup"]["file"] == "sts-texts-sample.txt" and summary["data"]["unsup"]["rows"] == 950
    assert summary["data"]["unsup"]["texts_of"][:2] == ["sts12", "sts13"]
    best = tmp_path / "run" / "best"
    encoder = load_encoder(str(best))
    assert any("transductive" in line for line in encoder.notes)
    assert {"sts12", "stsb", "sick-r"} <= set(encoder.traits.trained_on)
    pytest.importorskip("stsbench.extensions.publish")  # which writes the card
    assert "transductive" in (best / "README.md").read_text("utf-8")
