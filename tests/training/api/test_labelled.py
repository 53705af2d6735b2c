"""Labelled rows: their roles, the classifier against loops, their batches, and no text in common with held-out rows."""

from __future__ import annotations

import math

import nli_files
import numpy as np
import pytest
import tiny_models
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.errors import DataError, StsbenchError
from stsbench.training.api.batch import Shares, Views
from stsbench.training.api.labelled import PAIR, TRIPLET, NLIClassifier, nli_roles
from stsbench.training.engine.stage import make_stage
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.training.rows.batches import Batches, to_batch
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.stage_rows import open_rows
from stsbench.training.runs.prepare import make_backbone

CPU = torch.device("cpu")


def opened(place, values, stages=None, processes=1):
    """(plan, what `open_rows` gave, the stages made of it, what was said)."""
    recipe = load_recipe("simcse", None, [], values)
    plan, said = load_plan(recipe), []
    backbone = make_backbone(recipe)
    opened = stages or plan.stages
    data = open_rows(recipe, plan, backbone, opened, said.append)
    made = {name: make_stage(name, recipe, plan, data, backbone.tokenizer.pad_token_id, processes) for name in opened}
    return plan, data, made, said


def values_of(place, labelled=None, procedure="joint", **more):
    labelled = labelled or nli_files.triplets(place)
    return nli_files.settings(place / "tiny", place / "text.txt", labelled, procedure, **more)


@pytest.mark.parametrize(("init", "bias"), [("normal", False), ("truncated_normal", True), ("torch", True)])
def test_the_starting_weights_of_a_classifier(init, bias):
    torch.manual_seed(0)
    linear = NLIClassifier(400, 3, std=0.02, features=("difference", "product"), bias=bias, init=init).linear
    weight, edge = linear.weight, {"normal": math.inf, "truncated_normal": 0.04, "torch": 800**-0.5}[init]
    spread = {"normal": 0.02, "truncated_normal": 0.02 * 0.8796, "torch": edge / 3**0.5}[init]  # of what is drawn from
    assert weight.shape == (3, 800) and weight.std().item() == pytest.approx(spread, rel=0.05)
    assert weight.abs().max() <= edge and weight.abs().max() > (0.98 * edge if init != "normal" else 0.04)
    assert (linear.bias is not None) == bias and (not bias or linear.bias.any() == (init == "torch"))
    # weights of existing seeds stay the same: torch's Linear first, then N(0, std^2) over it
    torch.manual_seed(7)
    expected = torch.nn.init.normal_(torch.nn.Linear(3 * 5, 3).weight, std=0.02)
    torch.manual_seed(7)
    assert torch.equal(NLIClassifier(5, 3).linear.weight, expected)


@settings(deadline=None, max_examples=20)
@given(rows=st.integers(1, 30), size=st.integers(1, 12), own=st.integers(4, 40), accumulate=st.integers(1, 3))
def test_every_labelled_row_once_an_epoch_whatever_the_stage_does(rows, size, own, accumulate):
    main = Batches(np.arange(own), TrainingSettings(batch_size=3, accumulate=accumulate, epochs=20), 1, least=2)

    def drawn(place):
        """As a resumed run draws, which has seen nothing before."""
        fresh = Batches(100 + np.arange(rows), TrainingSettings(batch_size=size), 1, use="labelled order")
        return fresh.step(place)[0].tolist()

    places = [main.forward_pass(step, number) for step in range(main.steps) for number in range(len(main.step(step)))]
    assert places == list(range(len(places)))  # one batch for each forward pass, none left out
    batches, epoch = [*map(drawn, places)], math.ceil(rows / size)
    for start in range(0, len(batches) - epoch + 1, epoch):
        assert sorted(row for each in batches[start : start + epoch] for row in each) == list(range(100, 100 + rows))
    assert all(len(batch) == size for batch in batches if len(batch) != (rows % size or size))


def test_what_a_batch_holds(place, tmp_path):
    """Triplets: a view a text, no labels; pairs: two views and the labels as the file has them."""
    assert nli_roles(("sentence", *TRIPLET, "negative2"), "x") == TRIPLET and nli_roles(PAIR, "x") == PAIR
    path = nli_files.pairs(place)
    _, data, made, said = opened(place, values_of(place, path))
    stage = made["main"]
    assert any("used as premise, hypothesis, label" in line for line in said) and not stage.labelled_only
    rows = stage.labelled.rows(np.array([4, 2]))
    assert rows.labels() == [data[LABELLED].store.label_names.index(nli_files.LABELS[i % 3]) for i in (4, 2)]
    plan, _, made, _ = opened(place, values_of(place, procedure="sup-joint"))
    assert plan.stages == ("sup", "main") and made["sup"].labelled_only and made["sup"].labelled is None
    assert made["main"].labelled.batches.size == 8 and made["sup"].batches.size == 10
    batch = to_batch(Views([[[1, 2]], [[3]]], labels=[1]), Shares((1,)), 0, CPU)
    assert not batch.labelled_only and batch.labelled is None
    # only the stages that run open their data
    values = values_of(place, procedure="sup-unsup", **{"data.file": str(tmp_path / "gone.txt")})
    _, data, made, _ = opened(place, values, stages=("sup",))
    assert list(data) == [LABELLED] and list(made) == ["sup"]
    values = values_of(place, tmp_path / "gone.csv", procedure="sup-unsup")
    assert list(opened(place, values, stages=("main",))[1]) == ["main"]


def test_held_out_rows_are_in_neither(place, tmp_path):
    texts = tiny_models.sentences(60, longest=9)
    path = tmp_path / "labelled.csv"
    rows = [f"{text},dog {i} a,cat {i} b" for i, text in enumerate(texts[::-1])]
    path.write_text("\n".join(["sent0,sent1,hard_neg", *rows]) + "\n")
    _, data, _, said = opened(place, values_of(place, path, **{"data.held_out": 7, "labelled.held_out": 5}))
    own, labelled = data["main"], data[LABELLED]
    held_out = {*own.store.texts("sentence", own.held_out)}, {*labelled.store.texts("anchor", labelled.held_out)}
    assert (len(held_out[0]), len(held_out[1])) == (7, 5)
    assert not (held_out[0] | held_out[1]) & {*own.store.texts("sentence", own.trained)}
    assert not (held_out[0] | held_out[1]) & {*labelled.store.texts("anchor", labelled.trained)}
    assert len(labelled.trained) == 60 - 5 - len(held_out[0] - held_out[1])
    assert len(own.trained) == 60 - 7 - len(held_out[1] - held_out[0])
    assert f"labelled.csv: {len(held_out[0] - held_out[1])} rows left out, with a text that is held out of text.txt" in said


def test_a_process_has_a_labelled_row_at_least(place):
    with pytest.raises(StsbenchError, match="less than the 3 processes"):
        opened(place, values_of(place, **{"labelled.batch_size": 2}), processes=3)
    path = nli_files.triplets(place, count=10)
    _, _, made, _ = opened(place, values_of(place, path), processes=3)  # 8 and 2: the rest are too few for three
    assert made["main"].labelled.batches.dropped == 2
    with pytest.raises(StsbenchError, match="one batch: 1 row"):
        opened(place, values_of(place, nli_files.triplets(place, count=1)), processes=2)


def test_the_same_file_may_be_both(place):
    path = nli_files.triplets(place)
    _, data, _, _ = opened(place, values_of(place, path, **{"data.file": str(path), "options.view": "given"}))
    assert data["main"].store.digest == data[LABELLED].store.digest
    with pytest.raises(DataError, match="every row has a text that is held out"):
        opened(place, values_of(place, path, **{"data.file": str(path), "options.view": "given", "data.held_out": 29,
                                                "labelled.sample": 1, "labelled.sample_seed": 1}))
