"""What every process that training_runs starts has at hand: imported, computed and used once, in the one they fork from."""

import os
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import models_once
import pytest
import tiny_models
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import imports, memory
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import stsbench
from stsbench import registry
from stsbench.encoders.forward.checkpoint import load_model
from stsbench.evaluation import api, provenance

for name in (
    "stsbench.training.runs.seed_runs", "stsbench.methods.simcse.method", "stsbench.encoders.cache.mteb",
    "transformers.models.bert.tokenization_bert",
    "transformers.models.encoder_decoder", "stsbench.cli.main", "stsbench.cli.messages",
):
    import_module(name)
for name in ("torch.profiler._cupti_monitor", "torch.utils.serialization"):  # of newer torch: not in the oldest we allow
    with suppress(ModuleNotFoundError):
        import_module(name)
get_checkpoint_conversion_mapping("bert")  # builds the table of all architectures: half of what a tiny training takes


def patch():
    """As the fixtures of conftest do, in the server of the forks."""
    os.fsync = lambda stream: None
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a fork has none of its parent's threads
    provenance.git_revision = api.git_revision = cache(provenance.git_revision)
    models_once.patch(pytest.MonkeyPatch())
    memory.gc = SimpleNamespace(collect=lambda: 0)
    imports._is_package_available = cache(imports._is_package_available)
    for kind in (torch.cuda, torch.xpu, torch.mtia):
        kind.traceback = SimpleNamespace(format_stack=list)


def rehearse():
    """A short training, so that no fork is the first to compile a pattern, wrap a step or read a file of this package.
    Without a gradient: torch takes none in the fork of a process that has taken one."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patches:
        place = Path(folder)
        patches.setenv("STSBENCH_CACHE", str(place / "cache"))
        patches.setattr(Accelerator, "backward", _no_gradient)
        (place / "text.txt").write_text("\n".join(tiny_models.sentences(20, longest=9)) + "\n", "utf-8")
        model = tiny_models.build(place / "tiny", pooler=False)
        load_model(model, "tiny", "float32", 0.1)  # the training reads it for the second time: forks have copies
        values = {
            "backbone.model": str(model), "backbone.dropout": 0.1, "data.file": str(place / "text.txt"),
            "training.batch_size": 10, "training.epochs": 1, "selection.by": "sts-b dev", "selection.every": 1,
            "checkpoint_every": 1, "precision": "float32",
        }
        stsbench.train("simcse", output=place / "run", settings=values, device="cpu", sample=True)
        how = {"sample": True, "tasks": ["STS-B"], "resamples": 0, "device": "cpu", "offline": True}
        stsbench.evaluate(str(model), output=place / "eval", pooler="mean", **how)
    for group in ("encoders", "post", "protocols", "methods"):
        registry.names(f"stsbench.{group}")
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def _no_gradient(accelerator, loss, **options):
    for model in accelerator._models:
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
