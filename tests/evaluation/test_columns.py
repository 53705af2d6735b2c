"""Observations in Parquet files: what goes in comes out, what is damaged is refused, and float32 keeps every rank."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stsbench.evaluation.columns import as_single, digest_of, joined, packed, split, unpacked
from stsbench.evaluation.protocol import Observations

SEEN = Observations(
    {
        "similarity": np.linspace(-1, 1, 50), "pair": np.array([2**64 - 1, 0, 7], dtype=np.uint64), "none": np.zeros(0),
        "grid": np.arange(6.0).reshape(2, 3), "uniformity": np.array(-2.5), "gold": np.arange(50) % 3,
    },
    {"subsets": ["a b", "é"], "notes": []},
)  # fmt: skip


def test_arrays_come_back_as_they_went_in(tmp_path):
    (tmp_path / "x.parquet").write_bytes(packed(SEEN))
    back = unpacked(tmp_path / "x.parquet", 10**6)
    assert back.names == SEEN.names and back.arrays.keys() == SEEN.arrays.keys()
    for key, array in SEEN.arrays.items():
        assert back.arrays[key].dtype == array.dtype
        np.testing.assert_array_equal(back.arrays[key], array)
    assert digest_of(back) == digest_of(SEEN)


def test_the_digest_is_of_all_that_is_there():
    digests = {digest_of(SEEN)}
    for key, array in SEEN.arrays.items():
        changed = [array.astype(np.float32), array.reshape(-1, 1)] + ([array + 1] if array.size else [])
        digests |= {digest_of(Observations({**SEEN.arrays, key: each}, SEEN.names)) for each in changed}
    digests.add(digest_of(Observations(SEEN.arrays, {**SEEN.names, "subsets": ["a", "b é"]})))
    assert len(digests) == 1 + 3 * len(SEEN.arrays) - 1 + 1


def test_floats_of_single_precision_take_half_the_room(tmp_path):
    values = as_single(np.random.default_rng(0).normal(size=4000))
    seen = Observations({"similarity": values})
    path = tmp_path / "x.parquet"
    path.write_bytes(packed(seen, ["similarity"]))
    assert path.stat().st_size < 0.55 * len(packed(seen))
    np.testing.assert_array_equal(unpacked(path, 10**6).arrays["similarity"], values)


def test_what_would_fill_the_memory_is_refused(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(packed(Observations({"gold": np.zeros(10**6)})))
    assert path.stat().st_size < 10_000
    with pytest.raises(ValueError, match="at most 1 MB"):
        unpacked(path, 10**6)


def test_a_layout_that_does_not_fit_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for kind, shape in (("<f8", [3]), ("<f8", [2, 2]), ("O", [2]), ("<U4", [2])):
        layout = pa.array([json.dumps({"gold": [kind, shape]})])
        pq.write_table(pa.table({"gold": pa.array([[1.0, 2.0]]), "layout": layout}), tmp_path / "x.parquet")
        with pytest.raises(ValueError, match="gold"):
            unpacked(tmp_path / "x.parquet", 10**6)


def test_a_file_is_split_and_joined():
    shared, mine = split(SEEN, ("gold", "pair", "subsets"))
    assert shared.arrays.keys() == {"gold", "pair"} and shared.names.keys() == {"subsets"}
    assert digest_of(joined(shared, mine)) == digest_of(SEEN)
    with pytest.raises(ValueError, match="gold is in both"):
        joined(shared, SEEN)


near = st.floats(-1, 1).flatmap(lambda x: st.sampled_from([x, np.nextafter(x, 2), x + 1e-9, -x]))


@given(st.lists(near, min_size=2, max_size=40))
@settings(max_examples=200, deadline=None)
def test_single_precision_keeps_order_and_ties(values):
    array = np.array(values)
    single = as_single(array)
    assert (single == single.astype(np.float32)).all()
    np.testing.assert_array_equal(stats.rankdata(single), stats.rankdata(array))
    assert np.abs(single - array).max() <= len(values) * 2**-23
