"""A plan, a space or a sweep's folder from elsewhere is data: nothing that it names is imported or run, nothing outside is
read, nothing hangs or fills the memory, and an error is one line."""

import json
import shutil
from pathlib import Path

import pytest
import tiny_models
from hostile import CODE, DEEP, HUGE, SECRET, check, forbidden, written
from training_runs import one_thread  # noqa: F401

SWEEP = "sweep simcse --sample --offline --device cpu --data text.txt --max-steps 1 --set selection.every=1 --output s"
SPACE = f"{SWEEP} --backbone tiny --space space.yaml"
GRID = f"{SWEEP} --backbone tiny --grid training.learning_rate=1e-5,2e-5"
PLAN = "run plan.yaml --dry-run"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    tiny_models.build(folder / "tiny", pooler=False)
    (folder / "text.txt").write_text("\n".join(tiny_models.sentences(40, longest=9)) + "\n", "utf-8")
    (folder / "m.py").write_text(CODE, "utf-8")
    return folder


@pytest.fixture
def work(base, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    forbidden(tmp_path)
    return Path(shutil.copytree(base, tmp_path / "work"))


TRIALS = {"number": 0, "state": "complete", "values": {"a.b": 1}, "score": 1.0, "seeds": {"1": 1.0}, "runs": []}
VARIANTS = {
    # plans
    "plan set": (written("plan.yaml", "output: o\ntrain: {t: {method: simcse, set: {method: 'm.py:M'}}}"), PLAN),
    "plan seed": (written("plan.yaml", f"output: o\ntrain: {{t: {{method: simcse, seeds: [{HUGE}]}}}}"), PLAN),
    # sweeps
    "range": (written("space.yaml", f"space: {{training.warmup: {{low: 0, high: {HUGE}}}}}"), SPACE),
    "space method": (written("space.yaml", "space: {method: ['m.py:M', simcse]}"), SPACE),
    "space data": (written("space.yaml", f"space: {{data.file: ['{SECRET}.none']}}"), SPACE),
    "journal deep": (written("s/.jobs/study.journal", DEEP + "\n"), GRID),
    "trials.json huge": (written("s/trials.json", json.dumps(
        {"by": "x", "trials": [{**TRIALS, "values": {"a.b": HUGE}}, TRIALS]})), "plot sweep s")}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_plan_or_a_sweep_names_is_data(work, name):
    spoil, *commands = VARIANTS[name]
    check(work, spoil, commands)
