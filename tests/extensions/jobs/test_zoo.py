"""benchmarks/zoo.yaml repeats, word for word but for places, the commands that made the rows of its backbone."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from pathlib import Path

from stsbench.evaluation.run_file import load_records
from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.plan_file import read_plan
from stsbench.extensions.jobs.plan_run import entry_runs

ROOT = Path(__file__).resolve().parents[3]
ZOO = ROOT / "benchmarks" / "zoo.yaml"
PLACES = {"--output", "--data-dir", "--eval", "--protocol", "--model", "--backbone", "--device"}


def essence(words):
    """A command without folders, devices and the protocols of its test."""
    kind, *rest = (word for word in words if word != "--resume")
    method = rest.pop(0) if not rest[0].startswith("--") else None
    said = defaultdict(list)
    for option, value in zip(rest[::2], rest[1::2], strict=True):
        key, equals, number = value.partition("=")
        if equals and number[:1].isdigit():
            value = f"{key}={float(number)}"
        said[option].append(Path(value).name if option in ("--data", "--labelled") else value)
    return kind, method, tuple(sorted((key, *sorted(each)) for key, each in said.items() if key not in PLACES))


def test_every_command_of_the_records_is_in_the_zoo():
    plan = read_plan(ZOO)
    jobs = expand(plan, str(ZOO))
    zoo = {essence(job.words) for job in jobs}
    runs = (ROOT / "leaderboard" / "measured").glob("minilm-mlm32-*/*/run.parquet")
    commands = {tuple(record.provenance["command"]) for run in runs for _, record in load_records(run)}
    assert len(commands) >= 48
    assert [command for command in sorted(commands) if essence(command[1:]) not in zoo] == []
    runs = {each.entry.name: each for each in entry_runs(plan, jobs)}
    entries = {path.name for path in (ROOT / "leaderboard" / "measured").glob("minilm-mlm32-*")}
    again = {"minilm-mlm32-simcse-again"}  # the job simcse, from the checkpoint that was trained again
    assert entries - again <= set(runs)
    assert all(len({job.needs for job in each.jobs}) in (1, 3) for each in runs.values())


def test_documents_begin_at_titles():
    spec = importlib.util.spec_from_file_location("wiki_documents", ROOT / "benchmarks" / "wiki_documents.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = [
        "Red boats", "They float.", "History", "Nobody knows more than that.", "a small word", "It stands here.",
        "Ends so:", "Yes.", "One two three four five six Seven", "No.", "Last title", "without an end", "No title",
    ]
    assert module.documents(lines) == [lines[:2], lines[2:]]
