"""What the board keeps of another tool's results: one file a model below imported/."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stsbench.config import parse_yaml
from stsbench.errors import StsbenchError
from stsbench.parsing import MOST_YAML, read_text

FOLDER = "imported"  # below the board's folder
Correlation = Annotated[float, Field(strict=True, ge=-1, le=1, allow_inf_nan=False)]
Text = Annotated[str, Field(pattern=r"^[!-~]([ -~]*[!-~])?$", max_length=300)]


class ImportModel(BaseModel):
    """Frozen; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ImportedTask(ImportModel):
    """One task's scores on its test split, as correlations in [-1, 1], and where they stood.

    dataset_revision: the Hub's, of the data that mteb says it read; sha256: of the result file.
    """

    task: Literal["STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R"]
    cosine_spearman: Correlation
    cosine_pearson: Correlation
    dataset_revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    mteb_version: Text | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Imported(ImportModel):
    """One model's results. source: the address they were read from, "" for files of one's own."""

    tool: Literal["mteb"]
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$", max_length=200)]
    revision: Text
    source: Annotated[str, Field(pattern=r"^(https://\S+)?$")] = ""
    tasks: tuple[ImportedTask, ...] = Field(min_length=1)

    @property
    def file(self) -> str:
        """The file's name, as mteb names a model's folder."""
        return f"{self.model.replace('/', '__')}.yaml"


def load_imported(folder: Path) -> list[Imported]:
    """Every file of `folder` (a board's imported/), by name; [] without one. Raises StsbenchError naming the first that is
    not what an import writes."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [_read(path) for path in paths if not path.name.startswith(".")]


def as_yaml(imported: Imported) -> str:
    """The file's text."""
    head = "# Written by `stsbench leaderboard import mteb`: another tool's results, which nobody here has checked.\n"
    return head + yaml.safe_dump(imported.model_dump(mode="json"), sort_keys=False, width=120)


def _read(path: Path) -> Imported:
    try:
        imported = Imported.model_validate(parse_yaml(read_text(path, MOST_YAML), str(path)) or {})
    except ValidationError as error:
        first = error.errors()[0]
        raise StsbenchError(f"{path}: {'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from error
    if path.name != imported.file:
        raise StsbenchError(f"{path} holds results of {imported.model}: its name should be {imported.file}")
    if len({task.task for task in imported.tasks}) < len(imported.tasks):
        raise StsbenchError(f"{path}: a task stands in it twice")
    return imported
