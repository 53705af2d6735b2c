"""What `identify` gives: the settings, nearest first, as text, in a notebook, as a frame and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stsbench.display.table import Document
from stsbench.display.tabular import Tabular
from stsbench.wording import counted

from .observed import Observed
from .report import as_json, described, first, further, heading, sentence, table, unchecked
from .search import Match, SearchResult

if TYPE_CHECKING:
    from pyarrow import Table

SHOWN = 10  # settings of a table


@dataclass(frozen=True, repr=False)
class Identification(Tabular):
    """Which settings give the published numbers with a model's observations. observations: what was compared."""

    result: SearchResult
    observations: tuple[Observed, ...]
    top: int = SHOWN  # settings that are printed

    @property
    def candidates(self) -> tuple[Match, ...]:
        """The settings, nearest first, equal ones together: differences by task in points, papers whose preset it is."""
        return self.result.matches

    @property
    def verdict(self) -> str:
        """"reproduced", "nearest" or "nothing checked"."""
        return self.result.verdict

    @property
    def sentence(self) -> str:
        """The outcome in plain words."""
        return sentence(self.result, self.several)

    @property
    def several(self) -> bool:
        """Whether observations of several encoders or text versions were compared."""
        return len(self.observations) > 1

    def __repr__(self) -> str:
        return f"<Identification: {self.verdict}, {counted(len(self.candidates), 'setting')} compared; print it for them>"

    def document(self) -> Document:
        """Return what was compared, the nearest settings, and the outcome in words."""
        tables = [table(self.result, self.several, self.top)] if self.candidates else []
        rest = len(self.candidates) - self.top
        below = [*([further(rest, len(self.candidates))] if rest > 0 else []),
                 *first(unchecked(self.result, self.several), self.top), self.sentence]
        return Document(tables, heading(self.result, self.observations), below)

    def to_arrow(self) -> Table:
        """A table with a row for each setting: its place (shared by all that reproduce the numbers), the setting in
        words, mean and largest absolute difference in points, tasks that agree to the last digit, the papers whose preset it
        is, and the difference of each task, measured minus published."""
        import pyarrow

        rows: list[dict[str, Any]] = [
            {
                "place": match.rank, "setting": ", or ".join(described(setting, True) for setting in match.settings),
                "mean_difference": match.mean, "largest_difference": abs(match.largest[1]), "largest_task": match.largest[0],
                "to_the_last_digit": match.exact, "papers": ", ".join(match.papers), **match.differences,
            }
            for match in self.candidates
        ]
        return pyarrow.table({name: [row[name] for row in rows] for name in (rows[0] if rows else ())})

    def as_json(self) -> dict[str, Any]:
        """What --json writes, as plain data."""
        return as_json(self.result, self.several)
