"""A run file that is damaged, or as somebody made it: one line that names it; observations in Parquet files come out as
they went in. More that is refused: tests/refusals/board.yaml."""

import copy
import shutil
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clirun import refuses
from hypothesis import given, settings
from hypothesis import strategies as st
from run_edits import edit, rewritten, rows_of, with_layout, write_rows
from scipy import stats

from stsbench import evaluate
from stsbench.data.sets import parquet_pages
from stsbench.errors import StsbenchError
from stsbench.evaluation import columns
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.run_file import RUN, load_records, read_observations, run_folders, runs_below

OTHER = Observations({"gold": np.array([0.5]), "similarity": np.linspace(0, 1, 3)}, {"other": ["x"]})
FORM = b"rows 1"
FEW, ZEROS = pa.array(["a long name " * 500] * 200), pa.array(np.zeros(3 * 10**5, dtype=np.int64))
ENCODED = "{}.list.element"
near = st.floats(-1, 1).flatmap(lambda x: st.sampled_from([x, np.nextafter(x, 2), x + 1e-9, -x]))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return evaluate("lexical:token-set", output=folder, sample=True, tasks=["STS-B", "STS12"], resamples=30)


@pytest.fixture
def file(made, tmp_path):
    path = tmp_path / "run" / RUN
    path.parent.mkdir()
    path.write_bytes((made.folder / RUN).read_bytes())
    return path


def column(name, values, kind=None):
    def change(table):
        at = table.column_names.index(name)
        return table.set_column(at, name, pa.array(values, kind))

    return change


def refused(file):
    """The one line that names the file, as whoever scores it is told."""
    with pytest.raises(StsbenchError) as caught:
        score_again(file.parent)
    line = str(caught.value)
    assert type(caught.value) is StsbenchError and line.startswith(str(file)) and "\n" not in line and len(line) < 600
    return line


def test_a_damaged_file_is_one_line_that_names_it(file):
    good = file.read_bytes()
    for damaged in (b"", good[:400] + b"\xff" * 2000 + good[2400:]):
        file.write_bytes(damaged)
        refused(file)


WHOLE = {
    "missing": lambda name: lambda table: table.drop_columns([name]),
    "twice": lambda name: lambda table: table.append_column(name, table.column(name)),
    "numbers": lambda name: column(name, [1, 2]),
    "lists of texts": lambda name: column(name, [["a sentence"], ["a sentence"]])}


@pytest.mark.parametrize("damage", WHOLE)
def test_every_column_has_to_be_there_once_and_of_its_type(file, damage):
    good = file.read_bytes()
    for name in ("scores", "observed.gold", "names.subsets", "layout"):
        file.write_bytes(good)
        rewritten(file, WHOLE[damage](name))
        line = refused(file)
        assert "." in name or name == "layout" or (line.startswith(f"{file} is not a valid run file: ") and name in line)


@pytest.mark.parametrize(("name", "reason"), [
    ("observed.gold", "gold is not an array of numbers"), ("names.subsets", "a name of subsets is missing")])
def test_an_array_with_an_empty_place_is_refused(file, name, reason):
    def change(table):
        values = table.column(name).to_pylist()
        values[0][0] = None
        return column(name, values, table.schema.field(name).type)(table)

    rewritten(file, change)
    assert reason in refused(file)


@pytest.mark.parametrize(("old", "new"), [
    ("[45]", "[-1]"), ("[45]", "[1000000000000, 1000000000000]"), ("45", "1e999"), ("45", "44"), ("<f8", ">f8"),
    ("<f8", "O"), ("<f8", "<f4"), ("{", '{"absent": ["<f8", [45]], '), (None, "[]"), (None, "[" * 100_000),
], ids=lambda text: str(text)[:12])
def test_a_layout_that_does_not_fit_is_one_line_that_names_the_file(file, old, new):
    def change(text):
        assert old is None or old in text
        return new if old is None else text.replace(old, new, 1)

    with_layout(file, change)
    refused(file)


@pytest.mark.parametrize(("change", "problem"), [
    (lambda row: (row.record["protocol"].update(name="a\nb"), row.renamed()), "unknown protocol 'a b'"),
    (lambda row: (row.observed.arrays.update({"a\nb": np.zeros(1)}), row.resigned()), "hold a b, which the protocol")])
def test_what_a_file_holds_breaks_no_line(file, change, problem):
    path = edit(file, change)
    assert str(path.parent) in refuses(StsbenchError, problem, score_again, file.parent)


def test_what_a_killed_process_was_building_is_no_run(made, tmp_path):
    """Its name is hidden; a list of runs that took it would count the run twice."""
    for name in ("one", ".one.0123456789ab.tmp"):
        shutil.copytree(made.folder, tmp_path / "runs" / name)
    folders = run_folders(tmp_path / "runs"), runs_below(tmp_path, "*/*"), runs_below(tmp_path, "**")
    assert folders == ([tmp_path / "runs" / "one"],) * 3


def test_several_row_groups_and_other_compression_are_read(file, made):
    rewritten(file, lambda table: table, row_group_size=1)
    assert pq.ParquetFile(file).num_row_groups == 2
    assert score_again(file.parent).rows == made.rows


ARRAYS = {
    "missing": lambda seen: seen.arrays.pop("similarity"),
    "no names": lambda seen: seen.names.pop("subsets"),
    "short gold": lambda seen: seen.arrays.update(gold=seen.arrays["gold"][:-1]),
    "NaN": lambda seen: seen.arrays["similarity"].fill(np.nan)}


@pytest.mark.parametrize("damage", ARRAYS)
def test_other_observations_are_one_line_that_names_the_record(file, damage):
    """As the record would have it: its sha256 is that of the damaged arrays. More: tests/refusals/board.yaml."""
    def change(row):
        ARRAYS[damage](row.observed)
        row.resigned()

    path = edit(file, change)
    try:
        failures = score_again(file.parent).failures
    except StsbenchError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error) and len(str(error)) < 600
    else:
        assert damage == "NaN" and list(failures) == ["sts STS12"]


def test_a_file_that_is_replaced_is_read_anew(file, made):
    path, record = load_records(file)[0]
    before = read_observations(file, record).arrays["similarity"]
    edit(file, lambda row: row.observed.arrays.update(similarity=row.observed.arrays["similarity"] / 2))
    refuses(StsbenchError, f"the observations of {path.name} are not what the record names", read_observations, file, record)
    file.write_bytes((made.folder / RUN).read_bytes())
    np.testing.assert_array_equal(read_observations(file, record).arrays["similarity"], before)


def test_a_run_of_many_records_is_read_again(made, tmp_path, monkeypatch):
    """What a file may fill does not grow with the square of its records."""
    monkeypatch.setattr(columns, "MOST_UNPACKED", 20_000_000)
    rows = rows_of(made.folder)
    many = []
    for number in range(50):
        row = copy.deepcopy(rows[number % 2])
        row.record["encoder"]["fingerprint"] = f"{number:064x}"
        row.renamed()
        many.append(row)
    write_rows(tmp_path, many)
    assert len(load_records(tmp_path)) == 50


SEEN = Observations({
    "similarity": np.linspace(-1, 1, 50), "pair": np.array([2**64 - 1, 0, 7], dtype=np.uint64), "none": np.zeros(0),
    "grid": np.arange(6.0).reshape(2, 3), "uniformity": np.array(-2.5), "gold": np.arange(50) % 3,
}, {"subsets": ["a b", "é"], "notes": []})


def table_of(path, *rows):
    path.write_bytes(columns.packed(columns.to_columns(rows), FORM))
    table = columns.opened(path, FORM).read()
    columns.check_columns(table)
    return table


def test_arrays_come_back_as_they_went_in(tmp_path):
    """Rows with other arrays, names and types beside each other, too."""
    table = table_of(tmp_path / "x.parquet", SEEN, OTHER, SEEN)
    assert {"observed.gold:float64", "observed.gold:int64", "observed.similarity"} < set(table.column_names)
    for at, row in enumerate((SEEN, OTHER, SEEN)):
        back = columns.unpacked(table, at)
        assert back.names == row.names and back.arrays.keys() == row.arrays.keys()
        for key, array in row.arrays.items():
            assert back.arrays[key].dtype == array.dtype
            np.testing.assert_array_equal(back.arrays[key], array)
        assert columns.observations_digest(back) == columns.observations_digest(row)


def test_the_digest_is_of_all_that_is_there():
    digests = {columns.observations_digest(SEEN)}
    for key, array in SEEN.arrays.items():
        changed = [array.astype(np.float32), array.reshape(-1, 1)] + ([array + 1] if array.size else [])
        digests |= {columns.observations_digest(Observations({**SEEN.arrays, key: each}, SEEN.names)) for each in changed}
    digests.add(columns.observations_digest(Observations(SEEN.arrays, {**SEEN.names, "subsets": ["a", "b é"]})))
    assert len(digests) == 1 + 3 * len(SEEN.arrays) - 1 + 1


def test_what_would_pack_too_well_is_written_plain(tmp_path, monkeypatch):
    """An honest file is read, however few values it has: cosines of a token set, labels, subsets."""
    few = Observations({key: np.full(10**4, number) for key, number in (("gold", 3), ("similarity", 0.5), ("subset", 0))}
                       | {"noise": np.random.default_rng(0).random(10**4)})
    compressed = columns.packed(columns.to_columns([few]), FORM)
    monkeypatch.setattr(columns, "MOST_UNPACKED", 10**5)
    monkeypatch.setattr(columns, "OF_EACH_BYTE", 5)
    plain = columns.packed(columns.to_columns([few]), FORM)
    assert len(compressed) < 80_000 < 300_000 < len(plain)
    (tmp_path / "x.parquet").write_bytes(plain)
    table = columns.whole_table(columns.opened(tmp_path / "x.parquet", FORM))
    columns.check_columns(table)
    assert columns.observations_digest(columns.unpacked(table, 0)) == columns.observations_digest(few)


def file_of(path, column, values, **options):
    """A file with a column of one list, as another program writes it."""
    lists = pa.ListArray.from_arrays([0, len(values)], values)
    table = pa.table({column: lists, "layout": pa.array(["{}"])})
    with pq.ParquetWriter(path, table.schema, store_schema=False, **{"compression": "zstd", **options}) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"stsbench": FORM.decode()})
    return path


@pytest.mark.parametrize(("column", "values", "encoding"), [
    ("names.x", FEW, "DELTA_BYTE_ARRAY"), ("observed.x", ZEROS[:9], "DELTA_BINARY_PACKED")])
def test_what_may_be_any_number_of_values_is_refused_by_its_encoding(tmp_path, column, values, encoding):
    options = {"use_dictionary": False, "column_encoding": {ENCODED.format(column): encoding}}
    with pytest.raises(ValueError, match="is in an encoding in which a few bytes may be any number of values"):
        columns.opened(file_of(tmp_path / "x.parquet", column, values, **options), FORM)


@pytest.mark.parametrize(("column", "values", "options"), [
    ("names.x", FEW, {}), ("names.x", pa.nulls(2 * 10**5, pa.string()), {}), ("names.x", FEW, {"use_dictionary": False}),
    ("observed.x", ZEROS, {"use_dictionary": False, "compression": "gzip"}),
    ("observed.x", ZEROS, {"data_page_version": "2.0"}), ("observed.x", ZEROS, {"data_page_size": 100}),
    ("observed.x", ZEROS.cast(pa.float64()),
     {"use_byte_stream_split": [ENCODED.format("observed.x")], "use_dictionary": False}),
    ("observed.x", pa.array([b"x" * 10_000] * 200, pa.binary(10_000)), {}),
    ("observed.x", pa.ListArray.from_arrays(np.arange(len(ZEROS) + 1, dtype=np.int32), ZEROS.cast(pa.int8())), {})])
def test_what_is_produced_is_counted_whatever_packs_it(tmp_path, monkeypatch, column, values, options):
    monkeypatch.setattr(columns, "MOST_UNPACKED", 10**6)
    path = file_of(tmp_path / "x.parquet", column, values, **options)
    tracemalloc.start()
    refuses(ValueError, r"it would fill more than \d+ MB", columns.opened, path, FORM)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 500_000  # it is known before anything is unpacked


def varint(number):
    """Thrift's form of a number, which is not below 0."""
    number, parts = 2 * number, []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


@pytest.mark.parametrize(("field", "problem"), [
    ("total_uncompressed_size", "it would fill more than 1 MB"), ("num_values", "are not those that its footer names"),
    ("total_compressed_size", ".")])
def test_a_footer_that_lies_is_not_believed(tmp_path, monkeypatch, field, problem):
    zeros = ZEROS[:10**4] if field == "num_values" else ZEROS
    path = file_of(tmp_path / "x.parquet", "observed.x", zeros, use_dictionary=False)
    true = getattr(pq.ParquetFile(path).metadata.row_group(0).column(0), field)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little") + 8
    lie = next(number for number in (true // 2, true - 1) if len(varint(number)) == len(varint(true)))
    path.write_bytes(content[:-length] + content[-length:].replace(varint(true), varint(lie)))
    monkeypatch.setattr(columns, "MOST_UNPACKED", 10**6)
    refuses(ValueError, problem, columns.opened, path, FORM)


def test_a_footer_that_is_the_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_pages, "MOST_FOOTER", 10_000)
    table = pa.table({f"observed.{i}": pa.array([[1.0]]) for i in range(100)})
    pq.write_table(table, tmp_path / "x.parquet")
    refuses(ValueError, r"its footer has .* bytes, at most 10,000 are read", columns.opened, tmp_path / "x.parquet", FORM)


def test_a_file_is_split_and_joined():
    shared, mine = columns.split(SEEN, ("gold", "pair", "subsets"))
    assert shared.arrays.keys() == {"gold", "pair"} and shared.names.keys() == {"subsets"}
    assert columns.observations_digest(columns.joined(shared, mine)) == columns.observations_digest(SEEN)
    refuses(ValueError, "gold is in both", columns.joined, shared, SEEN)


@given(st.lists(near, min_size=2, max_size=40))
@settings(max_examples=50, deadline=None)
def test_rounding_keeps_order_and_ties(values):
    array = np.array(values)
    rounded = columns.in_steps(array)
    assert (rounded / columns.STEP == np.rint(rounded / columns.STEP)).all()
    np.testing.assert_array_equal(stats.rankdata(rounded), stats.rankdata(array))
    assert np.abs(rounded - array).max() <= len(values) * columns.STEP
