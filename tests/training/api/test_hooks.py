"""A mistake in any hook of a method is one line that names class, hook and file."""

from __future__ import annotations

import pytest

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


def trained(place, folder, code):
    (folder / "toy.py").write_text(TOY + code, "utf-8")
    (folder / "toy.yaml").write_text("backbone: {model: x}\n", "utf-8")
    values = {
        "backbone.model": str(place / "tiny"), "data.file": str(place / "text.txt"), "training.batch_size": 8,
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
