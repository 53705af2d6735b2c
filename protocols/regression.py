"""The regression protocol: SentEval's supervised pair tasks on the features [|u - v| ; u * v].

STS-B and SICK-R are scored by a trained relatedness head, SICK-E by an entailment classifier (Conneau & Kiela 2018, after
Tai, Socher & Manning 2015)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stsbench.data.sets.sentences import known_sentences, pair_keys, pairs_of_rows, shared_graph
from stsbench.data.sets.sets import LabelledSet, PairSet, fed
from stsbench.encoders.cache.embed import Embed
from stsbench.errors import ScoreError
from stsbench.evaluation.protocol import Drawn, Influences, Observations, Protocol, grouped
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.schema import (
    CORRELATION,
    DEV_CORRELATION,
    DEV_SHARE,
    SHARE,
    Array,
    Count,
    Factor,
    Metric,
    Settings,
    SettingsModel,
    SomeOf,
    Whole,
    setting,
)
from stsbench.metrics.bootstrap import bootstrap_correlation, interval, resample_counts, share_interval
from stsbench.metrics.shared_sentences import INFLUENCE, Influence
from stsbench.metrics.similarity import correlation
from stsbench.probes.regressor import check_features, fit_regressor, pair_features
from stsbench.probes.schemes import given_splits

TASKS = {"STS-B": "stsb/splits", "SICK-R": "sick-r/splits", "SICK-E": "sick-e/splits"}
SPLITS = ("train", "dev", "test")
METRICS = ("pearson", "spearman", "mse", "dev spearman")  # Pearson is the headline of SentEval's own tables
ENTAILMENT_CLASSES = 3  # contradiction, neutral, entailment
MAX_DENSE = 1 << 30  # bytes that sparse features may take when made dense for SICK-E
Rows = dict[str, NDArray[np.int64]]


SENTEVAL = "SentEval, senteval/"
RELATEDNESS = SENTEVAL + "tools/relatedness.py"
README = "SentEval, README.md, the settings of its paper"


class RegressionSettings(Settings):
    seed: Whole = setting(1111, "of both trainings", SENTEVAL + "engine.py")
    soft_labels: Literal["bit-compatible"] = setting(
        "bit-compatible", "a score as probabilities of the two whole scores beside it, with SentEval's loss of class 0",
        "Tai, Socher & Manning 2015, section 4.2; " + RELATEDNESS,
    )
    learning_rate: Factor = setting(1e-3, "Adam's, of the relatedness head", RELATEDNESS)
    batch: Count = setting(64, "pairs of a training step of the relatedness head", RELATEDNESS)
    round_epochs: Count = setting(50, "epochs between two looks at the dev split", RELATEDNESS)
    tenacity: Whole = setting(3, "rounds that may pass without improvement; the next one ends the training", RELATEDNESS)
    max_epoch: Count = setting(1000, "no round begins after more epochs than this", RELATEDNESS)
    entailment_regs: SomeOf[Factor] = setting(
        [1e-5, 1e-4, 1e-3, 1e-2], "SICK-E: L2 strengths tried on dev", SENTEVAL + "tools/validation.py"
    )
    entailment_optimizer: Literal["adam", "rmsprop"] = setting("adam", "SICK-E: the classifier's optimizer", README)
    entailment_batch: Count = setting(64, "SICK-E: pairs of a training step", README)
    entailment_epoch_size: Count = setting(4, "SICK-E: epochs between two looks at the dev split", README)
    entailment_tenacity: Whole = setting(5, "SICK-E: looks that may pass without improvement", README)
    entailment_max_epoch: Count = setting(200, "SICK-E: the most epochs", SENTEVAL + "tools/classifier.py")
    resamples: Whole = setting(1000, "bootstrap resamples of each interval; 0: no intervals", "our choice")
    bootstrap_seed: Whole = setting(0, "of the bootstrap", "our choice")
    metrics: SomeOf[Literal["pearson", "spearman", "mse", "dev spearman"]] = setting(
        list(METRICS), "those of STS-B and SICK-R that are reported", SENTEVAL + "sick.py"
    )


class RegressionProtocol(Protocol):
    """A trained head on the features of pairs: relatedness for STS-B and SICK-R, entailment for SICK-E."""

    Settings: ClassVar[SettingsModel] = RegressionSettings
    name: ClassVar[str] = "regression"
    version: ClassVar[int] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {
        "pearson": CORRELATION, "spearman": CORRELATION, "mse": Metric("lower", 1, 3, (0.0, inf), "MSE"),
        "dev spearman": DEV_CORRELATION, "accuracy": SHARE, "dev accuracy": DEV_SHARE,
    }
    arrays: ClassVar[Mapping[str, Array]] = {
        "row": Array("int", "m", shared=True, indices=True), "gold": Array("number", "m", shared=True),
        "predicted": Array("number", "m", rounded=True, per_item=True), "sizes": Array("int", "3", shared=True),
        "dev_spearman": Array("float", "t", optional=True), "epochs": Array("int", "1", optional=True),
        "dev_accuracy": Array("float", "r", optional=True), "pair": Array("uint", "m", optional=True, shared=True),
    }
    title: ClassVar[str] = "Regression"
    about: ClassVar[str] = (
        "SentEval's trained head on [|u - v| ; u * v]: relatedness (STS-B, SICK-R) or entailment (SICK-E)."
    )
    lead: str = "STS-B"
    trained: ClassVar[bool] = True
    text_type: ClassVar[str] = "STS"
    hub_task: ClassVar[str] = "sentence-similarity"
    taken_for: ClassVar[str] = (
        "Cosine scores of STS-B and SICK-R: the protocol regression trains a head on their training pairs."
    )
    position: ClassVar[int] = 1
    cosmetic: ClassVar[frozenset[str]] = frozenset({"metrics", "resamples", "bootstrap_seed"})

    def tasks(self) -> dict[str, str]:
        return dict(TASKS)

    def observe(self, embed: Embed, data: PairSet | LabelledSet) -> Observations:
        """Train on the training pairs and return, of m test pairs, row int64 (m,), positions in `data`; pair uint64 (m,),
        equal for pairs of the same sentences; predicted and gold (m,), float64 scores or int64 classes.

        sizes int64 (3,): train, dev, test. Relatedness: dev_spearman float64 (rounds,), unit 1, and epochs int64 (1,).
        Entailment: dev_accuracy float64 (regs,), percent with two decimals. Raises ScoreError as `fit_regressor` does.
        """
        rows = _split_rows(data)
        gold = data.gold if isinstance(data, PairSet) else data.labels
        first, second = np.array(fed(data.first), dtype=object), np.array(fed(data.second), dtype=object)
        features = {name: pair_features(embed(first[at].tolist()), embed(second[at].tolist())) for name, at in rows.items()}
        sizes = np.array([len(rows[name]) for name in SPLITS], dtype=np.int64)
        pair = pair_keys(first[rows["test"]].tolist(), second[rows["test"]].tolist())
        common = {"row": rows["test"], "gold": gold[rows["test"]], "sizes": sizes, "pair": pair}
        if isinstance(data, PairSet):
            return Observations({**common, **self._relatedness(features, rows, data.gold)})
        return Observations({**common, **self._entailment(embed, features, rows, data.labels)})

    def _relatedness(self, features: dict[str, Any], rows: Rows, gold: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        taken = ("seed", "batch", "learning_rate", "round_epochs", "tenacity", "max_epoch")
        fitted = fit_regressor(
            features["train"], gold[rows["train"]], features["dev"], gold[rows["dev"]], features["test"],
            **{key: self.settings[key] for key in taken},
        )
        epochs = np.array([fitted.epochs], dtype=np.int64)
        return {"predicted": fitted.predicted, "dev_spearman": fitted.dev_spearman, "epochs": epochs}

    def _entailment(
        self, embed: Embed, features: dict[str, Any], rows: Rows, labels: NDArray[np.int64]
    ) -> dict[str, NDArray[Any]]:
        from stsbench.probes.lockstep import lockstep_solver

        for name in SPLITS:
            check_features(name, features[name])
        x = np.concatenate([_dense(features[name], sum(len(at) for at in rows.values())) for name in SPLITS])
        y = np.concatenate([labels[rows[name]] for name in SPLITS])
        ends = np.cumsum([len(rows[name]) for name in SPLITS])
        train, dev, test = np.split(np.arange(ends[-1], dtype=np.int64), ends[:-1])
        taken = ("optimizer", "batch", "tenacity", "epoch_size", "max_epoch")
        solver = lockstep_solver(
            x, y, ENTAILMENT_CLASSES, seed=self.settings["seed"], device=_device(embed),
            **{key: self.settings[f"entailment_{key}"] for key in taken},
        )
        probed = given_splits(y, train, dev, test, self.settings["entailment_regs"], solver)
        return {"predicted": probed.predicted, "dev_accuracy": probed.grid[0]}

    def contradiction(self, observations: Observations, record: Record) -> str:
        sizes, gold = observations.arrays["sizes"], observations.arrays["gold"]
        if (int(sizes.sum()), int(sizes[2])) != (record.data.n, len(gold)):
            return "sizes of the observations are not those of its data"
        return ""

    def hub_task_name(self, scores: Sequence[ScoreRow]) -> str:
        return "text-classification" if scores[0].metric == "accuracy" else self.hub_task  # SICK-E

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        """Return pearson, spearman, mse (squared points, not x 100), dev spearman of STS-B, SICK-R; SICK-E's accuracies."""
        return self._scored(observations, data_id, task, self.influences(observations) if self.settings["resamples"] else {})

    def earlier_scores(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        """Return the scores with intervals as earlier versions computed them, which took pairs that share a sentence for
        independent."""
        return self._scored(observations, data_id, task, {})

    def _scored(self, observations: Observations, data_id: str, task: str, influences: Influences) -> list[ScoreRow]:
        arrays = observations.arrays
        predicted, gold, resamples = arrays["predicted"], arrays["gold"], self.settings["resamples"]
        _, dev, n = arrays["sizes"].tolist()
        if "dev_accuracy" in arrays:
            influence = influences.get((None, None, "accuracy"))
            low, high = share_interval(predicted == gold, np.arange(n), influence.stretch if influence else 1.0)
            hits = int((predicted == gold).sum())
            return [
                self.row(task, "accuracy", 100 * hits / n, n, (100 * low, 100 * high)),
                self.row(task, "dev accuracy", float(arrays["dev_accuracy"].max()), dev),
            ]
        try:  # even where only the MSE is reported: predictions without a correlation are a failure
            values = {metric: 100 * correlation(predicted, gold, metric) for metric in ("pearson", "spearman")}
        except ScoreError as error:
            raise ScoreError(f"{task}: {error}") from error
        drawn = self.drawn(observations, data_id, resamples, self.settings["bootstrap_seed"])
        for key, influence in influences.items():
            drawn = {**drawn, key: influence.stretched(drawn[key])}
        bounds = {metric: interval(draws) for (_, _, metric), draws in drawn.items() if metric != "mse"}
        values["mse"] = float(np.mean((predicted - gold) ** 2))
        values["dev spearman"] = 100 * float(arrays["dev_spearman"].max())
        sizes = {"dev spearman": dev}
        return [
            self.row(task, metric, values[metric], sizes.get(metric, n), bounds.get(metric))
            for metric in self.settings["metrics"]
        ]

    def influences(self, observations: Observations) -> Influences:
        """Return the test pairs' influences on the scores, the trained head held fixed; {} where the pairs are unknown."""
        arrays = observations.arrays
        pairs = arrays["pair"] if "pair" in arrays else pairs_of_rows(arrays["row"])  # older records hold no pairs
        if pairs is None:
            return {}
        graph = shared_graph(known_sentences(pairs), np.zeros(len(pairs), np.int64))
        if not graph.dependent:
            return {}
        predicted, gold = arrays["predicted"], arrays["gold"]
        if "dev_accuracy" in arrays:
            parts = {"accuracy": _mean(100.0 * (predicted == gold))}
        else:
            of_r = {metric: influence(predicted, gold) for metric, influence in INFLUENCE.items()}
            parts = {name: (100 * r, 100 * psi) for name, (r, psi) in of_r.items()} | {"mse": _mean((predicted - gold) ** 2)}
        return {(None, None, metric): Influence(*part, graph) for metric, part in parts.items()
                if metric in ("accuracy", *self.settings["metrics"])}

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Return the scores of resampled test pairs; for relatedness only those in the setting `metrics`."""
        return self.draws_of_many([observations], data_id, resamples, seed)[0]

    def draws_of_many(self, observed: Sequence[Observations], data_id: str, resamples: int, seed: int) -> list[Drawn]:
        """Return each encoder's draws, computing the counts and the ranks of the gold scores once for all of them."""
        drawn: list[Drawn] = [{} for _ in observed]
        kinds = ("row", "gold") if any("dev_accuracy" in item.arrays for item in observed) else ("gold",)
        for indices in grouped(observed, kinds) if resamples else ():
            members = [observed[at].arrays for at in indices]
            counts = _counts(len(members[0]["gold"]), data_id, resamples, seed)
            for at, draws in zip(indices, self._redrawn(members, counts), strict=True):
                drawn[at] = draws
        return drawn

    def _redrawn(self, members: Sequence[Mapping[str, NDArray[Any]]], counts: NDArray[np.float64]) -> list[Drawn]:
        """Return the draws of encoders with the same pairs, under (resamples, n) counts.

        The counts belong to pairs of relatedness in the stored order, which depends on the data alone (`_split_rows`):
        sorting by `row` would change the intervals of existing records.
        """
        gold, predicted = members[0]["gold"], np.stack([arrays["predicted"] for arrays in members])
        scores: dict[str, NDArray[np.float64]] = {}  # metric -> (e, resamples)
        if "dev_accuracy" in members[0]:
            right = (predicted == gold)[:, np.argsort(members[0]["row"], kind="stable")].astype(np.float64)  # in item order
            scores["accuracy"] = right @ counts.T / len(gold)
        else:
            for metric in ("pearson", "spearman"):
                if metric in self.settings["metrics"]:
                    scores[metric] = bootstrap_correlation(predicted, gold, counts, metric)
        drawn: list[Drawn] = [{(None, None, metric): 100 * values[i] for metric, values in scores.items()}
                              for i in range(len(members))]
        if "dev_accuracy" not in members[0] and "mse" in self.settings["metrics"]:
            for draws, squares in zip(drawn, (predicted - gold) ** 2 @ counts.T / len(gold), strict=True):
                draws[None, None, "mse"] = squares
        return drawn


def _mean(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Return the mean of (n,) values, and the influence (n,) of each on it."""
    mean = float(values.mean())
    return mean, values - mean


def _counts(n: int, data_id: str, resamples: int, seed: int) -> NDArray[np.float64]:
    # The seed depends on the data, not on the encoder, so that two encoders have the same resamples.
    return resample_counts(n, resamples, (seed, 0, *data_id.encode()))


def _split_rows(data: PairSet | LabelledSet) -> Rows:
    """Return split -> positions of its pairs, sorted as in SentEval by number of words of first and second, then gold.

    The order decides which pairs share a batch. Raises ScoreError for an empty split.
    """
    splits, gold = (data.subsets, data.gold) if isinstance(data, PairSet) else (data.splits, data.labels)
    keys = [(len(a.split()), len(b.split()), y) for a, b, y in zip(data.first, data.second, gold.tolist(), strict=True)]
    rows = {}
    for split in SPLITS:
        of_split = sorted((i for i, name in enumerate(splits) if name == split), key=keys.__getitem__)
        if not of_split:
            raise ScoreError(f"{data.id}: the {split} split is empty: a trained protocol needs train, dev and test")
        rows[split] = np.array(of_split, dtype=np.int64)
    return rows


def _dense(features: Any, total: int) -> NDArray[np.float32]:
    """Return features as a dense array, which the classifier needs. Raises ScoreError if `total` rows exceed MAX_DENSE."""
    from scipy.sparse import issparse

    if not issparse(features):
        return np.asarray(features, dtype=np.float32)
    if (size := 4 * total * features.shape[1]) > MAX_DENSE:
        most = f"{size / 2**30:.1f} GiB, more than the {MAX_DENSE >> 30} GiB that SICK-E's classifier may take"
        raise ScoreError(f"sparse vectors of {features.shape[1] // 2} columns would fill {most}: use narrower ones")
    return np.asarray(features.toarray(), dtype=np.float32)


def _device(embed: Embed) -> str:
    """Return the encoder's device if it is CUDA, else "cpu": the classifier needs float64, which other accelerators
    lack."""
    device = str(getattr(embed.encoder, "device", "cpu"))
    return device if device.startswith("cuda") else "cpu"
