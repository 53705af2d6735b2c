"""Choosing among runs: the joint test against the board's own, the front, the sentence, and costs of one machine alone.
`stsbench gate`: what is worse fails, what is as good passes, and a loss within the margin does."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from clirun import cli, place  # noqa: F401
from interval_runs import ends, in_words
from run_edits import edit_all
from sts_runs import head, pairs, sts_run, two  # noqa: F401

import stsbench
from stsbench import compare, score
from stsbench.comparison.comparability import timing_settings
from stsbench.errors import StsbenchError
from stsbench.evaluation.records import Cost
from stsbench.extensions.statistics.choice import AXES, Spent, compared_within, machine_in_words
from stsbench.extensions.statistics.choose import choose
from stsbench.extensions.statistics.command import COSTS
from stsbench.extensions.statistics.gate import gate
from stsbench.metrics.noise import Scores
from stsbench.metrics.ranks import letters, significantly_different
from stsbench.protocols.sts import AVERAGED, TASKS, StsProtocol

COST = {
    "probe": 1, "texts": 64, "seconds": [0.1, 0.102, 0.098, 0.1, 0.11], "cpu_seconds": [0.2] * 5,
    "sentences_per_second": 640.0, "tokens_per_second": 9000.0, "latency_seconds": 0.004,
    "memory_bytes": 500_000_000, "width": 3, "parameters": 1000,
    "bytes_a_vector": 12.0, "machine": {"cpu": "Some CPU", "cores": 8}, "device": "cpu", "threads": 4, "where": "process"}


def costing(run, **changed):
    return edit_all(run, lambda row: row.record["provenance"].update(cost={**COST, **changed}))


def speed(per_second):
    """A cost of another speed, whose rounds are a tenth apart."""
    middle = 64 / per_second
    rounds = [middle * part for part in (0.95, 1, 1, 1, 1.05)]
    return {"sentences_per_second": float(per_second), "seconds": rounds, "cpu_seconds": rounds}


def encoders(folder, tasks):
    """Two that follow the gold equally well, at other speeds, and one that is worse and faster."""
    return [
        costing(sts_run(folder / "a", 0.2, tasks, draw=1, name="slow"), **speed(100)),
        costing(sts_run(folder / "b", 0.2, tasks, draw=2, name="quick"), **speed(800), bytes_a_vector=6.0),
        costing(sts_run(folder / "c", 1.5, tasks, draw=3, name="poor"), **speed(5000), bytes_a_vector=3.0)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return encoders(tmp_path_factory.mktemp("choose"), ["STS-B"])


def test_the_test_is_that_of_the_board(tmp_path):
    made = choose(encoders(tmp_path, AVERAGED), resamples=100)
    drawn = []
    for noise, draw in ((0.2, 1), (0.2, 2), (1.5, 3)):
        seen = {task: (pairs(task, noise, ("x", "y") if task in ("STS12", "STS13") else ("all",), draw), TASKS[task])
                for task in AVERAGED}
        drawn.append(StsProtocol({}).average_draws(seen, 100, 0)[None, "all", "spearman"])
    by_name = {f"{name}, pooler mean": i for i, name in enumerate(("slow", "quick", "poor"))}
    order = [by_name[one.name] for one in made.candidates]
    values = np.array([one.score for one in made.candidates])
    assert list(values) == sorted(values, reverse=True) and made.task == "Avg" and made.by.name == "sentences/s"
    tested = significantly_different(Scores(values, np.stack([drawn[i] for i in order])), [0])
    assert made.different == tested.jointly.tolist()
    assert [one.letters for one in made.candidates] == letters(values, tested.jointly)
    assert made.different[2] == [True, True, False] and made.equals == [0, 1]
    for one in made.candidates:
        [average] = [row for row in score(one.folders[0]).summaries
                     if (row.task, row.metric, row.aggregation) == ("Avg", "spearman", "all")]
        assert (one.low, one.high) == (average.low, average.high)


def test_what_it_says(runs):
    made = choose(runs, resamples=100)
    first, second = (one.name for one in made.candidates[:2])
    names = f"{first} and {second}"
    start = f"These two do not differ significantly (joint test at 5 %): {names}; "
    assert made.sentence == f"{start}the cheapest is quick, pooler mean (800 sentences/s)."
    equal = choose(runs, by="parameters", resamples=100)
    assert equal.sentence.startswith(f"{start}the cheapest are ")
    assert equal.sentence.endswith(", which do not differ in parameters.")
    [row] = [row for row in score(runs[0]).rows if (row.metric, row.aggregation) == ("spearman", "all")]
    [its] = [one for one in made.candidates if one.folders == (runs[0],)]
    assert (its.low, its.high) == ends(row) and in_words(row) in str(made)  # the interval of the run
    assert "sts" in str(made).splitlines()[0] and "Some CPU, 8 cores, cpu, 4 threads" in str(made)
    assert repr(made).startswith("<Choice among 3 encoders by sentences/s: These two")
    frame = made.to_arrow().to_pylist()
    assert [row["encoder"] for row in frame] == [one.name for one in made.candidates] and frame[0]["parameters"] == 1000
    alone = choose([runs[0], runs[2]], resamples=100)
    gap = alone.candidates[0].score - alone.candidates[1].score
    assert alone.sentence == ("slow, pooler mean (100 sentences/s) is better than every other (joint test at 5 %). "
                              f"Faster: poor, pooler mean (5,000 sentences/s), {gap:.2f} worse.")
    assert alone.front == [True, True]


def test_rounds_that_overlap_name_no_single_cheapest(runs, tmp_path):
    other = costing(sts_run(tmp_path / "b", 0.2, ["STS-B"], draw=4, name="other"), **speed(810))
    made = choose([runs[1], other], resamples=200)
    assert made.sentence.endswith("the cheapest are other, pooler mean (810 sentences/s) and quick, pooler mean (800 "
                                  "sentences/s), which do not differ in sentences/s by more than its rounds do.")
    assert Spent(1, 0, 2).overlaps(Spent(3, 2, 4)) and not Spent(1, 0, 2).overlaps(Spent(4, 3, 5))


def test_times_of_another_machine_are_not_compared_and_sizes_are(runs, tmp_path):
    far = costing(sts_run(tmp_path / "far", 0.2, ["STS-B"], draw=5, name="far"), **speed(90_000), bytes_a_vector=1.0,
                  machine={"cpu": "Other CPU", "cores": 64})
    made = choose([*runs, far], resamples=40)
    there = next(one for one in made.candidates if one.name.startswith("far"))
    assert {name for name, spent in there.costs.items() if spent} == {"parameters", "bytes"} and made.by.name == "bytes"
    named = "far, pooler mean (Other CPU, 64 cores, cpu, 4 threads) are of another machine"
    assert any(named in line for line in made.remarks)
    assert made.sentence.endswith("the cheapest is far, pooler mean (1 bytes a vector).")
    by = choose([*runs, far], by="sentences/s", resamples=40)
    assert "of those whose sentences/s is known here, the cheapest is quick" in by.sentence
    assert by.front[by.candidates.index(next(one for one in by.candidates if one.name.startswith("far")))] is False
    label = by.plot().axes[0].get_xlabel()
    machine = "Some CPU, 8 cores, cpu, 4 threads; 1 of 4 left out: not known, or of another machine"
    assert label.splitlines() == ["sentences a second", machine]
    assert "Some CPU" not in made.plot().axes[0].get_xlabel()


def cost(**changed):
    return Cost.model_validate({**COST, **changed})


def test_which_times_are_of_one_setting():
    words = cost(threads=None)  # torch took no part: fits any device and number of threads
    assert compared_within([cost(), words, None])[0] == [True, True, False]
    assert compared_within([words, cost(threads=1), cost(), cost()])[0] == [True, False, True, True]
    assert compared_within([cost(), cost(device="Some GPU"), words])[0] == [True, False, True]
    two = cost(where="processes", processes=2)
    assert compared_within([cost(), two])[0] == [True, False]
    assert compared_within([two, two, cost(where="processes", processes=4)])[0] == [True, True, False]
    assert machine_in_words(timing_settings(two)) == "Some CPU, 8 cores, 2 processes, cpu, 4 threads"
    assert compared_within([cost(), cost(probe=2), cost(probe=2)])[0] == [False, True, True]
    server = cost(where="server", device="server", threads=None)
    assert compared_within([server, cost(), cost()])[0] == [False, True, True]
    assert compared_within([None, None]) == ([False, False], None)


def test_costs_are_read_off_the_record(runs):
    record = stsbench.load_records(runs[0])[0][1]
    read = {name: axis.read(record, cost()) for name, axis in AXES.items()}
    assert read["sentences/s"] == Spent(640, pytest.approx(640 * 0.1 / 0.11), pytest.approx(640 * 0.1 / 0.098))
    assert read["cpu"].value == pytest.approx(1000 * 0.2 / 64) and read["latency"].value == 4
    assert (read["memory"].value, read["parameters"].value, read["bytes"].value) == (5e8, 1000, 12)
    assert read["first"] is None and read["cuda-memory"] is None
    assert AXES["cpu"].read(record, cost(device="Some GPU")) is None


def test_old_runs_have_bytes_and_no_speed(runs, tmp_path):
    old = sts_run(tmp_path / "old", 0.2, ["STS-B"], draw=6, name="old")
    made = choose([runs[0], old], resamples=40)
    assert "No cost is recorded of old, pooler mean: `stsbench eval --cost` measures it." in made.remarks
    costing(old, cpu_seconds=[0.01] * 5)
    remarks = choose([runs[0], old], resamples=40).remarks
    assert any("speed of old, pooler mean was measured" in line for line in remarks)
    assert made.by.name == "bytes"
    with pytest.raises(StsbenchError, match=r"no run holds first: measure with `stsbench eval --cost`"):
        choose([runs[0], old], by="first", resamples=40)


def test_the_lower_error_is_the_better_one(tmp_path):
    good, bad = head(tmp_path / "a", 0.1), head(tmp_path / "b", 0.6, 1)
    for run, name in ((good, "good"), (bad, "bad")):
        def renamed(row, name=name):
            row.record["encoder"]["spec"]["name"] = name
            row.record["encoder"]["fingerprint"] = name[0].encode().hex().ljust(64, "0")
            row.renamed()

        edit_all(run, renamed)
    made = choose([bad, good], metric="mse", by="bytes", resamples=200)
    assert [one.name for one in made.candidates] == ["good, pooler mean", "bad, pooler mean"] and made.front == [True, False]
    assert made.sentence.startswith("good, pooler mean (12 bytes a vector) is better") and "lower is better" in made.title
    assert "lower is better" in made.plot().axes[0].get_ylabel()


def test_a_task_that_all_runs_share_is_named(runs, tmp_path):
    one, other = (sts_run(tmp_path / name, 0.2, ["STS12", "STS-B"], draw, name=name) for name, draw in (("p", 1), ("q", 2)))
    assert choose([one, other], task="STS-B", resamples=40).task == "STS-B"
    mixed = choose([one, runs[0]], resamples=40)
    assert ("sts", "STS12", "only 1 of the 2 encoders have it on the same data, measured in the same way") in mixed.left_out


def test_without_items_there_is_no_test(runs, monkeypatch):
    monkeypatch.setattr(StsProtocol, "draws", lambda *more: {})
    made = choose(runs[:2], resamples=40)
    assert made.different is None and [one.letters for one in made.candidates] == ["", ""]
    assert made.sentence.startswith("No test: what sts stores for spearman cannot be redrawn item by item. ")


def test_several_seeds_are_averaged(two):
    folders, (good, _) = two
    made = choose([side[0].parent for side in folders], resamples=200)
    best = made.candidates[0]
    assert best.folders == tuple(folders[0]) and best.score == pytest.approx(np.mean(good)) and best.low < min(good)
    assert made.different[0][1]


def test_the_command(runs, tmp_path, cli):
    plot, written = tmp_path / "p.svg", tmp_path / "c.json"
    code, out, err = cli("choose", *runs, "--resamples", 100, "--by", "bytes", "--plot", plot, "--json", written)
    made = choose(runs, by="bytes", resamples=100)
    assert (code, err) == (0, f"picture: {plot}\n") and made.sentence in " ".join(out.split()) and "5,000" in out
    assert ET.parse(plot).getroot().tag.endswith("svg")
    read = json.loads(written.read_text())
    assert read == json.loads(made.to_json()) and read["encoders"][0]["costs"]["bytes"] in (6.0, 12.0)
    assert read["cheapest_of_the_best"] == ["quick, pooler mean"] and all(name in COSTS for name in AXES)
    assert made.sentence.endswith("the cheapest is quick, pooler mean (6 bytes a vector).")


def test_a_gate_fails_for_what_is_worse_alone(tmp_path, monkeypatch, cli):
    """By predictions of one model, and of others that lose so many hundredths of its correlation."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    gold, noise = rng.normal(size=(2, 800))
    for name, value in (("base", 0.8), ("slight", 0.798), ("worse", 0.77)):
        own = 0.98 * noise + 0.2 * rng.normal(size=800)
        predictions = value * gold + np.sqrt(1 - value**2) * own
        pd.DataFrame({"id": range(800), "gold": gold, "prediction": predictions}).to_csv(f"{name}.csv", index=False)
    assert gate("base.csv", "worse.csv", margin=1, resamples=200).passed
    [check] = gate("worse.csv", "base.csv", margin=1, resamples=200).checks
    expected = compare("worse.csv", "base.csv", margin=1, resamples=200)["items"]
    assert check.row.difference == expected.difference and expected.difference.high < 0
    summary = Path("s.md")
    asked = ("--baseline", "base.csv", "--margin", "1", "--summary", "s.md", "--resamples", 200)
    code, out, _ = cli("gate", "worse.csv", *asked, "--json", "checks.json")
    failed = summary.read_text()
    assert code == 3 and out.splitlines()[-1].startswith("failed: the run is worse")
    assert "| item-scores items | 800 |" in failed
    assert [check["worse"] for check in json.loads(Path("checks.json").read_text())] == [True]
    assert cli("gate", "slight.csv", *asked)[0] == 0, "a loss within the margin"
    assert summary.read_text().startswith(failed) and "passed: " in summary.read_text()
