"""Published results: tables of scores as papers and READMEs print them, read from published/*.yaml and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from stsbench.config import parse_yaml
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import GROUP, load_protocol
from stsbench.evaluation.schema import Better
from stsbench.evaluation.schema import Metric as DeclaredMetric
from stsbench.parsing import MOST_YAML, read_text
from stsbench.registry import did_you_mean, names

from .paths import PUBLISHED

STS = {"STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"}  # the tasks of every paper's Avg
EPSILON = 1e-9  # tolerance for the rounding of decimal sums in binary
Figure = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=1)]
Text = Annotated[str, StringConstraints(min_length=1)]
Flag = Literal["nli", "sts", "transductive", "dev-selected", "best-of-n"]  # sts: trained with STS labels
# Kinds of tables that papers print and no protocol measures: key -> (title, sentence).
PRINTED = {
    "dev": ("Ablations", "What papers report to justify a choice."),
    "few-labels": (
        "Few labels", "The mean of the seven STS tasks, by the share of the labelled training data (NLI) that was used.",
    ),
    "cost": ("Cost", ""),
}
Metric = Literal[
    "spearman", "pearson", "accuracy", "recall@k", "mean recall@k", "alignment", "uniformity", "minutes", "memory",
    "parameters", "mixed",
]
COSTS = {"minutes", "memory", "parameters"}


def _check_protocol(protocol: str) -> str:
    known = [*names(GROUP), *PRINTED]
    if protocol not in known:
        raise ValueError(f"must be one of {', '.join(known)}")
    return protocol


class PublishedModel(BaseModel):
    """Base of the published results' models: frozen, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class Paper(PublishedModel):
    """The source of published figures: a paper, or a repository's README. `id` is the name of its YAML file."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: Text
    authors: Text  # "Gao et al."
    year: Annotated[int, Field(strict=True, ge=1990)] | None  # null for a README, which changes
    url: str = Field(pattern=r"^https://\S+$")


class Heading(PublishedModel):
    """The heading of a published table: what all its scores share. A table of several metrics or aggregations is split.

    `part` names a piece of a table whose rows recur in another piece. `task` is what is measured where the columns are
    conditions (shares of labels, one or two encoders), null where they are tasks. `aggregation` is null where no subsets
    are combined, "unknown" where the source does not state it. `average` is the heading of the printed mean's column.
    """

    paper: Paper
    table: str = Field(pattern=r"^[A-Za-z0-9.-]+$")
    part: str | None = Field(default=None, pattern=r"^[a-z0-9-]+$")
    protocol: Annotated[Text, AfterValidator(_check_protocol)]
    task: Text | None = None
    metric: Metric
    aggregation: Literal["all", "mean", "wmean", "unknown"] | None
    split: Literal["test", "dev"] | None  # null: no scores on data, or not stated
    columns: tuple[Text, ...] = Field(min_length=1)
    average: Text | None = None
    decimals: Annotated[int, Field(strict=True, ge=0, le=6)] = 2
    unit: Text | None = None  # null: the score x 100, as papers print it
    note: Text | None = None

    @property
    def direction(self) -> Better:
        """Return which of two figures is better: for costs "lower", else as the protocol declares."""
        if self.metric in COSTS:
            return "lower"
        return self.declared.better if self.declared else "higher"

    @property
    def wide(self) -> bool:
        """Return whether the columns of the protocol's tables are metrics, as it has one task."""
        return self.protocol not in PRINTED and load_protocol(self.protocol).metrics_across

    @property
    def declared(self) -> DeclaredMetric | None:
        """Return the protocol's declaration of the metric; None for a name that it does not compute ("recall@k")."""
        return None if self.protocol in PRINTED else load_protocol(self.protocol).metrics.get(self.metric)

    @property
    def name(self) -> str:
        """Return the table's name in ids: "5", or "2/sts" for a part."""
        return self.table if self.part is None else f"{self.table}/{self.part}"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("a column is named twice")
        if (self.protocol == "dev") != (self.split == "dev"):
            raise ValueError("the protocol 'dev' and the split 'dev' go together")
        if self.average and self.task:
            raise ValueError("no average over columns that are conditions of one task")
        return self


class PublishedRow(PublishedModel):
    """One row of a published table; null for a figure that is not printed or not readable. `runs`: of `sd`, `average_sd`.

    `row` numbers the rows of a table and never changes, since it is part of ids. `copied_from` is the publication that the
    figures were taken from: its id, or a paper's name where it is not among these files.
    """

    heading: Heading = Field(repr=False)
    row: Count
    method: Text
    backbone: Text | None = None
    setting: Literal["unsup", "semi", "sup"] | None = None
    scores: tuple[Figure | None, ...]
    average: Figure | None = None
    sd: tuple[Figure | None, ...] | None = None
    average_sd: Figure | None = None
    runs: Count | None = None
    copied_from: Text | None = None
    flags: tuple[Flag, ...] = ()
    best_of: Annotated[int, Field(strict=True, ge=2)] | None = None
    decimals: Annotated[int, Field(strict=True, ge=0, le=6)] | None = None  # if not those of the table
    average_reason: Text | None = None  # why the printed average is not the mean of the columns
    note: Text | None = None

    @property
    def id(self) -> str:
        """Return paper, table and row, as in `simcse:5:7`; unique over all publications."""
        return f"{self.heading.paper.id}:{self.heading.name}:{self.row}"

    @property
    def printed_decimals(self) -> int:
        """Return the number of decimals that the row is printed with."""
        return self.heading.decimals if self.decimals is None else self.decimals

    @property
    def mean(self) -> float | None:
        """Return the unrounded mean of the columns; None where a score is missing, or the columns are never averaged.

        The seven tasks of STS are averaged whether or not the source averages them; other columns only if it does.
        """
        averaged = self.heading.average is not None or set(self.heading.columns) == STS
        scores = [score for score in self.scores if score is not None]
        return sum(scores) / len(scores) if averaged and len(scores) == len(self.scores) else None

    @property
    def recomputed(self) -> float | None:
        """Return `mean` rounded to the decimals of the row; None where that is None."""
        return None if self.mean is None else round(self.mean, self.printed_decimals)

    @property
    def disagrees(self) -> bool:
        """Return whether `average` differs from the mean of the columns by more than rounding explains: half a unit of the
        last digit in the columns and in the average."""
        if self.mean is None or self.average is None:
            return False
        return abs(self.mean - self.average) > 10.0**-self.printed_decimals + EPSILON

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        width = len(self.heading.columns)
        for name, figures in (("scores", self.scores), ("sd", self.sd)):
            if figures is not None and len(figures) != width:
                raise ValueError(f"{name}: {len(figures)} figures for {width} columns")
        for figure in (*self.scores, self.average):
            if figure is not None and abs(round(figure, self.printed_decimals) - figure) > EPSILON:
                raise ValueError(f"{figure} has more than the {self.printed_decimals} decimals that are printed")
        if self.average is not None and self.heading.average is None:
            raise ValueError("an average, in a table that prints none")
        if self.best_of is not None and "best-of-n" not in self.flags:
            raise ValueError("best_of without the flag best-of-n")
        if self.disagrees and self.average_reason is None:
            raise ValueError(f"prints the average {self.average}; its columns give {self.recomputed}: add average_reason")
        if self.average_reason is not None and not self.disagrees:
            raise ValueError("average_reason, but no average that disagrees with the columns")
        return self


class PublishedTable(Heading):
    """A table, or one part of it: rows that share a heading."""

    rows: tuple[PublishedRow, ...]


class Publication(PublishedModel):
    """The published tables of one paper or README."""

    paper: Paper
    tables: tuple[PublishedTable, ...]

    @property
    def rows(self) -> tuple[PublishedRow, ...]:
        """Return the rows of all tables."""
        return tuple(row for table in self.tables for row in table.rows)


_Model = TypeVar("_Model", bound=PublishedModel)


def load_publications(folder: Path | None = None) -> list[Publication]:
    """Return every publication of `folder` (by default the package's), sorted by file name.

    Raises StsbenchError naming the file, table and row of the first mistake.
    """
    folder = folder or PUBLISHED
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise StsbenchError(f"{folder} holds no published results (*.yaml)")
    return [_read(path) for path in paths]


def find_row(text: str, folder: Path | None = None) -> PublishedRow:
    """Return the row with the id `text`, such as "simcse:5:7". Raises StsbenchError, with the nearest papers, tables or
    rows, where there is none."""
    publications = {publication.paper.id: publication.rows for publication in load_publications(folder)}
    paper, table, number = (*text.strip().split(":", 2), "", "")[:3]
    if paper not in publications:
        raise StsbenchError(f"no publication '{paper}' (a row is PAPER:TABLE:ROW){did_you_mean(paper, publications)}")
    tables = dict.fromkeys(row.heading.name for row in publications[paper])
    if table not in tables:
        raise StsbenchError(f"{paper} has no table '{table}' (a row is PAPER:TABLE:ROW){did_you_mean(table, tables)}")
    rows = {str(row.row): row for row in publications[paper] if row.heading.name == table}
    if number not in rows:
        raise StsbenchError(f"table {table} of {paper} has no row '{number}'; its rows: {', '.join(sorted(rows, key=int))}")
    return rows[number]


def _read(path: Path) -> Publication:
    raw = parse_yaml(read_text(path, MOST_YAML), str(path))
    if not isinstance(raw, dict) or set(raw) != {"paper", "tables"}:
        raise StsbenchError(f"{path}: needs 'paper' and 'tables', and nothing else")
    paper = checked(Paper, raw["paper"], {}, f"{path}: paper")
    if paper.id != path.stem:
        raise StsbenchError(f"{path}: paper: the id '{paper.id}' is not the file's name '{path.stem}'")
    tables = [_table(path, paper, table, at) for at, table in enumerate(_mappings(raw["tables"], f"{path}: tables"), 1)]
    publication = Publication(paper=paper, tables=tuple(tables))
    if twice := [id for id, times in Counter(row.id for row in publication.rows).items() if times > 1]:
        raise StsbenchError(f"{path}: two rows are {twice[0]} (paper:table:row): number them apart, or name a part")
    return publication


def _table(path: Path, paper: Paper, raw: dict[str, Any], position: int) -> PublishedTable:
    part = f"/{raw['part']}" if raw.get("part") else ""
    where = f"{path}: table {raw.get('table', f'number {position}')}{part}"
    heading = checked(Heading, {key: value for key, value in raw.items() if key != "rows"}, {"paper": paper}, where)
    rows = tuple(
        checked(PublishedRow, row, {"heading": heading}, f"{where}, row {row.get('row', f'number {at}')}")
        for at, row in enumerate(_mappings(raw.get("rows"), f"{where}: rows"), 1)
    )
    return PublishedTable(**dict(heading), rows=rows)


def _mappings(raw: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(raw, list) or not raw or not all(isinstance(item, dict) for item in raw):
        raise StsbenchError(f"{where}: needs a list of mappings")
    return raw


def checked(model: type[_Model], raw: object, structure: Mapping[str, PublishedModel], where: str) -> _Model:
    """Return `raw` as a `model`. structure: fields set by the position in the file, which `raw` must not set. Raises
    StsbenchError, naming `where` and the field, for invalid content."""
    if not isinstance(raw, dict):
        raise StsbenchError(f"{where}: needs a mapping")
    if wrong := sorted(structure.keys() & raw.keys()):
        raise StsbenchError(f"{where}: {wrong[0]}: may not be given here")
    try:
        return model.model_validate({**raw, **structure})
    except ValidationError as error:
        first = error.errors()[0]
        field = "".join(f"{part}: " for part in first["loc"])
        raise StsbenchError(f"{where}: {field}{first['msg'].removeprefix('Value error, ')}") from error
