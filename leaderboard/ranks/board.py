"""The board as data: tabs of rows that may stand in one table, and what stands behind each row. Nothing here is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stsbench.evaluation.schema import Better
from stsbench.metrics.aggregation import OverTasks, difference_over_tasks, mean_over_tasks

Number = float | None
Answer = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class Cell:
    """One score in the unit of its tab. low, high: 95 % interval; sd: over `runs` seeds; printed: as a paper prints it."""

    value: float
    low: Number = None
    high: Number = None
    sd: Number = None
    n: int | None = None


def span(first: int, last: int) -> str:
    """Return "1-3", or "1" where both are equal."""
    return str(first) if first == last else f"{first}-{last}"


@dataclass(frozen=True)
class Rank:
    """position: 1 + rows with a higher score; first, last: 95 % interval of the rank, jointly with those of all other rows;
    ties: letters, rows that share one do not differ significantly, "" on a tab of more than 20 ranked rows; alone: the
    narrower interval that covers this row's rank in 95 %, by itself.

    tier: 1 for the best row and those that do not differ significantly from it, 2 for the best of the others and those that
    do not differ from that, and so on (`metrics.ranks.tiers`); None where no other row is ranked.

    prompts: 95 % interval of the rank where every row of the tab that has prompts draws one of them, over such draws and
    items; chance: of being first in a draw, by the scores alone. None on a tab where fewer than two ranked rows have any.
    """

    position: int
    first: int
    last: int
    ties: str
    alone: tuple[int, int] = (0, 0)
    prompts: tuple[int, int] | None = None
    chance: Number = None
    tier: int | None = None

    @property
    def interval(self) -> str:
        """Return "1-3", or "1"."""
        return span(self.first, self.last)


@dataclass(frozen=True)
class PromptSpread:
    """The scores of a row's encoder behind `n` other prompts, in the lead column; sd divides by n - 1."""

    n: int
    mean: float
    sd: Number
    lowest: float
    highest: float


@dataclass(frozen=True)
class Exposure:
    """Whether sentences or labels of a test set were among what an encoder was trained on, fitted on or chosen by, and by
    what, or how a no is shown: `unknown` wherever nothing shows either."""

    answer: Answer
    why: str


@dataclass(frozen=True)
class Row:
    """One line of a tab. Published rows are never ranked, nor are measured ones that `unranked` gives a reason for.

    cells: column -> score, only where there is one; subsets: (column, subset) -> score of the part of a task; flags: what a
    reader must know before comparing, by the keys of FLAGS; marks: a sentence for each thing that is odd about the row;
    average_printed: what the paper prints where its columns average to something else; prompts: where its encoder was read
    behind others, too; exposure: column -> what the encoder was trained on of that column's set, of an average of all.
    """

    id: str
    kind: Literal["measured", "published"]
    method: str
    backbone: str
    setting: str | None  # unsup, semi, sup
    cells: Mapping[str, Cell]
    flags: tuple[str, ...] = ()
    seeds: int | None = None
    best_of: int | None = None
    rank: Rank | None = None
    unranked: str = ""
    average_printed: Number = None
    marks: tuple[str, ...] = ()
    source: str = ""  # "SimCSE, table 5" or the entry's name
    link: str = ""  # the paper
    card: str = ""
    entry: str = ""  # key into Board.entries; "" for a published row
    subsets: Mapping[tuple[str, str], Cell] = field(default_factory=dict)
    year: int | None = None  # the paper's, where the source states it
    prompts: PromptSpread | None = None
    exposure: Mapping[str, Exposure] = field(default_factory=dict)

    def word(self, column: str) -> Answer:
        """Return "yes", "no" or "unknown": whether the encoder was trained on that column's test sentences or labels."""
        return self.exposure[column].answer if column in self.exposure else "unknown"


@dataclass(frozen=True, eq=False)
class PairTests:
    """The test of every pair of ranked rows in a tab's lead column. rows: r ids, in any order.

    different: bool (r, r), symmetric: whether the two differ at 5 %, over all pairs of the tab jointly; halves: (r, r)
    half the width of the 95 % interval of the pair's difference, for this pair by itself, in the unit of the scores: it
    leaves 0 out exactly where the pair differs by itself; NaN where there is none.
    """

    rows: tuple[str, ...]
    different: NDArray[np.bool_]
    halves: NDArray[np.float64]


@dataclass(frozen=True)
class Tab:
    """One table: everything in it was measured alike. `lead` is the column it is ranked and sorted by at first."""

    id: str  # "sts-spearman-all", fit for a URL fragment
    group: str  # the protocol, "sts"; the tabs of a group stand together
    title: str  # "Spearman, all"
    about: str  # a sentence: what was measured, how, on which text
    metric: str
    aggregation: str | None
    columns: tuple[str, ...]
    lead: str
    digits: int  # 2, or 3 for plain numbers
    lower_is_better: bool
    measured: tuple[Row, ...]  # best first
    published: tuple[Row, ...]
    sample: bool = False  # measured on the sample: labelled wherever it is shown
    known: bool = True  # on the catalog's data
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)  # column -> digest
    notes: tuple[str, ...] = ()  # what is said of the published tables
    pairs: PairTests | None = None
    better: Mapping[str, Better] = field(default_factory=dict)  # column -> which end wins; the lead's is by lower_is_better
    user_set: str = ""  # the name of the user's file or folder that all rows were measured on
    language: str = ""  # in words, of a table of mteb's sets in one: "Korean", "English and German", "All languages"
    finer: Mapping[str, int] = field(default_factory=dict)  # column -> decimals, of those shown with more than `digits`
    averaged: tuple[str, ...] = ()  # the tasks that the lead averages; () where it is no average
    form: str | None = None  # what sets it apart from tabs of the same metric and aggregation; None: as its title says

    def digits_in(self, column: str) -> int:
        """Return decimals that a column is shown with."""
        return self.finer.get(column, self.digits)

    def over_tasks(self, row: Row) -> OverTasks | None:
        """Return a measured row's average with its interval where the tasks are a sample, too; None where there is no
        average."""
        if not self.averaged or row.kind != "measured" or not {self.lead, *self.averaged} <= row.cells.keys():
            return None
        return mean_over_tasks(self._of_tasks(row))

    def neighbours(self, row: Row) -> list[tuple[Row, float]]:
        """Return the ranked rows next above and next below a ranked row, and how likely their order would survive another
        draw of as many tasks; without those of the same average."""
        ranked = [other for other in self.measured if other.rank]
        if not self.averaged or row not in ranked:
            return []
        at = ranked.index(row)
        shares = [(other, difference_over_tasks(self._of_tasks(row), self._of_tasks(other)).same_order)
                  for other in ranked[max(at - 1, 0) : at] + ranked[at + 1 : at + 2]]
        return [(other, share) for other, share in shares if share is not None]

    def _of_tasks(self, row: Row) -> NDArray[np.float64]:
        return np.array([row.cells[task].value for task in self.averaged])

    def lower(self, column: str) -> bool:
        """Return whether a smaller score in that column is a better one."""
        return self.direction(column) == "lower"

    def direction(self, column: str) -> Better:
        """Return which of two scores in that column is better."""
        return self.better.get(column, "lower" if self.lower_is_better else "higher")

    def sign(self, column: str) -> int:
        """Return sign * score: sorted by it, the best score comes first; the smallest where neither end is better."""
        return -1 if self.direction(column) == "higher" else 1


@dataclass(frozen=True)
class Provenance:
    """What stands behind an entry: per run the encoder's spec, versions, command, dates; shown when a row is opened.

    prompts: the others that its encoder was read behind, which the entries called `prompt_entries` hold.
    """

    id: str
    name: str
    note: str
    recipe: str
    runs: tuple[Mapping[str, Any], ...]  # of each: fingerprint, spec, seed, versions, git, device, command, created, records
    prompts: tuple[str, ...] = ()
    prompt_entries: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # licence, released, languages, hub, max_tokens


@dataclass(frozen=True)
class Board:
    """Everything the page and the tables show. name: the heading, "" for that of the public board; sections: what extensions
    show beside the tabs, by their names."""

    tabs: tuple[Tab, ...]
    entries: Mapping[str, Provenance]
    name: str = field(default="", kw_only=True)
    sections: Mapping[str, Any] = field(default_factory=dict, kw_only=True)


STS_LABELS = "sts"
UNLIKE = (STS_LABELS, "transductive", "best-of-n")  # flags that make a score another thing than its neighbours'
# key -> (short label, sentence)
FLAGS: dict[str, tuple[str, str]] = {
    "nli": ("NLI", "trained with the labels of natural language inference data"),
    "sts": ("STS", "trained with STS labels"),
    "transductive": ("transductive", "fitted or trained on the texts of the test sets"),
    "shared-texts": ("shares test texts", "its training text holds texts of a test set of this tab, as the training "
                     "recorded: the row's notes name the text, the set and how many"),
    "dev-selected": ("STS-B dev", "checkpoint or hyperparameters chosen on STS-B dev, 77 % of which is in test sets"),
    "changed-recipe": ("changed recipe", "trained here with other steps, texts or settings than the paper's"),
    "near-copy": ("near-copy", "similarities that are another row's but for tiny noise: the row's note names it"),
    "imported": ("imported, not checked", "taken from another tool's result files: nothing behind the scores was checked"),
    "best-of-n": ("best of n", "the best of several seeds: never ranked"),
}
