"""The board's workflow: what it may do and what it installs."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github/workflows/pages.yml"
@pytest.fixture(scope="module")
def jobs():
    return yaml.safe_load(WORKFLOW.read_text())["jobs"]


def test_only_the_job_that_runs_nothing_may_publish(jobs):
    assert yaml.safe_load(WORKFLOW.read_text())["permissions"] == {}
    assert jobs["board"]["permissions"] == jobs["site"]["permissions"] == {"contents": "read"}
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert [list(step) for step in jobs["deploy"]["steps"]] == [["id", "uses"]]
    assert "pull_request_target" not in WORKFLOW.read_text() and "git push" not in WORKFLOW.read_text()
    assert all(job["timeout-minutes"] <= 30 for job in jobs.values())


def test_there_is_one_deployment_with_the_board_below_the_site(jobs):
    workflows = [path.read_text() for path in WORKFLOW.parent.glob("*.yml")]
    for action in ("actions/deploy-pages", "actions/upload-pages-artifact"):
        assert sum(text.count(f"uses: {action}@") for text in workflows) == 1  # a second would replace the first
    assert (jobs["site"]["needs"], jobs["deploy"]["needs"]) == ("board", "site")
    [loaded] = [step["with"] for step in jobs["site"]["steps"] if "download-artifact" in step.get("uses", "")]
    uploaded = [step for step in jobs["board"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert [(step["with"]["name"], step.get("if")) for step in uploaded] == [(loaded["name"], None)]
    assert f"--board {loaded['path']}" in "".join(step.get("run", "") for step in jobs["site"]["steps"])


def test_no_step_of_board_and_site_commits_or_reads_what_git_ignores(jobs):
    scripts = "\n".join(step.get("run", "") for name in ("board", "site") for step in jobs[name]["steps"])
    assert "git commit" not in scripts and "leaderboard/site" not in scripts
    assert not re.search(r"\$\{\{\s*github\.(event|head_ref)", scripts)  # what a stranger names would run as a command


def test_the_groups_of_the_board_and_the_docs_bring_no_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    board, docs = (project["dependency-groups"][name] for name in ("board", "docs"))
    assert {*board} - {"pyarrow>=15"} <= {*project["project"]["dependencies"]} and {"include-group": "board"} in docs
    names = {re.match(r"[\w-]+", each)[0] for each in (*board, *docs) if isinstance(each, str)}
    assert "mkdocs" in names
    assert not names & {"torch", "transformers", "mteb", "accelerate", "peft", "scikit-learn", "stsbench"}
