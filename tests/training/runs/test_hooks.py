"""A mistake in any hook of a method is one line that names class, hook and file."""

from __future__ import annotations

import pytest
import tiny_models
from training_runs import one_thread

import stsbench
from stsbench.errors import StsbenchError

__all__ = ["one_thread"]
TOY = """
from stsbench.training.api import Method, Term, Views

class Toy(Method):
    def views(self, rows, rng):
        return Views([rows.ids("sentence")])

    def forward(self, batch):
        return {"sum": Term(self.vectors(batch.ids, batch.mask).mean(), len(batch))}

"""
HOOKS = {
    "prepare": "self, rows", "start_stage": "self, stage", "notes": "self", "metrics": "self", "diagnose": "self",
    "inputs": "self", "counts": "self, batch", "needs": "cls, options",
    "candidates": "self", "stages_for": "cls, options",
}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("hooks")
    tiny_models.build(place / "bert", pooler=False)
    (place / "text.txt").write_text("\n".join(tiny_models.sentences(16, longest=6)) + "\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        yield place


def trained(place, folder, code):
    (folder / "toy.py").write_text(TOY + code, "utf-8")
    (folder / "toy.yaml").write_text("backbone: {model: x}\n", "utf-8")
    values = {
        "backbone.model": str(place / "bert"), "data.file": str(place / "text.txt"), "training.batch_size": 8,
        "training.accumulate": 2, "training.max_steps": 1,
    }
    stsbench.train(f"{folder / 'toy.py'}:Toy", output=folder / "out", recipe=folder / "toy.yaml", settings=values,
                   device="cpu", sample=True)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_fails(place, tmp_path, hook):
    decorator = "    @classmethod\n" if HOOKS[hook].startswith("cls") else ""
    code = f"{decorator}    def {hook}({HOOKS[hook]}):\n        return {{}}['what is not there']\n"
    with pytest.raises(StsbenchError, match=rf"^Toy\.{hook} failed .*\(toy\.py:\d+\): KeyError: 'what is not there'$"):
        trained(place, tmp_path, code)


@pytest.mark.parametrize("field", ["roles", "usable"])
def test_a_choice_that_fails(place, tmp_path, field):
    code = f"""    @classmethod
    def needs(cls, options):
        from stsbench.training.api import Needs
        return Needs({field}=lambda *rows: {{}}["what is not there"])
"""
    message = rf"^Toy\.needs\(\)\.{field} failed \(toy\.py:\d+\): KeyError: 'what is not there'$"
    with pytest.raises(StsbenchError, match=message):
        trained(place, tmp_path, code)


def test_hooks_that_do_nothing(place, tmp_path):
    trained(place, tmp_path, "")
    assert (tmp_path / "out" / "train.json").is_file()


@pytest.mark.parametrize("said", ["()", '("main", "more")'])
def test_stages_that_there_are_not(place, tmp_path, said):
    code = f"    @classmethod\n    def stages_for(cls, options):\n        return {said}\n"
    with pytest.raises(StsbenchError, match=r"stages_for .* must give a tuple of stages \(main\)"):
        trained(place, tmp_path, code)
