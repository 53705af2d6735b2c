"""Training rows of each stage, and labelled rows: read, tokenised, sampled and split into trained and held-out rows."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.fetch.sources import NAMED, TESTED_BY_SPLIT, sts_texts
from stsbench.data.sets.catalog import catalog
from stsbench.data.text.examples import TextRows
from stsbench.data.text.rows import LABEL, SCORE
from stsbench.data.text.store import TextStore, open_store
from stsbench.data.text.tokens import Tokens, TokensOnDemand, text_roles, tokenised
from stsbench.encoders.forward.identity import tokenizer_digest
from stsbench.encoders.prompt.tokenizer import check_ids
from stsbench.encoders.transformer.find import resolve_base
from stsbench.errors import DataError, StsbenchError
from stsbench.registry import calling
from stsbench.training.api.labelled import TRIPLET
from stsbench.training.modules.backbone import Backbone
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import TEXTS
from stsbench.training.recipes.sections import DataSettings
from stsbench.training.rows.batches import stream
from stsbench.training.rows.files import LABELLED as LABELLED
from stsbench.training.rows.files import SetPlace, score_scale, training_file
from stsbench.wording import counted

LABELS = "labels"  # the key of the labelled rows' classes among the inputs of a run
_OF_TRIPLETS = ("contradiction", "entailment")  # names of the classes 0 and 1 of triplets
_ONE_DOCUMENT = 1000  # more lines without a blank line are unlikely to be one document: a warning asks
_OF_DATA = re.compile(  # matches settings in an error, but no file such as data.columns.csv
    r"(?<![\w/.])data\.(columns|where|format|lines_per_row|min_characters)\b(?!\.(?:csv|tsv|jsonl|txt)\b)"
)
_TOKENISED_FIRST = 100_000  # texts: up to so many are tokenised before training, in seconds, once for all runs and epochs
_AT_ONCE = 10_000  # rows whose texts are compared at a time
_ROWS = 1000  # evenly spaced rows, at most, that `shared_words` looks at


@dataclass
class StageData:
    """The rows of one stage. trained, held_out: row numbers; texts_of: the test sets whose sentences are among the rows;
    reach: how many following rows of its document the views of a row may read."""

    store: TextStore
    tokens: Tokens
    trained: NDArray[np.int64]
    held_out: NDArray[np.int64]
    texts_of: tuple[str, ...] = ()
    reach: int = 0

    def rows_with_following(self, numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the row numbers that a batch of `numbers` (n,) may read: `numbers`, then the rows k = 1 to `reach` further
        on, each (n,), with -1 beyond the document's end."""
        return [numbers, *(self.store.following(numbers, k) for k in range(1, self.reach + 1))]

    def rows(self, numbers: Any) -> TextRows:
        """Return the texts and tokens of the rows `numbers`."""
        return TextRows(self.store, self.tokens, numbers)


def open_rows(
    recipe: Recipe, plan: MethodPlan, backbone: Backbone, stages: Sequence[str], log: Callable[[str], None],
    where: SetPlace | None = None,
) -> dict[str, StageData]:
    """Return stage -> its rows, for those of `stages` that train on `data`, and LABELLED -> the labelled rows if a stage
    uses them.

    Rows with a text that is held out of a stage or of the labelled rows are not trained on. where: where to find sets of
    the catalog, and the STS data, whose sentences the names of sources.NAMED stand for. Raises DataError, one line, for
    missing or unfit data, and StsbenchError for a section that has no effect.
    """
    uses = {stage: plan.labelled(stage) for stage in plan.stages}
    if recipe.labelled is not None and all(use == "none" for use in uses.values()):
        raise StsbenchError(
            f"labelled has no effect: {plan.name} uses no labelled rows by this recipe; give the file by --data, or add a "
            "labelled loss by semi.procedure (joint, sup-unsup, sup-joint)"
        )
    if stages and recipe.data.file is not None and set(uses.values()) == {"only"}:
        raise StsbenchError(
            f"data.file has no effect: {plan.name} trains on labelled rows alone by this recipe: give them by --labelled, "
            f"or take a recipe that trains on --data (stsbench list recipes --method {plan.name})"
        )
    data = {
        stage: open_data(recipe.stage_data(stage), recipe, plan, backbone, log, where=where)
        for stage in stages if uses[stage] != "only"
    }
    if any(uses[stage] != "none" for stage in stages):
        settings: DataSettings = recipe.labelled or DataSettings()
        labelled = open_data(settings, recipe, plan, backbone, log, section=LABELLED, where=where)
        for other in data.values():
            drop_overlap(labelled, other, log)
            drop_overlap(other, labelled, log)
        data[LABELLED] = labelled
    return data


def open_data(
    settings: DataSettings, recipe: Recipe, plan: MethodPlan, backbone: Backbone, log: Callable[[str], None],
    section: str = "data", where: SetPlace | None = None,
) -> StageData:
    """Return the rows of a recipe's section, tokenised (or from the cache), sampled and split. where: as for `open_rows`.
    Raises DataError."""
    labelled = section == LABELLED
    where = where or SetPlace()
    name = settings.file or ""
    known = None if labelled or Path(name).is_file() else NAMED.get(name)  # a file of that name takes precedence
    path = _sts_texts(name, where, log) if known else training_file(settings, section, where, log)
    with _of_section(section):
        store = open_store(
            path, format=settings.format, columns=settings.columns, where=settings.where, drop_blank=settings.drop_blank,
            drop_duplicates=settings.drop_duplicates, contiguous=settings.contiguous,
            lines_per_row=settings.lines_per_row, min_characters=settings.min_characters, log=log,
        )
    roles = plan.labelled_roles(store.roles) if labelled else plan.roles(store.roles)
    log(f"{path.name}: {store.report()}, used as {', '.join(roles)}")
    if doubt := store.doubt():
        log(doubt)
    if set(TRIPLET) <= set(roles) and len(store):
        log(f"{path.name}: {shared_words(store)}")
    if LABEL in roles:
        log(f"{path.name}: classes {', '.join(f'{name} {count:,}' for name, count in store.classes().items())}")
    text = catalog().training.get(path.name)
    if text is not None and path.parent != TEXTS and store.meta.rows != text.rows:
        log(f"warning: {path.name} has {store.meta.rows:,} rows, the published file {text.rows:,}: another training set")
    if SCORE in roles:
        _check_scores(store, plan, log, score_scale(settings.file))
    tokens = _tokens(store, backbone, text_roles(roles), plan.needs.whole_texts and not labelled, log)
    usable = _usable(store, tokens, plan, log, labelled)
    numbers = _sampled(settings, recipe.seed, store, usable, log, section)
    contrasts = plan.needs.contrasts(labelled)
    reach = 0 if labelled else _reach(settings, plan, section)
    data = _held_out(settings, recipe.seed, contrasts, StageData(store, tokens, numbers, numbers[:0], reach=reach), section)
    tested = known.tested if known else () if Path(name).is_file() else TESTED_BY_SPLIT.get(name, ())
    if tested and not known:
        log(f"{name}: its sentences are in the test sets of {', '.join(tested)}, too: scores there are transductive")
    return replace(data, texts_of=tested) if tested else data


def _tokens(store: TextStore, backbone: Backbone, roles: Sequence[str], whole: bool, log: Callable[[str], None]) -> Tokens:
    """Return the tokens of all texts, made now or read from the cache; very many texts are tokenised batch by batch."""
    folder = Path(backbone.folder)
    name, texts, digest = store.path.name, len(roles) * len(store), tokenizer_digest(folder)
    if not (folder / "tokenizer_config.json").is_file() and (base := resolve_base(folder, offline=True)):
        digest = f"{digest} {tokenizer_digest(base)}"  # an adapter's folder without a tokenizer
    if texts > _TOKENISED_FIRST and not whole:
        tokens = TokensOnDemand(store, backbone.tokenizer, digest, backbone.max_length, roles, log=log)
        share = f"about {tokens.share_cut():.1%} of them are cut at {backbone.max_length} tokens"
        log(f"{name}: {texts:,} texts, each tokenised when it is needed; {share}")
        return tokens
    stored = tokenised(store, backbone.tokenizer, digest, None if whole else backbone.max_length, roles, log=log)
    check_ids(stored.highest(), backbone.model, backbone.tokenizer, str(backbone.folder))
    if cut := sum(stored.truncated.values()):
        log(f"{name}: {cut:,} of {texts:,} texts are cut at {backbone.max_length} tokens")
    return stored


def _usable(
    store: TextStore, tokens: Tokens, plan: MethodPlan, log: Callable[[str], None], labelled: bool
) -> NDArray[np.bool_] | None:
    """Return (rows,) whether the method can use each row, None where it can use all; `log` gets the number of the others."""
    needs = plan.needs
    name, why = ("labelled_usable", needs.labelled_unusable) if labelled else ("usable", needs.unusable)
    if (choose := needs.labelled_usable if labelled else needs.usable) is None:
        return None
    rows = TextRows(store, tokens, np.arange(len(store), dtype=np.int64))
    usable = calling(plan.kind, f"needs().{name}", lambda: choose(rows))
    left_out = f"{int((~usable).sum()):,} of {len(store):,} rows cannot be used by these options"
    log(f"{store.path.name}: {left_out} ({why})")
    return usable


def _sts_texts(name: str, where: SetPlace, log: Callable[[str], None]) -> Path:
    """Return the file of the STS data's sentences; `log` gets their number and origin."""
    texts = sts_texts(where.data_dir, name=name, sample=where.sample, offline=where.offline)
    for line in texts.warnings:
        log(f"warning: {line}")
    families = ", ".join(f"{family} {count:,}" for family, count in texts.counts.items())
    log(f"{name}: {sum(texts.counts.values()):,} sentences ({families}), those of test sets among them: transductive")
    return texts.path


def _check_scores(
    store: TextStore, plan: MethodPlan, log: Callable[[str], None], scale: tuple[float, float] | None
) -> None:
    """Raise DataError for a score that the method refuses or that is outside its range, and for a range that is not the
    set's `scale`. `log` gets a warning where all scores are in the lower half of the range."""
    if (check := plan.needs.wrong_score) is not None:
        every = store.scores(range(len(store)))
        if (wrong := calling(plan.kind, "needs().wrong_score", lambda: check(every))) is not None:
            raise DataError(f"{store.path}:{store.line(wrong[0])}: {wrong[1]}")
    limits = plan.needs.score_range
    if limits is None:
        return
    low, high = limits
    if scale is not None and (low, high) != scale:
        raise DataError(
            f"{store.path.stem}: its scores go from {scale[0]:g} to {scale[1]:g}, and {plan.name} is told that they go from "
            f"{low:g} to {high:g}: change that option"
        )
    scores = store.scores(range(len(store)))
    outside = np.flatnonzero((scores < low) | (scores > high))
    if len(outside):
        row = int(outside[0])
        what = f"the score {scores[row]:g} is not within {low:g} to {high:g}, the scale that {plan.name} is told"
        raise DataError(f"{store.path}:{store.line(row)}: {what}")
    if scores.max() <= (low + high) / 2:
        told = f"and {plan.name} is told that they go from {low:g} to {high:g}"
        log(f"warning: {store.path.name}: no score is above {scores.max():g}, {told}")


def _sampled(
    settings: DataSettings, run_seed: int, store: TextStore, usable: NDArray[np.bool_] | None, log: Callable[[str], None],
    section: str,
) -> NDArray[np.int64]:
    """Return the numbers of the rows left by `share`, by `usable` (rows,), and by `sample`, in this order."""
    path, numbers = store.path, np.arange(len(store), dtype=np.int64)
    seed = run_seed if settings.sample_seed is None else settings.sample_seed
    if settings.share < 1:
        numbers = numbers[_draws(store, seed) < settings.share]
        drawn = f"drawn by {section}.share {settings.share:g}, seed {seed}"
        log(f"{path.name}: {len(numbers):,} of {len(store):,} rows, {drawn}")
        if not len(numbers):
            raise DataError(f"{path}: {section}.share {settings.share:g} leaves no row of {len(store)}: raise it")
    if usable is not None:
        if store.meta.documents == 1 and len(store) > _ONE_DOCUMENT:
            lines = f"{path.name}: {len(store):,} lines without a blank one between them"
            log(f"warning: {lines}: is it one text whose sentences follow one another?")
        numbers = numbers[usable[numbers]]
    if settings.sample is not None:
        if settings.sample > len(numbers):
            raise DataError(f"{path}: {section}.sample {settings.sample} is more than the {len(numbers)} rows there are")
        numbers = stream(seed, "sample").permutation(numbers)[: settings.sample]
    return numbers


@contextlib.contextmanager
def _of_section(section: str) -> Iterator[None]:
    """Rename the settings data.X in a DataError to those of `section`."""
    try:
        yield
    except DataError as error:
        raise DataError(_OF_DATA.sub(rf"{section}.\1", str(error))) from error


def _draws(store: TextStore, seed: int) -> NDArray[np.float64]:
    """Return (rows,) random numbers, uniform on [0, 1), one drawn for the line of the file that each row starts on.

    As it belongs to the line, a row's number is the same in every stage and role, whichever other rows are left out.
    """
    header = store.settings.format in ("csv", "tsv")
    lines = store.lines - (2 if header else 1)  # line numbers from 0, the header left out
    draws: NDArray[np.float64] = stream(seed, "share").random(int(lines[-1]) + 1)[lines]
    return draws


def _reach(settings: DataSettings, plan: MethodPlan, section: str) -> int:
    """Return how many following rows of a document the method reads. Raises DataError where rows are held out of documents
    and the method does not say."""
    reach = plan.needs.reach
    if settings.held_out and settings.contiguous and not reach:
        raise DataError(
            f"{section}.held_out with {section}.contiguous: {plan.name} is not known to read further sentences by these "
            f"options (Needs.reach): set {section}.contiguous=false"
        )
    return reach


def _held_out(settings: DataSettings, seed: int, contrasts: bool, data: StageData, section: str) -> StageData:
    """Return `data` with data.trained split into rows to train on and held-out rows. Rows that hold or read a held-out text
    are not trained on. Raises DataError where too few rows are left."""
    path, numbers = data.store.path, data.trained
    if not settings.held_out:
        return replace(data, trained=np.sort(numbers))
    if settings.held_out >= len(numbers):
        raise DataError(
            f"{path}: {section}.held_out {settings.held_out} leaves no row of {len(numbers)} to train on: "
            f"--set {section}.held_out={max(1, len(numbers) // 10)}"
        )
    if contrasts and settings.held_out < 2:
        raise DataError(f"{section}.held_out 1: the other rows of a batch are the negatives, so 2 at least")
    order = stream(seed, "held-out rows").permutation(numbers)
    cut = len(numbers) - settings.held_out
    data = replace(data, trained=np.sort(order[:cut]), held_out=np.sort(order[cut:]))
    return replace(data, trained=data.trained[~_shares_text(data, _held_out_texts(data))])


def drop_overlap(data: StageData, partner: StageData, log: Callable[[str], None]) -> None:
    """Drop rows of `data` that share a text with held-out rows of `partner`. Raises DataError where no row is left."""
    if not len(partner.held_out):
        return
    shared = _shares_text(data, _held_out_texts(partner))
    if shared.any():
        path, held_out = data.store.path, partner.store.path
        log(f"{path.name}: {counted(int(shared.sum()), 'row')} left out, with a text that is held out of {held_out.name}")
        data.trained = data.trained[~shared]
        if not len(data.trained):
            raise DataError(f"{path}: every row has a text that is held out of {held_out}: other data, or less held out")


def _held_out_texts(data: StageData) -> set[str]:
    rows = [numbers[numbers >= 0] for numbers in data.rows_with_following(data.held_out)]
    return {text for role in data.tokens.roles for numbers in rows for text in data.store.texts(role, numbers)}


def _shares_text(data: StageData, texts: set[str]) -> NDArray[np.bool_]:
    """Return (rows trained on,) whether a text of the row, or of following rows that it reads, is among `texts`."""
    known = np.zeros(len(data.trained), dtype=np.bool_)
    for start in range(0, len(known), _AT_ONCE):
        part = data.trained[start : start + _AT_ONCE]
        for role in data.tokens.roles:
            for numbers in data.rows_with_following(part):
                there = np.flatnonzero(numbers >= 0)
                known[start + there] |= [text in texts for text in data.store.texts(role, numbers[there])]
    return known


def label_names(data: Mapping[str, StageData], plan: MethodPlan) -> dict[str, str]:
    """Return {LABELS: the class names of the labelled rows, in order, as JSON}; {} without labelled rows or classes."""
    if LABELLED not in data:
        return {}
    store = data[LABELLED].store
    roles = plan.labelled_roles(store.roles)
    names = store.label_names if LABEL in roles else _OF_TRIPLETS if roles == TRIPLET else ()
    return {LABELS: json.dumps(names, ensure_ascii=False)} if names else {}


def digests(data: Mapping[str, StageData]) -> dict[str, str]:
    """Return the sha256 of each section's rows and tokens, by the section's name in messages."""
    digest_of = {}
    for section, rows in data.items():
        parts = f"{rows.store.digest} {rows.tokens.digest} {rows.store.label_names}"
        name = "labelled data" if section == LABELLED else f"data of stage {section}"
        digest_of[name] = hashlib.sha256(parts.encode()).hexdigest()
    return digest_of


def shared_words(store: TextStore) -> str:
    """Return one line: the mean Jaccard similarity between the words (lower-cased, split at blanks) of anchors and
    positives, and of anchors and negatives, and how many of the sampled rows have two equal texts."""
    rows = np.unique(np.linspace(0, len(store) - 1, min(len(store), _ROWS)).astype(np.int64))
    texts = list(zip(*(store.texts(role, rows) for role in TRIPLET), strict=True))
    means = [np.mean([_jaccard(row[0], row[column]) for row in texts]) for column in (1, 2)]
    equal = sum(len(set(row)) < len(row) for row in texts)
    shares = ", ".join(f"{role} {mean:.2f}" for role, mean in zip(TRIPLET[1:], means, strict=True))
    return f"words shared with {TRIPLET[0]} (Jaccard, {len(texts):,} rows): {shares}; {equal:,} with two equal texts"


def _jaccard(first: str, second: str) -> float:
    words, others = set(first.lower().split()), set(second.lower().split())
    return len(words & others) / max(len(words | others), 1)
