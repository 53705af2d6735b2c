"""Development scores during training, which decide which encoder is kept; test data never do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stsbench.data.fetch import sources
from stsbench.data.own.overlap import PAIRED_TESTS, available_tests, refuse_tests
from stsbench.data.own.sets import read_labelled_pairs, read_scored_pairs
from stsbench.data.sets.sets import DataSet, LabelledSet, PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.encoders.transformer.parts import Parts
from stsbench.errors import DataError, DegenerateError, ScoreError, StsbenchError
from stsbench.evaluation.protocol import load_protocol
from stsbench.metrics.matching import matching_scores
from stsbench.metrics.similarity import correlation, paired_similarity
from stsbench.registry import calling
from stsbench.torch_random import Generators, drawing
from stsbench.torch_state import fresh_torch
from stsbench.training.api.batch import Batch, Term
from stsbench.training.api.checks import check_terms
from stsbench.training.api.method import Inference, Method
from stsbench.training.engine.objective import Objective
from stsbench.training.recipes.sections import AVG_STS, AVG_STS_SETS, LABELLED_PAIRS, OWN_PAIRS

Score = Callable[[Inference], float]
# keys of the log's lines with a dev score
UNDEFINED = "undefined"  # why a score is undefined
AVERAGED = "averaged"  # the number of steps over which the scored weights are averaged
DEV_LINE = {"kind", "stage", "step", "name", "score", "best", "encoder", "encoders", UNDEFINED, AVERAGED}


def live_encoder(inference: Inference, name: str) -> LiveEncoder:
    """Return an encoder with the current weights, for texts up to the model's position limit, on its device, in float32.

    Call it after the model was moved to its device. The encoder reads the weights at every use and leaves modes, gradients,
    random states and tokenizer unchanged; nothing is cached.
    """
    parts = Parts(inference.model, inference.tokenizer, inference.dense, inference.token_pooler, inference.prompt)
    return LiveEncoder(parts, pooler=inference.pooler, name=name)


class Selection:
    """A development score of a method, higher is better. name: as in a recipe's selection.by."""

    def __init__(
        self, name: str, *, data_dir: Path | None = None, sample: bool = False, offline: bool = False,
        held_out: tuple[Objective, Callable[[], Iterator[Batch]]] | None = None, tests: Sequence[DataSet] = (),
    ) -> None:
        """Read the data, so that a missing file is noticed before anything is trained. Raises DataError, one line.

        held_out: the objective and its batches of held-out rows. tests: the user's sets that the run is tested on.
        """
        self.sample = sample and name != "held-out" and not name.startswith((OWN_PAIRS, LABELLED_PAIRS))
        self.name = f"{name} (sample)" if self.sample else name
        self._tests = tests
        self.digests: dict[str, str] = {}
        self.warnings: list[str] = []  # files of the data that are not those known to the catalog
        self._score: Score | None = None
        self._held_out = held_out
        load: dict[str, Any] = {"data_dir": data_dir, "sample": sample, "offline": offline}
        if name == "sts-b dev":
            self._score = self._correlated(sources.load_data("stsb/dev", **load))
        elif name == AVG_STS:
            scores = [self._correlated(sources.load_data(id, **load)) for id in AVG_STS_SETS]
            self._score = lambda inference: float(np.mean([score(inference) for score in scores]))
            self.warnings.append(f"selection.by {AVG_STS} reads SICK-R's development set: a test on SICK-R is in its domain")
        elif name == "transfer dev":
            protocol = load_protocol("transfer")({})
            sets = {task: sources.load_data(id, **load) for task, id in protocol.tasks().items()}
            self._score = self._probed(protocol, sets)
        elif name.startswith((OWN_PAIRS, LABELLED_PAIRS)):
            prefix = OWN_PAIRS if (scored := name.startswith(OWN_PAIRS)) else LABELLED_PAIRS
            read: Callable[[Path], PairSet] = read_scored_pairs if scored else read_labelled_pairs
            data = read(Path(name.removeprefix(prefix)).expanduser())
            self.name = f"{prefix}{data.task}"  # without the file's folder, which is private to the machine
            known = available_tests(PAIRED_TESTS, data_dir=data_dir, sample=sample)[0]
            users = [test for test in self._tests if isinstance(test, PairSet)]
            self.warnings += refuse_tests(data, [*known, *users], f"selection.by {self.name}")
            self._score = self._correlated(data) if scored else self._separated(data)
        elif held_out is None:
            raise StsbenchError("selection.by held-out needs rows that are held out: set data.held_out")

    def __call__(self, method: Method, trained: bool = False) -> tuple[float, dict[str, Any]]:
        """Return the score x 100 of the encoder with its current weights, and further entries of the log's line.

        An undefined score is NaN, with the reason as "undefined": all vectors are equal, or some are NaN or infinite.
        trained: whether steps were done; if none, equal vectors are an error.
        With candidates it is the score of the best, which `Method.choose` gets; the log has all scores.
        Weights, modes and random states are left unchanged.
        """
        with fixed_randomness():
            if self._score is None:
                assert self._held_out is not None
                objective, batches = self._held_out
                value = held_out_score(method, batches(), objective)
                return value, {} if math.isfinite(value) else {UNDEFINED: f"the score on held-out rows is {value}"}
            candidates = calling(type(method), "candidates", method.candidates)
            if not candidates:
                value, why = _defined(self._score, method.dev_inference(), trained)
                return value, {UNDEFINED: why} if why else {}
            scored = {name: _defined(self._score, inference, trained) for name, inference in candidates.items()}
        scores = {name: None if why else value for name, (value, why) in scored.items()}
        best = max(scored, key=lambda name: -math.inf if scored[name][1] else scored[name][0])
        calling(type(method), "choose", partial(method.choose, best))
        value, why = scored[best]
        return value, {"encoder": best, "encoders": scores, **({UNDEFINED: why} if why else {})}

    def _note(self, data: PairSet | LabelledSet) -> None:
        self.digests[data.id] = data.digest
        self.warnings += data.warnings

    def _correlated(self, data: Any) -> Score:
        assert isinstance(data, PairSet)
        self._note(data)
        if len(set(data.gold.tolist())) < 2 or len(set(zip(data.first, data.second, strict=True))) < 2:
            raise DataError(f"{data.id} from {data.origin}: all gold scores or all pairs are one, so no encoder has a "
                            "development score: put the data right, or --set selection.by=none")

        def score(inference: Inference) -> float:
            return 100 * correlation(_similarities(inference, data), data.gold, "spearman")

        return score

    def _separated(self, data: PairSet) -> Score:
        """Return a score of labelled pairs: average precision x 100 of the cosine, as in the protocol pairs."""
        self._note(data)

        def score(inference: Inference) -> float:
            similarity = _similarities(inference, data)
            if len(data) > 1 and np.ptp(similarity) == 0:
                raise DegenerateError("all pairs have the same similarity, by which none is told from another")
            return 100 * matching_scores(similarity, data.gold).ap

        return score

    def _probed(self, protocol: Any, sets: dict[str, Any]) -> Score:
        for data in sets.values():
            assert isinstance(data, LabelledSet)
            self._note(data)

        @fresh_torch(gradients=True)
        def score(inference: Inference) -> float:
            embed = Embed(live_encoder(inference, "dev"))
            texts = [text for data in sets.values() for text in data.texts]
            embed.add(texts)
            if why := embed.unusable(texts):
                raise ScoreError(why)
            accuracies = []
            for task, data in sets.items():
                rows = protocol.score(protocol.observe(embed, data), data.id, task)
                accuracies += [row.value for row in rows if row.metric == "dev accuracy"]
            return float(np.mean(accuracies))

        return score


def _similarities(inference: Inference, data: PairSet) -> NDArray[np.float64]:
    """Return (n,) cosines of the n pairs."""
    both = live_encoder(inference, "dev").encode([*data.first, *data.second])
    return paired_similarity(both[: len(data)], both[len(data) :])


def _defined(score: Score, inference: Inference, trained: bool) -> tuple[float, str]:
    """Return the score and "", or NaN and the reason why it is undefined. Raises DegenerateError instead if the encoder is
    not `trained`."""
    try:
        value = score(inference)
    except ScoreError as error:
        return math.nan, str(error)
    except DegenerateError as error:
        if not trained:
            raise
        return math.nan, str(error)
    return value, "" if math.isfinite(value) else f"the score is {value}"


def diagnosed(method: Method) -> dict[str, float | None]:
    """Return the numbers of `Method.diagnose`, None for NaN and infinity. Modes and random states are left unchanged.

    Raises StsbenchError for a name that the log's lines with development scores have already.
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


def fixed_randomness() -> AbstractContextManager[Generators]:
    """Draw the same random numbers in each such block, so that scores of a method that samples are comparable."""
    return drawing(Generators(0))


def held_out_score(method: Method, batches: Iterator[Batch], objective: Objective | None = None) -> float:
    """Return the objective's `held_out_metric` over rows held out of training, x 100, or its negated loss, without dropout.
    objective: None: the method. A loss's terms are means over all of their items (`Term.count`), whatever the batches."""
    objective = method if objective is None else objective
    training = method.training
    method.eval()
    calling(type(method), "metrics", method.metrics)  # reading them resets what training gathered
    call: Callable[[Batch], dict[str, Term]] = objective
    # sums over each term's items; weights are averaged, too, as that of a loss that is a sum is the batch's size
    totals, weights, counts = dict[str, float](), dict[str, float](), dict[str, int]()
    try:
        with torch.no_grad():
            for batch in batches:
                terms = check_terms(method, calling(type(method), "forward", partial(call, batch), "on held-out rows"))
                for name, term in terms.items():
                    totals[name] = totals.get(name, 0.0) + float(term.value) * term.count
                    weights[name] = weights.get(name, 0.0) + term.weight * term.count
                    counts[name] = counts.get(name, 0) + term.count
    finally:
        method.train(training)
    metrics = calling(type(method), "metrics", method.metrics)
    metric = objective.held_out_metric
    if metric == "loss" and any(counts.values()):
        return -sum(totals[name] / count * weights[name] / count for name, count in counts.items() if count)
    if metric not in metrics:
        raise StsbenchError("the held-out rows are too few to be scored: raise data.held_out")
    return 100 * metrics[metric]
