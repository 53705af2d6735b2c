"""Runs for `stsbench reproduce`: records of the committed board, as if of another training or command."""

import json
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from stsbench.data.sets.catalog import entry
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.records import Observed
from stsbench.evaluation.run_file import RUN, load_records, read_observations, write_run
from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.leaderboard.records.publications import load_publications
from stsbench.leaderboard.reproduce.table import find_rows, table_lines
from stsbench.training.recipes.recipe import resolved_yaml

ENTRIES = PUBLISHED.parent / "measured"
PUBLICATIONS = load_publications()


WITHOUT = ("transfer*", "regression*", "retrieval*", "sick-r-mteb*")
YEARS = tuple(f"sts.sts{year}*" for year in range(12, 17))  # nearly all pairs, and of what their draws take


def copied(name, target, number=0, without=WITHOUT, **provenance):
    """The records of a committed entry's run, whose observations give its scores, as if of another training or command."""
    source = sorted(path for path in (ENTRIES / name).iterdir() if path.is_dir())[number]
    items = [_whole(path, record) for path, record in _records(source)
             if not any(fnmatch(path.name, pattern) for pattern in without)]
    for record, _ in items:
        record.provenance |= provenance
    write_run(target / RUN, items)
    return target


def _records(source):
    return [(path, record.model_copy(deep=True)) for path, record in _read(source)]


_read = cache(load_records)


def _whole(path, record):
    """As `stsbench eval` writes it: a board's records share files, which a single folder does not have."""
    observations = read_observations(path.parent, record)
    record.observations = Observed(sha256=observations_digest(observations))
    return record, observations


def trained(folder, made, number=0, dev=82.0, **summary):
    """A run folder of `stsbench train`, with the test of a committed one, and a dev score on the catalog's data."""
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(resolved_yaml(made), "utf-8")
    (folder / "train.json").write_text(json.dumps({
        "stage": None, "selected_by": "sts-b dev", "best": {"score": dev}, "after": 80.0,
        "dev_data": {"stsb/dev": entry("stsb/dev").digest}, **summary,
    }), "utf-8")
    copied("minilm-mlm32-simcse", folder / "eval", number, recipe=f"{made.method}/{made.name}")


def asked(*names, board=None):
    """Row -> what --json says of it, of the tables or rows `names`."""
    rows = [row for name in names for row in find_rows(name, PUBLICATIONS)]
    lines = table_lines(PUBLICATIONS, rows, runs=Path("runs"), board=board, data_dir=None)
    return {line.row.id: json.loads(json.dumps(line.as_json())) for line in lines}
