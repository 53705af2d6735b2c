"""An evaluator for sentence-transformers' trainers, with confidence intervals and a test against the start."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import TrainerCallback

from stsbench.comparison.compare import compare
from stsbench.comparison.differences import Compared
from stsbench.data.fetch.sources import load_data
from stsbench.data.own.sets import read_scored_pairs
from stsbench.data.sets.sets import PairSet
from stsbench.display.table import csv_table
from stsbench.errors import UsageError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.own_data import data_protocols, split_off_data
from stsbench.evaluation.plan import declared_metric
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.result import Result
from stsbench.evaluation.run_file import RUN, write_run
from stsbench.evaluation.tables import main_scores
from stsbench.extensions.results.items import ItemScores, items_of_run
from stsbench.files import temporary

_LOG = logging.getLogger(__name__)
_SETS = ("data_dir", "sample")


class Evaluator(BaseEvaluator):
    """Measures a SentenceTransformer under any protocol, or a CrossEncoder on scored pairs, while it is trained.

    name: prefix of the metrics' names; measured: arguments of `stsbench.evaluate` besides the model, such as sts=ROWS,
    protocol="sts:dev.csv", columns=...; default: the development split of STS-B. A CrossEncoder takes sts=ROWS alone.

    Called with a model, it returns the first metric of each task with its 95 % interval (`_low`, `_high`), and from the
    second call on the difference of `primary_metric` from the first call, with p (`_gain`, `_gain_p`). `primary_metric`, by
    which a trainer keeps the best checkpoint, is the average, or the first task. Raises UsageError for data or arguments
    that cannot be measured.

    >>> from sentence_transformers import SentenceTransformer
    >>> from sentence_transformers.sentence_transformer.modules import BoW
    >>> from stsbench import Evaluator
    >>> model = SentenceTransformer(modules=[BoW(["the", "a", "man", "woman", "is", "dog"])], device="cpu")
    >>> evaluator = Evaluator("dev", sample=True, resamples=100)
    >>> [*evaluator(model)], evaluator.primary_metric
    (['dev_spearman', 'dev_spearman_low', 'dev_spearman_high'], 'dev_spearman')
    """

    def __init__(self, name: str = "", **measured: Any) -> None:
        super().__init__()
        self.name = name
        self.measured = dict(measured)
        if not {*data_protocols(), "protocol", "protocols"} & self.measured.keys():
            sets = {key: self.measured.pop(key) for key in _SETS if key in self.measured}
            data = load_data("stsb/dev", **sets)
            assert isinstance(data, PairSet)
            self.measured["sts"] = list(zip(data.first, data.second, data.gold.tolist(), strict=True))
        self.stagnation = 0  # calls since the last model that was significantly better than the best before it
        self._start: Any = None  # the run of the first call
        self._best: Any = None  # the run of the last model that was significantly better

    def __call__(self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1) -> dict[str, float]:
        """Return metric -> score; output_path: folder of a CSV file to which a line is added. epoch, steps: of training."""
        cross = not hasattr(model, "encode")
        training = model.training
        try:
            result = self._cross_result(model) if cross else evaluate(model, **self.measured)
        finally:
            model.train(training)
        metrics, run = _scores(result), result.folder
        primary = next((key for key in metrics if key == "Avg"), next(iter(metrics)))
        if self._start is None:
            self._start = self._best = run
        else:
            gain, better = (_headline(run, other) for other in (self._start, self._best))
            metrics |= {f"{primary}_gain": gain.difference.value, f"{primary}_gain_p": gain.difference.p or np.nan}
            self.stagnation = 0 if (better.difference.low or -1) > 0 else self.stagnation + 1
            self._best = run if self.stagnation == 0 else self._best
        self.primary_metric = primary
        named: dict[str, float] = self.prefix_name_to_metrics(metrics, self.name)
        _LOG.info("%s", self._line(metrics, primary, epoch, steps))
        if output_path is not None:
            _append(Path(output_path) / f"{self.name or 'stsbench'}_results.csv", {"epoch": epoch, "steps": steps, **named})
        if hasattr(model, "model_card_data"):
            self.store_metrics_in_model_card_data(model, named, int(epoch), steps)
        return named

    def _cross_result(self, model: Any) -> Result:
        """Return the scores of a cross-encoder's predictions for scored pairs."""
        arguments = {key: value for key, value in self.measured.items() if key != "resamples"}
        columns = arguments.pop("columns", "")
        protocols, _ = split_off_data(arguments)
        if arguments or len(protocols) != 1 or not protocols[0].startswith("sts:"):
            raise UsageError("Evaluator: a CrossEncoder is measured on pairs with scores alone: sts=ROWS")
        pairs: PairSet = read_scored_pairs(Path(protocols[0].removeprefix("sts:")), columns)
        texts = list(zip(pairs.first, pairs.second, strict=True))
        predictions = np.asarray(model.predict(texts, show_progress_bar=False), float).reshape(len(texts), -1)[:, -1]
        names = [f"{number:09}" for number in range(len(texts))]
        scores = ItemScores("cross-encoder", "pairs", names, {"prediction": predictions.tolist()}, gold=pairs.gold.tolist(),
                            sentences=(pairs.first, pairs.second))
        folder = temporary("run")
        folder.mkdir()
        write_run(folder / RUN, items_of_run([scores], "predictions"))
        return score_again(folder)

    def _line(self, metrics: dict[str, float], primary: str, epoch: float, steps: int) -> str:
        text = f"epoch {epoch:g}, step {steps}: {primary} {metrics[primary]:.2f}"
        if f"{primary}_low" in metrics:
            text += f" ({metrics[f'{primary}_low']:.2f} to {metrics[f'{primary}_high']:.2f})"
        if f"{primary}_gain" in metrics:
            text += f", {metrics[f'{primary}_gain']:+.2f} from the start (p {metrics[f'{primary}_gain_p']:.3f})"
        return text


class SignificantEarlyStopping(TrainerCallback):
    """Stops training when the last `patience` evaluations of `evaluator` were not significantly better than the best."""

    def __init__(self, evaluator: Evaluator, patience: int = 3) -> None:
        if patience < 1:
            raise UsageError(f"SignificantEarlyStopping: patience={patience}: must be 1 or more")
        self.evaluator, self.patience = evaluator, patience

    def on_evaluate(self, args: Any, state: Any, control: Any, **named: Any) -> Any:
        if self.evaluator.stagnation >= self.patience:
            control.should_training_stop = True
        return control


def _scores(result: Result) -> dict[str, float]:
    """Return name -> first metric of each task, with its interval; the name is the task's, for one task the metric's."""
    rows = [row for (_, subset), row in main_scores(result.rows).items() if not subset]
    labels = {record.protocol.label for record in result.records}
    if len(labels) > 1 or not all(declared_metric(row).better == "higher" for row in rows):
        raise UsageError("Evaluator: name one protocol, whose first metric is the better the higher it is")
    metrics = {}
    for row in rows:
        key = row.metric if len(rows) == 1 else row.task
        metrics[key] = row.value
        if row.low is not None and row.high is not None:
            metrics |= {f"{key}_low": row.low, f"{key}_high": row.high}
    return metrics


def _headline(run: Path, other: Path) -> Compared:
    """Return the comparison of two runs' averages, or else of their first task."""
    table = compare(run, other).tables[0]
    return table.average or table.rows[0]


def _append(path: Path, row: dict[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header, line = csv_table([*row], [row]).splitlines(keepends=True)
    lines = [line] if path.is_file() else [header, line]
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(lines)
