"""What a sweep has found is kept: a folder belongs to one search, scores stand in the storage, a search that fails ends."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from plans import here, start  # noqa: F401
from test_sweep import run, search

from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.expand import MOST_JOBS
from stsbench.extensions.jobs.plan_file import Defaults
from stsbench.extensions.jobs.space import Space, Study, space_of_grid
from stsbench.extensions.jobs.sweep import FAILURES, _claim

pytest.importorskip("optuna")
RATES = {"training.learning_rate": {"low": 1e-6, "high": 1e-4, "log": True}}
GRID = space_of_grid(["training.learning_rate=1e-5,3e-5"])


# One folder, one search ---------------------------------------------------------------------------------------------


def of_group(chosen, **changed):
    return replace(chosen, group=chosen.group.model_copy(update=changed))


OTHERS = {
    "space.training.learning_rate.1": lambda each: replace(each, space=space_of_grid(["training.learning_rate=1e-5,1e-9"])),
    "space.training.learning_rate.0": lambda each: replace(each, space=space_of_grid(["training.batch_size=10,20"])),
    "sampler": lambda each: replace(each, sampler="random", trials=2),
    "seeds.1": lambda each: of_group(each, seeds=(1, 2)),
    "data": lambda each: of_group(each, data="other.txt"),
    "backbone.0": lambda each: of_group(each, backbone=("minilm",)),
    "max_steps": lambda each: of_group(each, max_steps=3),
    "device": lambda each: of_group(each, device=None),
    "dtype": lambda each: of_group(each, dtype="bf16"),
    "set.training.batch_size": lambda each: of_group(each, set={**each.group.set, "training.batch_size": 12}),
    "method.0": lambda each: of_group(each, method=("ct",)),
    "sample": lambda each: replace(each, defaults=Defaults(offline=True)),
    "data_dir": lambda each: replace(each, defaults=Defaults(offline=True, sample=True, data_dir="data")),
}


@pytest.mark.parametrize("key", OTHERS)
def test_another_search_is_refused_by_what_differs(here, key):
    chosen = search(GRID)
    _claim(chosen)
    other = OTHERS[key](chosen)
    assert other.name != chosen.name
    with pytest.raises(StsbenchError, match=rf"out holds another search: .*{key}\b.* was .* there and is .* here: choose "):
        _claim(other)
    _claim(chosen)


def test_other_data_under_one_name_are_another_search(here):
    _claim(search(GRID))
    Path("text.txt").write_text("One sentence.\nAnother one.\n", "utf-8")
    with pytest.raises(StsbenchError, match=r"out holds another search: content.text.txt was "):
        _claim(search(GRID))


def test_how_a_search_is_run_is_no_part_of_it(here):
    chosen = search(GRID, sampler="random", trials=2)
    _claim(chosen)
    for other in (replace(chosen, trials=9), replace(chosen, prune=True), replace(chosen, defaults=Defaults(sample=True))):
        assert other.name == chosen.name
        _claim(other)


def test_trials_of_an_older_version_are_not_replaced(here):
    Path("out").mkdir()
    Path("out/trials.json").write_text('{"study": "simcse-0123456789", "trials": []}', "utf-8")
    with pytest.raises(StsbenchError, match="is of another search, or of an older version's"):
        _claim(search(GRID))


# Scores are read from the storage -----------------------------------------------------------------------------------


def test_a_run_folder_that_is_gone_or_elsewhere_takes_nothing_away(here, start):
    chosen, storage = search(GRID, seeds=(1, 2)), "sqlite:///db"
    started, results = run(chosen, start, storage=storage)
    best, trials = (Path("out", name).read_bytes() for name in ("best.yaml", "trials.json"))
    assert len(started) == 4
    for gone in (results[0].jobs[0], results[1].jobs[1]):
        shutil.rmtree(gone.folder(Path("out")))
        assert run(chosen, start, storage=storage) == ([], results)
        assert [Path("out", name).read_bytes() for name in ("best.yaml", "trials.json")] == [best, trials]
    assert run(replace(chosen, output=Path("b")), start, storage=storage) == ([], results)
    assert [Path("b", name).read_bytes() for name in ("best.yaml", "trials.json")] == [best, trials]
    assert not [path for path in Path("b").iterdir() if path.is_dir() and path.name != ".jobs"]


# A search that fails ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [1, 2, 7])
def test_failed_trials_count(tmp_path, trials):
    study = Study("s", Space.model_validate({"space": RATES}), "random", trials, tmp_path, storage=None, seed=1, prune=False)
    started = 0
    while asked := study.ask(1):
        started += 1
        assert started <= trials
        study.tell(asked[0], None if started % 2 else 50.0)
    assert started == trials == len(study.trials())


def test_ten_failures_in_a_row_end_a_sweep_by_the_last_reason(here, start):
    chosen = search(Space.model_validate({"space": RATES}), sampler="random", trials=50, **{"options.pooler_head": "x"})
    chosen = of_group(chosen, data="absent.txt", set={"selection.every": 1})
    log = []
    with pytest.raises(StsbenchError, match=r"no trial is complete; the last failed: .*absent.txt are not here: .*; see "):
        run(chosen, start, log)
    assert sum(line.endswith(": failed") for line in log) in (FAILURES, FAILURES + 1)  # two workers


@pytest.mark.parametrize("seeds, trials", [((1,), MOST_JOBS + 1), ((1, 2), MOST_JOBS // 2 + 1)])
def test_a_search_too_large_is_refused_with_its_number(seeds, trials):
    with pytest.raises(StsbenchError, match=rf"has {trials * len(seeds):,} trainings, and a sweep may have {MOST_JOBS:,}"):
        search(Space.model_validate({"space": RATES}), seeds=seeds, trials=trials, sampler="random")
    with pytest.raises(StsbenchError, match=r"has 1,000,000,000,000 trainings"):
        search(Space.model_validate({"space": {f"options.{name}": list(range(1000)) for name in "abcd"}}))


# A line that was cut off --------------------------------------------------------------------------------------------


def study(folder, log):
    space = Space.model_validate({"space": RATES})
    return Study("s", space, "random", 4, folder, storage=None, seed=1, prune=False, log=log)


def test_a_journal_cut_anywhere_in_its_last_line_is_opened_without_it(tmp_path):
    whole = study(tmp_path, print)
    for score in (1.0, 2.0):
        whole.tell(whole.ask(1)[0], score, facts={"by": "a score"})
    journal = tmp_path / ".jobs" / "study.journal"
    content = journal.read_bytes()
    last = content.rfind(b"\n", 0, -1) + 1
    for cut in (last + 1, (last + len(content)) // 2, len(content) - 7, len(content) - 1):
        journal.write_bytes(content[:cut])
        log = []
        opened = study(tmp_path, log.append)
        assert log == [f"{journal}: its last line was cut off and is left out"]
        assert [each.score for each in opened.trials()] == [1.0, None] and journal.read_bytes().startswith(content[:last])
        assert journal.read_bytes().endswith(b"\n")
        opened.ask(1)
        again = []
        study(tmp_path, again.append)
        assert not again


def test_a_journal_damaged_elsewhere_is_named_with_its_line(tmp_path):
    study(tmp_path, print).ask(1)
    journal = tmp_path / ".jobs" / "study.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], lines[1][:-9], *lines[2:]]))
    with pytest.raises(StsbenchError, match=r"study.journal:2: not JSON: the file is damaged"):
        study(tmp_path, print)
    assert json.loads(lines[0])
