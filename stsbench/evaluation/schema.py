"""Declarations of a protocol: its settings, the arrays it observes, its metrics with direction, unit, decimals and range.

Settings are a frozen pydantic model, each field with its type, default, meaning and source:

    class TopSettings(Settings):
        share: Fraction = setting(0.1, "the share of the pairs that counts", "our choice")

Every setting is checked before anything is encoded; `checked` returns the values as a record holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan
from typing import Annotated, Any, Literal, TypeVar, get_args

from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WrapValidator
from pydantic_core import PydanticCustomError

from stsbench.config import validate
from stsbench.data.sets.sentences import SENTENCES
from stsbench.encoders.similarity import GROUP
from stsbench.errors import ScoreError, StsbenchError
from stsbench.metrics.similarity import SIMILARITIES
from stsbench.registry import did_you_mean, names
from stsbench.settings import Described as Described
from stsbench.settings import Settings as Base
from stsbench.settings import described as described
from stsbench.settings import setting as setting

Better = Literal["higher", "lower", "neither"]
Range = tuple[float, float]
TOLERANCE = 1e-6  # a score may exceed an end of its range by rounding


@dataclass(frozen=True)
class Metric:
    """Declaration of one metric of a protocol.

    better: which of two scores is better; neither: the metric describes, and ranks nothing. scale: the factor of the scores
    in rows, 100 as papers print correlations and shares, or 1. digits: decimals that are shown. range: both ends included,
    in the unit of the rows; a score outside is an error. title: its heading, where that is not the name with a capital.
    development: measured on development data; in the record, and on no leaderboard. shows_interval: tables show its interval
    as they show that of the first metric, for values that are used by themselves, such as thresholds.
    """

    better: Better = "higher"
    scale: Literal[1, 100] = 100
    digits: int = 2
    range: Range = (-inf, inf)
    title: str = ""
    development: bool = False
    shows_interval: bool = False

    def __post_init__(self) -> None:
        if self.better not in get_args(Better):
            raise ValueError(f"better must be 'higher', 'lower' or 'neither', not {self.better!r}")
        if self.scale not in (1, 100):
            raise ValueError(f"scale must be 1 or 100, not {self.scale!r}")
        if not isinstance(self.digits, int) or not 0 <= self.digits <= 9:
            raise ValueError(f"digits must be 0 to 9, not {self.digits!r}")
        if len(self.range) != 2 or any(map(isnan, self.range)) or not self.range[0] < self.range[1]:
            raise ValueError(f"range must be two numbers, the lower one first, not {self.range!r}")

    @property
    def lower(self) -> bool:
        """Return whether a smaller score is a better one."""
        return self.better == "lower"

    @property
    def sign(self) -> int:
        """Return -1 or 1: scores sorted by sign * score have the best first, or the smallest where better is "neither"."""
        return -1 if self.better == "higher" else 1

    def holds(self, value: float) -> bool:
        """Return whether a score can have this value."""
        low, high = self.range
        return low - TOLERANCE <= value <= high + TOLERANCE


Kind = Literal["float", "int", "uint", "bool", "number"]
_NUMPY = {"float": "f", "int": "i", "uint": "u", "bool": "b", "number": "fiu"}


@dataclass(frozen=True)
class Array:
    """Declaration of one array that a protocol observes.

    kind: "number" allows whole numbers and floats. shape: a letter for each dimension, n for the number of items of the set;
    a letter is the same length in all arrays, a digit is that length, and "" is a single number. optional: not every record
    has the array.

    shared: it depends on the data alone, or on the data and the settings named here, so that all encoders have the same.
    rounded: a leaderboard may round these float64 values where no score changes. per_item: the encoder's value for each item
    (a similarity, a class); records in which all these are equal are of one encoder. indices: distinct positions of items.
    """

    kind: Kind
    shape: str = "n"
    optional: bool = False
    shared: bool | tuple[str, ...] = False
    rounded: bool = False
    per_item: bool = False
    indices: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if not all(letter.isalnum() for letter in self.shape):
            raise ValueError(f"shape must be letters and digits, one a dimension, not {self.shape!r}")


@dataclass(frozen=True)
class Names:
    """Declaration of a list of short names. length: a letter or a digit as in `Array.shape`, or "*" for any number."""

    length: str = "*"
    shared: bool = False


def check_layout(
    arrays: Mapping[str, Array], values: Mapping[str, NDArray[Any]], names: Mapping[str, Names],
    listed: Mapping[str, Sequence[str]], n: int,
) -> None:
    """Raise ScoreError for an array or a list of names that is not declared, or has another kind or shape, and for an array
    that is missing. n: the number of items of the set."""
    for there, declared, what in ((values, arrays, ""), (listed, names, "names of ")):
        if unknown := there.keys() - declared.keys():
            raise ScoreError(f"the observations hold {what}{min(unknown)}, which the protocol does not declare")
    lengths = {"n": n}
    for key, array in arrays.items():
        if (value := values.get(key)) is None:
            if not array.optional:
                raise ScoreError(f"the observations lack {key}")
            continue
        if value.dtype.kind not in _NUMPY[array.kind]:
            raise ScoreError(f"{key} of the observations is of another kind ({value.dtype})")
        _check_shape(key, value.shape, array.shape, lengths)
        if array.indices and (len(set(value.tolist())) < len(value) or value.min() < 0 or value.max() >= n):
            raise ScoreError(f"{key} of the observations names an item twice, or one that the data do not have")
    for key, name in names.items():
        if key not in listed:
            raise ScoreError(f"the observations lack names of {key}")
        if name.length != "*":
            _check_shape(key, (len(listed[key]),), name.length, lengths)


def _check_shape(key: str, shape: tuple[int, ...], letters: str, lengths: dict[str, int]) -> None:
    want = [int(letter) if letter.isdigit() else lengths.setdefault(letter, length)
            for letter, length in zip(letters, shape, strict=False)]
    if len(letters) != len(shape) or want != list(shape):
        others = "the set's items or the other arrays" if "n" in letters else "the other arrays"
        raise ScoreError(f"{key} of the observations has the shape {shape}, which does not fit {others}")


# The array with the number of each row's item in a user's own set (`DataSet.items`). Protocols that count items declare it,
# and it is observed where rows repeat.
ITEM = "item"
REPEATED = {ITEM: Array("int", optional=True, shared=True)}
SHARED = dict.fromkeys(SENTENCES, Array("uint", optional=True, shared=True))
CORRELATION = Metric(range=(-100.0, 100.0))
SHARE = Metric(range=(0.0, 100.0))  # an accuracy, a recall: x 100
DEV_CORRELATION, DEV_SHARE = replace(CORRELATION, development=True), replace(SHARE, development=True)
UNDECLARED = Metric("neither")  # for metrics of a protocol that is not installed


def find_metric(metrics: Mapping[str, Metric], name: str) -> Metric | None:
    """Return the metric declared as `name`, as its family ("recall" for "recall@10") or as "*"; None without any of them."""
    return metrics.get(name) or metrics.get(name.partition("@")[0]) or metrics.get("*")


LARGEST = 2**32 - 1  # the largest seed that numpy's older generators take
T = TypeVar("T")


class Settings(Base):
    """Base class of a protocol's settings, whose order is that in its records."""

    model_config = ConfigDict(validate_default=True)


SettingsModel = type[Settings]


def requirement(text: str) -> PydanticCustomError:
    """Return the error for a validator to raise; its message becomes "PROTOCOL: KEY `text`, not VALUE"."""
    return PydanticCustomError("requirement", "{text}", {"text": text})


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | bool | int | float) else value


def _different(values: list[T]) -> list[T]:
    if len(set(values)) < len(values):
        raise requirement("must be a list of different values")
    return values


def _filled(values: list[T]) -> list[T]:
    if not values:
        raise requirement("must be a list of at least one value")
    return values


Whole = Annotated[int, Field(ge=0, le=LARGEST)]
"""A whole number from 0."""
Count = Annotated[int, Field(ge=1, le=LARGEST)]
"""A whole number from 1."""
Fraction = Annotated[float, Field(gt=0, lt=1)]
"""A number between 0 and 1, both left out."""
Factor = Annotated[float, Field(gt=0, lt=1e12)]
"""A positive factor of a loss or a penalty. Far more would overflow float32."""
Text = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""
AnyOf = Annotated[list[T], BeforeValidator(_as_list), AfterValidator(_different)]
"""A list of different values of one type, which may be empty. A single value stands for a list of one."""
SomeOf = Annotated[list[T], BeforeValidator(_as_list), AfterValidator(_different), AfterValidator(_filled)]
"""A list of at least one value, all different and of one type. A single value stands for a list of one."""


def _of_vectors(value: Any, of_vectors: Any) -> Any:
    try:
        return of_vectors(value)
    except ValueError:
        if not isinstance(value, str) or not did_you_mean(value, names(GROUP), otherwise=""):
            raise
        *first, last = map(repr, (*SIMILARITIES, *names(GROUP)))
        raise PydanticCustomError("literal_error", "{expected}", {"expected": f"{', '.join(first)} or {last}"}) from None


Similarity = Annotated[
    Literal["cosine", "dot", "euclidean", "manhattan"],
    WrapValidator(lambda value, of_vectors: value if value in names(GROUP) else _of_vectors(value, of_vectors)),
]
"""A similarity of two vectors, or the name of an extension's similarity of two texts (encoders/similarity.py)."""


def checked(model: SettingsModel, settings: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """Return all settings of `model` as a record holds them, with defaults for those not in `settings`.

    Raises StsbenchError, naming the protocol and the setting, for the first setting that is unknown or invalid.
    """
    for key in settings:
        if key not in model.model_fields:
            raise no_such_setting(protocol, str(key), model.model_fields)
    return validate(model, settings, protocol).model_dump()


def no_such_setting(protocol: str, key: str, names: Iterable[str]) -> StsbenchError:
    return StsbenchError(f"protocol {protocol} has no setting '{key}'{did_you_mean(key, sorted(names))}")
