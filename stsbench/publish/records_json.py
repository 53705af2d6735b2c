"""A run's records as JSON, for programs that read no Parquet."""

from __future__ import annotations

import json
from pathlib import Path

from stsbench.evaluation.run_file import load_records
from stsbench.files import atomic_write, new_folder

RECORDS = "records.json"


def export_json(run: Path, output: Path) -> list[Path]:
    """Write the records of a run, as they stand in it and without what they observed, into `output`, a new folder.

    The file is a list of objects: `name`, and what `stsbench.evaluation.records.json_schema` describes. Raises StsbenchError
    for what is no run, and when `output` is already there.
    """
    records = [{"name": path.name, **record.model_dump(mode="json")} for path, record in load_records(run)]
    with new_folder(output) as building, atomic_write(building / RECORDS) as stream:
        json.dump(records, stream, indent=1, ensure_ascii=False)
        stream.write("\n")
    return [output / RECORDS]
