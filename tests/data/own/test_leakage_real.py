"""A known case: STS-B was drawn from STS12 to STS16. What its training split shares with them, counted naively."""

import pytest
from realdata import real_data

from stsbench.data.fetch.sources import load, sts_texts
from stsbench.data.own.overlap import leakage
from stsbench.data.sets.scripts import normalise

STATED = [("sts12/test", 4946, 1908), ("sts13/test", 2638, 1145), ("sts14/test", 6351, 3352), ("sts15/test", 5170, 2153),
          ("sts16/test", 1867, 391)]  # distinct texts of the scored pairs, and how many of them are there
YEARS = ("sts12/test", "sts13/test", "sts14/test", "sts15/test", "sts16/test")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """(the test sets, what STS-B's training text shares with each, its lines)."""
    data_dir = real_data()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        path = sts_texts(data_dir, name="stsb-train-texts", offline=True).path
    sets = [load(name, data_dir=data_dir, offline=True) for name in YEARS]
    return sets, leakage(path, sets, near=None), path.read_text("utf-8").splitlines()


def test_stsb_s_training_split_holds_texts_of_the_years_test_sets(shared):
    """The docs print these figures."""
    assert [(one.id, one.texts, one.any) for one in shared[1]] == STATED


def test_the_counts_are_those_of_set_intersections(shared):
    sets, results, lines = shared
    every = {line.strip() for line in lines}
    plain = {normalise(line) for line in every} - {""}
    for data, result in zip(sets, results, strict=True):
        texts = {*data.first, *data.second}
        exact = {text for text in texts if text.strip() in every}
        other = {text for text in texts - exact if normalise(text) in plain}
        assert (result.texts, result.exact, result.normalised) == (len(texts), len(exact), len(other)), data.id
        as_compared = {normalise(text) for text in texts} - {""}
        assert result.rows == sum(line.strip() in exact or normalise(line) in as_compared for line in lines), data.id
    assert len(lines) == 11498
