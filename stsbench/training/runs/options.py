"""Options of a training: what is changed in its recipe, and how it is run. Imports nothing heavy, for the commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stsbench.options import GIVEN, OptionGroup, SetOptions, Where, option

# Option -> the key of the recipe that it sets.
KEYS = {"backbone": "backbone.model", "data": "data.file", "labelled": "labelled.file", "seed": "seed",
        "max_steps": "training.max_steps", "dtype": "precision"}


@dataclass(frozen=True, kw_only=True)
class RecipeOptions(OptionGroup):
    """By which recipe, and what of it is changed."""

    recipe: str | None = option(
        None, "A recipe's name (`stsbench list recipes`) or a YAML file. Default: the method's own.",
    )
    backbone: str | None = option(
        None, "Model to start from: Hub id, folder, minilm, or a training run. Sets backbone.model.",
        renamed={"model": "backbone", "model_name_or_path": "backbone"},
    )
    data: str | None = option(
        None, "Training text: .txt (a sentence a line), .csv, .tsv or .jsonl; or stsb/train. Sets data.file.",
        renamed={"train_file": "data", "texts": "data", "sentences": "data"},
    )
    labelled: str | None = option(
        None, "Labelled rows (NLI), where a stage uses them. Sets labelled.file.", metavar="FILE",
    )
    max_steps: int | None = option(
        None, "So many steps at most in each stage: a shorter run and schedule. Sets training.max_steps.", least=1,
    )
    sets: Sequence[str] = option(
        list, "Any value of the recipe (`stsbench show recipe NAME` shows them), such as training.batch_size=64 or "
        "training.learning_rate=3e-5; repeatable.", flag="--set",
        metavar="KEY.SUB=VALUE", renamed={
            "lr": "set training.learning_rate=VALUE", "learning_rate": "set training.learning_rate=VALUE",
            "batch_size": "set training.batch_size=VALUE", "epochs": "set training.epochs=VALUE",
            "num_train_epochs": "set training.epochs=VALUE", "temperature": "set options.temperature=VALUE",
            "temp": "set options.temperature=VALUE", "pooler": "set backbone.pooler=VALUE",
            "max_seq_length": "set backbone.max_length=VALUE", "max_length": "set backbone.max_length=VALUE",
            "per_device_train_batch_size": "set training.batch_size=VALUE", "warmup": "set training.warmup=VALUE",
        },
    )
    dtype: str | None = option(
        None, "Precision of the training. Sets precision.", choices=("float32", "bf16", "fp16"),
        renamed={"fp16": "dtype=fp16", "bf16": "dtype=bf16", "float16": "dtype=fp16", "bfloat16": "dtype=bf16"},
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(SetOptions):
    """How a recipe is run. Of these only the place of the development data has an effect on which weights are kept."""

    stage: str | int | None = option(
        None, "Train this stage alone, of a method with several (`stsbench show method`).", metavar="N|NAME",
    )
    start_from: Path | None = option(
        None, "The run whose weights --stage starts with: of the stage before. Without --recipe by its recipe.",
        flag="--from", metavar="RUN",
        goes_with=Where(lambda run: run.stage is not None or run.resume, "--stage N, which starts with its weights"),
    )
    resume: bool = option(False, "Go on where the run in --output was stopped.", goes_with={"output": GIVEN})
    device: str | None = option(None, "cpu, cuda or mps. Default: the accelerator, else cpu.")
    evaluate: Sequence[str] = option(
        (), "Test the best afterwards, as `stsbench eval` does.", flag="--eval", metavar="PROTOCOL,...",
    )
    data_dir: Path | None = option(None, "Development and test data in SentEval's layout.")
    sample: bool = option(
        False, "A first training without any file: minilm, a few steps on texts inside the package. With texts of your own: "
        "development and test data from the package alone.", excludes=("data_dir",),
    )
    trackers: Sequence[str] = option(
        list, "Log there, too; repeatable.", flag="--track", metavar="tensorboard|wandb",
    )
    offline: bool = option(False, "Never touch the network.")
    command: Sequence[str] = ()
