"""A plug-in whose score is an error: smaller is better wherever scores are printed, compared and ranked."""

import json
import re
import sys

import pytest
from board_runs import Letters
from click.testing import CliRunner

from stsbench import registry
from stsbench.cli.main import cli
from stsbench.evaluation.api import evaluate
from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry

PLUGIN = '''
import numpy as np
from stsbench.evaluation import Array, Metric, Observations, Protocol, ScoreRow
from stsbench.metrics.similarity import paired_similarity

class ErrorProtocol(Protocol):
    """Mean distance of the cosine from the gold score, both from 0 to 1."""
    name = "sts-error"
    version = 1
    metrics = {"error": Metric(BETTER, 1, 4, (0, 2))}
    arrays = {"distance": Array("float", per_item=True), "gold": Array("float", shared=True)}

    def tasks(self):
        return {"STS-B": "stsb/test"}

    def observe(self, embed, data):
        cosine = paired_similarity(embed(data.first), embed(data.second))
        return Observations({"distance": np.abs(cosine - data.gold / 5), "gold": data.gold})

    def score(self, observations, data_id, task):
        each = observations.arrays["distance"]
        return [ScoreRow(protocol=self.label, task=task, metric="error", value=float(each.mean()), n=len(each))]

    def draws(self, observations, data_id, resamples, seed):
        each = observations.arrays["distance"]
        counts = np.random.default_rng(seed).multinomial(len(each), [1 / len(each)] * len(each), size=resamples)
        return {(None, None, "error"): counts @ each / len(each)}
'''


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """`measured(better)`: results of a good and a bad encoder under the plug-in, whose error is better in that direction."""

    def make(better):
        site_packages = tmp_path / "site"
        facts = site_packages / "sts_error-1.0.dist-info"
        facts.mkdir(parents=True)
        (site_packages / "sts_error.py").write_text(PLUGIN.replace("BETTER", repr(better)))
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: sts-error\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text("[stsbench.protocols]\nsts-error = sts_error:ErrorProtocol\n")
        monkeypatch.syspath_prepend(str(site_packages))
        monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("stsbench.evaluation.provenance.git_revision", lambda: "0" * 40)
        registry._points.cache_clear()
        runs = {name: evaluate(encoder, output=tmp_path / name, sample=True, protocols=["sts-error"], no_cache=True)
                for name, encoder in {"good": "lexical:token-set", "bad": Letters(0, 9.0)}.items()}
        errors = {name: result.rows[0].value for name, result in runs.items()}
        assert errors["good"] < errors["bad"] - 0.05
        return runs

    yield make
    registry._points.cache_clear()
    sys.modules.pop("sts_error", None)


def board_of(runs, root):
    for name, result in runs.items():
        add(root, [result.folder], name, Entry(method=name, backbone="none", setting="unsup"))
    return gather(root)


def test_smaller_is_better_in_compare_table_and_board(measured, tmp_path):
    runs = measured("lower")
    done = CliRunner().invoke(cli, ["compare", str(runs["bad"].folder), str(runs["good"].folder)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "sts-error: error, not x 100, lower is better" in said and "B is better than A on STS-B by 0." in said
    assert "points" not in said

    scored = CliRunner().invoke(cli, ["score", str(runs["good"].folder)])
    value = f"{runs['good'].rows[0].value:.4f}"
    assert value in scored.output and "x 100" not in scored.output.replace("not x 100", "")

    board = board_of(runs, tmp_path / "board")
    (tab,) = [each for each in board.tabs if each.group == "sts-error"]
    assert [row.id for row in tab.measured] == ["good", "bad"] and [row.rank.position for row in tab.measured] == [1, 2]
    assert (tab.lower_is_better, tab.digits) == (True, 4)
    (column,) = next(each["columns"] for each in json.loads(site(board)["index.json"])["tabs"] if each["id"] == tab.id)
    assert column == {"name": "STS-B", "better": "lower", "lower_is_better": True}
    assert len(list((tmp_path / "board" / "observations").glob("sts-error.*.parquet"))) == 1  # what the data decide


def test_a_metric_that_only_describes_ranks_nothing(measured, tmp_path):
    runs = measured("neither")
    done = CliRunner().invoke(cli, ["compare", str(runs["bad"].folder), str(runs["good"].folder)])
    assert re.search(r"A is higher than B\s+on\s+STS-B", done.output) and "better" not in done.output
    (tab,) = [each for each in board_of(runs, tmp_path / "board").tabs if each.group == "sts-error"]
    assert {row.unranked for row in tab.measured} == {"not ranked: neither a higher nor a lower error is better"}
    assert not any(row.rank for row in tab.measured)
