"""`Result`, which `evaluate`, `score` and `load` return: scores as tables, pandas, plots and files; writing a run folder."""

from __future__ import annotations

import errno
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stsbench.config import shorten
from stsbench.display.table import Document, csv_table
from stsbench.display.tabular import InFolder, Reported
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import declared_metric
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import ScoreRow, Scores
from stsbench.evaluation.run_file import RUN, write_run
from stsbench.evaluation.tables import (
    ORIGIN,
    encoder,
    headlines,
    main_rows,
    main_scores,
    paper_document,
    remarks,
    score_tables,
    table_rows,
    table_title,
)
from stsbench.files import atomic_write, is_temporary, temporary
from stsbench.parsing import read_json_object
from stsbench.registry import did_you_mean, match_name
from stsbench.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}  # errors of a rename to the name of a run or a file
SCORES = "scores.csv"  # in the run folder: every score, averages included
MISSING = "not-measured.json"  # in the run folder: what failed or was left out, with the reasons


@dataclass(repr=False)
class Result(Scores, InFolder, Reported):
    """The scores of one encoder: printed as text, and in a notebook as tables, with their intervals."""

    meant: ClassVar = {**InFolder.meant, **dict.fromkeys(
        ("accuracy", "ap", "auc", "average", "f1", "mean", "ndcg", "pearson", "recall", "score", "spearman"),
        "scores, result[TASK], or to_pandas(), which has every score"
    ), "threshold": "to_pandas(), which has f1-threshold and accuracy-threshold"}
    observed: list[Observations] = field(default_factory=list)  # one for each record, emptied by `write`

    def __repr__(self) -> str:
        encoders = dict.fromkeys(str(record.encoder.spec["name"]) for record in self.records)
        of = f" of {', '.join(encoders)}" if encoders else ""
        failed = f", {counted(len(self.failures), 'failure')}" if self.failures else ""
        where = "a temporary folder, which save(path) keeps" if is_temporary(self.folder) else str(self.folder)
        return f"<Result{of}: {counted(len(self.records), 'record')}{failed} in {where}; print it for its scores>"

    @property
    def scores(self) -> dict[str, float]:
        """Return task -> its main score, in the unit and order of the table, with the average as "Avg"; a task of several
        protocols has a key "PROTOCOL TASK" for each."""
        labels = dict.fromkeys(row.protocol for row in self.rows)
        first = [row for label in labels for (_, subset), row in main_scores(main_rows(self, label)).items()
                 if subset is None]
        tasks = Counter(row.task for row in first)
        return {row.task if tasks[row.task] == 1 else f"{row.protocol} {row.task}": row.value for row in first}

    def __getitem__(self, task: str) -> float:
        """Return the main score of a task, as in `scores`. Raises KeyError, with a suggestion, for an unknown task."""
        name = match_name(str(task), scores := self.scores)
        if name not in scores:
            raise KeyError(f"no score of {task!r}{did_you_mean(str(task), scores)}")
        return scores[name]

    def document(self) -> Document:
        """Return a table for each protocol, with a row for each task and a column for each metric, then notes on them, and
        headlines at the end."""
        return Document(score_tables(self), below=[*remarks(self), *headlines(self)])

    def omissions(self) -> list[str]:
        """Return a line for each failed task and each protocol left out."""
        return [*self.failed_lines(), *self.left_out_lines()]

    def to_arrow(self) -> pa.Table:
        """Return a pyarrow table with a row for each score, subsets included, averages last, and the columns by which scores
        are comparable: encoder, pooler, data, text_version, known (whether the catalog knows the data) and settings that
        are not the default.

        An average has the value that its records share, else "mixed", or null for known."""
        import pyarrow as pa

        names = {name: name for name in (*ScoreRow.model_fields, *ORIGIN)} | {"view": "text_version"}
        kinds = {"value": pa.float64(), "low": pa.float64(), "high": pa.float64(), "n": pa.int64(), "known": pa.bool_()}
        rows = [{name: None if (key, row[key]) == ("known", "mixed") else row[key] for key, name in names.items()}
                for row in table_rows(self)]
        return pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name, pa.string())) for name in names.values()]))

    def as_json(self) -> list[dict[str, Any]]:
        """Return the scores as dictionaries, as `stsbench eval --json` writes them."""
        return [row.model_dump() for row in self.rows]

    def csv(self) -> str:
        """Return CSV with a line for each score, as `--format csv` prints it; cells that a spreadsheet would take for a
        formula are escaped."""
        return csv_table([*ScoreRow.model_fields, *ORIGIN], table_rows(self))

    def latex(self) -> str:
        """Return a booktabs table for each protocol, with a column for each task, as `--format latex` prints it."""
        return paper_document(self).latex()

    def markdown(self) -> str:
        """Return the tables of `latex` as GitHub's Markdown."""
        return paper_document(self).markdown()

    def plot(self, protocol: str | None = None, *, axes: Axes | None = None) -> Axes:
        """Plot a protocol's main scores with their 95 % intervals, a row for each task, and return the axes.

        protocol: as the tables name it, by default the first; axes: matplotlib's, to draw on; None: those of a new
        figure. Raises StsbenchError for a protocol that was not measured, and where nothing was.
        """
        from stsbench.display.style import interval_axes

        known = list(dict.fromkeys(row.protocol for row in self.rows))
        if not known:
            raise StsbenchError("nothing was measured: there is no score to draw")
        if str(protocol).endswith((".png", ".svg", ".pdf")):
            raise StsbenchError(f"plot gives matplotlib's axes: plot().figure.savefig({protocol!r}) writes a file")
        label = known[0] if protocol is None else protocol
        if label not in known:
            near = did_you_mean(str(label), known)
            raise StsbenchError(f"protocol={shorten(protocol)}: not among what was measured{near}")
        rows = [row for row in main_scores(main_rows(self, label)).values() if row.task != "Avg-full"]  # Avg is enough
        lead = rows[0]
        rows = [row for row in rows if (row.metric, row.aggregation) == (lead.metric, lead.aggregation)]
        names = [f"{row.task}, {row.subset}" if row.subset else row.task for row in rows]
        unit = " x 100" if declared_metric(lead).scale == 100 else ""
        what = ", ".join(filter(None, [lead.metric, lead.aggregation]))
        return interval_axes(names, [row.value for row in rows], [(row.low, row.high) for row in rows],
                             f"{what}{unit}, 95 % interval", title=f"{encoder(self)}\n{table_title(self, label)}", axes=axes)

    def write(self) -> None:
        """Write the run folder, with the run file and the scores as CSV, whole or not at all. Raises StsbenchError."""
        if not self.records:  # nothing is written, and a folder of this name may be another run
            self.folder = temporary("run")
        if not self.observed:
            return
        # A unique name, so that runs which end at the same moment do not write into one folder.
        building = self.folder.with_name(f".{self.folder.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            write_run(building / RUN, list(zip(self.records, self.observed, strict=True)))
            with atomic_write(building / SCORES) as stream:
                stream.write(csv_table(list(ScoreRow.model_fields), self.as_json()))
            if missing := {key: value for key, value in self._missing().items() if value}:
                with atomic_write(building / MISSING) as stream:
                    stream.write(json.dumps(missing, indent=1) + "\n")
            self.folder = claim(building, self.folder)
        except (OSError, StsbenchError) as error:
            reason = error if isinstance(error, OSError) else error.__cause__ or error
            raise StsbenchError(f"cannot write {self.folder}/: {getattr(reason, 'strerror', None) or reason}") from error
        finally:
            shutil.rmtree(building, ignore_errors=True)
        self.observed = []

    def read_missing(self) -> None:
        """Add the failures and left-out tasks that the run folder stores. Raises StsbenchError, naming the file, where they
        are not a mapping from names to reasons."""
        if (path := self.folder / MISSING).is_file():
            stored = read_json_object(path)
            for key, reasons in self._missing().items():
                listed = stored.get(key, {})
                if not (isinstance(listed, dict) and all(isinstance(reason, str) for reason in listed.values())):
                    raise StsbenchError(f"{path}: {key} must be names with reasons")
                reasons.update({name: reason for name, reason in listed.items() if name not in reasons})

    def _missing(self) -> dict[str, dict[str, str]]:
        return {"failures": self.failures, "left_out": self.left_out}


@contextmanager
def save_on_exit(result: Result, log: Callable[[str], None]) -> Iterator[None]:
    """Write `result` when the block ends, also where it ends by Ctrl-C, lack of memory or an error in this package."""
    try:
        yield
    except BaseException:
        result.write()
        if result.records:
            count = len(result.records)
            measured = f"the {count} tasks measured so far are kept" if count > 1 else "the task measured so far is kept"
            log(f"{measured}: stsbench score {result.folder}; --protocol and --tasks measure the others")
        raise
    result.write()


def claim(building: Path, folder: Path) -> Path:
    """Rename `building` to `folder`, or to the first of folder-2, folder-3, ... that is free, and return its new path.

    A run never overwrites another: the system renames a folder only to a free name or onto an empty folder, and of several
    processes one succeeds. A check before the renaming would lose runs of processes that pass it at the same moment.
    """
    candidate, number = folder, 2
    while True:
        try:
            return building.rename(candidate)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
