"""One run, one interval: whatever prints a score's interval prints the run's own, and none where the run has none."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401  fixtures
from interval_runs import RUNS, ends, in_words
from sts_runs import pairs, sts_run

from stsbench import load, score
from stsbench.evaluation.measure import bounded, summarize
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.tables import as_csv
from stsbench.leaderboard.ranks.lines import score_lines
from stsbench.leaderboard.records.entries import read_run
from stsbench.metrics.bootstrap import fisher_interval, interval
from stsbench.protocols.sts import StsProtocol
from stsbench.protocols.transfer import TASKS, TransferProtocol


@pytest.mark.parametrize("name", ["average of another seed", "a share", "none"])
def test_everything_prints_the_interval_of_the_run(name, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = RUNS[name](tmp_path, 0)
    run = score(folder)
    row = next((row for row in run.rows if row.task == "Avg"), run.rows[0])
    assert (row.low is None) == (name == "none")
    key = row.task, row.subset, row.aggregation, row.metric

    def of(rows):
        return next((each["low"], each["high"]) for each in rows
                    if tuple(each[name] or None for name in ("task", "subset", "aggregation", "metric")) == key)

    assert of([each.model_dump() for each in load(folder).rows]) == ends(row)
    assert of(json.loads(run.to_json())) == of(run.to_arrow().to_pylist()) == ends(row)
    [low, high] = of(csv.DictReader(io.StringIO(as_csv(run))))
    assert (low, high) == tuple("" if end is None else str(end) for end in ends(row))
    code, _, _ = cli("score", folder, "--json", "rows.json")
    assert code == 0 and of(json.loads((tmp_path / "rows.json").read_text())) == ends(row)

    printed = [str(run), run._repr_html_(), cli("score", folder)[1]]
    for said in printed:
        assert in_words(row) in said
        assert name != "none" or "[100.00, 100.00]" not in said
    if name == "none":
        assert sum("no interval, as every resample scores the same" in said for said in printed) == 3

    cells = [line.cells[column] for line in score_lines(read_run(folder)) for column in (row.task, row.metric)
             if column in line.cells and (line.setting.metric or row.metric, line.setting.aggregation)
             == (row.metric, row.aggregation)]
    assert [(cell.low, cell.high) for cell in cells] == [ends(row)]


def test_a_run_without_intervals_is_given_those_of_the_usual_resamples(tmp_path):
    """By the rule of its protocol: Pearson's are Fisher's."""
    folder = sts_run(tmp_path / "run", 0.3, ["STS-B"], 0, {"resamples": 0, "metrics": ["pearson"]})
    run = score(folder)
    assert run.rows[0].low is None
    usual = StsProtocol({"metrics": ["pearson"]}).score(pairs("STS-B", 0.3, ("all",), 0), "stsb/test", "STS-B")[0]
    assert usual.low is not None
    [line] = [line for line in score_lines(read_run(folder)) if line.setting.aggregation == "all"]
    assert (line.cells["STS-B"].low, line.cells["STS-B"].high) == ends(usual)


def test_the_average_of_a_trained_protocol_has_the_interval_that_the_board_gives_it():
    protocol, observed, records = TransferProtocol({}), {}, []
    for number, (task, id) in enumerate(TASKS.items()):
        rng = np.random.default_rng(number)
        gold = rng.integers(2, size=80)
        arrays = {"rows": np.arange(80), "gold": gold, "predicted": np.where(rng.uniform(size=80) < 0.8, gold, 1 - gold),
                  "fold": np.arange(80) % 4, "grid": np.full((1, 1), 50.0), "chosen": np.zeros(1, dtype=int),
                  "counts": np.array([1, 0, 80])}
        observed[task] = Observations(arrays, {"counts": ["fits", "unconverged", "development items"]}), id
        records.append(type("Record", (), {"scores": protocol.score(*observed[task], task)}))
    [average] = summarize(protocol, records, observed)
    assert ends(average) == interval(protocol.average_draws(observed, 1000, 0)[None, None, "accuracy"])
    f1 = next(row for row in records[-1].scores if row.metric == "f1")
    assert f1.low is None
    within = bounded(f1, protocol, *observed["MRPC"])
    assert ends(within) == interval(protocol.draws(*observed["MRPC"], 1000, 0)[None, None, "f1"])


@pytest.mark.parametrize(("low", "high", "stored"), [
    (100.0, 100.0, (None, None)), (100 - 1e-12, 100.0, (None, None)), (0.0, 1e-14, (None, None)), (None, None, (None, None)),
    (99.99, 100.0, (99.99, 100.0)),
])
def test_an_interval_without_length_is_none(low, high, stored):
    row = ScoreRow(protocol="sts", task="X", metric="spearman", value=100.0, low=low, high=high, n=4)
    read = ScoreRow.model_validate_json(json.dumps({**row.model_dump(), "low": low, "high": high}))
    assert ends(row) == ends(read) == stored
    if low is not None:
        draws = np.repeat([low, high], 50)
        assert (interval(draws) is None) == (stored == (None, None))
        assert fisher_interval(draws / 100, 1.0, 30) is None or stored != (None, None)
