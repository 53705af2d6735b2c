"""A similarity that an extension registers compares texts without their vectors."""

import numpy as np
import pytest

from stsbench import evaluate, registry
from stsbench.encoders.base import Encoder, EncoderSpec
from stsbench.encoders.similarity import GROUP, Compared
from stsbench.errors import EncoderError
from stsbench.evaluation.run_file import read_observations

ROWS = [("a", "a dog", 0.5), ("a cat", "a", 1.5), ("a", "a", 5), ("the rain", "rain", 4)]


def longer(encoder, first, second):
    values = [-abs(len(a) - len(b)) for a, b in zip(first, second, strict=True)]
    return Compared(np.array(values, float), np.array([len(a) > 5 for a in first]))


class Judging(Encoder):
    """Compares texts by their lengths."""

    text_similarities = ("longer",)

    def __init__(self):
        self.spec = EncoderSpec("judging", "judging", "0" * 64)

    def run(self, texts, progress=None):
        raise EncoderError("judging has no vectors")


@pytest.mark.parametrize(("model", "options"), [(Judging(), {}), ("lexical:token-set", {"similarity": "longer"})], ids=str)
def test_pairs_are_compared_and_no_text_is_encoded(monkeypatch, model, options):
    monkeypatch.setitem(registry._of_files, GROUP, {"longer": longer})
    with pytest.warns(match="1 pairs were truncated"):
        result = evaluate(model, sts=ROWS, resamples=0, **options)
    [record] = result.records
    assert read_observations(result.folder, record).arrays["similarity"].tolist() == [-4, -4, 0, -4]
    assert (record.protocol.settings["similarity"], record.encoder.dimension) == ("longer", 0)
    assert record.counts == {"zero_vectors": 0, "truncated": 1}
