"""Calls of the tables of refusals that concern a board: runs, boards and records that somebody edited, papers' files."""

import hashlib
import json
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from board_runs import LETTERS, REVISION, Letters, load_entries, measured
from run_edits import edit, rows_of

from stsbench.errors import StsbenchError
from stsbench.evaluation import records as form
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.rescore import protocol_of_record, record_task
from stsbench.evaluation.run_file import RUN, write_run
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.admission import check_record
from stsbench.leaderboard.records.paths import SHIPPED
from stsbench.protocols.mteb import MtebProtocol
from stsbench.protocols.regression import RegressionProtocol
from stsbench.protocols.transfer import TransferProtocol

SHA = "0" * 64
SENTENCE = "A sentence of the data set."
PAPER = {"id": "toy", "title": "A toy", "authors": "Nobody", "year": 2020, "url": "https://example.org/toy"}
TABLE = {"table": "1", "protocol": "sts", "metric": "spearman", "aggregation": "all", "split": "test"}


def _folder():
    return Path(tempfile.mkdtemp(prefix="stsbench-board-"))


@cache
def _sound():
    """Return a folder with a run, and a board to which it was added."""
    home = _folder()
    measured(Letters(0, 0.1), home / "run", tasks=["STS12", "STS-B"], no_cache=True)
    add(home / "board", [home / "run"], "letters", LETTERS)
    return home


def run_of(board):
    (file,) = board.glob(f"measured/*/*/{RUN}")
    return file


def refuse_run(change):
    """Change a run's file and the same file on a board, `change(file)`: `add` and a build must refuse it in the same words.
    Nothing is written by the addition that was refused."""
    home = Path(shutil.copytree(_sound(), _folder() / "home"))
    for file in (home / "run" / RUN, run_of(home / "board")):
        change(file)
    with pytest.raises(StsbenchError) as by_build:
        load_entries(home / "board/measured")
    with pytest.raises(StsbenchError) as by_add:
        add(home / "new", [home / "run"], "letters", LETTERS)
    reasons = {re.sub(rf"\S*/{RUN}", "", str(error.value)) for error in (by_build, by_add)}
    assert len(reasons) == 1, reasons
    assert str(by_add.value).isprintable() and not (home / "new/measured").exists()
    raise by_add.value


def refuse_row(change):
    """As `refuse_run`, of a run whose row of STS-B was changed: `change(row)`."""
    refuse_run(lambda file: edit(file, change, next(row.name for row in rows_of(file) if row.name.startswith("sts.stsb"))))


def refuse_board(change):
    """Change a board, `change(folder)`: a build must refuse it."""
    home = Path(shutil.copytree(_sound(), _folder() / "home"))
    change(home / "board")
    gather(home / "board")


def edit_entry(board, line):
    """Add a line to the description of the entry of a board of `refuse_board`."""
    with (board / "measured/letters/entry.yaml").open("a") as stream:
        stream.write(line + "\n")


def published_with(models):
    """Return a board with the committed table of MTEB's results, and a file of facts of its models."""
    board = _folder()
    shutil.copytree(SHIPPED / "as_published", board / "as_published")
    (board / "as_published" / "models.yaml").write_text(models)
    return board


def yaml_folder(**files):
    """Return a folder of YAML files: name -> their content, or their text."""
    folder = _folder()
    for name, content in files.items():
        text = content if isinstance(content, str | bytes) else yaml.safe_dump(content)
        (folder / f"{name}.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def publication(**changes):
    """Return a publication of one table and two rows, as its file holds it. changes: of the first row, and of `table`."""
    row = {"method": "m", "scores": [10.11, 20.22, None]}
    table = {**TABLE, "columns": ["A", "B", "C"], "average": "Avg", "rows": [{"row": 1, **row}, {"row": 2, **row}]}
    of_table = changes.pop("table", {})
    table["rows"][0] = {key: value for key, value in {**table["rows"][0], **changes}.items() if value != "absent"}
    return {"paper": dict(PAPER), "tables": [{**table, **of_table}]}


# Records of invented observations, made consistent in everything that follows from them.


def forged(folder, record, observations):
    """A run of the record with these observations, and everything that follows from them made to fit. The record's path."""
    fit(record, observations)
    write_run(folder / RUN, [(record, observations)])
    return folder / RUN / form.record_name(record)


def fit(record, observations):
    spec = {key: value for key, value in record.encoder.spec.items() if key != "name"}
    record.encoder.fingerprint = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
    protocol = protocol_of_record(Path("a record"), record)
    record.scores = protocol.score(observations, record.data.id, record_task(protocol, record))
    record.observations = form.Observed(sha256=observations_digest(observations))


def _invented(protocol, set_id, arrays, names=None, n=None, **data):
    """A record of invented observations on data of one's own."""
    who = form.EncoderIdentity(spec={"name": "invented"}, fingerprint=SHA, dimension=3)
    how = form.ProtocolIdentity(**{name: getattr(protocol, name) for name in ("name", "label", "version", "settings")})
    what = form.DataIdentity(**{
        "id": set_id, "task": "T", "text_version": "own", "digest": SHA, "n": n, "subsets": {"all": n}, "known": False,
        "origin": "here", **data})
    record = form.Record(
        created=form.now(), encoder=who, protocol=how, data=what, counts={"zero_vectors": 0}, scores=[],
        observations=form.Observed(sha256=SHA), provenance={"git": REVISION, "versions": {"stsbench": "1", "numpy": "2"}})
    return record, Observations(arrays, names or {})


def transfer(**changes):
    gold = np.array([0, 1] * 4)
    arrays = {
        "rows": np.arange(8), "predicted": gold.copy(), "gold": gold, "fold": np.repeat([0, 1], 4),
        "grid": np.full((2, 2), 75.0), "chosen": np.array([0, 1]), "regs": np.array([0.5, 1.0]),
        "counts": np.array([4, 0, 8])}
    names = {"counts": ["fits", "unconverged", "development items"], "notes": []}
    return _invented(TransferProtocol({"classifier": "exact"}), "mr", {**arrays, **changes}, names, 8)


def regression(**changes):
    """Eight items, of which the last four are tested."""
    arrays = {
        "row": np.array([5, 4, 7, 6]), "gold": np.array([0, 2, 1, 0]), "predicted": np.array([0, 2, 2, 0]),
        "sizes": np.array([2, 2, 4]), "dev_accuracy": np.array([50.0] * 4)}
    return _invented(RegressionProtocol({}), "sick-e/splits", {**arrays, **changes}, n=8)


def mteb(result=None, items=8, **names):
    result = {"task_name": "STS12", "mteb_version": "2", "scores": {"test": [{"main_score": 0.5, "hf_subset": "default"}]},
              **(result or {})}
    names = {"metric": ["cosine_spearman"], "split": ["test"], "subset": ["default"], "mteb_task": ["STS12"],
             "task_result": [json.dumps(result)], "notes": [], **names}
    arrays = {"value": np.array([0.5]), "items": np.array([items])}
    return _invented(MtebProtocol({}), "sts12/test", arrays, names, 8, text_version="sample")


def refuse_observations(record, observations):
    """Raise what `check_record` says of a forged record, in the words behind its path."""
    path = forged(_folder(), record, observations)
    with pytest.raises(StsbenchError) as error:
        check_record(path, record)
    assert str(error.value).startswith(str(path))
    raise error.value
