"""A mistake in any hook of a method is one line that names class, hook and file."""

from __future__ import annotations

import pytest
import tiny_models
from training_runs import one_thread  # noqa: F401

import stsbench
from stsbench.errors import StsbenchError

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
    "inputs": "self", "counts": "self, batch", "needs": "cls, options", "candidates": "self", "stages_for": "cls, options",
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


def failing(hook):
    decorator = "    @classmethod\n" if HOOKS[hook].startswith("cls") else ""
    return f"{decorator}    def {hook}({HOOKS[hook]}):\n        return {{}}['what is not there']\n"


def needing(field):
    body = f'from stsbench.training.api import Needs; return Needs({field}=lambda *rows: {{}}["what is not there"])'
    return f"    @classmethod\n    def needs(cls, options):\n        {body}\n"


@pytest.mark.parametrize(("hook", "code"), [
    *((rf"\.{hook} failed .*", failing(hook)) for hook in HOOKS),
    *((rf"\.needs\(\)\.{field} failed ", needing(field)) for field in ("roles", "usable")),
])
def test_a_hook_or_a_choice_that_fails_is_named(place, tmp_path, hook, code):
    with pytest.raises(StsbenchError, match=rf"^Toy{hook}\(toy\.py:\d+\): KeyError: 'what is not there'$"):
        trained(place, tmp_path, code)
