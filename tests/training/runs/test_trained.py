"""The whole method of a finished run: the weights that were kept, the dropped head too, and every refusal in one line."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import training_runs
from safetensors.torch import load_file

import stsbench
from stsbench.errors import StsbenchError
from stsbench.training.runs.finish import load_trained


def trained(place, run, **values):
    """A finished run of 12 steps with dev scores at 4, 8 and 12; its folder."""
    chosen = training_runs.settings(place / "tiny", place / "text.txt", **values)
    stsbench.train("simcse", output=run, settings=chosen, sample=True, device="cpu")
    return run


@pytest.fixture(scope="module")
def whole(place):
    """The first of some seeds whose best step is not its last."""
    for seed in range(1, 9):
        run = trained(place, place / f"seed-{seed}", seed=seed)
        if json.loads((run / "train.json").read_text())["best"]["step"] < 12:
            return run
    raise AssertionError("the last step was the best of every seed")


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def stored(folder):
    return load_file(folder / "model.safetensors")


def same_weights(method, expected):
    found = method.state_dict()
    assert expected and found.keys() == expected.keys()
    return all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_best_is_not_just_the_last(run):
    """The set of weights that train.json names, or none."""
    last = sorted(run.glob("checkpoints/[0-9]*"))[-1]
    summary = json.loads((run / "train.json").read_text())
    assert summary["best"]["step"] < json.loads((last / "position.json").read_text())["step"] == 12
    assert not same_weights(load_trained(run, "cpu"), stored(last))
    summary["best"]["step"] += 4
    (run / "train.json").write_text(json.dumps(summary))
    with pytest.raises(StsbenchError, match=f"lacks a sound checkpoint .* main step {summary['best']['step']}"):
        load_trained(run, "cpu")


def test_the_last_weights_where_nothing_was_selected(place, tmp_path):
    run = trained(place, tmp_path / "run", **{"selection.by": "none", "training.max_steps": 4})
    assert same_weights(load_trained(run, "cpu"), stored(run / "checkpoints" / "0-main-00000004"))
    # A damaged last checkpoint: the one before holds other weights, which are no substitute.
    (run / "checkpoints" / "0-main-00000004" / "model.safetensors").write_bytes(b"x")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(StsbenchError, match="main step 4"):
        load_trained(run, "cpu")


@pytest.mark.filterwarnings("ignore:.*is damaged")
def test_a_run_that_lacks_something_is_refused_in_a_line(whole, tmp_path):
    def damage_all(run):
        for path in run.glob("checkpoints/[0-9]*/model.safetensors"):
            path.write_bytes(path.read_bytes()[:-8])

    def edit(run, file, old, new):
        (run / file).write_text((run / file).read_text().replace(old, new))

    for number, (spoil, why) in enumerate([
        (lambda run: (run / "recipe.yaml").unlink(), "is not a run folder of `stsbench train`"),
        (lambda run: shutil.rmtree(run / "best"), "has not finished"),
        (lambda run: (run / "train.json").unlink(), "has not finished training: go on with --resume"),
        (lambda run: (run / "train.json").write_text("[]"), "must hold a JSON object, not a list"),
        (lambda run: shutil.rmtree(run / "checkpoints"), "holds no sound checkpoint"),
        (damage_all, "holds no sound checkpoint"),
        (lambda run: edit(run, "recipe.yaml", "head: mlp_train_only", "head: none"), "does not fit the method simcse"),
    ]):
        run = shutil.copytree(whole, tmp_path / "runs" / f"seed-{number}")
        spoil(run)
        with pytest.raises(StsbenchError, match=why) as error:
            load_trained(run, "cpu")
        assert "\n" not in str(error.value)
    with pytest.raises(StsbenchError, match="one training for each seed: choose one"):
        load_trained(tmp_path / "runs", "cpu")


def test_another_backbone_is_noticed(run, tmp_path):
    [line] = [line for line in (run / "recipe.yaml").read_text().splitlines() if line.startswith("  model: ")]
    source = tmp_path / "tiny"
    shutil.copytree(line.removeprefix("  model: "), source)
    (run / "recipe.yaml").write_text((run / "recipe.yaml").read_text().replace(line, f"  model: {source}"))
    load_trained(run, "cpu")  # the same files in another place
    for file, name in (("config.json", "backbone"), ("tokenizer_config.json", "tokenizer")):
        before = (source / file).read_text()
        (source / file).write_text(json.dumps({**json.loads(before), "something_else": 1}))
        with pytest.raises(StsbenchError, match=f"the {name} is not what it was trained with"):
            load_trained(run, "cpu")
        (source / file).write_text(before)
