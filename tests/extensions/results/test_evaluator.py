"""`stsbench.Evaluator` in the trainers of sentence-transformers: what it reports, and that it moves no weight."""

from __future__ import annotations

import csv

import pytest
import torch
from datasets import Dataset
from scipy.stats import spearmanr
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from tiny_models import build, sentences

from stsbench import Evaluator
from stsbench.errors import UsageError
from stsbench.extensions.results import evaluator as evaluator_module
from stsbench.extensions.results.evaluator import SignificantEarlyStopping

TEXTS = sentences(120)
ROWS = [(first, second, float(len(set(first.split()) & set(second.split()))))
        for first, second in zip(TEXTS[:60], TEXTS[60:], strict=True)]
TRAINING = Dataset.from_dict({"a": TEXTS[:24], "b": TEXTS[30:54], "label": [number / 24 for number in range(24)]})
ARGUMENTS = {
    "max_steps": 6, "per_device_train_batch_size": 4, "save_strategy": "no", "report_to": "none", "use_cpu": True,
    "disable_tqdm": True, "learning_rate": 1e-3, "seed": 3,
}


class Nothing(BaseEvaluator):
    """Measures nothing: the trainer draws otherwise where there is an evaluator."""

    def __call__(self, model, output_path=None, epoch=-1, steps=-1):
        self.primary_metric = "nothing"
        return {"nothing": 0.0}


@pytest.fixture
def folder(tmp_path):
    return str(build(tmp_path / "model"))


def trained(folder, output, evaluator=None, callbacks=(), **arguments):
    torch.manual_seed(0)
    model = SentenceTransformer(folder, device="cpu")
    if evaluator is not None:
        arguments = {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True, **arguments}
    trainer = SentenceTransformerTrainer(
        model, SentenceTransformerTrainingArguments(str(output), **{**ARGUMENTS, **arguments}), TRAINING,
        loss=CosineSimilarityLoss(model), evaluator=evaluator, callbacks=list(callbacks),
    )
    trainer.train()
    return model, trainer.state


def test_the_trainer_logs_intervals_and_the_gain_and_trains_as_without(folder, tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(evaluator_module._LOG, "info", lambda form, *values: lines.append(form % values))
    evaluator = Evaluator("dev", sts=ROWS, resamples=100)
    model, state = trained(folder, tmp_path / "a", evaluator)
    plain, _ = trained(folder, tmp_path / "b", Nothing())
    assert all(torch.equal(one, plain.state_dict()[name]) for name, one in model.state_dict().items())
    logged = [line for line in state.log_history if "eval_dev_spearman" in line]
    assert [line["step"] for line in logged] == [0, 2, 4, 6]
    for line in logged:
        assert line["eval_dev_spearman_low"] < line["eval_dev_spearman"] < line["eval_dev_spearman_high"]
    for line in logged[1:]:
        gain = line["eval_dev_spearman"] - logged[0]["eval_dev_spearman"]
        assert line["eval_dev_spearman_gain"] == pytest.approx(gain) and 0 < line["eval_dev_spearman_gain_p"] <= 1
    first, second = (model.encode([row[side] for row in ROWS], normalize_embeddings=True) for side in (0, 1))
    cosines = (first * second).sum(axis=1)
    expected = 100 * spearmanr(cosines, [row[2] for row in ROWS])[0]
    assert logged[-1]["eval_dev_spearman"] == pytest.approx(expected, abs=0.05)
    assert len(lines) == 4 and "from the start (p " in lines[-1] and "from the start" not in lines[0]
    scores = evaluator(model, str(tmp_path / "out"), epoch=1, steps=7)
    rows = list(csv.DictReader((tmp_path / "out/dev_results.csv").open()))
    assert rows[0]["steps"] == "7" and float(rows[0]["dev_spearman"]) == scores["dev_spearman"]


def test_a_training_stops_where_nothing_is_better(folder, tmp_path):
    evaluator = Evaluator(sts=ROWS, resamples=100)
    stopping = SignificantEarlyStopping(evaluator, patience=2)
    _, state = trained(folder, tmp_path / "a", evaluator, [stopping], learning_rate=0.0, max_steps=20)
    assert state.global_step == 4 and evaluator.stagnation == 2
    with pytest.raises(UsageError):
        SignificantEarlyStopping(evaluator, patience=0)


def test_a_cross_encoder(folder, tmp_path):
    torch.manual_seed(0)
    model = CrossEncoder(folder, num_labels=1, device="cpu")
    evaluator = Evaluator("dev", sts=ROWS)
    trainer = CrossEncoderTrainer(
        model, CrossEncoderTrainingArguments(str(tmp_path / "out"), eval_strategy="steps", eval_steps=3, **ARGUMENTS),
        TRAINING, evaluator=evaluator,
    )
    trainer.train()
    logged = [line for line in trainer.state.log_history if "eval_dev_spearman" in line]
    predicted = model.predict([row[:2] for row in ROWS])
    expected = 100 * spearmanr(predicted, [row[2] for row in ROWS])[0]
    assert logged[-1]["eval_dev_spearman"] == pytest.approx(expected, abs=1e-6)
    with pytest.raises(UsageError):
        Evaluator(protocol="transfer", sample=True)(model)


def test_what_a_trainer_cannot_choose_by_is_refused(folder):
    model = SentenceTransformer(folder, device="cpu")
    with pytest.raises(UsageError, match="name one protocol"):
        Evaluator(protocol="geometry", sample=True, resamples=0)(model)
