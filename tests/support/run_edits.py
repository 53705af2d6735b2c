"""Run files as somebody else might have written them: rows taken apart, changed, and put together without a check."""

import json
from dataclasses import dataclass
from pathlib import Path

from stsbench.evaluation import columns
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import parsed, record_name
from stsbench.evaluation.run_file import _RECORD, _TEXTS, RUN, RUN_FORM, _score_type


@dataclass
class Row:
    """A record's row. record: the record as a dictionary, changed at will; texts: columns that are to hold this text."""

    name: str
    record: dict
    observed: Observations
    texts: dict[str, str]

    def renamed(self):
        """Give the row the name that goes with what it says now."""
        self.name = record_name(parsed(json.dumps(self.record)))

    def resigned(self):
        """Let the record name what it observed now."""
        self.record["observations"]["sha256"] = columns.observations_digest(self.observed)


def rows_of(run):
    table = columns.opened(_file(run), RUN_FORM).read()
    rest = table.drop_columns(list(_RECORD))
    rows = []
    for at, row in enumerate(table.select(list(_RECORD)).to_pylist()):
        record = {"schema_version": 2, "created": row["created"], **{key: json.loads(row[key]) for key in _TEXTS}}
        record["scores"] = row["scores"]
        rows.append(Row(row["name"], record, columns.unpacked(rest, at), {}))
    return rows


def write_rows(run, rows):
    import pyarrow as pa

    made = {"name": pa.array([row.name for row in rows], pa.string()),
            "created": pa.array([row.record["created"] for row in rows], pa.string())}
    made |= {key: pa.array([row.texts.get(key, json.dumps(row.record.get(key))) for row in rows], pa.string())
             for key in _TEXTS}
    made["scores"] = pa.array([row.record["scores"] for row in rows], _score_type())
    file = _file(run)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(columns.packed({**made, **columns.to_columns([row.observed for row in rows])}, RUN_FORM))
    return file


def edit(run, change, name=None):
    """Change one row of a run, by default the first: `change(row)`. Returns the row's path, RUN/run.parquet/NAME."""
    rows = rows_of(run)
    row = next(row for row in rows if name in (None, row.name))
    change(row)
    return write_rows(run, rows) / row.name


def put_beside(run, *others):
    write_rows(run, [*rows_of(run), *(row for other in others for row in rows_of(other))])
    return run


def with_column(run, name, values):
    """Give a run's file a column: of texts, of lists, of whatever pyarrow makes of the values, one a row."""
    rewritten(run, lambda table: table.append_column(name, [values]))


def with_layout(run, change):
    """Change the text that says which arrays a run's first row has: `change(text)`."""

    def changed(table):
        texts = table.column(columns.LAYOUT).to_pylist()
        at = table.schema.get_field_index(columns.LAYOUT)
        return table.set_column(at, columns.LAYOUT, [[change(texts[0]), *texts[1:]]])

    rewritten(run, changed)


def with_metadata(run, **texts):
    rewritten(run, lambda table: table, texts)


def rewritten(run, change, texts=None, **options):
    """Write a run's file anew, `change(table)` in the place of its table; options: of pyarrow's write_table."""
    import pyarrow.parquet as pq

    file = _file(run)
    table = change(pq.ParquetFile(file).read()).replace_schema_metadata()
    with pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        writer.write_table(table, **options)
        writer.add_key_value_metadata({"stsbench": RUN_FORM.decode(), **(texts or {})})


def _file(run):
    run = Path(run)
    return run if run.name == RUN else run / RUN


def edit_all(run, change):
    """Change every row of a run: `change(row)`. Returns the run."""
    rows = rows_of(run)
    for row in rows:
        change(row)
    write_rows(run, rows)
    return run
