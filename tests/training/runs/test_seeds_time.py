"""Between the runs of several seeds stands how long the others will take."""

from datetime import timedelta

import pytest

from stsbench.training.runs import seed_runs
from stsbench.training.runs.request import TrainOptions


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """The lines said while five seeds are trained of which `done` are there; a training takes a minute more each time."""
    from stsbench.training.recipes.recipes import load_recipe

    now = [0.0]

    def train(options, log, callback):
        if not options.resume:
            now[0] += 60.0 * (options.recipe.seed - 41)
        return {}

    def run(done=0):
        monkeypatch.setattr(seed_runs, "train", train)
        monkeypatch.setattr(seed_runs, "summarise_seeds", lambda runs: {"seeds": len(runs)})
        monkeypatch.setattr(seed_runs, "as_started", lambda options: options)
        monkeypatch.setattr(seed_runs.time, "monotonic", lambda: now[0])
        for seed in range(42, 42 + done):
            (tmp_path / f"out/seed-{seed}").mkdir(parents=True)
            (tmp_path / f"out/seed-{seed}/recipe.yaml").touch()
        lines = []
        options = TrainOptions(recipe=load_recipe("simcse"), output=tmp_path / "out", resume=bool(done))
        seed_runs.train_seeds(options, 5, lines.append, None)
        return [line.partition("; ")[2] for line in lines]

    return run


def line(minutes, more):
    return f"about {timedelta(minutes=minutes)} for this{more}, by the seeds before"


def test_the_mean_of_the_seeds_before_counts(trained):
    # minutes: 1, 2, 3, 4, 5
    assert trained() == ["", line(4, " and 3 more"), line(4.5, " and 2 more"), line(4, " and 1 more"), line(2.5, "")]


def test_seeds_that_were_there_before_do_not(trained):
    assert trained(done=2) == ["", "", "", line(6, " and 1 more"), line(3.5, "")]
