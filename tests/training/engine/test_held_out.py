"""A held-out loss is the mean of each term over its own items, whatever batches they lie in."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_models
from hypothesis import given
from hypothesis import strategies as st
from torch import nn, tensor
from training_runs import one_thread

import stsbench
from stsbench.training.api import Method, Term
from stsbench.training.engine.selection import held_out_score

__all__ = ["one_thread"]
WEIGHTS = {"tokens": 0.5, "rows": 2.0, "pairs": 1.0}


class Counted(Method):
    """A batch is its terms: name -> (value, items), and maybe a weight."""

    def __init__(self):
        nn.Module.__init__(self)

    def forward(self, batch):
        return {name: Term(tensor(value), items, *(weight or [WEIGHTS[name]]))
                for name, (value, items, *weight) in batch.items()}


def score(batches):
    return held_out_score(Counted(), iter(batches))


def test_three_and_sixty_masked_tokens():
    """-2.5 by batches of equal rows."""
    assert score([{"pairs": (1.0, 3)}, {"pairs": (4.0, 60)}]) == pytest.approx(-(3 + 240) / 63)


def test_a_weight_that_is_the_size_of_the_batch_does_not_weigh_its_items():
    """As that of a loss that is a sum over the batch: the rows of a last, small batch count as much as the others."""
    both = (1.19, 0.0), (1.0, 4.0)
    better, worse = ([{"pairs": (large, 60, 60.0)}, {"pairs": (small, 3, 3.0)}] for large, small in both)
    assert score(better) == pytest.approx(-(1.19 * 60 / 63) * (3600 + 9) / 63)
    assert score(better) > score(worse)


ITEMS = st.lists(st.floats(-8, 8, width=32), max_size=6)


@given(st.lists(st.fixed_dictionaries({name: ITEMS for name in WEIGHTS}), min_size=1, max_size=5))
def test_the_mean_over_items_however_they_are_batched(batches):
    """The items of each term, in batches and as one; a term without an item in a batch, or in any, changes nothing."""
    together = {name: [value for batch in batches for value in batch[name]] for name in WEIGHTS}
    if not any(together.values()):
        return
    expected = -sum(WEIGHTS[name] * np.mean(values) for name, values in together.items() if values)
    for parts in (batches, [together]):
        terms = [{name: (float(np.mean(values)) if values else 0.0, len(values)) for name, values in part.items()}
                 for part in parts]
        assert score(terms) == pytest.approx(expected, abs=1e-4)


LOGGED = """
from stsbench.training.api import Method, Term, Views

class Toy(Method):
    steps = 0

    def views(self, rows, rng):
        return Views([rows.ids("sentence")])

    def forward(self, batch):
        self.steps += 1
        zero = self.vectors(batch.ids, batch.mask).sum() * 0
        rare = Term(zero + 4, 2) if self.steps % 2 else Term(zero, 0)
        terms = {"main": Term(zero + 1, len(batch)), "rare": rare, "never": Term(zero, 0)}
        return {**terms, "drawn": Term(zero + 3, len(batch))} if self.steps % 2 else terms
"""


def test_a_step_without_an_item_of_a_term_has_no_mean_of_it(tmp_path, monkeypatch):
    """Logged were its zeros, which halved the mean; the step's loss stays their sum."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    tiny_models.build(tmp_path / "bert", pooler=False)
    (tmp_path / "text.txt").write_text("\n".join(tiny_models.sentences(40, longest=6)) + "\n", "utf-8")
    (tmp_path / "toy.py").write_text(LOGGED, "utf-8")
    (tmp_path / "toy.yaml").write_text("backbone: {model: x}\n", "utf-8")
    values = {"backbone.model": str(tmp_path / "bert"), "data.file": str(tmp_path / "text.txt"), "selection.by": "none",
              "training.batch_size": 8, "training.max_steps": 4,
              "training.epochs": 9}
    stsbench.train(f"{tmp_path / 'toy.py'}:Toy", output=tmp_path / "out", recipe=tmp_path / "toy.yaml", settings=values,
                   device="cpu")
    log = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    (line,) = [line for line in log if line["kind"] == "train"]
    assert line["terms"] == {"main": 1.0, "rare": 4.0, "drawn": 3.0} and line["loss"] == (8 + 1) / 2
