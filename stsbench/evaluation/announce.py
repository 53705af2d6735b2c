"""Messages of an evaluation: a description of the encoder and the data before it, estimates of the time left during it.

No time is estimated before some of the work has been timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

import numpy as np

from stsbench.data.sets.sets import DataSet
from stsbench.encoders.base import Encoder, Progress
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.prompt.prompt import described
from stsbench.encoders.prompt.reading import described_reading, read_otherwise
from stsbench.encoders.traits import reading_in_words, shortened
from stsbench.evaluation.plan import Planned
from stsbench.evaluation.protocol import Protocol
from stsbench.metrics.bootstrap import distinct

WATCHED = 3.0  # seconds of work before the time left is estimated for the first time
WORTH_SAYING = 10.0  # seconds; a shorter rest is not reported
_AROUND = 8  # characters added to the length of each text for its special tokens, the first and the last


def described_encoder(encoder: Encoder) -> str:
    """Return a line on an encoder: name, pooler, prompt, limit, dimension, normalisation, engine, fingerprint."""
    spec = encoder.spec
    parts = [f"encoder {spec.name}"]
    if spec.pooler is not None:
        parts.append(f"pooler {spec.pooler}")
    elif encoder.engine and encoder.computes_in != "server":
        parts.append("its own modules")
    if spec.template is not None:
        parts.append(f"template {spec.template}")
    elif encoder.engine and "prompt" not in spec.options and not read_otherwise(spec.options):
        default = "default prompt" if encoder.traits.prompts else "prompt"
        parts.append(f"no {default}" if spec.prefix is None else f"{default} {spec.prefix!r}")
    parts += [*described(spec.options), *described_reading(spec.options)]
    if spec.max_length is not None:
        parts.append(f"max length {spec.max_length}")
    if encoder.dimension is not None:
        cut = spec.options.get("truncate_dim") == encoder.dimension
        parts.append(f"{encoder.dimension} dimensions{' (cut)' if cut else ''}")
    if encoder.engine:
        before = " before the cut" if "truncate_dim" in spec.options and "rescaled" not in spec.options else ""
        # Of a model that another library runs, only the last module is known: an earlier one may normalise.
        not_so = ("not normalised" if spec.pooler is not None else
                  "as long as they come" if encoder.computes_in == "server" else "not normalised at the end")
        parts += [f"normalised{before}" if spec.normalize else not_so, f"run by {encoder.engine}"]
    if spec.post is not None:
        parts.append(f"then {spec.post}" + (f" fitted on {shortened(spec.fitted_on)}" if spec.fitted_on else ""))
    return ", ".join([*parts, spec.dtype, f"fingerprint {encoder.identity.fingerprint()[:12]}"])


def announcement(encoder: Encoder, data: Sequence[DataSet], read: str = "") -> Iterator[str]:
    """Yield the lines printed before a run, on the encoder and its data sets. read: the line on prompts that `readings`
    returns."""
    yield described_encoder(encoder)
    if read:
        yield read
    yield from encoder.notes
    if encoder.traits.similarity != "cosine":
        declared = f"{encoder.spec.name} declares the similarity {encoder.traits.similarity}"
        yield f"{declared}; a protocol compares by its own (--similarity)"
    sets = list({item.id: item for item in data}.values())
    text_versions = ", ".join(dict.fromkeys(item.text_version for item in sets))
    counts = ((item, distinct(item.items)) for item in sets)
    items = ", ".join(f"{item.shown} {n}{f' ({len(item)} rows)' if n < len(item) else ''}" for item, n in counts)
    origins = ", ".join(dict.fromkeys(item.origin for item in sets if item.origin))
    yield f"text version {text_versions}; items: {items}; from {origins}"


def readings(embed: Embed, chosen: Iterable[tuple[Planned, Mapping[str, DataSet]]]) -> str:
    """Return a line with the prompt and the route of each protocol's texts; "" where they do not depend on the task."""
    encoder = embed.encoder
    if not encoder.traits.by_task:
        return ""
    parts = []
    for part, sets in chosen:
        by_reading: dict[str, list[str]] = {}
        for task, data in sets.items():
            reads = embed.for_task(part.protocol.text_task(task, data))
            roles = part.protocol.texts_by_role(data)
            read = ", ".join(_reading(role, reads if role is None else reads.for_role(role), encoder) for role in roles)
            by_reading.setdefault(read, []).append(task)
        for read, tasks in by_reading.items():
            parts.append(" ".join([part.protocol.label, *([" and ".join(tasks)] if len(by_reading) > 1 else []), read]))
    return f"prompts: {'; '.join(parts)}"


def _reading(role: str | None, embed: Embed, encoder: Encoder) -> str:
    route = embed.spec.options.get("role") or (encoder.traits.default_route if role is None else None)
    return reading_in_words(role or "text", embed.spec.prefix or "", route)


def data_warnings(data: DataSet) -> list[str]:
    """Return the first two warnings on a data set, and a line with the number of further ones; the record holds all."""
    rest = len(data.warnings) - 2
    return [*data.warnings[:2], *([f"{data.shown}: {rest} more like these, see its record"] if rest > 0 else [])]


class EncodingTime:
    """Progress function that logs an estimate of the time left, and another when that time is over and texts are left.

    It is called with counts that sum to the number of texts. Encoders begin with the longest texts, so that a rate in texts
    a second would mislead: work is counted in characters, and `step` gets its share, in as many steps as there are texts.
    The first call may report cached vectors; the time is measured from the second, when the model is loaded.
    """

    def __init__(
        self, texts: Sequence[str], log: Callable[[str], None], step: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        lengths = np.sort([_AROUND + len(text) for text in texts])[::-1]
        self._share = np.concatenate([[0.0], np.cumsum(lengths) / max(1, lengths.sum())])  # share of the work after i texts
        self._log, self._step, self._clock = log, step, clock
        self._done = self._reports = self._cached = self._shown = 0
        self._began = self._before = 0.0  # start of the measurement of speed, and the share of the work done before it
        self._due = math.inf  # time at which the next line is logged

    def __call__(self, done: int) -> None:
        self._done += done
        if not done:
            return
        self._reports += 1
        if self._reports == 1:
            self._cached = self._done
        if self._step is not None:
            every = len(self._share) - 1
            shown = every if self._done == every else int(every * self._share_done())
            self._step(shown - self._shown)
            self._shown = shown
        now, worked = self._clock(), self._share_done()
        if self._reports == 2:
            self._began, self._before, self._due = now, worked, now + WATCHED
        elif now >= self._due:
            left = (now - self._began) / (worked - self._before) * (1 - worked)
            if left >= WORTH_SAYING:
                rest = len(self._share) - 1 - self._done
                self._log(f"encoding: {in_words(left)} left for {rest:,} texts, by the speed so far")
            self._began, self._before, self._due = now, worked, now + max(left, WATCHED)

    def _share_done(self) -> float:
        """Return the share of the work that is done, 0 to 1; cached texts count as a random sample, as their lengths are
        unknown."""
        every = len(self._share) - 1
        computed = (self._done - self._cached) / max(1, every - self._cached)
        return float(np.interp(computed * every, np.arange(every + 1), self._share))


class TasksTime:
    """Estimate of the time that a protocol's remaining tasks take, from `Protocol.work` and the seconds of earlier ones."""

    def __init__(self, protocol: Protocol, sets: Mapping[str, DataSet]) -> None:
        self._work = {task: protocol.work(data) for task, data in sets.items()}
        self._done = self._seconds = 0.0

    def after(self, task: str, seconds: float) -> str:
        """Return "; about 0:01:00 left for ...", the end of the line on a `task` that took `seconds`; "" for less than
        WORTH_SAYING."""
        self._done += self._work.pop(task)
        self._seconds += seconds
        left = sum(self._work.values()) * self._seconds / self._done if self._done else 0.0
        return f"; {in_words(left)} left for {', '.join(self._work)}" if self._work and left >= WORTH_SAYING else ""


def in_words(seconds: float) -> str:
    """Return a duration as text, such as "about 0:02:10"."""
    return f"about {timedelta(seconds=round(seconds))}"
