"""`evaluate`, and `run` behind it and `stsbench eval`: from options to the records of a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Unpack

from stsbench.config import checked_options
from stsbench.data.own.source import in_users_words
from stsbench.data.sets.sets import DataSet, PairSet
from stsbench.encoders.base import CHANGING, EQUAL_LENGTHS, Encoder, EncoderOptions, Progress
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.cache.encode import is_cached
from stsbench.encoders.options import OF_KINDS
from stsbench.encoders.post.encoder import TARGET, PostProcessed, Targets, check_fitting, post_processed
from stsbench.errors import DataError, EncoderError, MissingDataError, StsbenchError, one_line, warning_log
from stsbench.evaluation.announce import EncodingTime, announcement, data_warnings, readings
from stsbench.evaluation.measure import Wanted, collect_texts, measure
from stsbench.evaluation.options import EvalOptions as EvalOptions
from stsbench.evaluation.options import split_names
from stsbench.evaluation.own_data import check_protocols, data_protocols, split_off_data
from stsbench.evaluation.plan import Planned, named_settings, plan, shadowed_files
from stsbench.evaluation.provenance import git_revision, why_not_repeatable
from stsbench.evaluation.result import Result, save_on_exit
from stsbench.hub import no_downloads
from stsbench.notebook import in_notebook, start_bar
from stsbench.options import takes
from stsbench.processes import peak_memory
from stsbench.registry import namesakes, source_file
from stsbench.torch_state import fresh_torch
from stsbench.wording import counted, sized

if TYPE_CHECKING:
    from stsbench.extensions.arguments import EvaluateArguments

_ENCODER = [entry.name for entry in fields(EncoderOptions)]
StartProgress = Callable[[int], Progress]  # number of texts -> step function


def run(
    options: EvalOptions, log: Callable[[str], None] = print, progress: StartProgress | None = None,
    doing: Callable[[str], None] = lambda what: None,
) -> Result:
    """Measure an encoder by `options` and return the result; each distinct text is encoded once. `log` gets the lines that
    are printed before and after, `progress` the number of texts, `doing` the name of each task before it is measured.

    Raises StsbenchError before anything is encoded for unknown names and models, and when no task has usable data.
    """
    began = time.monotonic()
    _check(options)
    if options.post is not None:
        check_fitting(options.post, options.fit_on)
    on_target = namesakes(TARGET, "each set's own texts") if str(options.fit_on) == TARGET else ()
    for line in (*on_target, *shadowed_files(options.protocols)):
        log(line)
    result, chosen = _chosen(options, log)
    public = any(data.text_version not in ("own", "sample") for _, sets in chosen for data in sets.values())
    if public and (reason := why_not_repeatable(git_revision())):
        log(f"warning: these records cannot enter the public leaderboard: measured by {reason}; commit them first")
    loading = time.perf_counter()
    # The transfer tasks train their classifiers and regressors with torch, which needs gradients.
    with fresh_torch(gradients=True), options.computed(*_loaded(options)) as encoder:
        loaded = options.on_loaded(encoder, loading) if isinstance(options.model, str) else None
        _run(encoder, chosen, result, options, log, progress, doing, loaded)
    peak = peak_memory()
    log(f"done in {time.monotonic() - began:.1f} s" + ("" if peak is None else f", peak memory {sized(peak)}"))
    return result


def _run(
    encoder: Encoder, chosen: Chosen, result: Result, options: EvalOptions, log: Callable[[str], None],
    progress: StartProgress | None, doing: Callable[[str], None], loaded: Any,
) -> None:
    """Encode the texts of all protocols, then measure each protocol. loaded: what `options.on_loaded` returned."""
    cache = EmbeddingCache.from_options(options)
    if options.post is not None:
        encoder = post_processed(encoder, options.post, options.fit_on, cache, log, progress)
    if facts := options.facts(encoder, loaded, log):
        options = replace(options, extra_provenance={**options.extra_provenance, **facts})
    set_by_set = isinstance(encoder, PostProcessed) and encoder.fitted_per_set
    targets = Targets(lambda id: _load(id, options)) if set_by_set else None
    everything = [data for _, sets in chosen for data in sets.values()]
    embed = Embed(encoder, cache)
    wanted = collect_texts(embed, chosen, by_role=targets is None)
    for reader, sets in wanted.items():
        computing = reader.encoder.base if isinstance(reader.encoder, PostProcessed) else reader.encoder
        if not is_cached(computing, [text for _, texts in sets for text in texts], cache):
            encoder.ready()  # the first line names the forward pass, which is known only of a loaded model
            break
    for line in announcement(encoder, everything, readings(embed, chosen)):
        log(line)
    try:
        failed = _encoded(embed, wanted, targets, options, log, progress)
        with save_on_exit(result, log):
            for part, part_sets in chosen:
                _measure(part, part_sets, embed, result, options, log, len(chosen) > 1, targets, doing)
    finally:
        if line := encoder.spent_in_words():
            log(line)
    if failed is not None and not result.records:
        raise failed  # no task has a score: the encoder's own error is the reason, not one of a task


Chosen = list[tuple[Planned, dict[str, DataSet]]]


def _chosen(options: EvalOptions, log: Callable[[str], None]) -> tuple[Result, Chosen]:
    """Return a result without records, which says why protocols and sets are left out, and the sets of each protocol."""
    from stsbench.data.sets.catalog import entries, list_data
    from stsbench.encoders.load import text_similarities

    by = text_similarities(options.model)
    every = {"similarity": options.similarity, "resamples": options.resamples, "columns": options.columns,
             "without_overlap": sorted(options.without_overlap) or None}
    stated = named_settings(options.settings, {key: value for key, value in every.items() if value is not None})
    planned, left_out = plan(options.protocols, options.tasks, stated, {"similarity": by[0]} if by else {})
    if by:  # the model scores pairs of texts and has no vectors: other protocols are left out, with this reason
        why = f"{options.model} gives no vectors, it scores pairs of texts (--similarity {' or '.join(by)})"
        parts = [part for part in planned if part.protocol.settings.get("similarity") in by]
        left_out |= {part.label: why for part in planned if part not in parts}
        if not parts:
            raise EncoderError(f"protocol {planned[0].label}: {why}")
        planned = parts
    if not options.sample:  # not every set has both text versions: SICK-R's 4,927 pairs have no raw text
        lacking = {*list_data()} - {item.id for item in entries(options.text_version)}
        left_out |= {f"{part.label} {task}": f"{id} has no text version '{options.text_version}'"
                     for part in planned for task, id in part.tasks.items() if id in lacking}
        planned = [replace(part, tasks={task: id for task, id in part.tasks.items() if id not in lacking})
                   for part in planned]
    sets, missing = _load_sets(planned, options)
    result = Result(options.folder, left_out=left_out)
    for item in planned:
        if item.note:
            left_out[item.label] = item.note
        for task, id in item.tasks.items():
            if id in missing:
                optional = isinstance(missing[id], MissingDataError) and "all" in options.protocols and not options.tasks
                (left_out if optional else result.failures)[f"{item.label} {task}"] = str(missing[id])
    for line in dict.fromkeys(line for data in sets.values() for line in data_warnings(data)):
        log(f"warning: {line}")
    chosen = [(part, {task: sets[id] for task, id in part.tasks.items() if id in sets}) for part in planned]
    return result, _without_overlap(chosen, options, log) if options.without_overlap else chosen


def _encoded(
    embed: Embed, wanted: Wanted, targets: Targets | None, options: EvalOptions, log: Callable[[str], None],
    progress: StartProgress | None,
) -> StsbenchError | None:
    """Encode every distinct text, unless the encoder has to be fitted on each set first; return None, or, of several sets,
    the error that stopped it: each task then encodes its own texts, so that a failure of one does not stop the others."""
    encoder = embed.encoder
    if encoder.fitted_per_set and encoder.spec.fitted_on is None and not targets:
        return None
    began, noted = time.monotonic(), {line for reader in wanted for line in reader.encoder.notes}
    parts = {reader: targets.all(data for data, _ in of) if targets else
             list(dict.fromkeys(text for _, texts in of for text in texts)) for reader, of in wanted.items()}
    texts = [text for part in parts.values() for text in part]
    step = EncodingTime(texts, log, progress(len(texts)) if progress else None)
    try:
        for reader, part in parts.items():
            if isinstance(reader.encoder, PostProcessed) and targets:
                reader.encoder.hold(part, step)
            else:
                reader.progress = step
                reader.add(part)
    except KeyboardInterrupt:
        if not options.no_cache and getattr(encoder, "base", encoder).cacheable:
            log("vectors are cached every 1,024 texts: the same command goes on there")
        raise
    except StsbenchError as error:
        if targets or len({data.id for of in wanted.values() for data, _ in of}) < 2:
            raise
        log(f"warning: {error}; each task now encodes its own texts")
        return error
    finally:
        for reader in parts:
            reader.progress = None
    if texts:
        log(f"{counted(len(texts), 'distinct text')} encoded or read from the cache in {time.monotonic() - began:.1f} s")
    for line in dict.fromkeys(line for reader in wanted for line in reader.encoder.notes):
        if line not in noted:
            log(line)
    return None


def _measure(
    part: Planned, sets: dict[str, DataSet], embed: Embed, result: Result, options: EvalOptions,
    log: Callable[[str], None], announced: bool, targets: Targets | None, doing: Callable[[str], None],
) -> None:
    """Measure one protocol on its sets; `announced`, with a line before and after, is for runs of several protocols."""
    start = time.monotonic()
    if announced:
        log(f"{part.label}: measuring {', '.join(sets)}")
    extra = {"command": list(options.command), "batch_tokens": options.batch_tokens, **options.extra_provenance}
    if file := source_file(type(part.protocol)):
        extra["protocol_file"] = file
    if options.attention != "auto":
        extra["attention"] = options.attention
    if embed.equal_lengths:
        extra["batches"] = EQUAL_LENGTHS
    traits = embed.encoder.traits
    if traits.trained_on:
        extra["trained_on"] = list(traits.trained_on)
    if traits.training_overlap:
        extra["training_overlap"] = [dict(text) for text in traits.training_overlap]
    measure(
        result, embed, part.protocol, sets, strict=options.strict, log=log, extra_provenance=extra, targets=targets,
        doing=doing,
    )
    if announced:
        log(f"{part.label}: measured in {time.monotonic() - start:.1f} s")


def _check(options: EvalOptions) -> None:
    """Raise EncoderError for options that have no effect on this kind of model and would be ignored silently."""
    if options.fingerprint is not None and isinstance(options.model, str | Encoder | tuple):
        raise EncoderError("fingerprint is for a function or an object with `encode`: other encoders have one of their own")
    if not isinstance(options.model, str):
        for name in () if isinstance(options.model, tuple) else (*CHANGING, *OF_KINDS):
            if getattr(options, name) != getattr(EncoderOptions, name):
                raise EncoderError(f"{name} does not apply to an encoder that is already loaded: give it to load_encoder")


def _load_sets(planned: list[Planned], options: EvalOptions) -> tuple[dict[str, DataSet], dict[str, DataError]]:
    """Return set id -> data, and set id -> error of each unreadable set. Raises the first error when no set can be read."""
    sets: dict[str, DataSet] = {}
    missing: dict[str, DataError] = {}
    for part in planned:
        for id in part.tasks.values():
            if id in sets or id in missing:
                continue
            try:
                with no_downloads(options.offline):
                    loaded = part.protocol.load(id)
                sets[id] = _load(id, options) if loaded is None else loaded
            except DataError as error:
                missing[id] = error
            except Exception as error:  # a fault in a protocol's own reader must not stop the other sets
                missing[id] = DataError(f"{id.removeprefix('own:')} cannot be read: {one_line(error)}")
    if missing and not sets:
        raise next(iter(missing.values()))
    return sets, missing


def _load(id: str, options: EvalOptions) -> DataSet:
    from stsbench.data.fetch.sources import load_data

    return load_data(
        id, data_dir=options.data_dir, text_version=options.text_version, sample=options.sample, offline=options.offline,
        strict=options.strict_data,
    )


def _without_overlap(chosen: Chosen, options: EvalOptions, log: Callable[[str], None]) -> Chosen:
    """Return `chosen` without pairs that share a sentence with a set of `options.without_overlap`, for protocols that have
    this setting. Raises DataError where no pair is left, or one of these sets is scored itself."""
    from stsbench.data.own.overlap import overlapping_pairs

    others = {}
    for id in options.without_overlap:
        other = _load(id, options)
        if not isinstance(other, PairSet):
            raise DataError(f"--without-overlap {id}: it holds labelled texts, not scored pairs")
        others[id] = other
    if whole := [part.label for part, _ in chosen if "without_overlap" not in part.protocol.settings]:
        log(f"--without-overlap does not apply to {', '.join(whole)}: measured on the whole sets")
    filtered: Chosen = []
    announced: set[str] = set()
    for planned, sets in chosen:
        kept = dict(sets)
        if "without_overlap" in planned.protocol.settings:
            for task, data in sets.items():
                if data.id in others:
                    raise DataError(
                        f"--without-overlap {data.id}: the set is scored itself; leave it out of --tasks or of this option"
                    )
                assert isinstance(data, PairSet)
                shared = overlapping_pairs(data, list(others.values()))
                kept[task] = data.keep(~shared)
                if data.id not in announced:
                    count = f"{int(shared.sum())} of {len(data)} pairs"
                    log(f"{data.id}: {count} share a sentence with {', '.join(others)}: left out")
                announced.add(data.id)
                if not len(kept[task]):
                    raise DataError(f"{data.id}: no pair is left without those that overlap with {', '.join(others)}")
        filtered.append((planned, kept))
    return filtered


def _loaded(options: EvalOptions) -> tuple[Encoder, EncoderOptions]:
    """Return the encoder, and the options that it was loaded with, without `model` where the caller passed an encoder."""
    from stsbench.encoders.load import load_encoder

    named = isinstance(options.model, str)
    how = EncoderOptions(**{name: getattr(options, name) for name in _ENCODER if named or name != "model"})
    if isinstance(options.model, str | tuple):
        return load_encoder(options.model, how), how
    return load_encoder(options.model, fingerprint=options.fingerprint).identified(), how


@takes(EvalOptions, without=["command", "extra_provenance"], also=data_protocols)
def evaluate(model: Any, protocol: str | Sequence[str] | None = None, **named: Unpack[EvaluateArguments]) -> Result:
    """Measure `model` as `stsbench eval` does, by the same options, which `stsbench eval --help` explains.

    model: a name or folder, as --model takes it, or a Path; whatever else `load_encoder` takes: an encoder, a
    SentenceTransformer, transformers' (model, tokenizer), an mteb encoder, a function from texts to vectors; a Run.
    protocol, tasks: names, or one text with commas. sts, pairs, triplets, transfer, retrieval: data of your own, a path or
    rows in memory (`split_off_data`), with `columns` where their columns have other names. output: a new run folder; by
    default a temporary one, until the process ends. settings: {"retrieval.ties": value}, as --set. fingerprint: identifies
    a function, and is to be changed whenever its vectors change. The command line's names text and cache are accepted.

    Returns rows, records and failures. Nothing is printed; in a notebook there is a progress bar. A warning of the command
    line, and each task that failed, is issued as StsbenchWarning. Raises StsbenchError with a message of one line.

    >>> import stsbench
    >>> result = stsbench.evaluate("lexical:token-set", protocol="sts:all", tasks="STS-B", sample=True, resamples=0)
    >>> [(row.task, row.metric, round(row.value, 2), row.n) for row in result.rows if row.aggregation == "all"]
    [('STS-B', 'spearman', 9.48, 42), ('STS-B', 'pearson', 8.38, 42)]
    """
    arguments: dict[str, Any] = {**named}
    if protocol is not None:
        check_protocols(protocol)
        if "protocols" in arguments:
            raise TypeError("evaluate() got protocols twice, as protocol, too")
        arguments["protocols"] = protocol
    named_data, files = split_off_data(arguments)
    if named_data:
        arguments["protocols"] = (*split_names(arguments.get("protocols", ())), *named_data)
    log = warning_log()
    options = checked_options(EvalOptions, "evaluate", model=model, **arguments)
    with in_users_words(files):
        result = run(options, log=log, progress=start_bar if in_notebook() else None)
    for line in result.failed_lines():
        log(f"warning: {line}")
    return result
