"""`run`: from the words of a command, or of a caller, to records in a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stsbench.data.sets import PairSet
from stsbench.encoders.base import Encoder, Progress
from stsbench.encoders.cache import EmbeddingCache
from stsbench.errors import DataError, EncoderError, MissingDataError, StsbenchError
from stsbench.evaluation import Result, measure
from stsbench.files import cache_root
from stsbench.plan import Planned, plan

StartProgress = Callable[[int], Progress]  # number of texts -> step function


@dataclass
class Options:
    """Everything `stsbench eval` takes, by the same names."""

    model: str | Encoder | Callable[..., Any]
    output: Path
    protocols: Sequence[str] = ("sts",)
    tasks: Sequence[str] | None = None
    pooler: str | None = None
    template: str | None = None
    max_length: int | None = None
    similarity: str | None = None
    resamples: int | None = None
    data_dir: Path | None = None
    view: str = "senteval"
    sample: bool = False
    without_overlap: Sequence[str] = ()
    strict_data: bool = False
    strict: bool = False
    device: str | None = None
    dtype: str = "float32"
    batch_tokens: int | None = None
    cache_dir: Path | None = None
    cache_limit: float = 20.0  # GB
    no_cache: bool = False
    offline: bool = False
    command: Sequence[str] = ()


def run(options: Options, say: Callable[[str], None] = print, progress: StartProgress | None = None) -> Result:
    """Plan, load, encode, score, record. `say` gets one line for each thing a user must know before and after.

    Raises StsbenchError before anything is encoded for unknown names, missing or malformed data and models.
    """
    _check(options)
    named = {"similarity": options.similarity, "resamples": options.resamples}
    settings: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if options.without_overlap:
        settings["without_overlap"] = sorted(options.without_overlap)
    planned, left_out = plan(options.protocols, options.tasks, settings)
    if options.tasks is None and not options.sample:
        planned = [_with_view(each, options.view, left_out) for each in planned]
    ids = dict.fromkeys(id for each in planned for id in each.tasks.values())
    sets = _load_sets(list(ids), options, left_out, optional=options.tasks is None)
    for each in planned:
        if each.note:
            left_out[each.label] = each.note
    for data in sets.values():
        for line in data.warnings:
            say(f"warning: {line}")
    if options.without_overlap:
        sets = _without_overlap(sets, options, say)
    encoder = _encoder(options)
    _announce(encoder, options, sets, say)
    cache = None
    if not options.no_cache:
        folder = options.cache_dir or cache_root() / "embeddings"
        cache = EmbeddingCache(folder, int(options.cache_limit * 1e9))
    step = progress(len({t for d in sets.values() for t in d.texts})) if progress else None
    result = Result(options.output, left_out=left_out)
    for each in planned:
        chosen = {task: sets[id] for task, id in each.tasks.items() if id in sets}
        part = measure(
            encoder, each.protocol, chosen, result.folder, cache=cache, strict=options.strict, progress=step, say=say,
            origin={"command": list(options.command), "batch_tokens": options.batch_tokens},
        )  # fmt: skip
        result.add(part)
        step = None  # what the first protocol encoded the others find in the cache
    result.save()
    return result


def _check(options: Options) -> None:
    """Options that would be ignored without a word are refused."""
    if options.sample and options.data_dir:
        raise StsbenchError("--sample (sample=True) and --data-dir (data_dir) exclude each other")
    if options.sample and options.view == "raw":
        raise StsbenchError("the sample has a text view of its own: leave view='raw' out")
    if not isinstance(options.model, str):
        for name, unset in (("pooler", None), ("template", None), ("max_length", None), ("dtype", "float32")):
            if getattr(options, name) != unset:
                raise EncoderError(f"{name} does not apply to an encoder that is already loaded: give it to load_encoder")


def _with_view(planned: Planned, view: str, left_out: dict[str, str]) -> Planned:
    """The plan without tasks whose set has no such text view (SICK-R's 4,927 pairs have no raw one), each one said."""
    from stsbench.data.catalog import entries

    have = {item.id for item in entries(view)}
    for task, id in planned.tasks.items():
        if id not in have:
            left_out[task] = f"{id} has no view '{view}'"
    return replace(planned, tasks={task: id for task, id in planned.tasks.items() if id in have})


def _load_sets(ids: list[str], options: Options, left_out: dict[str, str], optional: bool) -> dict[str, PairSet]:
    """Set id -> data. `--protocol all` leaves out what the data at hand lack, and says so; else that is an error."""
    from stsbench.data.sources import load

    sets: dict[str, PairSet] = {}
    missing: list[MissingDataError] = []
    for id in ids:
        try:
            sets[id] = load(
                id, data_dir=options.data_dir, view=options.view, sample=options.sample, offline=options.offline,
                strict=options.strict_data,
            )  # fmt: skip
        except MissingDataError as error:
            if not optional:
                raise
            missing.append(error)
            left_out[id] = str(error)
    if missing and (not sets or "all" not in options.protocols):
        raise missing[0]
    return sets


def _without_overlap(sets: dict[str, PairSet], options: Options, say: Callable[[str], None]) -> dict[str, PairSet]:
    from stsbench.data.overlap import overlapping_pairs

    others = _load_sets(list(options.without_overlap), options, {}, optional=False)
    kept = {}
    for id, data in sets.items():
        if id in others:
            raise DataError(f"--without-overlap {id}: the set is scored itself; leave it out of --tasks or of this option")
        shared = overlapping_pairs(data, list(others.values()))
        kept[id] = data.keep(~shared)
        say(f"{id}: {int(shared.sum())} of {len(data)} pairs share a sentence with {', '.join(others)}: left out")
        if not len(kept[id]):
            raise DataError(f"{id}: no pair is left without those that overlap with {', '.join(others)}")
    return kept


def _encoder(options: Options) -> Encoder:
    from stsbench.encoders.load import load_encoder

    if isinstance(options.model, Encoder):
        return options.model
    if not isinstance(options.model, str):
        from stsbench.encoders.callable import CallableEncoder

        return CallableEncoder(options.model)
    return load_encoder(
        options.model, pooler=options.pooler, template=options.template, max_length=options.max_length,
        dtype=options.dtype, device=options.device, batch_tokens=options.batch_tokens, offline=options.offline,
    )  # fmt: skip


def _announce(encoder: Encoder, options: Options, sets: dict[str, PairSet], say: Callable[[str], None]) -> None:
    spec = encoder.spec
    parts = [f"encoder {spec.name}"]
    for name in ("pooler", "template", "prefix", "max_length"):
        if (value := getattr(spec, name)) is not None:
            parts.append(f"{name.replace('_', ' ')} {value}")
    say(", ".join([*parts, spec.dtype, f"fingerprint {spec.fingerprint()[:12]}"]))
    views = ", ".join(dict.fromkeys(data.view for data in sets.values()))
    pairs = ", ".join(f"{data.id} {len(data)}" for data in sets.values())
    origins = ", ".join(dict.fromkeys(data.origin for data in sets.values() if data.origin))
    say(f"text view {views}; pairs: {pairs}; from {origins}")


def evaluate(model: str | Encoder | Callable[..., Any], *, output: str | Path, **options: Any) -> Result:
    """Measure `model` as `stsbench eval` does; options by the names of `Options`. Returns rows, records and failures."""
    return run(Options(model=model, output=Path(output), **options), say=lambda line: None)
