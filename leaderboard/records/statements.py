"""Statements on an encoder's training data: an entry's answers for single test sets, and known training texts.

training_texts.yaml holds the overlap of known training texts with test sets, in the form of a training's record
(`training_overlap`), so that the same follows from a maker's list of training sets and from a record's digest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from stsbench.config import parse_yaml
from stsbench.data.sets.catalog import BY_ID, entries
from stsbench.errors import StsbenchError
from stsbench.parsing import MOST_YAML, read_text

from .admission import first_problem
from .paths import TRAINING_TEXTS

ALL = "all"  # the key of a statement on every set
STSB_DEV = "stsb-dev"  # the training text that the flag dev-selected implies
_WORDS = {True: "yes", False: "no"}  # YAML reads the words yes and no as truth values
Answer = Annotated[Literal["yes", "no", "unknown"], BeforeValidator(lambda word: _WORDS.get(word, word))]


def _text_like(pattern: str, advice: str) -> BeforeValidator:
    """Return a validator of text that matches `pattern`. It takes values that YAML does not read as text: no, 2024."""

    def check(value: object) -> str:
        text = "no" if value is False else str(value)
        if not re.fullmatch(pattern, text):
            raise ValueError(f"'{text}': write {advice}")
        return text

    return BeforeValidator(check)


Month = Annotated[str, _text_like(r"(19|20)[0-9]{2}(-(0[1-9]|1[0-2]))?", "a year, or a year and a month as in 2024-05")]
Language = Annotated[str, _text_like(r"[a-z]{2,3}", "a code of ISO 639 of two or three small letters, such as de")]
HubName = Annotated[str, _text_like(r"[A-Za-z0-9][A-Za-z0-9_.-]{,95}/[A-Za-z0-9_.-]{1,96}",
                                    "ORGANISATION/NAME, as the Hub calls the model")]


class Statement(BaseModel):
    """A statement whether an encoder was trained on sentences or labels of a test set. by: the training text that held them,
    or why none did; shown: the evidence, an address or a record."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    answer: Answer
    by: str = Field(min_length=1, max_length=200)
    shown: str = Field(min_length=1, max_length=500)


class TrainingText(BaseModel):
    """A known training text. digests: of its rows, as trainings record them; shared, none: as in a record's
    `training_overlap`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    digests: tuple[str, ...] = ()
    shared: dict[str, dict[str, int]]
    none: tuple[str, ...]

    @property
    def overlap(self) -> dict[str, Any]:
        """Return the overlap with test sets, in the form that `texts_shared` and `texts_not_compared` take."""
        return {"text": self.title, "shared": self.shared, "none": self.none, "not_looked_for": ()}


def known_set(name: str) -> str:
    """Return `name` if it is that of a set, such as sts12, or `all`. Raises ValueError for any other."""
    known = {set_id.partition("/")[0] for set_id in (*BY_ID, *(entry.id for entry in entries()))}
    if name not in {ALL, *known}:
        raise ValueError(f"'{name}' is not a set: write {ALL}, or one of {', '.join(sorted(known))}")
    return name


def known_text(name: str) -> str:
    """Return `name` if it is that of a text of training_texts.yaml. Raises ValueError for any other."""
    if name not in training_texts():
        raise ValueError(f"'{name}' is not a text of training_texts.yaml: write some of {', '.join(training_texts())}, or "
                         "add it there with what `stsbench data overlap FILE` counts")
    return name


SetName = Annotated[str, BeforeValidator(known_set)]
TextName = Annotated[str, BeforeValidator(known_text)]


@cache
def training_texts() -> Mapping[str, TrainingText]:
    """Return name -> text of training_texts.yaml, read once. Raises StsbenchError for an invalid file."""
    stated = parse_yaml(read_text(TRAINING_TEXTS, MOST_YAML), str(TRAINING_TEXTS))
    try:
        return {name: TrainingText.model_validate(text) for name, text in stated.items()}
    except ValidationError as error:
        raise StsbenchError(f"{TRAINING_TEXTS}: {first_problem(error)}") from error
