"""Every shipped recipe of DiffCSE for a few steps of tiny models: its terms, its parts, its gradients."""

from __future__ import annotations

import json
import math
from functools import cache

import pytest
import tiny_models
from diffcse_oracle import DOCUMENTS, folder, generator, masked_lm, place
from method_oracle import LIMIT, MemoryRows, batch_of, total
from safetensors.torch import load_file
from shipped_recipes import one_of_each
from training_runs import one_thread

import stsbench
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.training.recipes.recipes import find_recipe, recipe_names
from stsbench.training.recipes.sections import TextCNNSettings
from stsbench.training.runs.prepare import make_backbone

__all__ = ["folder", "generator", "one_thread", "place"]

STEPS = 3
SMALL = {"num_hidden_layers": 1, "intermediate_size": 48}
MODELS = {  # the recipes' models -> the tiny ones that stand for them
    "google-bert/bert-base-uncased": SMALL,
    "google-bert/bert-large-uncased": {**SMALL, "hidden_size": 40, "num_hidden_layers": 2},
    "distilbert/distilbert-base-uncased": {**SMALL, "intermediate_size": 32},
    "google/bert_uncased_L-8_H-512_A-8": {**SMALL, "hidden_size": 24, "num_hidden_layers": 2},
    "google/bert_uncased_L-4_H-512_A-8": {**SMALL, "hidden_size": 24},
    "google/bert_uncased_L-4_H-256_A-4": {**SMALL, "hidden_size": 16},
    "google/bert_uncased_L-2_H-128_A-2": {**SMALL, "hidden_size": 8},
    "FacebookAI/roberta-base": SMALL, "distilbert/distilroberta-base": {**SMALL, "hidden_size": 24},
}
RTD = {"auxiliary.discriminator", "auxiliary.detector"}
FULL = ({"contrastive", "rtd"}, {"projector.inner", "changer.generator", *RTD})
PLAIN = ({"contrastive"}, {"projector.dense"})
ALIKE = ("bert-", "roberta-", "lambda-", "mask-", "mlm-", "generator-")
EXPECTED = {  # recipe -> its terms, its parts beside the encoder
    **{name: FULL for name in recipe_names("diffcse") if name.startswith(ALIKE)},
    "no-contrastive": ({"rtd"}, FULL[1]), "tanh": (FULL[0], {"projector.dense", "changer.generator", *RTD}),
    "no-rtd": ({"contrastive"}, {"projector.inner"}), "simcse": PLAIN,
    "next": ({"contrastive", "rtd_next"}, FULL[1]), "same-next": ({"contrastive", "rtd", "rtd_next"}, FULL[1]),
    **{f"conditional-mlm{name}": ({"contrastive", *(f"conditional_mlm{which}" for which in sentences)},
                                  {"projector.inner", "auxiliary.discriminator", "auxiliary.lm_head"})
       for name, sentences in {"": [""], "-next": ["_next"], "-same-next": ["", "_next"]}.items()},
    "corrective-lm": ({"contrastive", "corrective_lm", "copy"},
                      {"projector.inner", "changer.generator", "auxiliary.discriminator", "auxiliary.lm_head",
                       "auxiliary.gate"}),
    "insert": ({"contrastive", "rtd_insert"}, FULL[1]),
    "delete": ({"contrastive", "rtd_delete"}, {"projector.inner", *RTD}),
    "all-operators": ({"contrastive", "rtd", "rtd_insert", "rtd_delete"}, FULL[1]),
    **{f"{kind}-{operator}": ({"contrastive", *(["contrastive_augmented"] if kind == "positive" else [])},
                              {"projector.dense", *(["changer.generator"] if operator != "delete" else [])})
       for kind in ("positive", "negative") for operator in ("mlm", "insert", "delete")},
}
ACCURACIES = {"detection_accuracy", "replaced_accuracy", "original_accuracy", "replaced_share"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """name -> (the line of its log, the weights after STEPS steps, or as many as are asked for)."""
    place = tmp_path_factory.mktemp("recipes")
    lines = tiny_models.sentences(36, longest=8)
    (place / "text.txt").write_text("\n".join(lines) + "\n", "utf-8")
    documents = ["\n".join(lines[i : i + 9]) for i in range(0, 36, 9)]
    (place / "wiki_documents.txt").write_text("\n\n".join(documents) + "\n", "utf-8")

    @cache
    def tiny(name):
        if name is None:
            return None
        family = "roberta" if "roberta" in name else "bert"
        path = place / name.replace("/", "-")
        return str(masked_lm(path, family, seed=len(name), copies=True, **MODELS[name]))

    @cache
    def run(name, *more):
        recipe = find_recipe("diffcse", name)[0]
        values = {
            "backbone.model": tiny(recipe.backbone.model), "options.generator": tiny(recipe.options["generator"]),
            "data.file": str(place / ("wiki_documents.txt" if recipe.data.contiguous else "text.txt")),
            "training.batch_size": 8, "training.max_steps": STEPS, "training.epochs": 3, "selection.by": "none",
            "precision": "float32", **dict(more),
        }
        last = values["training.max_steps"]
        if recipe.backbone.text_cnn is not None:
            values["backbone.text_cnn"] = {"kernels": [2, 3], "channels": 6}
        output = place / f"{name}{'-changed' * bool(more)}"
        stsbench.train("diffcse", recipe=name, output=output, settings=values, device="cpu")
        log = [json.loads(line) for line in (output / "log.jsonl").read_text("utf-8").splitlines()]
        assert [line["kind"] for line in log] == ["start", "train", "end"] and log[1]["step"] == last
        weights = load_file(output / "checkpoints" / f"0-main-{last:08d}" / "model.safetensors")
        return {key: value for key, value in log[1].items() if key != "sentences_per_second"}, weights

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        yield run


def parts_of(weights):
    """The parts of a method, by the names of its weights, beside the encoder."""
    names = {".".join(name.split(".")[:2]) for name in weights if not name.startswith("backbone.")}
    return {name for name in names if not name.endswith(("_norm", ".found"))} - {"projector.outer"}


def test_every_recipe_is_run():
    assert set(EXPECTED) == set(recipe_names("diffcse"))


BASE = "bert-base-sts"
RUN = one_of_each("diffcse", sorted(EXPECTED), lambda name: BASE)


@pytest.mark.parametrize("name", RUN)
def test_a_few_steps(runs, name):
    line, weights = runs(name)
    terms, parts = EXPECTED[name]
    assert set(line["terms"]) == terms
    assert all(math.isfinite(value) for value in (line["loss"], line["gradient_norm"], *line["terms"].values()))
    assert line["gradient_norm"] > 0 and all(bool(value.isfinite().all()) for value in weights.values())
    # a tied output layer is the discriminator's own embedding
    assert parts_of(weights) == parts
    weight = find_recipe("diffcse", name)[0].options["rtd_weight"]
    expected = sum(value * (1 if term.startswith("contrastive") else weight) for term, value in line["terms"].items())
    assert line["loss"] == pytest.approx(expected, rel=1e-5)
    detects = any(term.startswith(("rtd", "copy")) for term in terms)
    assert (set(line) >= ACCURACIES) == detects and (detects or not set(line) & ACCURACIES)
    if name == BASE:
        return
    base, _ = runs(BASE)
    both = set(base["terms"]) & set(line["terms"])
    assert any(line["terms"][term] != base["terms"][term] for term in both) and line["loss"] != base["loss"]


@pytest.mark.parametrize("name", [name for name in RUN if not name.startswith("generator-")])  # here all have one generator
def test_every_trained_parameter_has_a_gradient(place, folder, generator, name):
    """Else several processes would wait for it in vain."""
    recipe = find_recipe("diffcse", name)[0]
    chosen = {**recipe.options, "generator": str(generator) if recipe.options["generator"] else None}
    cnn = TextCNNSettings(kernels=(2, 3), channels=6) if recipe.backbone.text_cnn else None
    backbone = recipe.backbone.model_copy(update={"model": str(folder), "text_cnn": cnn, "max_length": LIMIT})
    made = make_backbone(recipe.model_copy(update={"backbone": backbone}))
    method = DiffCSE(made, DiffCSE.Options(**chosen)).train()
    rows = MemoryRows(folder, DOCUMENTS, documents=[0] * 9).at(range(8))
    total(method(batch_of(method, rows))).backward()
    without = {key for key, weight in method.named_parameters() if weight.requires_grad and weight.grad is None}
    assert not without
    assert not any(weight.requires_grad for key, weight in method.named_parameters() if key.startswith("changer."))


def test_a_term_that_only_some_batches_have_is_averaged_over_those(runs):
    drawn = [("options.operators", ("replace", "insert", "delete")), ("options.combine", "choice")]
    more = [("training.max_steps", 10), ("training.accumulate", 2), ("training.epochs", 9), ("options.rtd_weight", 1)]
    line, _ = runs("bert-base-sts", *drawn, *more)
    assert set(line["terms"]) == {"contrastive", "rtd", "rtd_insert", "rtd_delete"}
    assert all(math.isfinite(value) for value in line["terms"].values())
    # a share of a detection loss would lie far below the others, all of which begin at about ln 2
    assert all(0.2 < line["terms"][name] < 2 for name in ("rtd", "rtd_insert", "rtd_delete"))
    assert line["loss"] < sum(line["terms"].values())
