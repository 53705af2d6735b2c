"""Development scores during training: which encoder is kept is decided on these, never on test data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stsbench.data.fetch import sources
from stsbench.data.sets.sets import LabelledSet, PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.errors import DataError, MissingDataError, StsbenchError
from stsbench.evaluation.load import load_protocol
from stsbench.metrics.correlation import correlation
from stsbench.metrics.similarity import paired_similarity
from stsbench.plugins import calling
from stsbench.training.api.batch import Batch, Term
from stsbench.training.api.checks import check_terms
from stsbench.training.api.method import Inference, Method
from stsbench.training.engine.live import live_encoder
from stsbench.training.engine.semi import Objective

Score = Callable[[Inference], float]
DEV_LINE = {"kind", "stage", "step", "name", "score", "best", "encoder", "encoders"}  # of the log's line of a dev score


class Selection:
    """One way of scoring a method on development data. name: as in a recipe's selection.by; the more, the better."""

    def __init__(
        self, name: str, *, data_dir: Path | None = None, sample: bool = False, offline: bool = False,
        held_out: tuple[Objective, Callable[[], Iterator[Batch]]] | None = None,
    ) -> None:  # fmt: skip
        """Reads the data, so that a missing file is noticed before anything is trained. Raises DataError, one line.

        held_out: what gives the loss, and the batches that it is of.
        """
        self.sample = sample and name != "held-out"
        self.name = f"{name} (sample)" if self.sample else name
        self.digests: dict[str, str] = {}
        self.warnings: list[str] = []  # of the data: files that are not those known to the catalog
        self._score: Score | None = None
        self._held_out = held_out
        load: dict[str, Any] = {"data_dir": data_dir, "sample": sample, "offline": offline}
        if name == "sts-b dev":
            self._score = self._correlated(sources.load("stsb/dev", **load))
        elif name == "transfer dev":
            protocol = load_protocol("transfer")({})
            self._score = self._probed(protocol, {task: sources.load(id, **load) for task, id in protocol.tasks().items()})
        elif held_out is None:
            raise StsbenchError("selection.by held-out needs rows that are held out: set data.held_out")

    def __call__(self, method: Method) -> tuple[float, dict[str, Any]]:
        """The score x 100 of the encoder as it is now, and what the log's line says besides.

        A method with candidates has the score of the best: it is told which (`Method.choose`), and the log all scores.
        Weights, modes and random states are left as they were.
        """
        with fixed_randomness():
            if self._score is None:
                assert self._held_out is not None
                objective, batches = self._held_out
                return held_out_score(method, batches(), objective), {}
            candidates = calling(type(method), "candidates", method.candidates)
            if not candidates:
                return self._score(method.dev_inference()), {}
            scores = {name: self._score(inference) for name, inference in candidates.items()}
        best = max(scores, key=scores.__getitem__)
        calling(type(method), "choose", partial(method.choose, best))
        return scores[best], {"encoder": best, "encoders": scores}

    def _note(self, data: PairSet | LabelledSet) -> None:
        self.digests[data.id] = data.digest
        self.warnings += data.warnings

    def _correlated(self, data: Any) -> Score:
        assert isinstance(data, PairSet)
        self._note(data)

        def score(inference: Inference) -> float:
            encoder = live_encoder(inference, "dev")
            both = encoder.encode([*data.first, *data.second])
            similarity = paired_similarity(both[: len(data)], both[len(data) :])
            return 100 * correlation(similarity, data.gold, "spearman")

        return score

    def _probed(self, protocol: Any, sets: dict[str, Any]) -> Score:
        for data in sets.values():
            assert isinstance(data, LabelledSet)
            self._note(data)

        def score(inference: Inference) -> float:
            embed = Embed(live_encoder(inference, "dev"))
            embed.add([text for data in sets.values() for text in data.texts])
            accuracies = []
            for task, data in sets.items():
                rows = protocol.score(protocol.observe(embed, data), data.id, task)
                accuracies += [row.value for row in rows if row.metric == "dev accuracy"]
            return float(np.mean(accuracies))

        return score


def dev_selection(
    name: str, *, data_dir: Path | None, sample: bool, offline: bool
) -> tuple[Selection, str | None]:
    """The score on development data; where they are nowhere on this machine, on those of the sample, and what is missing.

    Data that `data_dir` should hold, and damaged files, are an error: DataError, one line.
    """
    try:
        return Selection(name, data_dir=data_dir, sample=sample, offline=offline), None
    except MissingDataError as error:
        if sample or data_dir is not None:
            raise DataError(f"no dev data: {error}; or train without (--set selection.by=none)") from error
        return Selection(name, sample=True), str(error).removesuffix(sources.WAYS).rstrip(" :;")


def diagnosed(method: Method) -> dict[str, float | None]:
    """The numbers of `Method.diagnose`, None for one that is not finite. Modes and random states are left as they were.

    Raises StsbenchError where one has the name of what a dev line holds anyway.
    """
    modes = [(module, module.training) for module in method.modules()]
    try:
        with fixed_randomness(), torch.no_grad():
            numbers = calling(type(method), "diagnose", method.diagnose)
    finally:
        for module, training in modes:
            module.training = training
    if taken := sorted(numbers.keys() & DEV_LINE):
        raise StsbenchError(f"the method {method.name} names a number of diagnose '{taken[0]}', as the log names another")
    return {name: float(value) if math.isfinite(value) else None for name, value in numbers.items()}


@contextmanager
def fixed_randomness() -> Iterator[None]:
    """torch's generators from the same seed every time, and afterwards as they were."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)  # a method that samples draws the same at every evaluation
        yield


def held_out_score(method: Method, batches: Iterator[Batch], objective: Objective | None = None) -> float:
    """`held_out_metric` of the objective (None: the method) over rows kept out of training, without dropout; a loss is
    negated."""
    objective = method if objective is None else objective
    training = method.training
    method.eval()
    _metrics(method)  # what training gathered is not part of this
    call: Callable[[Batch], dict[str, Term]] = objective
    total, count = 0.0, 0
    try:
        with torch.no_grad():
            for batch in batches:
                terms = check_terms(method, calling(type(method), "forward", partial(call, batch), "on held-out rows"))
                total += sum(float(term.value) * term.weight for term in terms.values()) * len(batch)
                count += len(batch)
    finally:
        method.train(training)
    metrics = _metrics(method)
    metric = objective.held_out_metric
    if metric == "loss" and count:
        return -total / count
    if metric not in metrics:
        raise StsbenchError("the held-out rows are too few to be scored: raise data.held_out")
    return 100 * metrics[metric]


def _metrics(method: Method) -> dict[str, float]:
    return calling(type(method), "metrics", method.metrics)
