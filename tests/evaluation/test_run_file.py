"""A run file that is damaged, or as somebody made it: one line that names it; and read by other programs as it is.

More that is refused: refuse_column and its like in tests/refusals/board.yaml."""

import copy
import json
import shutil
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_edits import edit, rows_of, with_layout, write_rows

from stsbench.errors import StsbenchError
from stsbench.evaluation import columns
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.run_file import RUN, load_records, read_observations, run_folders, runs_below


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


def rewritten(file, change, **options):
    table = change(pq.read_table(file))
    with pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        writer.write_table(table, **options)
        writer.add_key_value_metadata({"stsbench": "run 1"})


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


@pytest.mark.parametrize("damage", [lambda good: b"", lambda good: good[:400] + b"\xff" * 2000 + good[2400:]])
def test_a_damaged_file_is_one_line_that_names_it(file, damage):
    file.write_bytes(damage(file.read_bytes()))
    refused(file)


WHOLE = {
    "missing": lambda name: lambda table: table.drop_columns([name]),
    "twice": lambda name: lambda table: table.append_column(name, table.column(name)),
    "numbers": lambda name: column(name, [1, 2]),
    "lists of texts": lambda name: column(name, [["a sentence"], ["a sentence"]]),
}


@pytest.mark.parametrize("damage", WHOLE)
def test_every_column_has_to_be_there_once_and_of_its_type(file, damage):
    good = file.read_bytes()
    for name in ("created", "scores", "observed.gold", "names.subsets", "layout"):
        file.write_bytes(good)
        rewritten(file, WHOLE[damage](name))
        line = refused(file)
        assert "." in name or name == "layout" or (line.startswith(f"{file} is not a valid run file: ") and name in line)


@pytest.mark.parametrize(("name", "reason"), [
    ("observed.gold", "gold is not an array of numbers"), ("names.subsets", "a name of subsets is missing"),
])
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
    (lambda row: (row.observed.arrays.update({"a\nb": np.zeros(1)}), row.resigned()), "hold a b, which the protocol"),
])
def test_what_a_file_holds_breaks_no_line(file, change, problem):
    path = edit(file, change)
    with pytest.raises(StsbenchError) as caught:
        score_again(file.parent)
    assert problem in str(caught.value) and "\n" not in str(caught.value) and str(path.parent) in str(caught.value)


def test_what_a_killed_process_was_building_is_no_run(made, tmp_path):
    """Its name is hidden; a list of runs that took it would count the run twice."""
    for name in ("one", ".one.0123456789ab.tmp"):
        shutil.copytree(made.folder, tmp_path / "runs" / name)
    assert run_folders(tmp_path / "runs") == runs_below(tmp_path, "*/*") == runs_below(tmp_path, "**") == [
        tmp_path / "runs" / "one"
    ]


def test_several_row_groups_and_other_compression_are_read(file, made):
    rewritten(file, lambda table: table, row_group_size=1)
    assert pq.ParquetFile(file).num_row_groups == 2
    assert score_again(file.parent).rows == made.rows


ARRAYS = {
    "missing": lambda seen: seen.arrays.pop("similarity"),
    "no names": lambda seen: seen.names.pop("subsets"),
    "short gold": lambda seen: seen.arrays.update(gold=seen.arrays["gold"][:-1]),
    "two columns": lambda seen: seen.arrays.update(similarity=np.stack([seen.arrays["similarity"]] * 2)),
    "more names": lambda seen: seen.names.update(more=["a sentence of the data"]),
    "NaN": lambda seen: seen.arrays["similarity"].fill(np.nan),
}


@pytest.mark.parametrize("damage", ARRAYS)
def test_other_observations_are_one_line_that_names_the_record(file, damage):
    """As the record would have it: its sha256 is that of the damaged arrays."""
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


def test_a_bomb_is_not_unpacked(file, monkeypatch):
    """A million zeros take a few bytes: what they would fill is known before."""
    monkeypatch.setattr(columns, "MOST_UNPACKED", 10**6)
    size = 10**6
    zeros = pa.ListArray.from_arrays([0, size, size], pa.array(np.zeros(size, dtype=bool)))
    rewritten(file, lambda table: table.append_column("observed.more", zeros))
    tracemalloc.start()
    with pytest.raises(StsbenchError, match="it would fill more than 1 MB"):
        load_records(file)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 500_000


def test_a_file_that_is_replaced_is_read_anew(file, made):
    path, record = load_records(file)[0]
    before = read_observations(file, record).arrays["similarity"]
    edit(file, lambda row: row.observed.arrays.update(similarity=row.observed.arrays["similarity"] / 2))
    with pytest.raises(StsbenchError, match=f"the observations of {path.name} are not what the record names"):
        read_observations(file, record)
    file.write_bytes((made.folder / RUN).read_bytes())
    np.testing.assert_array_equal(read_observations(file, record).arrays["similarity"], before)


def test_pandas_reads_it_as_it_is(made):
    pd = pytest.importorskip("pandas")
    run = pd.read_parquet(made.folder / RUN)
    scores = pd.json_normalize(run.explode("scores")["scores"])
    stored = [row for record in made.records for row in record.scores]
    assert scores["value"].tolist() == [row.value for row in stored]
    assert scores["task"].tolist() == [row.task for row in stored]
    for at, (path, record) in enumerate(load_records(made.folder)):
        assert run["name"][at] == path.name and json.loads(run["data"][at])["id"] == record.data.id
        similarity = read_observations(path.parent, record).arrays["similarity"]
        np.testing.assert_array_equal(run["observed.similarity"][at], similarity)


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
