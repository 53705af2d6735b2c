"""What a method needs of its rows and of the backbone: said once, before there is an instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.training.api.labelled import nli_roles

LabelledUse = Literal["none", "only", "with"]
"""Whether a stage trains on the recipe's `labelled` rows: "none"; "only" them, without `data`; or "with": a batch of them
goes with every batch of the data (Batch.labelled)."""

RoleChoice = Callable[[tuple[str, ...], str], tuple[str, ...]]
"""(roles that the data give, the method's name for messages) -> those used. Raises StsbenchError, one line, for a role that
is missing."""


def sentence_role(roles: tuple[str, ...], who: str) -> tuple[str, ...]:
    """("sentence",): plain text. who: what needs it, for the message. Raises StsbenchError, one line, without it."""
    if "sentence" not in roles:
        raise StsbenchError(
            f"{who} needs the column sentence (the data give {', '.join(roles) or 'no column'}): name it in data.columns"
        )
    return ("sentence",)


@dataclass(frozen=True)
class Needs:
    """What a method needs by its options, as `Method.needs` gives it. The defaults: plain sentences, to be contrasted.

    roles, labelled_roles: choose the roles of the data, and of labelled rows, that are used. labelled: of every stage, or by
    the stage's name, "none" for those not named.
    group_size: rows that `views` takes together. Batches hold whole groups, and training.batch_size is a multiple; of groups
    of two rows or more a view may have another number of texts than there are rows (pairs, say).
    whole_texts: rows are documents. `ids` gives all word pieces of the text, however long, without special tokens, and
    `views` takes parts that the model can read. Otherwise texts are cut at backbone.max_length, as labelled rows always are.
    usable: a TextRows of all n rows -> bool (n,), which may be drawn (a next sentence needs one that follows); None: all.
    unusable: why it leaves rows out, for the line that counts them.
    labelled_usable, labelled_unusable: the same of labelled rows.
    wrong_score: of the scores of all rows, float64 (n,) -> None, or the place of one that the method cannot use and why,
    for the error.
    reach: how many rows further on in its document the views of a row may read (`rows.following`). A row is not trained on
    where one of their texts is held out.
    """

    roles: RoleChoice = sentence_role
    negatives: bool = True  # they are the other rows of a batch: a batch of one would have nothing to contrast with
    dropout: bool = False  # two views of a row differ by nothing else: a backbone without any is refused at once
    group_size: int = 1
    score_range: tuple[float, float] | None = None  # the least and the greatest score of rows with scores; None: any number
    wrong_score: Callable[[NDArray[np.float64]], tuple[int, str] | None] | None = None
    labelled: LabelledUse | Mapping[str, LabelledUse] = "none"
    labelled_roles: RoleChoice = nli_roles  # NLI triplets, or pairs and their labels
    labelled_usable: Callable[[Any], NDArray[np.bool_]] | None = None
    labelled_unusable: str = "their labels have no part"
    labelled_negatives: bool = False  # `negatives` of a stage that trains on labelled rows only
    whole_texts: bool = False
    usable: Callable[[Any], NDArray[np.bool_]] | None = None
    unusable: str = "no sentence follows them, say"
    reach: int = 0

    def contrasts(self, labelled_only: bool) -> bool:
        """Whether a batch of one row would have nothing to be compared with, in a stage on labelled rows only or another."""
        return self.labelled_negatives if labelled_only else self.negatives
