"""Several seeds and several subsets: each goes on from its own earlier run, or all from one."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner
from stage_runs import place, recipe_of, run, summary  # noqa: F401
from training_runs import weights_of

from stsbench.errors import StsbenchError
from stsbench.training.engine.loop import Loop
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.report import shared_line
from stsbench.training.runs.seed_runs import train_seeds, train_subsets


def test_seeds_go_on_from_their_own_or_from_one(place, tmp_path):
    short = {"training__max_steps": 2, "selection__by": "none"}

    def seeds(name, **more):
        options = TrainOptions(recipe=recipe_of(place, **short), output=tmp_path / name, device="cpu", sample=True, **more)
        return train_seeds(options, 2, lambda line: None, None)

    seeds("ones", stage=1)
    seeds("twos", stage=2, start_from=tmp_path / "ones")
    run(tmp_path, "whole", recipe_of(place, seed=43, **short))
    after = weights_of(tmp_path / "twos" / "seed-43")
    assert after == weights_of(tmp_path / "whole")
    assert [summary(tmp_path / "twos" / f"seed-{seed}")["from"]["run"] for seed in (42, 43)] == ["seed-42", "seed-43"]
    seeds("from-one", stage=2, start_from=tmp_path / "ones" / "seed-42")
    assert [summary(tmp_path / "from-one" / f"seed-{seed}")["from"]["seed"] for seed in (42, 43)] == [42, 42]
    shared = {name: json.loads((tmp_path / name / "seeds.json").read_text())["shared"] for name in ("twos", "from-one")}
    assert shared == {"twos": None, "from-one": {"runs": 2, "origins": 1, "stage": "first", "first": "seed-42"}}
    assert shared_line({"shared": shared["twos"]}) is None
    assert "of stage first of one run, seed-42" in str(shared_line({"shared": shared["from-one"]}))
    shutil.rmtree(tmp_path / "twos" / "seed-43")
    seeds("twos", resume=True)  # neither --stage nor --from: as the first seed began
    assert weights_of(tmp_path / "twos" / "seed-43") == after
    shutil.rmtree(tmp_path / "ones" / "seed-43")
    with pytest.raises(StsbenchError, match="holds no run of seed 43, but seed-42"):
        seeds("lacking", stage=2, start_from=tmp_path / "ones")
    assert not (tmp_path / "lacking").exists()
    with pytest.raises(StsbenchError, match="has 2 of them"):
        seeds("refused", stage=3)
    with pytest.raises(StsbenchError, match="starts with the weights of stage first"):
        seeds("deep/refused", stage=2)
    assert not (tmp_path / "refused").exists() and not (tmp_path / "deep").exists()


def test_subsets_go_on_from_their_own(place, tmp_path, monkeypatch):
    from stsbench.cli.train import train as command

    short = {"training__max_steps": 2, "selection__by": "none", "data__share": 0.8}
    few, twos = tmp_path / "few", tmp_path / "twos"

    def subsets(output, count=2, **more):
        options = TrainOptions(recipe=recipe_of(place, **short), output=output, device="cpu", sample=True, **more)
        return train_subsets(options, count, 1, lambda line: None, None)

    def call(*words):
        words = ("toy", "--device", "cpu", "--sample", "--output", twos, *words)
        return CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)

    subsets(few, stage=1)
    for number in (0, 1):
        run(tmp_path, f"whole-{number}", recipe_of(place, data__sample_seed=number, **short))
    wanted = [weights_of(tmp_path / f"whole-{number}") for number in (0, 1)]
    assert wanted[0] != wanted[1]
    with monkeypatch.context() as patch, pytest.raises(StopIteration):  # before the second subset has begun
        patch.setattr(Loop, "run", interrupted_after(1, Loop.run))
        call("--stage", 2, "--from", few, "--subsets", 2)
    assert weights_of(twos / "subset-0" / "seed-42") == wanted[0]  # without --recipe, by that of the run gone on from
    shutil.rmtree(twos / "subset-1", ignore_errors=True)
    done = call("--resume", "--subsets", 2)  # neither --stage nor --from: as the first subset began
    assert done.exit_code == 0, done.output
    assert weights_of(twos / "subset-1" / "seed-42") == wanted[1]
    assert summary(twos / "subset-1" / "seed-42")["stages"] == {"second": 2}  # and not both
    assert load_recipe("toy", str(twos / "subset-1" / "seed-42" / "recipe.yaml")).data.sample_seed == 1
    with pytest.raises(StsbenchError, match="holds subset-0, subset-1: name one of them, or go on from each with --subsets"):
        run(tmp_path, "refused", stage=2, start_from=few)
    for path, count, why in ((few, 3, "holds no subset-2, but subset-0, subset-1"), (few, 2, "no run of seed 42, but"),
                             (few / "subset-1", 2, f"subset-1 is one subset of several: name {few}, or a single run")):
        if "seed" in why:
            shutil.move(few / "subset-1" / "seed-42", few / "subset-1" / "seed-43")
        with pytest.raises(StsbenchError, match=why):
            subsets(tmp_path / "refused", count, stage=2, start_from=path)
    assert not (tmp_path / "refused").exists()


def interrupted_after(times, real):
    seen = []

    def stop(*words):
        seen.append(words)
        if len(seen) > times:
            raise StopIteration
        return real(*words)

    return stop
