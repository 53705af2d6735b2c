"""The rows of each stage, and the labelled ones: read, tokenised, sampled, and what is held out of them."""

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

LABELS = "labels"  # the key of their classes among what a run reads
_OF_TRIPLETS = ("contradiction", "entailment")  # what classes 0 and 1 of triplets are
_ONE_DOCUMENT = 1000  # lines without a blank one between them that make one wonder
_OF_DATA = re.compile(  # settings in an error, not a file of such a name
    r"(?<![\w/.])data\.(columns|where|format|lines_per_row|min_characters)\b(?!\.(?:csv|tsv|jsonl|txt)\b)"
)
_TOKENISED_FIRST = 100_000  # texts, at most: some seconds' work, done once for all runs and epochs
_AT_ONCE = 10_000  # rows whose texts are compared at a time
_ROWS = 1000  # looked at, evenly spread


@dataclass
class StageData:
    """The rows of one stage. trained, held_out: row numbers; texts_of: the test data whose sentences they are, if any;
    reach: how many rows further on in its document a row's views may read."""

    store: TextStore
    tokens: Tokens
    trained: NDArray[np.int64]
    held_out: NDArray[np.int64]
    texts_of: tuple[str, ...] = ()
    reach: int = 0

    def rows_with_following(self, numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the rows that a batch of `numbers` (n,) may read: these, then k rows further on, each (n,), -1 where
        none is."""
        return [numbers, *(self.store.following(numbers, k) for k in range(1, self.reach + 1))]

    def rows(self, numbers: Any) -> TextRows:
        """Return the texts and tokens of these rows."""
        return TextRows(self.store, self.tokens, numbers)


def open_rows(
    recipe: Recipe, plan: MethodPlan, backbone: Backbone, stages: Sequence[str], log: Callable[[str], None],
    where: SetPlace | None = None,
) -> dict[str, StageData]:
    """Return the rows of those of `stages` that train on `data`, by stage, and under LABELLED the labelled ones if any uses
    them.

    What is trained on holds no text that is held out of either. where: where sets of the catalog are, which a recipe may
    name as its file, and the STS data, whose sentences the names of sources.NAMED stand for. Raises DataError, one
    line.
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
    """Read and tokenise a stage's training text, or find it in the cache. section: of the recipe; where: as for `open_rows`.
    Raises DataError."""
    labelled = section == LABELLED
    where = where or SetPlace()
    name = settings.file or ""
    known = None if labelled or Path(name).is_file() else NAMED.get(name)  # a file goes before a name of data
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
    """Return the tokens of all texts, from the cache or made now; of very many, made when a batch needs them."""
    folder = Path(backbone.folder)
    name, texts, digest = store.path.name, len(roles) * len(store), tokenizer_digest(folder)
    if not (folder / "tokenizer_config.json").is_file() and (base := resolve_base(folder, offline=True)):
        digest = f"{digest} {tokenizer_digest(base)}"  # an adapter's folder that has none
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
    """Return (rows,) whether the method can draw each; None: all. How many it cannot is said."""
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
    """Return the file of the STS data's sentences; what they are is said."""
    texts = sts_texts(where.data_dir, name=name, sample=where.sample, offline=where.offline)
    for line in texts.warnings:
        log(f"warning: {line}")
    families = ", ".join(f"{family} {count:,}" for family, count in texts.counts.items())
    log(f"{name}: {sum(texts.counts.values()):,} sentences ({families}), those of test sets among them: transductive")
    return texts.path


def _check_scores(
    store: TextStore, plan: MethodPlan, log: Callable[[str], None], scale: tuple[float, float] | None
) -> None:
    """Raise DataError for the first score out of the method's range, and for the range of another `scale` than the set's,
    and for what the method finds wrong with them; says so where all are in the range's lower half."""
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
    """Return the numbers of the rows that `share`, the method and `sample` leave. usable: (rows,) whether the method can."""
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
    """Let a DataError about the settings that a file is read by name those of this section, not of `data`."""
    try:
        yield
    except DataError as error:
        raise DataError(_OF_DATA.sub(rf"{section}.\1", str(error))) from error


def _draws(store: TextStore, seed: int) -> NDArray[np.float64]:
    """Return (rows,) uniform on [0, 1): a number for each line of the file, of which a row has that of the line it starts
    on.

    So a row's is the same in whatever stage or role the file is used, and whatever other rows of it are left out there.
    """
    header = store.settings.format in ("csv", "tsv")
    lines = store.lines - (2 if header else 1)  # line numbers from 0, the header left out
    draws: NDArray[np.float64] = stream(seed, "share").random(int(lines[-1]) + 1)[lines]
    return draws


def _reach(settings: DataSettings, plan: MethodPlan, section: str) -> int:
    """Return how far the method reads on in a document. Raises DataError where rows are held out of one and it does not
    say."""
    reach = plan.needs.reach
    if settings.held_out and settings.contiguous and not reach:
        raise DataError(
            f"{section}.held_out with {section}.contiguous: {plan.name} is not known to read further sentences by these "
            f"options (Needs.reach): set {section}.contiguous=false"
        )
    return reach


def _held_out(settings: DataSettings, seed: int, contrasts: bool, data: StageData, section: str) -> StageData:
    """Return rows to train on and rows held out, of data.trained. What is trained on holds and reads no text of the
    others."""
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
    """Take out of `data` what shares a text with the rows held out of `partner`. DataError where nothing is left."""
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
    """Return (rows trained on,) whether one of the texts that are read with it is among `texts`."""
    known = np.zeros(len(data.trained), dtype=np.bool_)
    for start in range(0, len(known), _AT_ONCE):
        part = data.trained[start : start + _AT_ONCE]
        for role in data.tokens.roles:
            for numbers in data.rows_with_following(part):
                there = np.flatnonzero(numbers >= 0)
                known[start + there] |= [text in texts for text in data.store.texts(role, numbers[there])]
    return known


def label_names(data: Mapping[str, StageData], plan: MethodPlan) -> dict[str, str]:
    """Return LABELS -> the names of the classes of the labelled rows, in their order, as JSON; {} without any."""
    if LABELLED not in data:
        return {}
    store = data[LABELLED].store
    roles = plan.labelled_roles(store.roles)
    names = store.label_names if LABEL in roles else _OF_TRIPLETS if roles == TRIPLET else ()
    return {LABELS: json.dumps(names, ensure_ascii=False)} if names else {}


def digests(data: Mapping[str, StageData]) -> dict[str, str]:
    """Return what the rows are, by what a user would call them -> sha256."""
    digest_of = {}
    for section, rows in data.items():
        parts = f"{rows.store.digest} {rows.tokens.digest} {rows.store.label_names}"
        name = "labelled data" if section == LABELLED else f"data of stage {section}"
        digest_of[name] = hashlib.sha256(parts.encode()).hexdigest()
    return digest_of


def shared_words(store: TextStore) -> str:
    """Return one line: the mean Jaccard of the words, lower-cased and split at blanks, of anchors with positives and with
    negatives, and how many of the rows that were looked at have two equal texts."""
    rows = np.unique(np.linspace(0, len(store) - 1, min(len(store), _ROWS)).astype(np.int64))
    texts = list(zip(*(store.texts(role, rows) for role in TRIPLET), strict=True))
    means = [np.mean([_jaccard(row[0], row[column]) for row in texts]) for column in (1, 2)]
    equal = sum(len(set(row)) < len(row) for row in texts)
    shares = ", ".join(f"{role} {mean:.2f}" for role, mean in zip(TRIPLET[1:], means, strict=True))
    return f"words shared with {TRIPLET[0]} (Jaccard, {len(texts):,} rows): {shares}; {equal:,} with two equal texts"


def _jaccard(first: str, second: str) -> float:
    words, others = set(first.lower().split()), set(second.lower().split())
    return len(words & others) / max(len(words | others), 1)
