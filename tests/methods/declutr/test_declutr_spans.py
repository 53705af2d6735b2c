"""Which spans DeCLUTR draws: replayed from given draws against the sampling written out, and what holds of all of them."""

from itertools import pairwise

import numpy as np
import pytest
from declutr_oracle import GivenDraws, NotedDraws, naive_spans, spans_of

from stsbench.methods.declutr.options import DeCLUTROptions
from stsbench.methods.declutr.spans import RandomDraws, least, sample_spans

SHAPES = [(1, 1), (1, 3), (2, 2), (3, 1), (4, 2)]  # anchors, positives


@pytest.mark.parametrize("sampling", ["default", "subsuming", "adjacent"])
@pytest.mark.parametrize(("anchors", "positives"), SHAPES)
def test_the_sampling_written_out_gives_the_same_spans_for_the_same_draws(sampling, anchors, positives):
    shape = {"anchors": anchors, "positives": positives, "l_min": 3, "l_max": 20, "sampling": sampling}
    options, draws = DeCLUTROptions(**shape), NotedDraws(np.random.default_rng(anchors))
    for n in [least(options), least(options) + 7, 3 * least(options)] * 30:
        draws.numbers = []
        spans = spans_of(sample_spans(n, options, draws))
        assert spans == naive_spans(n, draws.numbers, **shape)
        assert spans == spans_of(sample_spans(n, options, GivenDraws(draws.numbers)))
        for start, end, near in spans:
            assert 0 <= start < end <= n and 3 <= end - start < 20
            for first, last in near:
                assert 0 <= first < last <= n and 3 <= last - first < 20
                assert first <= end and last >= start
                if sampling == "subsuming":
                    assert start <= first and last <= end
                if sampling == "adjacent":
                    assert first == end or (last == start and first > 0)
        ends = sorted((start, end) for start, end, _ in spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))


def test_one_sample_by_hand():
    """2,100 word pieces: slots at 0, 512, 1024, 1536. The second goes with both neighbours, so the last is left."""
    draws = GivenDraws([0.5, 1, 700, 0.25, 600, 0.999, 972, 0.0, 0, 1560, 0.25, 1592, 0.5, 1400])
    spans = spans_of(sample_spans(2100, DeCLUTROptions(), draws))
    assert spans == [(700, 972, [(600, 752), (972, 1483)]), (1560, 1592, [(1592, 1744), (1400, 1672)])]
    assert draws.asked == [
        (4, 2), (0, 3), (512, 752), (2, 4), (548, 972), (2, 4), (189, 972),
        (4, 2), (0, 0), (1536, 2016), (2, 4), (1408, 1592), (2, 4), (1288, 1592),
    ]


def test_anchors_are_long_and_positives_short():
    """Beta(4, 2) has the mean 2/3, Beta(2, 4) 1/3: swapping them is the classic slip."""
    options, draws = DeCLUTROptions(), RandomDraws(np.random.default_rng(0))
    pairs = [pair for _ in range(400) for pair in sample_spans(4096, options, draws)]
    anchors = np.mean([len(anchor) for anchor, _ in pairs])
    positives = np.mean([len(each) for _, near in pairs for each in near])
    assert anchors == pytest.approx(32 + 480 * 2 / 3, abs=15) and positives == pytest.approx(32 + 480 / 3, abs=12)


def test_a_shorter_document_is_refused():
    assert least(DeCLUTROptions()) == 2048
    with pytest.raises(ValueError, match="2047 word pieces, and 2048"):
        sample_spans(2047, DeCLUTROptions(), RandomDraws(np.random.default_rng(0)))
