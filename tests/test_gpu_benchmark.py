"""benchmarks/gpu: every method is in it, and it goes on behind what fails."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from shipped_recipes import METHODS

from stsbench.training.recipes.methods import load_method

PLACE = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu"


@pytest.fixture
def modules(monkeypatch):
    """The benchmark's modules by name; they are as they were found afterwards."""
    monkeypatch.syspath_prepend(str(PLACE))
    names = [path.stem for path in PLACE.glob("*.py")]
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules and name != "__main__"}
    spec = importlib.util.spec_from_file_location("gpu_main", PLACE / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    parts = ("cases", "families", "report", "setting")
    yield SimpleNamespace(main=main, **{name: importlib.import_module(name) for name in parts})
    for name in {*names} - {"__main__"}:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_every_method_is_trained_by_a_recipe_that_holds(modules):
    assert {method for method, _ in modules.cases.CASES.values()} == set(METHODS)
    for name in modules.cases.CASES:
        recipe = modules.cases.recipe_of(name, "model", "bf16")
        assert recipe.precision == "bf16" and recipe.backbone.dropout == 0 and recipe.selection.every == 1
        kind = load_method(recipe.method)
        assert "," not in name and not recipe.training.batch_size % kind.needs(kind.Options(**recipe.options)).group_size


def test_a_family_whose_texts_mix_has_failed(modules, monkeypatch, tmp_path):
    families, setting = modules.families, modules.setting.Setting("cpu", str(tmp_path), None)
    small = {**families._WIDTH, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32}
    monkeypatch.setattr(families, "FAMILIES", {"bert": ("Bert", small)})
    row = families.measure("bert", setting)
    assert row["status"] == "ok" and row["float32: differs"] < 1e-6 and row["float32: kernel"] == 0
    monkeypatch.setattr(families, "_compare", lambda name, precision, setting: (0.2, 4, 1.5))
    row = families.measure("bert", setting)
    assert row["status"] == "failed" and row["why"].startswith("bf16: states in a row differ by 2.0e-01")


def test_it_goes_on_behind_what_fails(modules, monkeypatch, tmp_path):
    """The first process ends after a failure, the second dies without a word, the third is too late."""
    setting = modules.setting.Setting("cuda", str(tmp_path), None)
    monkeypatch.setattr(type(setting), "names", lambda this, part: list("abcde"))
    answers = [
        [{"name": "a", "status": "ok"}, {"name": "b", "status": "failed", "why": "an illegal address", "ended": True}],
        [{"name": "c", "status": "ok"}], subprocess.TimeoutExpired("python", 1, output=b"")]
    asked = []

    def run(command, **options):
        asked.append(command[-1])
        answer = answers[len(asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        lines = [json.dumps({"part": "methods", **row}) for row in answer]
        return SimpleNamespace(stdout="\n".join(["a word of a library", *lines]), stderr="Segmentation fault\n")

    monkeypatch.setattr(subprocess, "run", run)
    rows = modules.main.run_part("methods", setting, 60)
    assert asked == ["a,b,c,d,e", "c,d,e", "e"]
    assert "".join(row["name"] for row in rows) == "abcde"
    assert [row["status"] for row in rows] == ["ok", "failed", "ok", "failed", "failed"]
    assert rows[3]["why"] == "Segmentation fault" and "not done within" in rows[4]["why"]
