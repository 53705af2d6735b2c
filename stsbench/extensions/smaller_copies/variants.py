"""Measure truncated and quantised copies of an encoder's vectors from one pass over the texts, against the full vectors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from stsbench.comparison.comparability import Measured, measured
from stsbench.comparison.shared import narrowed
from stsbench.config import checked_options
from stsbench.encoders.base import Encoder, EncoderOptions
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.load import loaded_encoder
from stsbench.encoders.options import CacheOptions
from stsbench.encoders.post.source import read_texts
from stsbench.errors import EncoderError, StsbenchError, StsbenchWarning, check_log, warning_log
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.options import DataOptions, MeasureArguments, MeasureOptions, split_names
from stsbench.evaluation.plan import metric_under, plan
from stsbench.evaluation.protocol import Drawn, Influences
from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.result import Result
from stsbench.evaluation.run_file import load_records
from stsbench.evaluation.tables import main_rows, main_scores
from stsbench.extensions.smaller_copies.codes import WHOLE
from stsbench.extensions.smaller_copies.options import VariantOptions
from stsbench.extensions.smaller_copies.variant import CALL, FILE, SHARED, Form, Variant, Vectors
from stsbench.extensions.smaller_copies.variant_scores import AVERAGE, VariantScore, VariantScores
from stsbench.metrics.paired import Difference, paired_difference
from stsbench.metrics.shared_sentences import Influence, stretched_pair
from stsbench.options import takes
from stsbench.registry import DEFAULT_PROTOCOL

UNROUNDED = "Avg-full"  # an average of unrounded scores
Run = tuple[Form, Variant, Result]
Items = dict[tuple[str, str], Measured]  # (protocol, task) -> a record with its observations


@takes(VariantOptions, MeasureOptions, DataOptions, CacheOptions, without=("post", "fit_on"))
def measure_variants(
    model: Any, *, quantise: str | Sequence[str] = (), truncate_dims: str | Sequence[int | str] = (),
    calibration: str | Path = SHARED, clip: str | Sequence[float] | None = None,
    protocols: str | Sequence[str] = (DEFAULT_PROTOCOL,), tasks: str | Sequence[str] | None = None,
    output: str | Path | None = None, log: Callable[[str], None] | None = None, **how: Unpack[MeasureArguments],
) -> VariantScores:
    """Measure an encoder's vectors as they are, and each smaller copy: every width in every precision, and in float32. Texts
    are encoded once; every copy is an encoder with a fingerprint and a run of its own.

    model: as `load_encoder` takes it. quantise: int8, uint8, binary, ubinary; truncate_dims: how many of the first numbers
    are kept; both also as one text with commas. calibration: where int8 and uint8 have the range of each dimension from:
    "shared", all texts of a set, of both sides as they are read; "call", those of each call, as mteb's CompressionWrapper
    has it; or a file of texts. clip: two quantiles, such as (0.01, 0.99), beyond which numbers of a dimension are cut.
    output: a new folder for the runs, one a copy. log: gets a line before each run, and each warning once; without it they
    are StsbenchWarnings. The rest is that of `evaluate`. A protocol that trains something on the vectors is left out.

    Raises StsbenchError, one line, if no smaller copy is asked for, for an unknown precision, a wrong number, sparse
    vectors, or without a protocol that compares vectors.

    >>> from stsbench import measure_variants
    >>> def letters(texts):
    ...     return [[text.count(letter) - 1 for letter in "abcdefghij"] for text in texts]
    >>> made = measure_variants(letters, quantise="binary", tasks="STS-B", sample=True, resamples=0, no_cache=True)
    >>> [(score.name, score.bytes, round(score.value, 2), round(score.loss, 2)) for score in made.scores]
    [('10 float32', 40, 36.09, 0.0), ('10 binary', 2, 1.37, 34.72)]
    """
    check_log(log)
    log = log or warning_log()
    base = _base(model)
    full, *smaller = _forms(quantise, truncate_dims, calibration, clip)
    compared, left_out = _comparing(protocols)
    if output is not None and Path(output).is_dir() and any(Path(output).iterdir()):
        raise StsbenchError(f"{output} is already there: choose another output")
    texts = _calibration_texts(calibration, log)
    cache = {name: value for name, value in how.items() if name in CacheOptions.__dataclass_fields__}
    vectors = Vectors(EmbeddingCache.from_options(checked_options(CacheOptions, "measure_variants", **cache)))
    told: set[str] = set()

    def run(form: Form, number: int) -> Run:
        copy = Variant(base, form, vectors)
        copy = copy.fit(*texts) if form.calibration == FILE and form.calibrated else copy
        log(f"{number + 1} of {len(smaller) + 1}: {form}")
        folder = None if output is None else Path(output) / f"{number:02}-{form}".replace(" ", "-")
        return form, copy, _evaluated(copy, {"protocols": compared, "tasks": tasks, "output": folder, **how}, log, told)

    runs = [run(full, 0)]
    if not runs[0][2].records:
        raise StsbenchError(next(iter(runs[0][2].failures.values()), "no task was asked for"))
    width = runs[0][2].records[0].encoder.dimension
    too_wide = dict.fromkeys(form.dims for form in smaller if form.dims is not None and form.dims >= width)
    left_out += [f"{dims} numbers are left out: the vectors have {width}" for dims in too_wide]
    smaller = [form for form in smaller if form.dims not in too_wide]
    if not smaller:
        raise StsbenchError(f"no copy of {base.spec.name} is smaller: {'; '.join(left_out)}")
    failures, errors = list[str](), list[StsbenchError]()
    for number, form in enumerate(smaller, 1):
        try:
            runs.append(run(form, number))
        except StsbenchError as error:  # fails this copy alone
            failures.append(f"{form}: {error}")
            errors.append(error)
    if len(errors) == len(smaller):
        raise errors[0]
    failures += [f"{form}: {what}: {why}" for form, _, result in runs for what, why in result.failures.items()]
    return VariantScores(
        base.spec.name, tuple(_scores(runs)), full.calibration, full.clip, vectors.all_normalized(base), tuple(left_out),
        tuple(failures),
    )


def _base(model: Any) -> Encoder:
    """Return the loaded encoder. Raises EncoderError for one that is fitted on each set, or reads more than texts."""
    base = loaded_encoder(model, EncoderOptions())
    if base.fitted_per_set:
        raise EncoderError(f"{base.spec.name} is fitted on each set itself: there is no smaller copy of it")
    if hasattr(base, "encode_batches") and not getattr(base, "by_prompt", False):
        raise EncoderError(f"{base.spec.name} may read more than texts under mteb: there is no smaller copy of it")
    return base


def _forms(
    quantise: str | Sequence[str], truncate_dims: str | Sequence[int | str], calibration: str | Path,
    clip: str | Sequence[float] | None,
) -> list[Form]:
    """Return the form of the full vectors, then of every copy. Raises EncoderError for a wrong value, or without a copy."""
    widths = [_whole(width) for width in split_names(truncate_dims)]
    kinds = list(dict.fromkeys(split_names(quantise)))
    if not widths and not kinds:
        raise EncoderError("give quantise (--quantise int8,binary), truncate_dims (--truncate-dims 256,128), or both")
    ranges = Form(calibration=FILE if _is_file(calibration) else str(calibration), clip=_shares(clip))
    return [replace(ranges, dims=width, precision=kind)
            for width in (None, *dict.fromkeys(widths)) for kind in dict.fromkeys([WHOLE, *kinds])]


def _is_file(calibration: str | Path) -> bool:
    if calibration in (SHARED, CALL):
        return False
    if not Path(calibration).is_file():
        raise EncoderError(f"--calibration {calibration}: there is no such file, and it is neither {SHARED} nor {CALL}")
    return True


def _whole(width: int | str) -> int:
    try:
        return int(width)
    except ValueError:
        raise EncoderError(f"--truncate-dims {width}: give whole numbers, as 256,128") from None


def _shares(clip: str | Sequence[float] | None) -> tuple[float, float] | None:
    if clip is None:
        return None
    try:
        low, high = map(float, split_names(clip))
    except ValueError:
        raise EncoderError(f"--clip {clip}: give two shares, as 0.01,0.99") from None
    return low, high


def _comparing(protocols: str | Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of those protocols that compare vectors, and a line for each that does not."""
    named = list(split_names(protocols))
    if "all" in named:
        every, _ = plan(["all"], None, {})
        named = list(dict.fromkeys(name for word in named for name in (
            [part.label for part in every] if word == "all" else [word])))
    compared, left_out = [], []
    for name in named:
        trained = [part.protocol.name for part in plan([name], None, {})[0] if part.protocol.trained]
        if trained:
            left_out.append(f"{name} is left out: {trained[0]} trains on the vectors, and does not compare them")
        else:
            compared.append(name)
    if not compared:
        raise StsbenchError("; ".join(left_out) or "no protocol was named")
    return compared, left_out


def _calibration_texts(calibration: str | Path, log: Callable[[str], None]) -> tuple[list[str], str]:
    """Return the texts of a file, and its name with their digest; nothing for other calibrations."""
    if calibration in (SHARED, CALL):
        return [], ""
    stored = read_texts(Path(calibration), log)
    rows = range(stored.items)
    return [text for side in range(stored.sides) for text in stored.side(side, rows)], stored.name


def _evaluated(
    copy: Variant, how: Mapping[str, Any], log: Callable[[str], None], told: set[str]
) -> Result:
    """Return a run of one copy; a warning that was told before is not told again."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StsbenchWarning)
        result = evaluate(copy, **how)
    for line in dict.fromkeys(str(warning.message) for warning in caught):
        if line not in told:
            log(f"warning: {line}")
            told.add(line)
    return result


def _scores(runs: Sequence[Run]) -> Iterator[VariantScore]:
    """Yield every copy's score of each task that its protocol reports first, and one average, beside the full vectors'."""
    items = [_measured(result) for _, _, result in runs]
    full = runs[0][2]
    width = int(full.records[0].encoder.dimension)
    for row in _main_scores(full):
        rows = [next((other for other in _main_scores(result) if _key(other) == _key(row)), None) for _, _, result in runs]
        losses = _losses(runs, items, row)
        for (form, copy, _), score, loss in zip(runs, rows, losses, strict=True):
            if score is not None and loss is not None:
                yield VariantScore(
                    form.dims or width, form.precision, form.bytes(width), row.protocol, row.task, row.metric, score.value,
                    score.low, score.high, score.n, loss.value, loss.low, loss.high, loss.p, copy.identity.fingerprint(),
                )


def _main_scores(result: Result) -> list[ScoreRow]:
    labels = dict.fromkeys(row.protocol for row in result.rows)
    rows = [row for label in labels for row in main_scores(main_rows(result, label)).values()]
    return [row for row in rows if row.task != UNROUNDED and row.subset is None]


def _key(row: ScoreRow) -> tuple[str, str, str]:
    return row.protocol, row.task, row.metric


def _measured(result: Result) -> Items:
    items = {}
    for path, record in load_records(result.folder) if result.records else ():
        item = measured(path, record)
        items[record.protocol.label, item.task] = item
    return items


def _losses(runs: Sequence[Run], items: Sequence[Items], row: ScoreRow) -> list[Difference | None]:
    """Return how much worse each run's score is than the first run's, over the same resamples of the items; None: it has
    none."""
    exact = [_exact(result, row) for _, _, result in runs]
    draws = _draws(items, [value is not None for value in exact], row, _aggregation(runs[0][2], row))
    lower = metric_under(row.protocol, row.metric).lower
    losses: list[Difference | None] = []
    for value, drawn in zip(exact, draws, strict=True):
        pair = ((exact[0], draws[0]), (value, drawn))
        (one, of_one), (other, of_other) = pair[::-1] if lower else pair
        if one is None or other is None:
            losses.append(None)
        elif of_one is None or of_other is None:
            losses.append(Difference(one - other))
        else:
            losses.append(paired_difference(one, other, *of_one.difference(of_other)))
    return losses


def _exact(result: Result, row: ScoreRow) -> float | None:
    """Return a run's score; of an average that of unrounded scores, where there is one."""
    names = (UNROUNDED, AVERAGE) if row.task == AVERAGE else (row.task,)
    how = _aggregation(result, row)
    return next((other.value for name in names for other in result.rows if other.subset is None and other.aggregation == how
                 and (other.protocol, other.task, other.metric) == (row.protocol, name, row.metric)), None)


def _aggregation(result: Result, row: ScoreRow) -> str | None:
    """Return that of a row that is shown without one where all are equal."""
    return row.aggregation or next((other.aggregation for other in result.rows if _key(other) == _key(row)), None)


@dataclass(frozen=True)
class _Draws:
    """(resamples,) of a run's score; influence: what makes its items dependent, if they are."""

    values: NDArray[np.float64]
    influence: Influence | None

    def difference(self, other: _Draws) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the draws of both, for a test of their difference."""
        if self.influence is None or other.influence is None:
            return self.values, other.values
        return stretched_pair(self.values, other.values, self.influence, other.influence)


def _draws(
    items: Sequence[Items], present: Sequence[bool], row: ScoreRow, how: str | None
) -> list[_Draws | None]:
    """Return each run's draws over the same resamples; None where its protocol draws none, or it has no score."""
    of_label = [{task: item for (label, task), item in of_run.items() if label == row.protocol} for of_run in items]
    first = of_label[0].get(row.task) or next(iter(of_label[0].values()))  # an average: any of its tasks
    protocol = narrowed(first.protocol, row.model_copy(update={"aggregation": how}))
    resamples, seed = protocol.settings.get("resamples") or 0, protocol.settings.get("seed", 0)
    numbers = [number for number, is_there in enumerate(present) if is_there]
    drawn: Sequence[Drawn] = ()
    influences: Sequence[Influences] = ()
    if resamples and row.task == AVERAGE:
        averaged = [{task: (item.observed(), item.set_id) for task, item in of_label[number].items()} for number in numbers]
        drawn = protocol.average_draws_of_many(averaged, resamples, seed)
        influences = [protocol.average_influences(tasks) for tasks in averaged]
    elif resamples:
        observed = [of_label[number][row.task].observed() for number in numbers]
        drawn = protocol.draws_of_many(observed, first.set_id, resamples, seed)
        influences = [protocol.influences(run) for run in observed]
    key = None, how, row.metric
    by_number = {number: _Draws(values[key], of_run.get(key))
                 for number, values, of_run in zip(numbers, drawn, influences, strict=False) if key in values}
    return [by_number.get(number) for number in range(len(items))]
