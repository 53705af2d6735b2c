"""Running a GitHub workflow on this machine as far as it can be: each job's steps, in order, in a fresh clone.

    python tests/support/workflow_runs.py WORKFLOW REPOSITORY OUT --event pull_request --head BRANCH

`run` steps run in bash as the runner starts it. Of actions, those that the pages' workflow uses are imitated: checkout (of a
pull request: the merge with its base, as deep as `fetch-depth` says), setup-python (a virtual environment), cache (always
empty), the uploads, download-artifact and deploy-pages (folders below OUT). There are no tokens: a step that needs one
fails, and none of these steps does.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass
class Job:
    """What a job came to. status: success, failure or skipped; log: what its steps printed; summary: Markdown."""

    status: str = "success"
    log: str = ""
    summary: str = ""
    artifacts: dict[str, Path] = field(default_factory=dict)


def run_workflow(
    workflow: Path, repository: Path, out: Path, event: str = "push", base: str = "main", head: str = "",
    python: bool = True,
) -> dict[str, Job]:
    """Job -> what it came to. python: make a virtual environment for setup-python; else the caller's is used."""
    jobs: dict[str, Job] = {}
    ref = "refs/pull/1/merge" if event == "pull_request" else f"refs/heads/{base}"
    context = {"github.event_name": event, "github.ref": ref}
    for name, job in yaml.safe_load(workflow.read_text())["jobs"].items():
        needs = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        wanted = all(jobs[each].status == "success" for each in needs) and holds(job.get("if", ""), context)
        jobs[name] = done = Job("success" if wanted else "skipped")
        if wanted:
            _run_job(job, done, repository, out / name, context, base, head, python)
    return jobs


def _run_job(
    job: dict[str, Any], done: Job, repository: Path, out: Path, context: dict[str, str], base: str, head: str, python: bool
) -> None:
    work, summary = out / "work", out / "summary.md"
    work.mkdir(parents=True)
    summary.touch()
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}  # where packages come from
    environment = {**pip, "PATH": os.environ["PATH"], "HOME": str(out), "CI": "true", "LANG": "C.UTF-8",
                   "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_EVENT_NAME": context["github.event_name"]}
    for step in job["steps"]:
        if not holds(step.get("if", ""), context):
            continue
        action, given = step.get("uses", "").partition("@")[0], step.get("with", {})
        if action == "actions/checkout":
            _clone(repository, work, context["github.event_name"], base, head, int(given.get("fetch-depth", 1)))
        elif action == "actions/setup-python":
            if python:
                venv.create(out / "python", with_pip=True)
                environment["PATH"] = f"{out / 'python' / 'bin'}:{environment['PATH']}"
        elif action in ("actions/upload-artifact", "actions/upload-pages-artifact"):
            name = given.get("name", "github-pages")
            done.artifacts[name] = Path(shutil.copytree(work / given["path"], out / "artifacts" / name))
        elif action == "actions/download-artifact":
            (source,) = out.parent.glob(f"*/artifacts/{given['name']}")
            shutil.copytree(source, work / given["path"], dirs_exist_ok=True)
        elif action == "actions/cache":
            continue  # HOME is new, and so the cache is empty
        elif action == "actions/deploy-pages":
            done.log += "deployed\n"
        elif action:
            raise ValueError(f"{action}: no imitation of this action")
        else:
            script = out / "step.sh"
            script.write_text(EXPRESSION.sub(lambda match: context[match[1]], step["run"]))
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
            ran = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
            done.log += f"$ {step.get('name', step['run'])}\n{ran.stdout}{ran.stderr}"
            if ran.returncode:
                done.status = "failure"
                break
    done.summary = summary.read_text()


def holds(condition: str, context: dict[str, str]) -> bool:
    """Whether an `if:` of the forms `x == 'y'` and `x != 'y'` holds; an empty one does."""
    if not condition:
        return True
    match = re.fullmatch(r"([\w.]+)\s*([!=]=)\s*'([^']*)'", EXPRESSION.sub(r"\1", str(condition)).strip())
    if match is None:
        raise ValueError(f"if: {condition}: only comparisons with a string are understood")
    return (context[match[1]] == match[3]) == (match[2] == "==")


def _clone(repository: Path, work: Path, event: str, base: str, head: str, depth: int) -> None:
    """`base`, or the merge of `head` into it that GitHub checks out for a pull request; `depth` commits of it."""
    full = work.with_name("merged")
    _git(Path(), "clone", "-q", "--no-local", str(repository), str(full))
    _git(full, "switch", "-q", "--detach", f"origin/{base}")
    if event == "pull_request":
        who = ("-c", "user.name=runner", "-c", "user.email=runner@example.org")
        _git(full, *who, "merge", "-q", "--no-ff", "-m", f"Merge {head} into {base}", f"origin/{head}")
    _git(full, "branch", "-f", "checked-out", "HEAD")
    _git(Path(), "clone", "-q", "--depth", str(depth), "--branch", "checked-out", full.resolve().as_uri(), str(work))
    shutil.rmtree(full)


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workflow", type=Path)
    parser.add_argument("repository", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--event", default="push")
    parser.add_argument("--base", default="main")
    parser.add_argument("--head", default="")
    options = parser.parse_args()
    jobs = run_workflow(options.workflow, options.repository.resolve(), options.out.resolve(), options.event, options.base,
                        options.head)
    for name, job in jobs.items():
        sys.stdout.write(f"=== {name}: {job.status}\n{job.log}--- summary\n{job.summary}")
        for artifact, folder in job.artifacts.items():
            files = [path for path in folder.rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files)
            sys.stdout.write(f"--- artifact {artifact}: {len(files)} files, {size:,} bytes\n")
    sys.exit(any(job.status == "failure" for job in jobs.values()))


if __name__ == "__main__":
    main()
