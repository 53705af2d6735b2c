"""The board in this repository: its measured rows against figures that others published, what it weighs, what its workflow
may do and installs. Whether all of it follows from the records is for `make board`."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

from stsbench.evaluation.run_file import RUN, load_records
from stsbench.leaderboard.ranks.provenance import _costs
from stsbench.protocols.sts import AVERAGED

BOARD = Path(__file__).resolve().parents[2] / "leaderboard"
# MTEB's published scores of all-MiniLM-L6-v2; its SICK-R is of 9,927 pairs.
MTEB = {"STS12": 72.37, "STS13": 80.60, "STS14": 75.59, "STS15": 85.39, "STS16": 78.99, "STS-B": 82.03, "SICK-R-MTEB": 77.58}
# The token-set encoder's Spearman x 100, worked out apart from this code: all, mean, wmean.
TOKEN_SET = {"STS12": (43.90, 52.29, 53.10), "STS13": (49.58, 42.96, 49.85), "STS14": (52.66, 58.90, 60.27),
             "STS15": (67.68, 63.93, 66.28), "STS16": (57.36, 57.66, 58.79)}
WORKFLOW = BOARD.parent / ".github/workflows/pages.yml"


def records_of(name):
    return [record for run in (BOARD / "measured" / name).glob(f"*/{RUN}") for _, record in load_records(run)]


def sts_values(name):
    """(task, aggregation) -> the stored Spearman of the entry's only run."""
    return {(row.task, row.aggregation): row.value for record in records_of(name) for row in record.scores
            if (record.protocol.label, row.metric, row.subset) == ("sts", "spearman", None)}


def test_minilm_is_what_mteb_publishes_and_token_set_what_was_worked_out_elsewhere():
    values = sts_values("minilm-mean")
    assert {task: round(values[task, "all"], 2) for task in MTEB} == pytest.approx(MTEB, abs=0.0101)
    assert round(np.mean([round(values[task, "all"], 2) for task in AVERAGED]), 2) == 78.87
    values = sts_values("token-set")
    for task, figures in TOKEN_SET.items():
        assert [values[task, how] for how in ("all", "mean", "wmean")] == pytest.approx(figures, abs=0.0151), task


def test_the_board_is_small_and_a_run_s_folder_holds_its_file_alone():
    sizes = [file.stat().st_size for file in (BOARD / "measured").glob(f"*/*/{RUN}")]
    assert max(sizes) < 400_000 and sum(sizes) < 160_000 * len(sizes)
    assert sum(path.stat().st_size for path in (BOARD / "observations").iterdir()) < 2_500_000  # once for all runs
    assert {path.name for run in (BOARD / "measured").glob("*/*/") for path in run.iterdir()} == {RUN}


def test_weights_in_half_precision_take_half_the_room():
    costs = {name: next(cost for record in records_of(name) if (cost := _costs([record])).get("parameters"))
             for name in ("mpnet-bfloat16", "mpnet-mean")}
    assert costs["mpnet-bfloat16"]["weights_mb"] == pytest.approx(2 * costs["mpnet-mean"]["parameters"] / 1e6)
    assert "weights_mb" not in costs["mpnet-mean"]


def test_only_the_job_that_runs_nothing_may_publish_and_no_step_commits_or_reads_what_git_ignores():
    workflow = yaml.safe_load(WORKFLOW.read_text())
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {}
    assert jobs["board"]["permissions"] == jobs["site"]["permissions"] == {"contents": "read"}
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert [list(step) for step in jobs["deploy"]["steps"]] == [["id", "uses"]]
    assert "pull_request_target" not in WORKFLOW.read_text() and "git push" not in WORKFLOW.read_text()
    assert all(job["timeout-minutes"] <= 30 for job in jobs.values())
    scripts = "\n".join(step.get("run", "") for name in ("board", "site") for step in jobs[name]["steps"])
    assert "git commit" not in scripts and "leaderboard/site" not in scripts
    assert not re.search(r"\$\{\{\s*github\.(event|head_ref)", scripts)  # what a stranger names would run as a command
    # There is one deployment, with the board below the site.
    workflows = [path.read_text() for path in WORKFLOW.parent.glob("*.yml")]
    for action in ("actions/deploy-pages", "actions/upload-pages-artifact"):
        assert sum(text.count(f"uses: {action}@") for text in workflows) == 1  # a second would replace the first
    assert (jobs["site"]["needs"], jobs["deploy"]["needs"]) == ("board", "site")
    [loaded] = [step["with"] for step in jobs["site"]["steps"] if "download-artifact" in step.get("uses", "")]
    uploaded = [step for step in jobs["board"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert [(step["with"]["name"], step.get("if")) for step in uploaded] == [(loaded["name"], None)]
    assert f"--board {loaded['path']}" in "".join(step.get("run", "") for step in jobs["site"]["steps"])


def test_the_groups_of_the_board_and_the_docs_bring_no_torch():
    project = tomllib.loads((BOARD.parent / "pyproject.toml").read_text())
    board, docs = (project["dependency-groups"][name] for name in ("board", "docs"))
    assert {*board} - {"pyarrow>=15"} <= {*project["project"]["dependencies"]} and {"include-group": "board"} in docs
    names = {re.match(r"[\w-]+", each)[0] for each in (*board, *docs) if isinstance(each, str)}
    assert "mkdocs" in names
    assert not names & {"torch", "transformers", "mteb", "accelerate", "peft", "scikit-learn", "stsbench"}
