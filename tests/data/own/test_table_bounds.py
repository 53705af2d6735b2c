"""Parquet files that unpack to far more than their size."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from stsbench.data.own import table
from stsbench.errors import DataError


def test_a_dictionary_of_one_long_text_is_no_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_MOST_BATCH", 1_000_000)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["a" * 10_000]))
    parquet.write_table(pa.table({"text": texts}), tmp_path / "t.parquet", compression="zstd")
    with pytest.raises(DataError, match="unpack to over 1,000 times as much"):
        list(table.arrow_rows(tmp_path / "t.parquet", [tmp_path / "t.parquet"]))
