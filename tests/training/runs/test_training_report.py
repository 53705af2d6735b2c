"""What is read from a training's log: torn and damaged files, curves, summaries, seeds, trackers, the lines of progress."""

import importlib
import json
import sys

import numpy as np
import pytest
from geometry_runs import make_run, pair_set
from hypothesis import given, settings
from hypothesis import strategies as st
from training_logs import lines_of, write_run

from stsbench.cli.messages import TrainingProgress, print_summary
from stsbench.errors import DataError, StsbenchError
from stsbench.evaluation.rescore import score_again
from stsbench.training.engine.callbacks import flat_config, to_scalars, trackers
from stsbench.training.runs.report import best_dev, read_log, seed_table, spread, summarise_seeds, summary


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    return folder / "log.jsonl", write_run(folder, (("main", 20),), dev=10)


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(0, 10**9))
def test_a_log_cut_anywhere_gives_its_whole_lines(cut, whole):
    path, lines = whole
    content = path.read_bytes()
    cut %= len(content) + 1
    torn = path.with_name("torn.jsonl")
    torn.write_bytes(content[:cut])
    complete = content[:cut].count(b"\n")
    found = read_log(torn)
    # A line that lacks nothing but its line break is whole.
    assert found == lines[: len(found)] and len(found) - complete in ((0, 1) if content[cut : cut + 1] == b"\n" else (0,))


def test_damage_names_file_and_line(tmp_path):
    good, path = [json.dumps(each) for each in lines_of((("main", 10),))], tmp_path / "log.jsonl"
    step = '{"kind": "train", "stage": "main", "step": %s, "loss": 1, "terms": {}}'
    for line in ('{"step": 3}', "", "\0\0\0", "\xff", step % '"5"', step % "true"):
        path.write_bytes("\n".join([*good[:2], line, *good[2:], ""]).encode("latin-1"))
        with pytest.raises(DataError, match=r"log\.jsonl:3: [^\n]*$"):
            read_log(path)
    path.write_bytes(b"")
    with pytest.raises(StsbenchError, match="is empty: the run was stopped before its first step"):
        summary(tmp_path)
    path.write_text('{"kind": "note", "x": 1}\n{"kind": "train", "stage": "a", "step": 1, "loss": NaN, "terms": {}}\n')
    note, train = read_log(path)  # unknown kinds and NaN are kept
    assert note == {"kind": "note", "x": 1} and np.isnan(train["loss"])


def test_the_summary(tmp_path):
    lines = write_run(tmp_path, (("one", 50), ("two", 100)), seed=7, dev=25)
    scores = [line for line in lines if line["kind"] == "dev" and line["stage"] == "two" and line["step"]]
    top = max(scores, key=lambda line: line["score"])
    expected = {"seed": 7, "steps": 150, "final_loss": lines[-3]["loss"], "finished": True, "seconds": 12.5, "from": None}
    assert lines[-3]["kind"] == "train"
    assert summary(tmp_path) == {**expected, "best": {key: top[key] for key in ("name", "score", "stage", "step")}}
    (tmp_path / "train.json").write_text("{")
    with pytest.raises(DataError, match=r"train.json is not valid JSON"):
        summary(tmp_path)
    write_run(tmp_path / "killed", until=60, dev=None)
    killed = summary(tmp_path / "killed")
    assert (killed["steps"], killed["finished"], killed["seconds"], killed["best"]) == (60, False, None, None)


def test_the_best_is_what_the_run_kept():
    # A higher score later on is not the best where the run did not say so: weights of it were not kept.
    lines = [{"kind": "dev", "stage": "a", "step": s, "name": "n", "score": v, "best": b} for s, v, b in
             ((1, 5.0, True), (2, 6.0, True), (3, 6.0, False))]
    assert best_dev(lines)["step"] == 2 and best_dev([]) is None
    # Nor is the best of a stage before the last: where the last has none, its last step was kept.
    started = {"kind": "start", "stage": "b", "steps": 5, "seed": 1}
    assert best_dev([*lines, started]) is None and best_dev([{**started, "stage": "a"}, *lines])["step"] == 2


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_the_spread_is_numpys(values):
    found = spread(dict(enumerate(values)))
    assert (found["mean"], found["sd"]) == pytest.approx((np.mean(values), np.std(values, ddof=1)), abs=1e-9)
    assert found["n"] == len(values) and list(found["values"].values()) == values
    assert spread({4: 1.0})["sd"] is None
    with pytest.raises(StsbenchError, match="NaN or infinite"):
        spread({1: 1.0, 2: float("nan")})


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    for seed, shift in ((1, 0.0), (2, 0.3), (3, 1.0)):
        write_run(folder / f"seed-{seed}", (("main", 100),), seed=seed)
        make_run(folder / f"seed-{seed}" / "eval", shift, ("all", "geometry") if seed < 3 else ("all",))
    return [folder / f"seed-{seed}" for seed in (1, 2, 3)]


def test_seeds_are_averaged_score_by_score(seeds):
    found = summarise_seeds(seeds)
    json.dumps(found)
    assert found["seeds"] == [1, 2, 3]
    devs = [[line for line in read_log(run / "log.jsonl") if line["kind"] == "dev" and line["step"]] for run in seeds]
    bests = [max(line["score"] for line in dev) for dev in devs]
    assert found["dev"]["name"] == "sts-b dev" and found["dev"]["n"] == 3
    assert (found["dev"]["mean"], found["dev"]["sd"]) == pytest.approx((np.mean(bests), np.std(bests, ddof=1)))
    key = ("protocol", "task", "subset", "aggregation", "metric")
    again = [score_again(run / "eval").rows for run in seeds]
    rows = [{tuple(getattr(row, each) for each in key): row.value for row in each_run} for each_run in again]
    tests = {tuple(row[each] for each in key): row for row in found["tests"]}
    assert tests.keys() == rows[0].keys() > rows[2].keys() and ("sts", "Avg", None, "all", "spearman") in tests
    for name, row in tests.items():
        values = [each[name] for each in rows if name in each]
        assert list(row["values"].values()) == values and row["n"] == len(values) == (2 if name[0] == "geometry" else 3)
        assert (row["mean"], row["sd"]) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    table = seed_table(found)
    assert table[0] == ("sts-b dev", f"{np.mean(bests):.2f}", f"{np.std(bests, ddof=1):.2f}", "3")
    row = tests["sts", "Avg", None, "all", "spearman"]
    assert {row["view"] for row in found["tests"]} == {"sample"}
    assert ("sts (sample data) Avg spearman all", f"{row['mean']:.2f}", f"{row['sd']:.2f}", "3") in table
    assert len({cells[0] for cells in table}) == len(table) and any(cells[3] == "2" for cells in table)
    one = summarise_seeds(seeds[:1])
    assert one["dev"]["sd"] is None and {row["sd"] for row in one["tests"]} == {None}
    assert {cells[2] for cells in seed_table(one)} == {"–"}


def test_seeds_without_a_candidate_have_the_score_after_the_last_step(seeds, tmp_path, capsys):
    scores = {1: 70.25, 2: 71.5}
    for seed, score in scores.items():
        run, dev = tmp_path / f"seed-{seed}", {"kind": "dev", "stage": "main", "name": "sts-b dev", "best": False}
        start, *lines, end = write_run(run, (("main", 20),), seed=seed, dev=None)
        lines = [start, {**dev, "step": 0, "score": 60.0}, *lines, {**dev, "step": 20, "score": score}, end]
        (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = summarise_seeds([tmp_path / "seed-1", tmp_path / "seed-2"])
    assert found["dev"] is None and found["dev_last"]["name"] == "sts-b dev, last step"
    assert found["dev_last"]["values"] == scores
    assert seed_table(found) == [("sts-b dev, last step", "70.88", "0.88", "2")]
    print_summary(tmp_path, {**found, "failures": {"seed 2 x": "broke"}})
    said = capsys.readouterr()
    assert "sts-b dev, last step" in said.out and "70.88" in said.out and "failed: seed 2 x: broke" in said.err
    write_run(tmp_path / "none", seed=3, dev=None)
    empty = summarise_seeds([tmp_path / "none"])
    print_summary(tmp_path, empty)
    assert empty["dev_last"] is None and "no score to average" in capsys.readouterr().out
    whole = summarise_seeds(seeds)  # where the best is known it is the one shown; the other is kept beside it
    ends = [read_log(run / "log.jsonl")[-2]["score"] for run in seeds]
    assert list(whole["dev_last"]["values"].values()) == ends and seed_table(whole)[0][0] == "sts-b dev"


def test_runs_that_have_no_mean_are_refused(seeds, tmp_path):
    write_run(tmp_path / "again", (("main", 100),), seed=1)
    write_run(tmp_path / "killed", seed=5, until=60)
    write_run(tmp_path / "other", seed=6, name="transfer dev")
    write_run(tmp_path / "data", seed=7)
    make_run(tmp_path / "data" / "eval", 0.0, ("all", "geometry"), data=pair_set(seed=9))
    for name, why in (("again", "as another run"), ("killed", "not finished"), ("other", "different dev scores"),
                      ("data", "measured on different data")):
        with pytest.raises(StsbenchError, match=why):
            summarise_seeds([seeds[0], tmp_path / name])
    write_run(tmp_path / "cold", seed=8)
    make_run(tmp_path / "cold" / "eval", 0.0, ("geometry",), t=3.0)
    cold = [row for row in summarise_seeds([seeds[0], tmp_path / "cold"])["tests"] if row["protocol"] == "geometry"]
    assert {row["settings"] for row in cold} == {"", "t 3.0"} and {row["n"] for row in cold} == {1}
    assert summarise_seeds([tmp_path / "data"])["dev"] and not summarise_seeds([tmp_path / "other"])["tests"]


def test_trackers_must_be_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if "site-packages" not in p)])
    importlib.invalidate_caches()
    for name in ("tensorboard", "wandb"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "wandb").mkdir()  # W&B's own folder of runs: no package
    for name in ("tensorboard", "wandb"):
        with pytest.raises(StsbenchError, match=f"the tracker {name} is not installed: pip install {name}"):
            trackers([name])
    (tmp_path / "wandb" / "__init__.py").touch()
    importlib.invalidate_caches()
    assert trackers(["wandb", "wandb"]) == ["wandb"] and trackers([]) == []


def test_scalars_are_every_number_of_a_line():
    lines = lines_of(terms=("contrastive", "mlm"), masked_accuracy=True)
    train = next(line for line in lines if line["kind"] == "train")
    assert to_scalars(train) == {
        "main/epoch": train["epoch"], "main/loss": train["loss"], "main/terms/contrastive": train["terms"]["contrastive"],
        "main/terms/mlm": train["terms"]["mlm"], "main/learning_rate": train["learning_rate"],
        "main/gradient_norm": train["gradient_norm"], "main/sentences_per_second": 800.0,
        "main/masked_accuracy": train["masked_accuracy"]}
    assert "main/gradient_norm" not in to_scalars({**train, "gradient_norm": None, "overflow": True})
    dev = next(line for line in lines if line["kind"] == "dev")
    recipe = {"name": "x", "source": None, "training": {"epochs": 1, "betas": [0.9, 0.999]}, "options": {"tied": True}}
    assert flat_config(recipe) == {"name": "x", "training.epochs": 1, "training.betas": "[0.9, 0.999]", "options.tied": True}
    assert to_scalars(dev) == {"main/sts-b-dev": dev["score"]} and to_scalars(lines[0]) == to_scalars(lines[-1]) == {}


def test_plain_lines_where_there_is_no_terminal():
    said, now = [], [0.0]
    progress = TrainingProgress(said.append, line_every=10, clock=lambda: now[0])
    progress.stage("main", 45, start_step=20)
    for step in range(21, 46):
        now[0] += 2
        progress.step(step, 0.5, 812.4)
        if step % 10 == 0:
            progress.dev(step, "sts-b dev", 70 + step / 10, step == 40)
    progress.dev(45, "sts-b dev", 71.0, False)
    progress.dev(45, "held-out", -2.34567, True)
    progress.stage("main", 10)
    progress.dev(0, "sts-b dev", 70.0, False)
    progress.close()
    assert said == [
        "main 30/45: loss 0.5000, 812 sentences/s, 0:00:30 left",
        "main 30/45: sts-b dev 73.00",  # the best was before the resumption: unknown here, so not said
        "main 40/45: loss 0.5000, 812 sentences/s, 0:00:10 left",
        "main 40/45: sts-b dev 74.00 (the best so far)",
        "main 45/45: loss 0.5000, 812 sentences/s, all steps done",
        "main 45/45: sts-b dev 71.00 (best 74.00 at step 40)",
        "main 45/45: held-out -2.3457 (the best so far)",
        "main 0/10: sts-b dev 70.00"]  # another seed's run: the best of the first is none of its own
