"""Data classes of the leaderboard: the board, its tabs, their rows with scores and ranks, and each entry's provenance."""

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
    """One score in the unit of its tab. low, high: 95 % interval; sd: over seeds; n: number of items."""

    value: float
    low: Number = None
    high: Number = None
    sd: Number = None
    n: int | None = None


def span(first: int, last: int) -> str:
    """Return two ranks as "1-3", or "1" where both are equal."""
    return str(first) if first == last else f"{first}-{last}"


@dataclass(frozen=True)
class Rank:
    """The rank of a row. position: 1 + the number of rows with a better score; first, last: 95 % interval of the rank,
    jointly with those of all other rows; ties: letters, where rows that share a letter do not differ significantly ("" on a
    tab of more than 20 ranked rows); alone: the narrower 95 % interval of this rank by itself.

    tier: 1 for the best row and those that do not differ significantly from it, 2 for the best of the others and those that
    do not differ from that, and so on (`metrics.ranks.tiers`); None where no other row is ranked.

    prompts: 95 % interval of the rank over draws of items and of one prompt for each row with prompts; chance: probability
    of being first in a draw of prompts, by the scores alone. None on a tab where fewer than two ranked rows have prompts.
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
        """Return the 95 % interval of the rank as "1-3", or "1" where both ends are equal."""
        return span(self.first, self.last)


@dataclass(frozen=True)
class PromptSpread:
    """The spread of a row's scores in the lead column over `n` other prompts of its encoder; sd divides by n - 1."""

    n: int
    mean: float
    sd: Number
    lowest: float
    highest: float


@dataclass(frozen=True)
class Exposure:
    """Whether an encoder was trained on, fitted on or chosen by sentences or labels of a test set. why: the text that held
    them, or how a no is known. The answer is `unknown` wherever nothing shows yes or no."""

    answer: Answer
    why: str


@dataclass(frozen=True)
class Row:
    """One row of a tab. Published rows are never ranked, nor are measured rows with a reason in `unranked`.

    cells: column -> score, without columns that have none; subsets: (column, subset) -> score of the subset of a task;
    flags: keys of FLAGS, what to know before comparing the row; marks: a sentence for each peculiarity of the row;
    average_printed: the average that the paper prints, where its columns average to something else; prompts: the spread over
    other prompts of its encoder, if measured; exposure: column -> whether the encoder was trained on that column's test set.
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
    """Significance tests of every pair of ranked rows in a tab's lead column. rows: r ids, in any order.

    different: bool (r, r), symmetric: whether the two differ at 5 %, over all pairs of the tab jointly; halves: (r, r)
    half the width of the 95 % interval of the pair's difference, for this pair by itself, in the unit of the scores: it
    leaves 0 out exactly where the pair differs by itself; NaN where there is none.
    """

    rows: tuple[str, ...]
    different: NDArray[np.bool_]
    halves: NDArray[np.float64]


@dataclass(frozen=True)
class Tab:
    """One table of the board: its measured rows have one setting. Rows are ranked, and at first sorted, by column `lead`."""

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
    known: bool = True  # whether the rows were measured on the catalog's data
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)  # column -> digest
    notes: tuple[str, ...] = ()  # remarks on the published tables
    pairs: PairTests | None = None
    better: Mapping[str, Better] = field(default_factory=dict)  # column -> which end wins; the lead's is by lower_is_better
    user_set: str = ""  # the name of the user's file or folder that all rows were measured on
    language: str = ""  # of mteb's sets, in words: "Korean", "English and German", "All languages"; else ""
    finer: Mapping[str, int] = field(default_factory=dict)  # column -> decimals, of those shown with more than `digits`
    averaged: tuple[str, ...] = ()  # the tasks that the lead averages; () where the lead is a single score
    form: str | None = None  # how it differs from tabs of the same metric and aggregation; None: read off the title

    def digits_in(self, column: str) -> int:
        """Return the number of decimals that a column is shown with."""
        return self.finer.get(column, self.digits)

    def over_tasks(self, row: Row) -> OverTasks | None:
        """Return a measured row's average with an interval that treats the tasks as a sample; None where the row has no
        average."""
        if not self.averaged or row.kind != "measured" or not {self.lead, *self.averaged} <= row.cells.keys():
            return None
        return mean_over_tasks(self._of_tasks(row))

    def neighbours(self, row: Row) -> list[tuple[Row, float]]:
        """Return the ranked rows directly above and below a ranked row, each with the probability (0 to 1) that their order
        would survive another draw of as many tasks; without rows of the same average."""
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
        """Return which of two scores in that column is better: "higher", "lower" or "neither"."""
        return self.better.get(column, "lower" if self.lower_is_better else "higher")

    def sign(self, column: str) -> int:
        """Return the sign for sorting by sign * score, best score first; the smallest first where neither end is better."""
        return -1 if self.direction(column) == "higher" else 1


@dataclass(frozen=True)
class Provenance:
    """The provenance of an entry, shown when its row is opened: per run the encoder's spec, versions, command and dates.

    prompts: the other prompts that its encoder was measured with, in the entries named by `prompt_entries`.
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
    """A board: everything the page and the tables show. name: the heading, "" for that of the public board; sections:
    extension's name -> what it shows beside the tabs."""

    tabs: tuple[Tab, ...]
    entries: Mapping[str, Provenance]
    name: str = field(default="", kw_only=True)
    sections: Mapping[str, Any] = field(default_factory=dict, kw_only=True)


STS_LABELS = "sts"
UNLIKE = (STS_LABELS, "transductive", "best-of-n")  # flags that make a score incomparable with those of unflagged rows
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
