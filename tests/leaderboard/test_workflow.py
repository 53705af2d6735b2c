"""The board's workflow: what it may do, what it installs, and the runner that repeats it on a machine of one's own.

`python tests/support/workflow_runs.py` runs it whole; that installs packages, and is not for the suite.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from workflow_runs import holds, run_workflow

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github/workflows/pages.yml"
SMALL = """
jobs:
  board:
    steps:
      - uses: actions/checkout@v4
        with: {fetch-depth: 2}
      - run: |
          mkdir public
          cp page.txt public
          git diff --name-only HEAD^1 >> "$GITHUB_STEP_SUMMARY"
          test "${{ github.event_name }}" = "$GITHUB_EVENT_NAME"
      - if: github.event_name == 'pull_request'
        run: "! grep -q bad page.txt"
      - uses: actions/upload-artifact@v4
        if: github.event_name == 'pull_request'
        with: {name: board, path: public}
  deploy:
    if: github.event_name != 'pull_request'
    needs: board
    steps:
      - uses: actions/deploy-pages@v4
"""


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


@pytest.fixture
def repository(tmp_path):
    """main with a page, and the branches `good` and `bad` that change it."""
    home = tmp_path / "repository"
    home.mkdir()

    def commit(text):
        (home / "page.txt").write_text(text)
        for command in (("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", text)):
            subprocess.run(["git", *command], cwd=home, check=True)

    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=home, check=True)
    commit("first")
    for name in ("good", "bad"):
        subprocess.run(["git", "switch", "-q", "-c", name, "main"], cwd=home, check=True)
        commit(name)
    subprocess.run(["git", "switch", "-q", "main"], cwd=home, check=True)
    (home / "other.txt").write_text("meanwhile")
    commit("first")
    (tmp_path / "small.yml").write_text(SMALL)
    return home


def test_the_runner_merges_deploys_and_stops_where_a_step_fails(repository, tmp_path):
    def run(name, **more):
        return run_workflow(tmp_path / "small.yml", repository, tmp_path / name, python=False, **more)

    pushed = run("pushed")
    assert (pushed["board"].status, pushed["deploy"].status) == ("success", "success"), pushed["board"].log
    good = run("good", event="pull_request", head="good")
    assert (good["board"].status, good["deploy"].status) == ("success", "skipped"), good["board"].log
    assert good["board"].summary == "page.txt\n"  # what the branch changes, not what main gained meanwhile
    assert (good["board"].artifacts["board"] / "page.txt").read_text() == "good"
    bad = run("bad", event="pull_request", head="bad")
    assert (bad["board"].status, bad["board"].artifacts) == ("failure", {})


def test_conditions_that_are_not_understood_are_errors():
    context = {"github.event_name": "push"}
    assert holds("", context) and holds("github.event_name == 'push'", context)
    assert holds("${{ github.event_name != 'pull_request' }}", context)
    with pytest.raises(ValueError, match="always"):
        holds("always()", context)
