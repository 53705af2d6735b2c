"""Observations in Parquet files: what goes in comes out, what is damaged is refused, and rounding keeps every rank."""


import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stsbench.data.sets import parquet_pages
from stsbench.evaluation import columns
from stsbench.evaluation.columns import (
    STEP,
    check_columns,
    in_steps,
    joined,
    observations_digest,
    opened,
    packed,
    split,
    to_columns,
    unpacked,
    whole_table,
)
from stsbench.evaluation.protocol import Observations

SEEN = Observations(
    {
        "similarity": np.linspace(-1, 1, 50), "pair": np.array([2**64 - 1, 0, 7], dtype=np.uint64), "none": np.zeros(0),
        "grid": np.arange(6.0).reshape(2, 3), "uniformity": np.array(-2.5), "gold": np.arange(50) % 3,
    },
    {"subsets": ["a b", "é"], "notes": []},
)


OTHER = Observations({"gold": np.array([0.5]), "similarity": np.linspace(0, 1, 3)}, {"other": ["x"]})
FORM = b"rows 1"


def table_of(path, *rows):
    path.write_bytes(packed(to_columns(rows), FORM))
    table = opened(path, FORM).read()
    check_columns(table)
    return table


def test_arrays_come_back_as_they_went_in(tmp_path):
    """Rows with other arrays, names and types beside each other, too."""
    table = table_of(tmp_path / "x.parquet", SEEN, OTHER, SEEN)
    assert {"observed.gold:float64", "observed.gold:int64", "observed.similarity"} < set(table.column_names)
    for at, row in enumerate((SEEN, OTHER, SEEN)):
        back = unpacked(table, at)
        assert back.names == row.names and back.arrays.keys() == row.arrays.keys()
        for key, array in row.arrays.items():
            assert back.arrays[key].dtype == array.dtype
            np.testing.assert_array_equal(back.arrays[key], array)
        assert observations_digest(back) == observations_digest(row)


def test_the_digest_is_of_all_that_is_there():
    digests = {observations_digest(SEEN)}
    for key, array in SEEN.arrays.items():
        changed = [array.astype(np.float32), array.reshape(-1, 1)] + ([array + 1] if array.size else [])
        digests |= {observations_digest(Observations({**SEEN.arrays, key: each}, SEEN.names)) for each in changed}
    digests.add(observations_digest(Observations(SEEN.arrays, {**SEEN.names, "subsets": ["a", "b é"]})))
    assert len(digests) == 1 + 3 * len(SEEN.arrays) - 1 + 1


def test_what_would_pack_too_well_is_written_plain(tmp_path, monkeypatch):
    """An honest file is read, however few values it has: cosines of a token set, labels, subsets."""
    few = Observations({key: np.full(10**4, number) for key, number in (("gold", 3), ("similarity", 0.5), ("subset", 0))}
                       | {"noise": np.random.default_rng(0).random(10**4)})
    compressed = packed(to_columns([few]), FORM)
    monkeypatch.setattr(columns, "MOST_UNPACKED", 10**5)
    monkeypatch.setattr(columns, "OF_EACH_BYTE", 5)
    plain = packed(to_columns([few]), FORM)
    assert len(compressed) < 80_000 < 300_000 < len(plain)
    (tmp_path / "x.parquet").write_bytes(plain)
    table = whole_table(opened(tmp_path / "x.parquet", FORM))
    check_columns(table)
    assert observations_digest(unpacked(table, 0)) == observations_digest(few)


def file_of(path, column, values, **options):
    """A file with a column of one list, as another program writes it."""
    lists = pa.ListArray.from_arrays([0, len(values)], values)
    table = pa.table({column: lists, "layout": pa.array(["{}"])})
    with pq.ParquetWriter(path, table.schema, store_schema=False, **{"compression": "zstd", **options}) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"stsbench": FORM.decode()})
    return path


FEW, ZEROS = pa.array(["a long name " * 500] * 200), pa.array(np.zeros(2 * 10**6, dtype=np.int64))
ENCODED = "{}.list.element"


@pytest.mark.parametrize(("column", "values", "encoding"), [
    ("names.x", FEW, "DELTA_BYTE_ARRAY"), ("observed.x", ZEROS[:9], "DELTA_BINARY_PACKED"),
])
def test_what_may_be_any_number_of_values_is_refused_by_its_encoding(tmp_path, column, values, encoding):
    options = {"use_dictionary": False, "column_encoding": {ENCODED.format(column): encoding}}
    with pytest.raises(ValueError, match="is in an encoding in which a few bytes may be any number of values"):
        opened(file_of(tmp_path / "x.parquet", column, values, **options), FORM)


@pytest.mark.parametrize(("column", "values", "options"), [
    ("names.x", FEW, {}), ("names.x", pa.nulls(2 * 10**5, pa.string()), {}), ("names.x", FEW, {"use_dictionary": False}),
    ("observed.x", ZEROS, {"use_dictionary": False, "compression": "gzip"}),
    ("observed.x", ZEROS, {"data_page_version": "2.0"}), ("observed.x", ZEROS, {"data_page_size": 100}),
    ("observed.x", ZEROS.cast(pa.float64()),
     {"use_byte_stream_split": [ENCODED.format("observed.x")], "use_dictionary": False}),
    ("observed.x", pa.array([b"x" * 10_000] * 200, pa.binary(10_000)), {}),
    ("observed.x", pa.ListArray.from_arrays(np.arange(10**6 + 1, dtype=np.int32), ZEROS[:10**6].cast(pa.int8())), {}),
])
def test_what_is_produced_is_counted_whatever_packs_it(tmp_path, monkeypatch, column, values, options):
    monkeypatch.setattr(columns, "MOST_UNPACKED", 10**6)
    path = file_of(tmp_path / "x.parquet", column, values, **options)
    with pytest.raises(ValueError, match=r"it would fill more than \d+ MB"):
        opened(path, FORM)


def varint(number):
    """Thrift's form of a number, which is not below 0."""
    number, parts = 2 * number, []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


@pytest.mark.parametrize(("field", "problem"), [
    ("total_uncompressed_size", "it would fill more than 1 MB"), ("num_values", "are not those that its footer names"),
    ("total_compressed_size", "."),
])
def test_a_footer_that_lies_is_not_believed(tmp_path, monkeypatch, field, problem):
    zeros = ZEROS[:10**4] if field == "num_values" else ZEROS
    path = file_of(tmp_path / "x.parquet", "observed.x", zeros, use_dictionary=False)
    true = getattr(pq.ParquetFile(path).metadata.row_group(0).column(0), field)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little") + 8
    lie = next(number for number in (true // 2, true - 1) if len(varint(number)) == len(varint(true)))
    path.write_bytes(content[:-length] + content[-length:].replace(varint(true), varint(lie)))
    monkeypatch.setattr(columns, "MOST_UNPACKED", 10**6)
    with pytest.raises(ValueError, match=problem):
        opened(path, FORM)


def test_a_footer_that_is_the_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_pages, "MOST_FOOTER", 10_000)
    table = pa.table({f"observed.{i}": pa.array([[1.0]]) for i in range(100)})
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"its footer has .* bytes, at most 10,000 are read"):
        opened(tmp_path / "x.parquet", FORM)


def test_a_file_is_split_and_joined():
    shared, mine = split(SEEN, ("gold", "pair", "subsets"))
    assert shared.arrays.keys() == {"gold", "pair"} and shared.names.keys() == {"subsets"}
    assert observations_digest(joined(shared, mine)) == observations_digest(SEEN)
    with pytest.raises(ValueError, match="gold is in both"):
        joined(shared, SEEN)


near = st.floats(-1, 1).flatmap(lambda x: st.sampled_from([x, np.nextafter(x, 2), x + 1e-9, -x]))


@given(st.lists(near, min_size=2, max_size=40))
@settings(max_examples=50, deadline=None)
def test_rounding_keeps_order_and_ties(values):
    array = np.array(values)
    rounded = in_steps(array)
    assert (rounded / STEP == np.rint(rounded / STEP)).all()
    np.testing.assert_array_equal(stats.rankdata(rounded), stats.rankdata(array))
    assert np.abs(rounded - array).max() <= len(values) * STEP
