"""The method trains, and its loss is the one that a double loop computes."""

from math import exp, log
from pathlib import Path

import pytest
from torch.nn.functional import normalize

import stsbench
from stsbench.training.api import Batch, Shares
from stsbench.training.runs.finish import load_trained

METHOD = f"{Path(__file__).with_name('example_module.py')}:Example"
TEXTS = ["A boat lies on the sand.", "Two nurses wait.", "It rains.", "A baker sells six loaves."]


@pytest.fixture(scope="module")
def method(tmp_path_factory):
    """Return the method after one step from MiniLM."""
    run = tmp_path_factory.mktemp("training") / "run"
    stsbench.train(METHOD, data=TEXTS, dev="none", max_steps=1, device="cpu", output=run)
    return load_trained(run, "cpu", method=METHOD).eval()


def test_loss_is_that_of_a_double_loop(method):
    read = method.backbone.tokenizer(TEXTS * 2, padding=True, return_tensors="pt")
    batch = Batch(read["input_ids"], read["attention_mask"], views=2, shares=Shares((len(TEXTS),)))
    vectors = normalize(method.vectors(batch.ids, batch.mask)).tolist()
    first, second = vectors[: len(TEXTS)], vectors[len(TEXTS) :]
    losses = []
    for queries, keys in ((first, second), (second, first)):
        for row, query in enumerate(queries):
            cosines = [sum(x * y for x, y in zip(query, key, strict=True)) for key in keys]
            exponentials = [exp(cosine / method.options.temperature) for cosine in cosines]
            losses.append(-log(exponentials[row] / sum(exponentials)))
    assert method(batch)["contrastive"].value.item() == pytest.approx(sum(losses) / len(losses), rel=1e-4, abs=1e-6)
