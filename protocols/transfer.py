"""The transfer protocol: SentEval's seven classification tasks, scored by a logistic regression on frozen vectors.

Conneau & Kiela 2018 (SentEval), with the settings of Gao et al. 2021 (SimCSE, `evaluation.py`): 10 folds and Adam as in its
"test" mode, 5 folds and RMSprop as in its fast mode, scikit-learn's classifier, or the same objective solved exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from stsbench.data.own.sets import TEXTS, read_labelled_texts
from stsbench.data.own.table import Form
from stsbench.data.sets.sets import BLANK, DataSet, LabelledSet
from stsbench.encoders.cache.embed import Embed
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.protocol import Drawn, Observations, Protocol, grouped, item_numbers
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.schema import (
    DEV_SHARE,
    ITEM,
    LARGEST,
    REPEATED,
    SHARE,
    Array,
    Count,
    Factor,
    Fraction,
    Metric,
    Names,
    Settings,
    SettingsModel,
    SomeOf,
    Text,
    Whole,
    setting,
)
from stsbench.metrics.aggregation import average_of_printed
from stsbench.metrics.bootstrap import block_rows, distinct, resample_blocks, share_interval
from stsbench.probes.schemes import (
    GRID_KFOLD,
    GRID_NESTED_SPLIT,
    Probed,
    Rows,
    Solver,
    cross_validated,
    given_splits,
    nested,
)

TASKS = {"MR": "mr", "CR": "cr", "SUBJ": "subj", "MPQA": "mpqa", "SST2": "sst2", "TREC": "trec", "MRPC": "mrpc"}
GIVEN, FOLDED = ("sst2",), ("trec", "mrpc")  # sets with a dev split, and with only a test split; others are nested
CLASSES = {"trec": 6}  # other sets have two classes
MISSED = 0.1  # the share of exact fits that may stop before their optimum
MAX_DENSE = 1 << 30  # bytes that sparse vectors may take as dense float32 features; scikit-learn needs no dense ones
AT_ONCE = 1 << 24  # counts of redrawn items at a time: 128 MB, a thousand resamples of the largest set


SENTEVAL = "SentEval, senteval/tools/"
README = "SentEval, README.md; SimCSE (Gao et al. 2021), evaluation.py, test mode"
Folds = Annotated[int, Field(ge=2, le=LARGEST)]


class ProbeSettings(Settings):
    """Settings of every classifier; the grids hold inverse regularisation strengths C, as in scikit-learn."""

    classifier: Literal["torch", "sklearn", "exact"] = setting(
        "torch", "SentEval's probe in torch; scikit-learn's; or the same objective solved to its optimum",
        "torch, sklearn: SentEval's usepytorch; exact: our choice",
        by="--protocol transfer:exact, transfer:sklearn or transfer",
    )
    k: Folds = setting(10, "folds", README)
    seed: Whole = setting(1111, "of folds and training", "SentEval, senteval/engine.py")
    blank: str = setting(BLANK, "what is encoded for a line without words", "SentEval, examples/bow.py")
    grid: SomeOf[Factor] = setting(
        list(GRID_NESTED_SPLIT), "inverse strengths C tried on MR, CR, SUBJ, MPQA and SST2", SENTEVAL + "validation.py"
    )
    grid_kfold: SomeOf[Factor] = setting(
        list(GRID_KFOLD), "inverse strengths C tried on TREC and MRPC", SENTEVAL + "validation.py"
    )


class TorchSettings(ProbeSettings):
    """Settings of SentEval's torch probe; the grids hold L2 strengths."""

    grid: SomeOf[Factor] = setting(
        [1e-5, 1e-4, 1e-3, 1e-2], "L2 strengths tried on MR, CR, SUBJ, MPQA and SST2", SENTEVAL + "validation.py"
    )
    grid_kfold: SomeOf[Factor] = setting(
        [1e-5, 1e-4, 1e-3, 1e-2], "L2 strengths tried on TREC and MRPC", SENTEVAL + "validation.py"
    )
    optimizer: Literal["adam", "rmsprop"] = setting("adam", "the probe's optimizer", README)
    batch: Count = setting(64, "items of a training step", README)
    tenacity: Whole = setting(
        5, "looks without a new best that may pass; the next one ends the training", README
    )
    epoch_size: Count = setting(4, "epochs between two looks at held-out items", README)
    max_epoch: Count = setting(200, "the most epochs", SENTEVAL + "classifier.py")
    validation: Fraction = setting(
        0.05, "the share of its training items that the final fit watches, where no dev split is there",
        SENTEVAL + "validation.py",
    )
    dtype: Literal["float64", "float32"] = setting(
        "float64", "what the probe computes in",
        "our choice: predictions are then the same on every device; SentEval has float32",
    )


class OwnSettings(Settings):
    """Settings of a user's own file of labelled texts."""

    file: Text = setting(..., "the name of the user's file of labelled texts", "our choice", by="--protocol transfer:FILE")
    columns: Text | None = setting(
        None, "which columns of the file hold what: text=t,label=y,split=s; null: by their names", "our choice",
        by="--columns",
    )


class OwnProbeSettings(ProbeSettings, OwnSettings):
    pass


class OwnTorchSettings(TorchSettings, OwnSettings):
    pass


class TransferProtocol(Protocol):
    """Accuracies of a linear classifier on frozen vectors, its regularisation chosen by cross-validation or on dev."""

    Settings: ClassVar[SettingsModel] = TorchSettings
    name: ClassVar[str] = "transfer"
    version: ClassVar[int] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": SHARE, "f1": Metric(range=SHARE.range, title="F1"), "dev accuracy": DEV_SHARE,
    }
    arrays: ClassVar[Mapping[str, Array]] = {
        "rows": Array("int", "m", shared=True, indices=True), "predicted": Array("int", "m", per_item=True),
        "gold": Array("int", "m", shared=True), "fold": Array("int", "m", shared=("k", "seed")),
        "grid": Array("float", "or"), "chosen": Array("int", "o"),
        "regs": Array("float", "r", shared=("grid", "grid_kfold")), "counts": Array("int", "3"),
        **REPEATED,
    }
    names: ClassVar[Mapping[str, Names]] = {"counts": Names("3")}
    title: ClassVar[str] = "Transfer"
    about: ClassVar[str] = "SentEval's probe: a logistic regression on frozen vectors."
    trained: ClassVar[bool] = True
    text_type: ClassVar[str] = "Classification"
    hub_task: ClassVar[str] = "text-classification"
    taken_for: ClassVar[str] = (
        "Transfer scores of another classifier or another number of folds: each form of the protocol is a table."
    )
    position: ClassVar[int] = 2
    averaged: tuple[str, ...] = tuple(TASKS)
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"k": 5, "optimizer": "rmsprop", "batch": 128, "tenacity": 3, "epoch_size": 2},
        "sklearn": {"classifier": "sklearn"},
        "exact": {"classifier": "exact"},
    }
    labels_variants: ClassVar[bool] = True
    in_all: ClassVar[tuple[str, ...]] = ("", "sklearn", "exact")
    cosmetic: ClassVar[frozenset[str]] = frozenset({"file", "columns"})
    path_setting: ClassVar[str] = "file"
    form: ClassVar[Form | None] = TEXTS

    def __init__(self, settings: Mapping[str, Any], label: str | None = None) -> None:
        super().__init__(settings, label)
        self.averaged = () if self.user_path else tuple(TASKS)

    @classmethod
    def settings_model(cls, settings: Mapping[str, Any]) -> SettingsModel:
        if (classifier := settings.get("classifier", "torch")) not in ("sklearn", "exact"):
            return OwnTorchSettings if "file" in settings else TorchSettings
        for key in settings:
            if key in TorchSettings.model_fields and key not in ProbeSettings.model_fields:
                raise StsbenchError(f"setting '{key}' does not apply to protocol transfer, classifier {classifier}")
        return OwnProbeSettings if "file" in settings else ProbeSettings

    def tasks(self) -> dict[str, str]:
        return self.user_tasks or dict(TASKS)

    def load(self, set_id: str) -> DataSet | None:
        if not self.user_path or set_id != f"own:{self.user_path}":
            return None
        return read_labelled_texts(self.user_path, self.settings["columns"] or "")

    def work(self, data: DataSet) -> float:
        """Return an estimate of the work: training items times the square root of the number of fits, which share passes
        over the items. The seconds in the leaderboard's records are roughly proportional to it."""
        splits = data.splits if isinstance(data, LabelledSet) else ()
        scheme = _scheme(data.id, splits)
        k, r = self.settings["k"], len(self.settings["grid_kfold" if scheme == "folded" else "grid"])
        fits = {"given": r + 1, "folded": r * k + 1, "nested": r * k * k + k}[scheme]
        return float((splits.count("train") or len(data)) * fits**0.5)

    def observe(self, embed: Embed, data: LabelledSet) -> Observations:
        """Train the classifiers and return their results for m tested items, o outer folds and r grid values.

        rows, predicted, gold, fold: int64 (m,), an item's position in the set, its two classes and its outer fold; grid:
        float64 (o, r) development accuracies; chosen: int64 (o,), indices into regs, float64 (r,), the grid; counts: int64
        (3,), named `counts`. Raises ScoreError for unexpected labels and for exact fits that fail."""
        labels = set(data.labels.tolist())
        classes = len(labels) if self.user_path else CLASSES.get(data.id, 2)
        if not labels or not labels <= set(range(classes)):
            raise ScoreError(f"{data.id} has the labels {sorted(labels)}, expected 0 to {classes - 1}")
        splits = _sorted_splits(data)
        order = np.concatenate([np.array(part, dtype=np.int64) for part in splits.values()])
        vectors = [
            embed([texts[i] or self.settings["blank"] for i in order.tolist()])
            for texts in (data.first, data.second) if texts
        ]
        x, y = _features(data.id, vectors, self.settings["classifier"] == "sklearn"), data.labels[order]
        bounds = np.cumsum([0, *(len(part) for part in splits.values())])
        rows = {name: np.arange(bounds[i], bounds[i + 1], dtype=np.int64) for i, name in enumerate(splits)}
        counts = {"fits": 0, "unconverged": 0}
        item = data.items[order]
        solver = self._solver(x, y, classes, counts)
        scheme = _scheme(data.id, rows)
        regs = self.settings["grid_kfold" if scheme == "folded" else "grid"]
        probed = self._probe(scheme, y, rows, regs, solver, item)
        fits, unconverged = counts["fits"], counts["unconverged"]
        if self.settings["classifier"] == "exact" and unconverged > MISSED * fits:
            raise ScoreError(f"{unconverged} of {fits} fits did not reach their optimum: are the vectors extremely long?")
        developed = distinct(item[rows.get("dev" if scheme == "given" else "train", slice(None))])
        notes = [f"{unconverged} of {fits} fits stopped before convergence"] if unconverged else []
        gold = y[probed.rows]
        accuracy, most = np.mean(probed.predicted == gold), np.bincount(gold).max() / len(gold)
        if accuracy < most:
            notes.append(f"the accuracy is below {100 * most:.2f}, the share of the most frequent class: too few items to "
                         "train on, or too short a training; transfer:exact trains to the optimum")
        return Observations(
            {
                "rows": order[probed.rows], "predicted": probed.predicted, "gold": gold, "fold": probed.fold,
                "grid": probed.grid, "chosen": probed.chosen, "regs": np.array(regs),
                "counts": np.array([fits, unconverged, developed]),
            },
            {
                "counts": ["fits", "unconverged", "development items"],
                "notes": notes,
            },
        )

    def decided(self, observations: Observations) -> dict[str, Sequence[NDArray[Any] | Sequence[str]]]:
        """Return classes and folds in the order of the items, as each classifier lists the items in another order."""
        arrays, order = observations.arrays, np.argsort(observations.arrays["rows"], kind="stable")
        folds = f"folds of k {self.settings['k']} and seed {self.settings['seed']}"
        return {"gold": (arrays["rows"][order], arrays["gold"][order]), folds: (arrays["fold"][order],)}

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        arrays = observations.arrays
        predicted, gold, fold = arrays["predicted"], arrays["gold"], arrays["fold"]
        hits, item = predicted == gold, _item_of_tested(observations)
        low, high = share_interval(hits, item)
        folds = [round(100 * float(hits[fold == number].mean()), 2) for number in np.unique(fold)]
        best = arrays["grid"][np.arange(len(arrays["chosen"])), arrays["chosen"]]
        developed = int(arrays["counts"][observations.names["counts"].index("development items")])
        rows = [
            self.row(task, "accuracy", _mean_as_printed(folds), distinct(item), (100 * low, 100 * high)),
            self.row(task, "dev accuracy", _mean_as_printed(best), developed),
        ]
        if data_id == "mrpc":
            rows.append(self.row(task, "f1", round(100 * f1(predicted, gold), 2), len(hits)))
        return rows

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Redraw tested items, whatever their fold; the accuracy is the mean over folds, without rounding.

        A draw is NaN where a fold has no drawn item, or where F1 has no item of class 1.
        """
        return self.draws_of_many([observations], data_id, resamples, seed)[0]

    def draws_of_many(self, observed: Sequence[Observations], data_id: str, resamples: int, seed: int) -> list[Drawn]:
        """Return each encoder's draws, drawing the counts once for encoders whose items are in the same folds."""
        drawn: list[Drawn] = [{} for _ in observed]
        by_item = [_by_item(item) for item in observed]  # the stored order may differ between encoders
        for indices in grouped(by_item, ("fold",)) if resamples else ():
            members = [by_item[at] for at in indices]
            for at, draws in zip(indices, _redrawn(members, data_id, resamples, seed), strict=True):
                drawn[at] = draws
        return drawn

    def summarise(self, records: Sequence[Record]) -> list[ScoreRow]:
        """Return the transfer average, the mean of the seven rounded accuracies, itself rounded; [] with fewer tasks."""
        by_task = {row.task: row for record in records for row in record.scores
                   if row.metric == "accuracy" and row.protocol == self.label}
        if any(task not in by_task for task in TASKS):
            return []
        seven = [by_task[task] for task in TASKS]
        return [self.row("Avg", "accuracy", average_of_printed([row.value for row in seven]), sum(row.n for row in seven))]

    def _probe(
        self, scheme: str, y: Rows, rows: Mapping[str, Rows], regs: Sequence[float], solver: Solver, item: Rows
    ) -> Probed:
        k, seed, none = self.settings["k"], self.settings["seed"], np.zeros(0, dtype=np.int64)
        train, dev, test = (rows.get(name, none) for name in ("train", "dev", "test"))
        if scheme == "given":
            return given_splits(y, train, dev, test, regs, solver)
        if scheme == "folded":
            return cross_validated(y, train, test, k, seed, regs, solver, item)
        return nested(y, k, seed, regs, solver, item)

    def _solver(self, x: Any, y: Rows, classes: int, counts: dict[str, int]) -> Solver:
        """Return the classifier's solver, which counts its fits in counts["fits"], and those that did not converge in
        counts["unconverged"]."""
        if self.settings["classifier"] == "sklearn":
            from stsbench.probes.schemes import sklearn_solver

            return sklearn_solver(x, y, seed=self.settings["seed"], counts=counts)
        if self.settings["classifier"] == "exact":
            from stsbench.probes.exact import Exact

            return Exact(x, y, classes, counts=counts)
        from stsbench.probes.lockstep import lockstep_solver

        others = {*ProbeSettings.model_fields, *OwnSettings.model_fields}
        pace = {key: value for key, value in self.settings.items() if key not in others}
        return lockstep_solver(x, y, classes, seed=self.settings["seed"], counts=counts, **pace)


def _scheme(set_id: str, splits: Collection[str]) -> Literal["given", "folded", "nested"]:
    """Return how regularisation is chosen and tested: "given", on the dev split; "folded", by folds of the training split,
    with a test split; "nested", by nested folds of all items. For a user's own set its splits decide."""
    users = set_id.startswith("own:")
    if set_id in GIVEN or (users and "dev" in splits):
        return "given"
    return "folded" if set_id in FOLDED or (users and "test" in splits) else "nested"


def _by_item(observations: Observations) -> Observations:
    """Return the predicted and gold classes, the folds and the numbers of the items, in the order of the set's rows."""
    arrays = observations.arrays
    order = np.argsort(arrays["rows"], kind="stable")
    by_item = {name: arrays[name][order] for name in ("predicted", "gold", "fold")}
    return Observations({**by_item, **({ITEM: _item_of_tested(observations)[order]} if ITEM in arrays else {})})


def _item_of_tested(observations: Observations) -> Rows:
    """Return int64 (m,), the number of each tested row's item."""
    arrays = observations.arrays
    return arrays[ITEM][arrays["rows"]] if ITEM in arrays else np.arange(len(arrays["predicted"]), dtype=np.int64)


def _redrawn(observed: Sequence[Observations], data_id: str, resamples: int, seed: int) -> list[Drawn]:
    """Return each encoder's draws, for encoders whose items are in the same folds."""
    fold = observed[0].arrays["fold"]
    n, order = len(fold), np.argsort(fold, kind="stable")  # groups the items by fold
    ends = np.flatnonzero(np.diff(fold[order], append=fold.max(initial=0) + 1)) + 1
    folds = [slice(int(start), int(end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    predicted, gold = (np.stack([item.arrays[name][order] for item in observed], axis=1) for name in ("predicted", "gold"))
    right = (predicted == gold).astype(np.float64)  # (n, e)
    hits = ((predicted == 1) & (gold == 1)).astype(np.float64)
    ones = (predicted == 1).astype(np.float64) + (gold == 1)
    accuracy, f1s = np.empty((resamples, len(observed))), np.empty((resamples, len(observed)))
    step = max(1, AT_ONCE // n)
    for start in range(0, resamples, step):
        # The seed depends on the data, not on the encoder, so that two encoders have the same resamples.
        seeds = (seed, start, *data_id.encode())
        first = start
        for counts in resample_blocks(n, min(step, resamples - start), seeds, block_rows(n), item_numbers(observed[0], n)):
            counts, many = counts[:, order], slice(first, first + len(counts))
            with np.errstate(invalid="ignore"):
                shares = [counts[:, at] @ right[at] / counts[:, at].sum(axis=1)[:, None] for at in folds]
                accuracy[many] = 100 * np.mean(shares, axis=0)
                if data_id == "mrpc":
                    f1s[many] = 200 * (counts @ hits) / (counts @ ones)
            first += len(counts)
    drawn: list[Drawn] = [{(None, None, "accuracy"): values} for values in accuracy.T.copy()]
    if data_id == "mrpc":
        drawn = [{**draws, (None, None, "f1"): f1} for draws, f1 in zip(drawn, f1s.T.copy(), strict=True)]
    return drawn


def f1(predicted: Rows, gold: Rows) -> float:
    """Return the F1 score of class 1, unit 1. Raises ScoreError where neither array holds class 1."""
    hits, positives = int(((predicted == 1) & (gold == 1)).sum()), int((predicted == 1).sum() + (gold == 1).sum())
    if not positives:
        raise ScoreError("no item of class 1 is there or predicted: F1 does not exist")
    return 2 * hits / positives


def _mean_as_printed(values: Any) -> float:
    # SentEval rounds by numpy; Python's rounding differs by 0.01 for one in thirty means of ten values.
    return float(np.round(np.mean(values), 2))


def _sorted_splits(data: LabelledSet) -> dict[str, list[int]]:
    """Return split -> positions of its items, sorted as in SentEval by words of each text, label, then file order."""
    words = [[len(text.split()) for text in texts] for texts in (data.first, data.second) if texts]
    keys = list(zip(*words, data.labels.tolist(), strict=True))
    splits: dict[str, list[int]] = {}
    for position in sorted(range(len(data)), key=keys.__getitem__):
        splits.setdefault(data.splits[position], []).append(position)
    return splits


def _features(name: str, vectors: Sequence[Any], sparse: bool) -> Any:
    """Return float32 (n, d) features: u, or [|u - v| ; u * v] for pairs, as in SentEval; a CSR matrix stays one if `sparse`.

    Raises ScoreError for values that are not finite, and for dense features of more than MAX_DENSE bytes.
    """
    from scipy.sparse import hstack, issparse

    u, *v = vectors
    if not issparse(u):
        with np.errstate(over="ignore", invalid="ignore"):  # infinite values are refused below
            x = np.concatenate([np.abs(u - v[0]), u * v[0]], axis=1) if v else u
        bad = int((~np.isfinite(x)).any(axis=1).sum())
        if bad:
            raise ScoreError(f"{name}: the features of {bad} of {len(x)} items are NaN or infinite")
        return np.ascontiguousarray(x, dtype=np.float32)
    x = hstack([abs(u - v[0]), u.multiply(v[0])]).tocsr() if v else u.tocsr()
    if not np.isfinite(x.data).all():
        raise ScoreError(f"{name}: the features hold NaN or infinite values")
    if sparse:
        return x
    if (size := 4 * x.shape[0] * x.shape[1]) > MAX_DENSE:
        raise ScoreError(
            f"{name}: {x.shape[1]} sparse columns of {x.shape[0]} items would fill {size / 2**30:.1f} GiB as dense "
            f"features, {MAX_DENSE >> 30} GiB are allowed: use transfer:sklearn, which keeps them sparse"
        )
    return x.toarray()
