"""Observations in Parquet files: what goes in comes out, what is damaged is refused, and rounding keeps every rank."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stsbench.evaluation.columns import STEP, digest_of, in_steps, joined, packed, split, unpacked
from stsbench.evaluation.protocol import Observations

SEEN = Observations(
    {
        "similarity": np.linspace(-1, 1, 50), "pair": np.array([2**64 - 1, 0, 7], dtype=np.uint64), "none": np.zeros(0),
        "grid": np.arange(6.0).reshape(2, 3), "uniformity": np.array(-2.5), "gold": np.arange(50) % 3,
    },
    {"subsets": ["a b", "é"], "notes": []},
)


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


def test_rounded_floats_take_half_the_room():
    values = np.random.default_rng(0).uniform(-1, 1, size=4000)
    size, rounded = (len(packed(Observations({"similarity": each}))) for each in (values, in_steps(values)))
    assert rounded < 0.6 * size


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


def test_arrays_of_another_byte_order_are_packed_as_any(tmp_path):
    arrays = {key: array.astype(array.dtype.newbyteorder(">")) for key, array in SEEN.arrays.items()}
    (tmp_path / "x.parquet").write_bytes(packed(Observations(arrays, SEEN.names)))
    assert digest_of(unpacked(tmp_path / "x.parquet", 10**6)) == digest_of(SEEN)


def test_a_text_that_stands_in_a_file_once_and_is_many_values_is_refused(tmp_path):
    """Eight bytes a value say nothing of texts: 100 kB that 2,000 names share are 200 MB."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array([["x" * 100_000] * 2000])
    pq.write_table(pa.table({"names.notes": names, "layout": pa.array(["{}"])}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 300_000
    with pytest.raises(ValueError, match="at most 100 MB"):
        unpacked(tmp_path / "x.parquet", 10**8)


def test_a_file_is_split_and_joined():
    shared, mine = split(SEEN, ("gold", "pair", "subsets"))
    assert shared.arrays.keys() == {"gold", "pair"} and shared.names.keys() == {"subsets"}
    assert digest_of(joined(shared, mine)) == digest_of(SEEN)
    with pytest.raises(ValueError, match="gold is in both"):
        joined(shared, SEEN)


near = st.floats(-1, 1).flatmap(lambda x: st.sampled_from([x, np.nextafter(x, 2), x + 1e-9, -x]))


@given(st.lists(near, min_size=2, max_size=40))
@settings(max_examples=200, deadline=None)
def test_rounding_keeps_order_and_ties(values):
    array = np.array(values)
    rounded = in_steps(array)
    assert (rounded / STEP == np.rint(rounded / STEP)).all()
    np.testing.assert_array_equal(stats.rankdata(rounded), stats.rankdata(array))
    assert np.abs(rounded - array).max() <= len(values) * STEP
