"""Poolers against formulas written out, templates, and how texts are packed."""

from __future__ import annotations

import light_process
import numpy as np
import pytest
import torch

from stsbench.encoders.forward import batching
from stsbench.encoders.forward.pooling import POOLERS, STATES, check_pooler, pool
from stsbench.encoders.prompt.template import parse_template
from stsbench.errors import EncoderError


def test_poolers_on_a_worked_example():
    last = torch.tensor([[1.0, 2], [3, 4], [5, 9], [7, 7], [1, 0]])
    other = torch.zeros(5, 2) + 2
    groups = [(1, 3), (2, 1)]
    assert pool("cls", [last], groups).tolist() == [[1, 2], [7, 7], [1, 0]]
    assert pool("mean", [last], groups).tolist() == [[3, 5], [7, 7], [1, 0]]
    assert pool("cls_avg", [last], groups).tolist() == [[2, 3.5], [7, 7], [1, 0]]
    assert pool("max", [last], groups).tolist() == [[5, 9], [7, 7], [1, 0]]
    assert pool("last2", [other, last], groups).tolist() == [[2.5, 3.5], [4.5, 4.5], [1.5, 1]]
    assert pool("mask", [last], groups, torch.tensor([1, 3, 4])).tolist() == [[3, 4], [7, 7], [1, 0]]
    assert pool("cls+dense", [last], groups, dense=lambda x: x * 2).tolist() == [[2, 4], [14, 14], [2, 0]]


def test_first_last_names_say_which_first():
    assert STATES["first_last:embeddings"] == (0, -1)
    assert STATES["first_last:layer1"] == (1, -1)


def test_pooler_errors():
    with pytest.raises(EncoderError, match=r"folder stores no pooler: .*first_last:embeddings"):
        check_pooler(None, "folder")
    with pytest.raises(EncoderError, match="did you mean first_last:layer1"):
        check_pooler("first_last:layer", "folder")
    assert [check_pooler(name, "folder") for name in POOLERS] == list(POOLERS)


@pytest.mark.parametrize("mark", ["{}", "[X]"])
@pytest.mark.parametrize("mask", ["[MASK]", "{mask}"])
def test_templates(mark, mask):
    template = parse_template(f"This sentence : \"{mark}\" means {mask} .", "<mask>", True)
    assert template.fill("{} [MASK] [X]") == 'This sentence : "{} [MASK] [X]" means <mask> .'
    assert template.mask_last
    assert not parse_template(f"{mask} : {mark}", "<mask>", True).mask_last


@pytest.mark.parametrize(("template", "token", "message"), [
    (None, "[MASK]", "needs --template"), ("{} means", "[MASK]", "exactly once"),
    ("means [MASK]", "[MASK]", "sentence"), ("{} [X] [MASK]", "[MASK]", "sentence"),
    ("{} [MASK]", None, "no mask token"), ("{} [MASK] {mask}", "m", "exactly once"),
])
def test_template_errors(template, token, message):
    with pytest.raises(EncoderError, match=message):
        parse_template(template, token, True)


def test_batches_keep_to_the_budget_and_cover_every_text():
    lengths = np.sort(np.random.default_rng(0).integers(1, 60, 500))[::-1].copy()
    start = 0
    while start < len(lengths):
        stop = batching.batch_end(lengths, start, 256)
        assert stop > start
        assert int(lengths[start]) * (stop - start) <= 256
        groups = batching.groups(lengths[start:stop])
        assert sum(texts * length for texts, length in groups) == lengths[start:stop].sum()
        start = stop
    assert batching.batch_end(np.array([900, 900]), 0, 256) == 1  # a text longer than the budget goes alone


def test_listing_poolers_imports_no_torch():
    code = (
        "import sys, stsbench.encoders.transformer.lazy, stsbench.encoders.transformer.find\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = light_process.run(code)
    assert done.returncode == 0, done.stderr
