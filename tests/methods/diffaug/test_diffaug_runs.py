"""DiffAug in whole runs: what its log says of either stage."""

from __future__ import annotations

import pytest
import training_runs
from diffaug_oracle import TEMPLATES, build
from nli_files import triplets
from training_runs import log_of, undisturbed

MODULES = {"prefix": {"options.prefix_length": 2, "options.aux_weight": 0.1}, "lora": {"options.module": "lora"}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("diffaug-runs")
    build(place / "tiny", "bert")
    training_runs.make_text(place)
    triplets(place)
    return place


def values(place, module):
    """6 steps a stage, a dev score every 4, a checkpoint every 2."""
    chosen = training_runs.settings(place / "tiny", place / "text.txt", **{
        "backbone.pooler": "mask", "backbone.max_length": 10, "options.template": TEMPLATES["bert"], "options.diagnose": 8,
        "labelled.file": str(place / "triplets-30.csv"), "labelled.batch_size": 6,
        "stages.prefix.training.max_steps": 6, "stages.prefix.training.epochs": 9, "stages.joint.training.max_steps": 6,
        "stages.joint.training.batch_size": 10, "stages.joint.training.learning_rate": 1e-3,
        "stages.prefix.training.batch_size": 10, "stages.prefix.training.learning_rate": 1e-2, "checkpoint_every": 2,
        **MODULES[module],
    })
    own = {"training.epochs", *(key for key in chosen if f"stages.joint.{key}" in chosen)}  # either stage has its own
    return {key: value for key, value in chosen.items() if key not in own}


@pytest.fixture(scope="module", params=MODULES)
def whole(place, request):
    """(folder, module) of a run that nothing stops."""
    undisturbed(place, values(place, request.param), "diffaug", name=f"whole-{request.param}")
    return place / f"whole-{request.param}", request.param


def test_the_log_tells_of_either_stage(whole):
    folder, module = whole
    lines = log_of(folder)
    terms = {line["stage"]: set(line["terms"]) for line in lines if line["kind"] == "train"}
    assert terms == {"prefix": {"nli"}, "joint": {"contrastive", "nli"} if module == "prefix" else {"contrastive"}}
    watched = [line for line in lines if line["kind"] == "dev" and "delta" in line]
    assert watched and {line["stage"] for line in watched} == {"prefix"}
    assert all(("kappa" in line) == (module == "prefix") and line["delta"] > 0 for line in watched if line["step"])
