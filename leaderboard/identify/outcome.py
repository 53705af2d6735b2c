"""What `identify` gives: the settings, nearest first, as text, in a notebook, as a frame and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stsbench.display.tabular import Tabular, html_lines, html_table, text_table
from stsbench.wording import counted

from .observed import Observed
from .report import UNIT, as_json, described, first, header, heading, lines, sentence, unchecked
from .search import Match, SearchResult

if TYPE_CHECKING:
    from pyarrow import Table

SHOWN = 10  # settings of a table


@dataclass(frozen=True, repr=False)
class Identification(Tabular):
    """Which settings give the published numbers with a model's observations. observations: what was compared."""

    result: SearchResult
    observations: tuple[Observed, ...]

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

    def __str__(self) -> str:
        """What `stsbench identify` prints: what was compared, the nearest settings, the outcome in words."""
        table = [UNIT, text_table(self._table())] if self.candidates else []
        return "\n".join([*heading(self.result, self.observations), *table, *self._unchecked(), self.sentence])

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        above = html_lines(heading(self.result, self.observations))
        table = html_table(UNIT, self._table()) if self.candidates else ""
        return above + table + html_lines([*self._unchecked(), self.sentence])

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

    def to_json(self) -> str:
        """What --json writes."""
        return json.dumps(self.as_json(), indent=1)

    def _table(self) -> list[list[str]]:
        names = [name.replace("\n", " ") for name in header(self.result)]
        return [names, *lines(self.result, self.several, SHOWN)]

    def _unchecked(self) -> list[str]:
        return first(unchecked(self.result, self.several), SHOWN)
