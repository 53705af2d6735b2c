"""`robustness:FILE`: settings, rows that repeat, when an evaluation is done, what the board knows of the catalog's set."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from stsbench import evaluate
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import load_records, observations_of
from stsbench.evaluation.schema import ITEM
from stsbench.extensions.jobs.content import check_jobs
from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.plan_file import made_plan
from stsbench.extensions.jobs.state import is_done, missing_records
from stsbench.leaderboard.records.admission import expected

MODEL, N, TIMES = "lexical:token-set", 24, 6
WORDS = ("cat", "dog", "horse", "bird", "fish")
PAIRS = [(f"a {WORDS[i % 5]} number {i} sits", f"the {WORDS[i % 3]} of {i % 7} runs", i % 4) for i in range(N)]
OWN = {
    "robustness:": ("text\tkept\tchanged", [f"{one}\t{two}\tnot {one}" for one, two, _ in PAIRS]),
    "robustness:pairs:": ("sentence1\tsentence2\tscore", [f"{one}\t{two}\t{score}" for one, two, score in PAIRS]),
}
NOT_WHOLE = ("x", -1, 1.5, True, None, 2**32, [1])
WRONG = {  # setting: values that cannot be used
    "similarity": ("cosin", None), "resamples": NOT_WHOLE, "seed": NOT_WHOLE, "edit_seed": NOT_WHOLE,
    "rules": ([], {}, None, "typos", ["typo", "typo"]), "source": ("stsb", None), "scored": (False, None),
    "share": ("x", 0, -0.5, math.nan, math.inf, True, None, 10**400, 1.5),
}


@pytest.fixture(params=OWN)
def own(request, tmp_path, monkeypatch):
    """The protocol before the file's name; once.tsv, and six.tsv with every row so often."""
    monkeypatch.chdir(tmp_path)
    header, rows = OWN[request.param]
    for name, times in (("once.tsv", 1), ("six.tsv", TIMES)):
        Path(name).write_text("\n".join([header, *rows * times]) + "\n")
    return request.param


@pytest.mark.parametrize("key", WRONG)
def test_wrong_values_are_one_line(key):
    for value in WRONG[key]:
        with pytest.raises(StsbenchError) as caught:
            load_protocol("robustness")({key: value})
        line = str(caught.value)
        assert re.match(rf"robustness: {key}(\.\w+)? must be ", line) and "\n" not in line and len(line) < 250, line


def test_every_setting_is_checked():
    kind = load_protocol("robustness")
    assert {*WRONG} >= {*kind({}).settings, *(key for form in kind.variants for key in kind.variant(form))}


def test_rows_that_repeat_change_no_score_and_no_count(own):
    once, six = (evaluate(MODEL, protocol=f"{own}{name}.tsv", output=name, resamples=20) for name in ("once", "six"))
    plain, again = ({(row.subset, row.metric): row for row in run.rows} for run in (once, six))
    assert plain.keys() == again.keys()
    for key, row in plain.items():
        assert again[key].n == row.n and again[key].value == pytest.approx(row.value, abs=1e-9)
    [record] = six.records
    assert record.counts["items"] == N and record.data.n == N * TIMES
    assert record.data.warnings[0].startswith(f"{N * TIMES} rows of six.tsv are {N} different items")
    [(path, stored)] = load_records(six.folder)
    assert rescored(path, stored)[1] == record.scores
    assert ITEM not in observations_of(once.folder, once.records[0]).arrays


def test_an_evaluation_is_done_until_the_file_changes(own):
    plan = made_plan({"output": "out", "eval": {"own": {"model": MODEL, "protocols": [f"{own}once.tsv"]}}}, "plan.yaml")
    [job], out, path = expand(plan, "plan.yaml"), Path("out"), Path("once.tsv")
    assert not is_done(job, out)
    evaluate(MODEL, protocol=f"{own}once.tsv", output=job.folder(out), sample=True)
    assert missing_records(job, job.folder(out)) == [] and is_done(job, out)
    check_jobs([job], out, plan.defaults)
    path.write_text(path.read_text().replace("number 3", "number three"))
    assert not is_done(job, out)
    with pytest.raises(StsbenchError, match="is not what it was when jobs in out read it"):
        check_jobs([job], out, plan.defaults)


def test_what_the_catalogs_set_decides_is_known_to_the_board():
    assert all(len(sha) == 64 for sha in expected()["robustness"]["stsb/test"].values())
    assert "gold" in expected()["robustness"]["stsb/test"]
