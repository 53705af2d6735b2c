"""Short trainings of every method: what they train on, their settings, and a run that is broken off and resumed."""

import json

import nli_files
import pytest
import tiny_models
from accelerate import PartialState

from stsbench.training import TrainingCallback
from stsbench.training.recipes.recipes import load_recipe, sample_settings
from stsbench.training.runs import run
from stsbench.training.runs.options import TrainOptions

TEACHERS = [{"model": "model", "settings": {"pooler": "mean"}}, {"model": "lexical:token-set", "weight": 0.5}]
TEMPLATE = "the man : {} means [MASK] ."
CNN = {"kernels": [1, 3], "channels": 6}
# name -> method, settings beside those of `recipe_of`
RUNS = {
    "simcse": ("simcse", {"options.mlm_weight": 0.1, "training.accumulate": 2, "data.held_out": 5,
                          "selection.by": "held-out"}),
    "simcse-given": ("simcse", {"data.file": "triplets", "options.view": "given", "options.alpha": 2.0,
                                "options.head": "mlp"}),
    "simcse-semi": ("simcse", {"semi.procedure": "sup-joint", "labelled.file": "pairs", "labelled.batch_size": 6}),
    "simcse-lora": ("simcse", {"backbone.lora": {"rank": 2, "dropout": 0.1}, "options.mlm_weight": 0.1,
                               "adaptive_layers.per_step": 2, "training.average": {"decay": 0.5}}),
    "simcse-chunked": ("simcse", {"training.chunk": 5, "training.average": {"decay": None}, "contrast.directions": [
        "query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc"]}),
    "mlm": ("mlm", {"data.held_out": 5, "selection.by": "held-out"}),
    "esimcse": ("esimcse", {"options.queue": {"size": 9, "momentum": 0.9, "start": "random"}, "options.repeat.rate": 0.5}),
    "infocse": ("infocse", {"options.frozen_layers": 1, "options.mlm_weight": 0.1}),
    "diffcse": ("diffcse", {"options.task": "conditional_mlm", "options.generator": None, "options.sentence": "next",
                            "data.contiguous": True, "data.file": "documents"}),
    "diffcse-rtd": ("diffcse", {"options.generator": "model", "options.replacement": "sampling"}),
    "rankcse": ("rankcse", {"options.teachers": TEACHERS}),
    "distil": ("distil", {"options.teachers": TEACHERS[:1], "options.projection": "pca", "options.pca_texts": 50,
                          "backbone.layers": [1], "data.held_out": 5, "selection.by": "held-out"}),
    "cosent": ("cosent", {"data.file": "scores", "data.held_out": 5, "selection.by": "held-out", "training.accumulate": 2}),
    "angle": ("angle", {"data.file": None, "labelled.file": "pairs", "options.cosine_weight": 0.5}),
    "whitenedcse": ("whitenedcse", {"options.groups": 4, "options.eps": 0.1}), "pcl": ("pcl", {}),
    "pcl-clean": ("pcl", {"options.augmentations": ["shuffle", "delete", "repeat", "copy"], "options.reduce": "row",
                          "options.group_positive": "bce", "options.peer.mask": True, "options.peer.head": "own",
                          "training.accumulate": 2, "data.held_out": 5, "selection.by": "held-out"}),
    "simcse-wrapped": ("simcse", {"data.file": "triplets", "options.view": "given", "options.head": "none",
                                  "matryoshka": {"dims": [32, 8, 3], "weights": [1.0, 0.5, 2.0], "per_step": 2},
                                  "guide": {"model": "model", "settings": {"pooler": "mean"}, "margin": 0.05},
                                  "ranking.beta": 0.1, "gor.mean": 0.5, "ranking.teachers": TEACHERS[:1],
                                  "training.accumulate": 2}),
    "sncse": ("sncse", {"options.template": TEMPLATE, "options.second_template": "a man : {} eats [MASK] .",
                        "options.negation": "verbs", "options.weight": 0.5}),
    "sarcse": ("sarcse", {"backbone.text_cnn": {"kernels": [2, 3], "channels": 6}}),
    "promptbert": ("promptbert", {"options.template": TEMPLATE, "options.second_template": "a man : {} eats [MASK] ."}),
    "promptbert-words": ("promptbert", {"options.template": TEMPLATE, "options.second_template": None,
                                        "options.trained": "prompt", "options.head": "transform",
                                        "options.test_denoise": True}),
    "diffaug": ("diffaug", {"options.prefix_length": 2, "options.aux_weight": 0.1}),
    "diffaug-lora": ("diffaug", {"options.module": "lora", "options.aux_weight": 0.1}),
    "consert": ("consert", {"options.setting": "joint-unsup", "options.views": ["feature_cutoff", "shuffle"],
                            "labelled.file": "pairs", "options.joint_views": ["none", "adversarial"],
                            "options.joint_rates": [None, None]}),
    "sbert": ("sbert", {"options.objective": "nli-sts", "labelled.file": "pairs", "data.file": "scores"}),
    "sbert-triplet": ("sbert", {"options.objective": "triplet", "data.file": "triplets", "backbone.pooler": "max",
                                "labelled": None}),
    "ct": ("ct", {"options.k": 1}), "sg-opt": ("sg-opt", {"options.projection_width": 8}),
    "ct-in-batch": ("ct", {"options.objective": "in-batch", "options.keep": "model2"}),
    "mirror-bert": ("mirror-bert", {"backbone.pooler": "mean_padded:12", "options.drophead": 0.2, "data.sample": None,
                                    "data.sample_seed": None}),
    "declutr": ("declutr", {"data.lines_per_row": 6, "options.l_min": 2, "options.l_max": 5}),
    "cmlm": ("cmlm", {"options.vectors": 3, "options.both_directions": True, "data.file": "documents"}),
    "is-bert": ("is-bert", {"backbone.mean_cnn": CNN}),
    "tsdae": ("tsdae", {"training.accumulate": 2, "data.held_out": 5, "selection.by": "held-out"}),
}
DIFFAUG = {"backbone.pooler": "mask", "options.template": TEMPLATE, "options.diagnose": 4, "labelled.file": "triplets",
           "labelled.batch_size": 4}
RECIPES = {"declutr": "scaled", "sbert-triplet": "nli-bert-base"}


class Stopped(Exception):  # noqa: N818
    """What breaks a run off."""


def cached_place(folder):
    """`make_place`, with a cache of its own as long as it is used: for a fixture, `yield from`."""
    with pytest.MonkeyPatch.context() as patch:
        place = make_place(folder)
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        yield place


def make_place(place):
    """A folder with a tiny model of two layers, texts, labelled rows and development data of eight pairs."""
    tiny_models.masked_lm(place / "model")
    texts = tiny_models.sentences(60, longest=9)
    (place / "text.txt").write_text("\n".join(texts) + "\n", "utf-8")
    documents = ["\n".join(texts[at : at + 4]) for at in range(0, 60, 4)]
    (place / "documents.txt").write_text("\n\n".join(documents) + "\n", "utf-8")
    nli_files.triplets(place, 12).rename(place / "triplets.csv")
    nli_files.pairs(place, 12).rename(place / "pairs.tsv")
    scores = [f"{one}\t{two}\t{number % 6}" for number, (one, two) in enumerate(zip(texts[::2], texts[1::2], strict=True))]
    (place / "scores.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *scores]) + "\n", "utf-8")
    dev = place / "data" / "downstream" / "STS" / "STSBenchmark" / "sts-dev.csv"
    dev.parent.mkdir(parents=True)
    lines = [f"main\tinvented\t0\t{i}\t{i % 6}.0\t{texts[i]}\t{texts[i + 8]}" for i in range(8)]
    dev.write_text("\n".join(lines) + "\n", "utf-8")
    return place


FILES = {"triplets": "triplets.csv", "pairs": "pairs.tsv", "scores": "scores.tsv", "documents": "documents.txt",
         "text": "text.txt"}


def recipe_of(place, name, **changes):
    """A small run by RUNS, of any other method by what `train --sample` takes. Two steps a stage, a development score at
    the end of each, a checkpoint after each step, no dropout, but for `changes` (training.max_steps: of every stage)."""
    method, more = RUNS.get(name) or (name, _sample_of(name))
    training = {"batch_size": 6, "max_steps": 2, "epochs": 3, "learning_rate": 1e-3}
    training |= {key.removeprefix("training."): value for key, value in changes.items() if key.startswith("training.")}
    values = {
        "backbone.model": str(place / "model"), "backbone.dropout": 0.0, "backbone.max_length": 12, "data.file": "text",
        "selection.by": "sts-b dev", "selection.every": 2, "checkpoint_every": 1, "precision": "float32",
        **{f"training.{key}": value for key, value in training.items()}, **(DIFFAUG if method == "diffaug" else {}),
        **more, **changes}
    for stage in ("prefix", "joint") if method == "diffaug" else ():
        values |= {f"stages.{stage}.training.{key}": value for key, value in training.items()}
    for key in ("data.file", "labelled.file", "options.generator"):
        if values.get(key) is not None:
            values[key] = str(place / FILES.get(values[key], values[key]))
    for key in ("options.teachers", "ranking.teachers"):
        if key in values:
            values[key] = [{**one, "model": str(place / one["model"]) if ":" not in one["model"] else one["model"]}
                           for one in values[key]]
    if values.get("guide", {}).get("model") == "model":
        values["guide"] = {**values["guide"], "model": str(place / "model")}
    return load_recipe(method, RECIPES.get(name), [f"{key}={json.dumps(value)}" for key, value in values.items()])


def _sample_of(method):
    settings = sample_settings(load_recipe(method), (), lambda line: None)
    length = ("training.epochs", "max_steps", "backbone.model", "selection.every")
    return {"data.file": None, **{key: value for key, value in settings.items() if not key.endswith(length)}}


class StopAt(TrainingCallback):
    def __init__(self, step):
        self.left = step

    def step(self, step, loss, speed):
        self.left -= 1
        if not self.left:
            raise Stopped


def on_device(monkeypatch, pretended):
    """From here on a training computes on the pretended device."""
    make = run.make_accelerator

    def made(precision, device, trackers=(), folder=None):
        accelerator = make(precision, "cpu", trackers, folder)
        # the accelerator's own state is filled from the process's again and again
        accelerator.state.device = PartialState().device = pretended.device
        return accelerator

    monkeypatch.setattr(run, "make_accelerator", made)


def train(recipe, folder, place, **options):
    """What RUN/train.json holds, and the lines of the log."""
    callback = options.pop("callback", None)
    options = {"data_dir": place / "data", **options}
    summary = run.train(TrainOptions(recipe=recipe, output=folder, **options), lambda line: None, callback)
    return summary, [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
