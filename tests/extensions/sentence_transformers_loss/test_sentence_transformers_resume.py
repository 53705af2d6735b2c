"""sentence-transformers' trainer, stopped and resumed with a method's loss: the training that was not stopped."""

import copy
import pickle
import shutil

import pytest
import tiny_models
import torch
from datasets import Dataset, DatasetDict
from foreign_trainer import LOSSES, NEVER, features_of, loaded, place, sentence_transformer  # noqa: F401
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, MatryoshkaLoss
from training_runs import no_pinned_memory, one_thread  # noqa: F401

from stsbench import as_sentence_transformers_loss, methods
from stsbench.errors import StsbenchError
from stsbench.registry import names
from stsbench.training.recipes.methods import GROUP, method_name

STEPS, STOPPED = 5, 2
TEXTS = tiny_models.sentences(48, longest=8, seed=3)
COLUMNS = {
    None: {"sentence": TEXTS[:24]},
    "pairs.tsv": {"first": TEXTS[:24], "second": TEXTS[24:], "label": [0, 1, 2] * 8},
    "scores.tsv": {"first": TEXTS[:24], "second": TEXTS[24:], "score": [row % 6 / 1.0 for row in range(24)]},
}
# torch's dropout, and the evaluation in between, as users have them
ARGUMENTS = {
    "max_steps": STEPS, "learning_rate": 1e-3, "per_device_train_batch_size": 6, "save_strategy": "steps",
    "save_steps": STOPPED, "report_to": "none", "use_cpu": True, "disable_tqdm": True, "logging_steps": 1,
    "eval_strategy": "steps", "eval_steps": 3,
}


def trained(model, loss, data, folder, resumed=None, **arguments):
    """Losses of the steps, training and evaluation, and all weights at the end."""
    torch.manual_seed(11 if resumed else 5)  # what a process did before: the trainer seeds itself where it is made
    trainer = SentenceTransformerTrainer(
        model, SentenceTransformerTrainingArguments(str(folder), **{**ARGUMENTS, **arguments}), data, data, loss=loss
    )
    trainer.train(resume_from_checkpoint=resumed)
    losses = {(line["step"], name): line[name] for line in trainer.state.log_history for name in ("loss", "eval_loss")
              if name in line}
    parts = loss.values() if isinstance(loss, dict) else [loss]
    return losses, [part.state_dict() for part in parts]


def assert_equal(one, other):
    assert one[0] == other[0] and len(one[0]) >= STEPS
    for first, second in zip(one[1], other[1], strict=True):
        assert first.keys() == second.keys()
        assert [name for name in first if not torch.equal(first[name], second[name])] == []


def test_every_method_has_a_case():
    assert {method_name(options) for options, *_ in LOSSES.values()} | NEVER == set(names(GROUP))


@pytest.mark.parametrize("case", ["esimcse", "sbert"])
def test_a_resumed_training_is_the_one_that_was_not_stopped(place, tmp_path, case):
    options, pooler, *data = LOSSES[case]
    columns = Dataset.from_dict(COLUMNS[data[0] if data else None])

    def made(seed):
        torch.manual_seed(seed)
        model = sentence_transformer(place, pooler)
        model[0].model.pooler.requires_grad_(False)  # has no gradient, and starts at random
        return model, as_sentence_transformers_loss(options, model)

    whole = trained(*made(0), columns, tmp_path / "whole")
    assert_equal(trained(*made(0), columns, tmp_path / "other", str(tmp_path / f"whole/checkpoint-{STOPPED}")), whole)


def test_modifiers_dictionaries_and_accumulation_resume_as_well(loaded, tmp_path):
    """Two methods and a loss of the library's own, by data set, one of them late, one in a modifier."""
    data = DatasetDict(first=Dataset.from_dict(COLUMNS[None]), second=Dataset.from_dict(COLUMNS["scores.tsv"]),
                       third=Dataset.from_dict(COLUMNS[None]))
    crop = methods.SimCSE(view="crop", rate=0.4, head="none", queue=None)

    def made():
        model = loaded("mean")
        model[0].model.pooler.requires_grad_(False)
        return model, {
            "second": CoSENTLoss(model), "third": as_sentence_transformers_loss("tsdae", model),
            "first": MatryoshkaLoss(model, as_sentence_transformers_loss(crop, model), [32, 8], n_dims_per_step=1),
        }

    arguments = {"gradient_accumulation_steps": 2, "multi_dataset_batch_sampler": "proportional"}
    whole = trained(*made(), data, tmp_path / "whole", **arguments)
    folder = shutil.move(tmp_path / "whole/checkpoint-2", tmp_path / "elsewhere")
    assert_equal(trained(*made(), data, tmp_path / "other", str(folder), **arguments), whole)


def test_a_checkpoint_that_would_not_give_the_same_training_is_refused(loaded, tmp_path):
    data = Dataset.from_dict(COLUMNS[None])

    def resumed(options, folder, **more):
        model = loaded()
        return trained(model, as_sentence_transformers_loss(options, model, **more), data, tmp_path / "x", str(folder))

    model = loaded()
    trained(model, as_sentence_transformers_loss("simcse", model), data, tmp_path / "whole")
    folder = tmp_path / "whole/checkpoint-2"
    for options, more, what in (
        ("simcse", {"seed": 1}, "seed 42"), (methods.SimCSE(temperature=0.1), {}, r"temperature 0\.05"),
        ("esimcse", {}, "method 'simcse'"),
    ):
        with pytest.raises(StsbenchError, match=f"^the checkpoint is of a loss with {what}, and this one is not: make"):
            resumed(options, folder, **more)
    for name in ("optimizer.pt", "scheduler.pt"):
        (folder / name).unlink()
    with pytest.raises(StsbenchError, match=r"checkpoint-2 has nothing of simcse's loss, so that a resumed training wo"):
        resumed("simcse", folder)


@pytest.mark.parametrize("case", ["esimcse", "diffcse"])
def test_a_copy_of_a_loss_in_training_goes_on_as_the_loss_does(place, case):
    options, pooler = LOSSES[case]
    model = sentence_transformer(place, pooler)
    loss = as_sentence_transformers_loss(options, model)
    model.train()
    for _ in range(2):
        loss(features_of(model, TEXTS[:12]))
    fresh = as_sentence_transformers_loss(options, sentence_transformer(place, pooler), seed=loss.seed)
    fresh.load_state_dict(loss.state_dict())  # of one's own loop
    values = set()
    for part in (fresh, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), loss):
        part.model.train()
        torch.manual_seed(0)
        values.add(part(features_of(part.model, TEXTS[12:24])).item())
        assert part.steps == 3 and part.method.backbone.model is part.model[0].model
    assert len(values) == 1


def test_measuring_moves_nothing_on(loaded):
    for options in ("esimcse", "mlm"):
        model = loaded()
        loss = as_sentence_transformers_loss(options, model)
        loss(features_of(model.train(), TEXTS[:8]))
        before, drawn = copy.deepcopy(loss.state_dict()), torch.get_rng_state()
        with torch.no_grad():
            model.eval()
            values = {loss(features_of(model, TEXTS[8:20])).item() for _ in range(2)}
        assert len(values) == 1 and torch.equal(drawn, torch.get_rng_state())
        after = loss.state_dict()
        assert [name for name in before if not torch.equal(before[name], after[name])] == []
