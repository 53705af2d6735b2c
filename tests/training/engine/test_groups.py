"""Rows that go together: batches of whole groups, views of other numbers of texts, candidates to choose from."""

from types import SimpleNamespace

import numpy as np
import pytest

from stsbench.errors import StsbenchError
from stsbench.training.api import Inference, Method, Needs, Options, Views
from stsbench.training.api.checks import check_candidates
from stsbench.training.engine.loop import Loop
from stsbench.training.engine.selection import Selection
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.training.rows.batches import Batches


class Paired(Method):
    chosen = None

    @classmethod
    def needs(cls, options):
        return Needs(group_size=2)

    def candidates(self):
        return {name: Inference(self.backbone.model, self.backbone.tokenizer, name) for name in ("cls", "mean", "max")}

    def choose(self, name):
        self.chosen = name


@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_hold_whole_groups(drop_last):
    """25 rows in groups of 3, 9 a batch: the last batch has two groups, and one row is left over."""
    settings = TrainingSettings(batch_size=9, drop_last=drop_last, epochs=2)
    made = Batches(np.arange(25), settings, seed=1, group=3)
    sizes = [len(part) for step in range(made.steps_an_epoch) for part in made.step(step)]
    assert sizes == ([9, 9] if drop_last else [9, 9, 6]) and made.dropped == (7 if drop_last else 1)
    first = np.concatenate([part for step in range(made.steps_an_epoch) for part in made.step(step)])
    assert len(set(first.tolist())) == len(first) == 25 - made.dropped
    plain = Batches(np.arange(25), settings, seed=1)  # the order is that of rows without groups
    assert np.array_equal(plain.step(0)[0], made.step(0)[0])


def test_more_processes_than_examples(backbone):
    loop = SimpleNamespace(accelerator=SimpleNamespace(num_processes=3))
    with pytest.raises(StsbenchError, match=r"a batch has 2 examples for 3 processes: set training.drop_last"):
        Loop._share(loop, Views([backbone.tokenise(["a cat", "a dog"])]))


def test_the_best_candidate_is_chosen(backbone):
    method = Paired(backbone.eval(), Options())
    score, more = Selection("sts-b dev", sample=True)(method)
    assert set(more) == {"encoder", "encoders"} and list(more["encoders"]) == ["cls", "mean", "max"]
    assert len(set(more["encoders"].values())) == 3
    assert score == max(more["encoders"].values()) == more["encoders"][method.chosen] and more["encoder"] == method.chosen
    method.candidates = dict
    method.inference = lambda: Inference(backbone.model, backbone.tokenizer, "mean")
    alone, nothing = Selection("sts-b dev", sample=True)(method)
    assert alone == more["encoders"]["mean"] and nothing == {}


def test_candidates_that_are_none(backbone):
    method = Paired(backbone, Options())
    check_candidates(method, "sts-b dev")
    with pytest.raises(StsbenchError, match=r"paired chooses among cls, mean, max by .* selection\.by is none"):
        check_candidates(method, "none")
    method.candidates = lambda: {"one": backbone.model}
    with pytest.raises(StsbenchError, match=r"candidates.* must give name -> Inference"):
        check_candidates(method, "sts-b dev")
