"""Codes are those of sentence-transformers, and what is compared of them orders pairs as it is said to."""

import numpy as np
import pytest

from stsbench.extensions.smaller_copies.codes import PRECISIONS, Ranges, codes, compared, size

RNG = np.random.default_rng(38)
VECTORS = RNG.normal(size=(60, 20)).astype(np.float32)
VECTORS[:, 3] = 0.25  # a dimension that does not vary


@pytest.mark.parametrize("precision", PRECISIONS)
def test_codes_are_those_of_sentence_transformers(precision):
    quantize = pytest.importorskip("sentence_transformers.util").quantize_embeddings
    calibration, others = VECTORS[:40], VECTORS[40:] * 1.3  # some lie beyond the ranges
    mine = codes(others, precision, Ranges.of(calibration))
    theirs = quantize(others, precision, calibration_embeddings=calibration)
    assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)
    assert len(np.unique(mine)) > 10 and mine.nbytes == size(precision, 20) * len(others)


def test_a_full_vector_takes_four_bytes_a_number():
    assert [size(precision, 20) for precision in ("float32", *PRECISIONS)] == [80, 20, 20, 3, 3]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_compared_is_the_code(precision):
    ranges = Ranges.of(VECTORS)
    numbers = compared(codes(VECTORS, precision, ranges), precision, 20)
    assert numbers.dtype == np.float32 and numbers.shape == VECTORS.shape
    if precision in ("int8", "uint8"):
        assert np.array_equal(numbers, codes(VECTORS, precision, ranges))
    else:
        low = -1 if precision == "binary" else 0
        assert np.array_equal(numbers, np.where(VECTORS > 0, 1, low))


def test_the_cosine_of_signs_is_the_hamming_distance():
    signs = compared(codes(VECTORS, "binary"), "binary", 20)
    distance = np.array([[sum(a != b for a, b in zip(one > 0, other > 0, strict=True)) for other in VECTORS]
                         for one in VECTORS])
    assert np.allclose(signs @ signs.T / 20, 1 - 2 * distance / 20)


def test_clipped_ranges_are_quantiles():
    ranges = Ranges.of(VECTORS, (0.05, 0.9))
    low, high = np.quantile(VECTORS.astype(np.float64), [0.05, 0.9], axis=0)
    assert np.allclose(ranges.low, low, atol=1e-6) and np.allclose(ranges.high, high, atol=1e-6)
    assert ranges.constant.tolist() == [3] and ranges.digest() != Ranges.of(VECTORS).digest()
