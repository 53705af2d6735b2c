"""The robustness protocol: does a similarity move with the meaning of a sentence, and only with it?

The sentences of an STS set are edited by rule (rules.py): some edits keep the meaning, some change it. Minimal
changes of one sentence as a test of a model: CheckList (Ribeiro et al. 2020), contrast sets (Gardner et al. 2020), swapped
words (PAWS, Zhang et al. 2019). `robustness:FILE` measures a user's own paraphrases and changed sentences in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from stsbench.data.own.sets import ALL, SUBSET, read_scored_pairs
from stsbench.data.own.source import open_source
from stsbench.data.own.table import Form, read_columns, table_rows
from stsbench.data.sets.sets import DataSet, PairSet, TripletSet, named_by_content, numbered, path_name
from stsbench.encoders.cache.embed import Embed
from stsbench.errors import DataError, ScoreError
from stsbench.evaluation.protocol import Drawn, Observations, Protocol, item_numbers
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.schema import (
    CORRELATION,
    REPEATED,
    SHARE,
    Array,
    Metric,
    Names,
    Settings,
    SettingsModel,
    Similarity,
    SomeOf,
    Text,
    Whole,
    setting,
)
from stsbench.extensions.robustness.rules import RULES, RuleName, apply_rule
from stsbench.metrics.bootstrap import BootstrapCorrelation, block_rows, distinct, interval, resample_blocks
from stsbench.metrics.matching import Cuts, roc_auc
from stsbench.metrics.similarity import correlation
from stsbench.wording import format_counts

PARAPHRASES = Form(
    what="paraphrases", texts=("text", "kept", "changed"), optional=SUBSET,
    text_names=(("text", "paraphrase", "changed"), ("sentence", "kept", "changed"), ("sentence", "paraphrase", "changed"),
                ("text", "same", "different"), ("anchor", "positive", "negative")),
    usual="text, kept, changed; or text, paraphrase, changed; anchor, positive, negative",
)
Floats = NDArray[np.float64]
SOURCES = {
    "stsb/test": "STS-B", "stsb/dev": "STS-B-dev", "sick-r/test": "SICK-R", "sts12/test": "STS12", "sts13/test": "STS13",
    "sts14/test": "STS14", "sts15/test": "STS15", "sts16/test": "STS16",
}
OWN_RULES = {"kept": True, "changed": False}  # the columns of a user's paraphrases
DECIMALS = 6  # of compared cosines: beyond them, float32 vectors of equal tokens differ from batch to batch


def read_paraphrases(path: Path, columns: str = "") -> TripletSet:
    """Return a user's paraphrases as triplets: text as anchor, kept as positive, changed as negative.

    path: a file or folder as for `table_rows`; columns: as for `read_columns`. The set's text version is "own", its task the
    file's name, never a path, its id a digest of the texts. Raises DataError naming file and line.
    """
    source, warnings = open_source(path), list[str]()
    rows = list(table_rows(source, PARAPHRASES, warnings, read_columns(columns, PARAPHRASES)))
    for location, row in rows:
        for one, other in (("kept", "text"), ("changed", "text"), ("kept", "changed")):
            if row[one] == row[other]:
                raise DataError(f"{location}: {one} and {other} are one text: write another one, or leave the row out")
    if not rows:
        raise DataError(f"{path} holds no paraphrase")
    text, kept, changed = (tuple(row[column] for _, row in rows) for column in PARAPHRASES.texts)
    return named_by_content(TripletSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), anchor=text,
        positive=kept, negative=changed, subsets=tuple(row.get(SUBSET, ALL) for _, row in rows),
    ))


class FileSettings(Settings):
    file: Text = setting(..., "the name of the user's file", "our choice", by="--protocol robustness:FILE")
    columns: Text | None = setting(
        None, "which columns of the file hold what: text=a,kept=b,changed=c, or sentence1=a,sentence2=b,score=c under "
        "robustness:pairs:FILE; null: by their names", "our choice", by="--columns",
    )


class MeasureSettings(Settings):
    similarity: Similarity = setting(
        "cosine", "of the two vectors; distances are negated", "as under sts"
    )
    resamples: Whole = setting(1000, "bootstrap resamples of each interval; 0: no intervals", "our choice")
    seed: Whole = setting(0, "of the bootstrap", "our choice")


class EditSettings(MeasureSettings):
    rules: SomeOf[RuleName] = setting(list(RULES), "the edits", "our choice")
    share: Annotated[float, Field(gt=0, le=1)] = setting(
        1.0, "the share of the sentences that a rule applies to which it edits, drawn by edit_seed", "our choice"
    )
    edit_seed: Whole = setting(0, "of the edits", "our choice")


class RobustnessSettings(EditSettings):
    source: Literal[
        "stsb/test", "stsb/dev", "sick-r/test", "sts12/test", "sts13/test", "sts14/test", "sts15/test", "sts16/test"
    ] = setting("stsb/test", "the set whose pairs are edited", "our choice")


class PairsSettings(EditSettings):
    scored: Literal[True] = setting(
        True, "the user's file holds scored pairs, which the rules edit", "our choice", by="--protocol robustness:pairs:FILE"
    )


class OwnPairsSettings(FileSettings, PairsSettings):
    pass


class OwnParaphrasesSettings(FileSettings, MeasureSettings):
    pass


class RobustnessProtocol(Protocol):
    """Similarities of sentences to edited forms of themselves, and the STS score with one sentence of each pair edited."""

    Settings: ClassVar[SettingsModel] = RobustnessSettings
    name: ClassVar[str] = "robustness"
    version: ClassVar[int] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {
        "auc": Metric(range=SHARE.range, title="ROC AUC"), "spearman": CORRELATION,
        "drop": Metric("lower", 100, 2, (-200.0, 200.0)), "plain": CORRELATION, "perturbed": CORRELATION,
        "auc by part": Metric(range=SHARE.range, title="ROC AUC by part"), "similarity": Metric("neither", 1, 4),
    }
    arrays: ClassVar[Mapping[str, Array]] = {
        "edited": Array("bool", "rn", shared=("rules", "share", "edit_seed")),
        "near": Array("float", "k", rounded=True),
        "similarity": Array("float", optional=True, rounded=True, per_item=True),
        "gold": Array("float", optional=True, shared=True),
        "moved": Array("float", "m", optional=True, rounded=True),
        "subset": Array("int", optional=True, shared=True), **REPEATED,
    }
    names: ClassVar[Mapping[str, Names]] = {"rules": Names("r"), "subsets": Names()}
    title: ClassVar[str] = "Robustness"
    about: ClassVar[str] = (
        "Are sentences nearer to edited forms that mean the same than to others, and how far does the STS score drop?"
    )
    lead: str = "auc"
    text_type: ClassVar[str] = "STS"
    hub_task: ClassVar[str] = "sentence-similarity"
    position: ClassVar[int] = 4
    in_all: ClassVar[tuple[str, ...]] = ()
    metrics_across: ClassVar[bool] = True
    cosmetic: ClassVar[frozenset[str]] = frozenset({"resamples", "seed", "file", "columns"})
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"pairs": {"scored": True}}
    path_setting: ClassVar[str] = "file"

    @classmethod
    def settings_model(cls, settings: Mapping[str, Any]) -> SettingsModel:
        if "file" in settings:
            return OwnPairsSettings if "scored" in settings else OwnParaphrasesSettings
        return PairsSettings if "scored" in settings else RobustnessSettings

    def tasks(self) -> dict[str, str]:
        if self.user_path:
            return {path_name(self.user_path): f"own:{self.user_path}"}
        source = self.settings.get("source")
        return {SOURCES[source]: source} if source else {}

    def load(self, set_id: str) -> DataSet | None:
        if not self.user_path or set_id != f"own:{self.user_path}":
            return None
        read = read_scored_pairs if "scored" in self.settings else read_paraphrases
        return read(self.user_path, self.settings["columns"] or "")

    def further_texts(self, data: PairSet | TripletSet) -> Sequence[str]:
        if isinstance(data, TripletSet):
            return ()
        return [text for edits in self._edits(data).values() for text in edits if text is not None]

    def _edits(self, data: PairSet) -> dict[str, tuple[str | None, ...]]:
        """Return rule -> the first sentences after it, None where it does not apply."""
        settings = self.settings
        seed, share = settings["edit_seed"], settings["share"]
        return {rule: apply_rule(data.first, rule, seed, share) for rule in settings["rules"]}

    def observe(self, embed: Embed, data: PairSet | TripletSet) -> Observations:
        """Return the observations of r rules and n pairs: edited bool (r, n), whether a rule edits a pair's first sentence;
        near float64 (k,), the similarity of that sentence to its edited form, rule by rule where `edited`; similarity, gold
        float64 (n,) of the pairs; moved float64 (m,), the pair's similarity with the edited sentence, for rules that keep
        the meaning. For a user's paraphrases: the rules `kept` and `changed`, edited and near, and subset int64 (n,),
        indices into `subsets`.
        """
        measure = self.settings["similarity"]
        if isinstance(data, TripletSet):
            near = [embed.similarity(data.anchor, side, measure) for side in (data.positive, data.negative)]
            order, subset = numbered(data.subsets)
            arrays = {"edited": np.ones((2, len(data)), dtype=bool), "near": np.concatenate(near), "subset": subset}
            return Observations(arrays, {"rules": list(OWN_RULES), "subsets": order})
        near, moved, rows = [], [], []
        for rule, edits in self._edits(data).items():
            rows.append(np.array([new is not None for new in edits], dtype=bool))
            at, edited = np.flatnonzero(rows[-1]), [new for new in edits if new is not None]
            near.append(embed.similarity([data.first[i] for i in at], edited, measure))
            if RULES[rule].keeps:
                moved.append(embed.similarity(edited, [data.second[i] for i in at], measure))
        arrays = {
            "edited": np.array(rows), "near": np.concatenate([np.empty(0), *near]),
            "moved": np.concatenate([np.empty(0), *moved]),
            "similarity": embed.similarity(data.first, data.second, measure), "gold": data.gold,
        }
        rules = list(self.settings["rules"])
        counts = {rule: int(row.sum()) for rule, row in zip(rules, rows, strict=True)}
        kinds = {kind: {rule: counts[rule] for rule in rules if RULES[rule].keeps == (kind == "kept")}
                 for kind in ("kept", "changed")}
        notes = [f"edited of {len(data)} first sentences, meaning {kind}: {format_counts(some)}"
                 for kind, some in kinds.items() if some]  # two lines, as a leaderboard refuses longer ones
        return Observations(arrays, {"rules": rules, "subsets": [], "notes": notes})

    def contradiction(self, observations: Observations, record: Record) -> str:
        arrays, rules = observations.arrays, observations.names["rules"]
        scored = "rules" in self.settings
        if rules != list(self.settings.get("rules", OWN_RULES)):
            return f"its observations are of the rules {', '.join(rules)}"
        needed = ("similarity", "gold", "moved") if scored else ("subset",)
        if missing := [key for key in needed if key not in arrays]:
            return f"its observations lack {missing[0]}"
        if (edits := int(arrays["edited"].sum())) != len(arrays["near"]):
            return f"its observations hold {edits} edits, but {len(arrays['near'])} similarities of them"
        if scored:
            keeping = int(arrays["edited"][[RULES[rule].keeps for rule in rules]].sum())
            if keeping != len(arrays["moved"]):
                pairs = len(arrays["moved"])
                return f"its observations hold {keeping} edits that keep the meaning, but {pairs} pairs of them"
        return ""

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        """Return the scores of the whole set, then of each rule, or of each subset of a user's paraphrases."""
        parts = _Parts(observations, self.settings["similarity"] == "cosine")
        draws = self.drawn(observations, data_id, self.settings["resamples"], self.settings["seed"])
        try:
            values = parts.values()
        except ScoreError as error:
            raise ScoreError(f"{task}: {error}") from error
        rows = []
        for (subset, metric), (value, count) in values.items():
            drawn = draws.get((subset, None, metric))
            low, high = (None if drawn is None else interval(drawn)) or (None, None)
            rows.append(ScoreRow(protocol=self.label, task=task, subset=subset, metric=metric, value=value, low=low,
                                 high=high, n=count))
        return rows

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Return bootstrap draws of all scores. Pairs are drawn with all their edits: plain and perturbed stay paired."""
        if not resamples:
            return {}
        parts = _Parts(observations, self.settings["similarity"] == "cosine")
        rows: dict[tuple[str | None, str], list[Floats]] = {}
        for counts in resample_blocks(parts.n, resamples, (seed, *data_id.encode()), block_rows(parts.n), parts.item):
            for key, values in parts.draws(counts).items():
                rows.setdefault(key, []).append(values)
        return {(subset, None, metric): np.concatenate(some) for (subset, metric), some in rows.items()}


class _Parts:
    """Computes the scores from the edits of each rule, and from the edited pairs of each rule that keeps the meaning."""

    def __init__(self, observations: Observations, cosine: bool) -> None:
        arrays, rules = observations.arrays, observations.names["rules"]
        self.n = arrays["edited"].shape[1]
        self.item = item_numbers(observations, self.n)
        self.items = {rule: np.flatnonzero(row) for rule, row in zip(rules, arrays["edited"], strict=True)}
        sizes = [len(items) for items in self.items.values()]
        self.near = dict(zip(rules, np.split(arrays["near"], np.cumsum(sizes)[:-1]), strict=True))
        self.keeps = {rule: OWN_RULES[rule] if rule in OWN_RULES else RULES[rule].keeps for rule in rules}
        self.similarity, self.gold = arrays.get("similarity"), arrays.get("gold")
        self.moved: dict[str, Floats] = {}
        if (moved := arrays.get("moved")) is not None:
            keeping = [rule for rule in rules if self.keeps[rule]]
            ends = np.cumsum([len(self.items[rule]) for rule in keeping])[:-1]
            self.moved = dict(zip(keeping, np.split(moved, ends), strict=True)) if keeping else {}
        self._cosine = cosine
        self.aucs = {key: cuts for key, rules_and_items in self._auc_parts(observations).items()
                     if (cuts := self._cuts(*rules_and_items)) is not None}
        self.scores = {rule: scores for rule in self.moved if (scores := self._scores(rule)) is not None}

    def _auc_parts(self, observations: Observations) -> dict[tuple[str | None, str], tuple[list[str], NDArray[np.bool_]]]:
        """Return (subset, metric) of each AUC -> the rules whose edits it compares, and bool (n,) of the items included."""
        every = np.ones(self.n, dtype=bool)
        parts: dict[tuple[str | None, str], tuple[list[str], NDArray[np.bool_]]] = {(None, "auc"): ([*self.items], every)}
        if "subset" in observations.arrays:
            names = observations.names["subsets"]
            for i, name in enumerate(names if len(names) > 1 else ()):
                parts[name, "auc by part"] = ([*self.items], observations.arrays["subset"] == i)
            return parts
        for rule in self.items:
            others = (other for other in self.items if self.keeps[other] != self.keeps[rule])
            parts[rule, "auc by part"] = ([rule, *others], every)
        return parts

    def _cuts(self, rules: Sequence[str], counted: NDArray[np.bool_]) -> tuple[Cuts, NDArray[np.intp]] | None:
        """Return ROC cuts of these rules' edits, and each edit's item; None where all edits keep or all change meaning."""
        chosen = {rule: counted[self.items[rule]] for rule in rules}
        near = np.concatenate([self.near[rule][chosen[rule]] for rule in rules])
        label = np.concatenate([np.full(chosen[rule].sum(), float(self.keeps[rule])) for rule in rules])
        if not 0 < label.sum() < len(label):
            return None
        return (Cuts(near.round(DECIMALS) if self._cosine else near, label),
                np.concatenate([self.items[rule][chosen[rule]] for rule in rules]))

    def values(self) -> dict[tuple[str | None, str], tuple[float, int]]:
        """Return (subset, metric) -> score and its number of pairs, in the order of rows: tables show the interval of each
        subset's first score."""
        values: dict[tuple[str | None, str], tuple[float, int]] = {}
        auc = {key: 100 * float(roc_auc(*cuts.counts())) for key, (cuts, _) in self.aucs.items()}
        if (None, "auc") in auc:
            values[None, "auc"] = auc.pop((None, "auc")), distinct(self.item)
        n = distinct(self.item)
        if self.similarity is not None and self.gold is not None:
            values[None, "spearman"] = 100 * correlation(self.similarity, self.gold, "spearman", n), n
        for rule, near in self.near.items():
            if not len(near):
                continue
            n = distinct(self.item[self.items[rule]])
            if rule in self.scores:
                plain, perturbed = (100 * score for score in self.scores[rule])
                values |= {(rule, "drop"): (plain - perturbed, n), (rule, "plain"): (plain, n),
                           (rule, "perturbed"): (perturbed, n)}
            if (rule, "auc by part") in auc:
                values[rule, "auc by part"] = auc.pop((rule, "auc by part")), n
            values[rule, "similarity"] = float(near.mean()), n
        return values | {key: (value, distinct(self.item[self.aucs[key][1]])) for key, value in auc.items()}

    def _scores(self, rule: str) -> tuple[float, float] | None:
        """Return Spearman's correlation on the pairs that a rule edits, before and after the edit; None where it is not
        defined, and for fewer than three pairs, as that of two is always 1 or -1."""
        items = self.items[rule]
        if self.similarity is None or self.gold is None or distinct(self.item[items]) < 3:
            return None
        try:
            before = correlation(self.similarity[items], self.gold[items], "spearman")
            after = correlation(self.moved[rule], self.gold[items], "spearman")
        except ScoreError:
            return None
        return before, after

    def draws(self, counts: Floats) -> dict[tuple[str | None, str], Floats]:
        """Return (subset, metric) -> (b,) scores under (b, n) counts of how often each pair was drawn."""
        drawn: dict[tuple[str | None, str], Floats] = {}
        if self.similarity is not None and self.gold is not None:
            drawn[None, "spearman"] = 100 * BootstrapCorrelation(self.similarity[None], self.gold, "spearman")(counts)[0]
        for key, (cuts, items) in self.aucs.items():
            drawn[key] = 100 * roc_auc(*cuts.counts(counts[:, items]))
        for rule, near in self.near.items():
            if not len(near):
                continue
            items, weights = self.items[rule], counts[:, self.items[rule]]
            total = weights.sum(axis=1)
            drawn[rule, "similarity"] = np.divide(weights @ near, total, out=np.full(len(total), np.nan), where=total > 0)
            if rule in self.scores and self.similarity is not None and self.gold is not None:
                both = np.stack([self.similarity[items], self.moved[rule]])
                plain, perturbed = 100 * BootstrapCorrelation(both, self.gold[items], "spearman")(weights)
                drawn |= {(rule, "plain"): plain, (rule, "perturbed"): perturbed, (rule, "drop"): plain - perturbed}
        return drawn
