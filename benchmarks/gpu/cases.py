"""Every method as the benchmark trains it: ten steps of sixteen rows, without dropout, of the package's sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from setting import SAMPLE

STEPS = 10
_PAIRS = {"labelled.file": str(SAMPLE / "nli_pairs.tsv")}
_TEMPLATE = 'This sentence of "{}" means [MASK].'
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # name -> method, settings
    "simcse": ("simcse", {"options.mlm_weight": 0.1}),
    "simcse triplets": ("simcse", {"options.view": "given", "data.file": str(SAMPLE / "nli_for_simcse.csv"),
                                   "data.columns": {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg"}}),
    "esimcse": ("esimcse", {}),
    "infocse": ("infocse", {}),
    "whitenedcse": ("whitenedcse", {"options.eps": 1e-5}),
    "rankcse": ("rankcse", {"options.teachers": [{"model": "minilm"}]}),
    "pcl": ("pcl", {}),
    "distil": ("distil", {"options.teachers": [{"model": "minilm"}], "backbone.layers": [0, 2, 4], "data.held_out": 0}),
    "cosent": ("cosent", {"options.format": "labelled", "data": {}, **_PAIRS}),
    "angle": ("angle", {"data": {}, **_PAIRS}),
    "sncse": ("sncse", {"options.negation": "verbs"}),
    "mlm": ("mlm", {"data.held_out": 0}),
    "diffcse": ("diffcse", {"options.generator": None}),
    "sarcse": ("sarcse", {}),
    "promptbert": ("promptbert", {}),
    "diffaug": ("diffaug", {"backbone.pooler": "mask", "options.template": _TEMPLATE, "options.diagnose": 0,
                            "options.aux_weight": 0.1, "labelled.file": str(SAMPLE / "nli_for_simcse.csv")}),
    "consert": ("consert", {"options.setting": "joint-unsup", **_PAIRS}),
    "declutr": ("declutr", {"data.lines_per_row": 8, "options.l_min": 4, "options.l_max": 20}),
    "sbert": ("sbert", {"options.objective": "nli", "data": {}, **_PAIRS}),
    "ct": ("ct", {"options.k": 1, "options.keep": "model2", "training.batch_size": 15}),
    "mirror-bert": ("mirror-bert", {"data.sample": None, "data.sample_seed": None}),
    "sg-opt": ("sg-opt", {}),
    "cmlm": ("cmlm", {"options.sentence": "same"}),
    "is-bert": ("is-bert", {}),
    "tsdae": ("tsdae", {}),
}
_RECIPES = {"declutr": "scaled"}


def recipe_of(name: str, model: str, precision: str) -> Any:
    """The recipe: a log line for every step, nothing chosen by development data."""
    from stsbench.training.recipes.recipes import load_recipe

    method, more = CASES[name]
    training = {"batch_size": 16, "max_steps": STEPS, "epochs": 50, "learning_rate": 2e-5, "warmup": 0}
    values = {
        "backbone.model": model, "backbone.dropout": 0.0, "backbone.max_length": 32, "precision": precision,
        "data.file": str(SAMPLE / "wiki_sentences.txt"), "data.drop_blank": True, "checkpoint_every": STEPS,
        **{f"training.{key}": value for key, value in training.items()}, "training.schedule": "constant",
        "training.milestones": [], "training.rates": [], "selection.by": "none", "selection.every": 1, **more,
    }
    for stage in ("prefix", "joint") if method == "diffaug" else ():
        values |= {f"stages.{stage}.training.{key}": value for key, value in training.items()}
    if values.pop("data", None) is not None:
        values = {key: value for key, value in values.items() if not key.startswith("data.")}
    return load_recipe(method, _RECIPES.get(name), [], values)


def texts() -> list[str]:
    """What the trained encoders are compared on."""
    return [line for line in Path(SAMPLE / "wiki_sentences.txt").read_text("utf-8").split("\n") if line.strip()][:64]
