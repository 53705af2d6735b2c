"""The encoder's vectors are counted by hand, and a wrong argument is refused."""

import pytest
from example_module import Example

from stsbench.errors import EncoderError


def test_vectors_count_the_n_grams():
    first, second, empty = Example("2").run(["aab", "aabaab", ""]).vectors
    assert sorted(first[first > 0]) == [1, 1]  # aa, ab
    assert sorted(second[second > 0]) == [1, 2, 2]  # ba; aa, ab
    assert empty.sum() == 1  # a text that is too short counts whole, so that no vector is 0


def test_a_wrong_argument_is_refused():
    with pytest.raises(EncoderError, match="expected a number"):
        Example("two")
