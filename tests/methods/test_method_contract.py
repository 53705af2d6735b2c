"""What every method keeps, a plug-in's as well: a short run, resumed, exported, in two processes and on another device.

A method that is installed beside those here is tested by what `stsbench train METHOD --sample` takes, as the one of
docs/how-to/adding-a-method.md is."""

import json
import math
import shutil
import signal

import howto_package
import numpy as np
import pytest
from disturbances import Meddling, disturbed
from method_options import effect, others
from method_refusals import roles
from method_runs import RUNS, StopAt, Stopped, make_place, on_device, recipe_of, train
from pretend_device import pretend_device
from sentence_transformers import SentenceTransformer
from shipped_recipes import METHODS
from training_runs import log_of, weights_of
from two_processes import check_two_are_one, train_each

from stsbench import registry
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.training.engine.selection import live_encoder
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.runs.finish import load_trained

INSTALLED = sorted({*METHODS, "plain-sbert"} - {method for method, _ in RUNS.values()})  # beside those here
LONGER = {"training.max_steps": 3, "training.epochs": 9, "checkpoint_every": 2, "training.average": {"decay": 0.5}}
DROPOUT = {"backbone.dropout": 0.1}
# Their terms are those of their own tests, and they have no state that another run of the method has not.
VARIANTS = {"simcse", "simcse-given", "simcse-lora", "diffaug", "sbert-triplet", "promptbert", "ct-in-batch", "pcl",
            "diffcse"}
# What is made before a stage or between two of its steps: a classifier, components, counts of the text and a mean of the
# weights, the encoder that is kept. What stands in a method's state dictionary: test_terms.py.
RESUMED = ["simcse-semi", "distil", "sarcse", "ct"]
# A name for each kind of encoder that a method exports: layers cut off, a pooler of its own weights or length or of several
# layers, the one of two that is kept, with a masked LM, a prompt, learned words, merged layers behind a prefix.
EXPORTED = ["distil", "is-bert", "mirror-bert", "consert", "ct", "mlm", "sncse", "promptbert-words", "diffaug-lora",
            *INSTALLED]
HELD_OUT = [name for name, (_, settings) in RUNS.items() if "selection.by" in settings]
# What a training of two processes has beside the gradients of test_terms.py: stages, labelled rows, chunks, teachers, a
# queue, groups of rows, several passes a step.
TOGETHER = ["simcse-semi", "simcse-chunked", "simcse-wrapped", "esimcse", "diffcse-rtd", "ct"]
STAGES = {  # name -> stage -> the terms of its loss
    "simcse-semi": {"sup": {"nli"}, "main": {"contrastive", "nli"}}, "sbert": {"nli": {"nli"}, "sts": {"sts"}},
    "diffaug-lora": {"prefix": {"nli"}, "joint": {"contrastive", "nli"}},
    "consert": {"joint": {"contrastive", "nli"}, "unsup": {"contrastive"}}}
TEXTS = ["cat", "the man runs .", "a [MASK] dog with a guitar", "blue " * 30]
STATISTICS = [f"projector.{norm}_norm.running_{kind}" for norm in ("inner", "outer") for kind in ("mean", "var")]
# Of two processes each counts its own tokens and learns its own statistics.
ITS_OWN = {"diffcse-rtd": ("auxiliary.found", *STATISTICS)}
STILL = {"diffcse-rtd": {"options.generator_mode": "eval", "options.replacement": "argmax",
                         "options.temperature": 0.5, "training.epsilon": 1e-3},  # or rounding is blown up
         "ct": {"options.keep": "model1"}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        place = make_place(tmp_path_factory.mktemp("contract"))
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        howto_package.install(place / "site")
        patch.syspath_prepend(str(place / "site"))
        registry._points.cache_clear()
        yield place
    registry._points.cache_clear()


@pytest.fixture(scope="module")
def whole(place, request):
    """name -> the folder of a run that nobody disturbed, with dropout but where `both` has one."""
    folders = {}

    def run(name):
        if name in TOGETHER and name not in RESUMED:
            return request.getfixturevalue("both")[name][0]
        if name not in folders:
            folders[name] = place / f"whole-{name}"
            changes = LONGER if name in RESUMED else {"training.max_steps": 1}
            changes = changes if name in [*RESUMED, *HELD_OUT] else {**changes, "selection.by": "none"}
            train(recipe_of(place, name, **changes, **DROPOUT), folders[name], place)
        return folders[name]

    return run


@pytest.mark.parametrize(("method", "columns", "used", "options"), [
    ("simcse", "label sentence", "sentence", {}), ("promptbert", "positive anchor", "anchor positive", {"view": "given"}),
    ("simcse", "negative2 negative label anchor positive", "anchor positive negative negative2", {"view": "given"}),
    ("sarcse", "negative positive anchor", "anchor positive negative", {"view": "given"}),
    ("mirror-bert", "sentence", "sentence", {}), ("mirror-bert", "anchor positive negative", "anchor positive", {}),
    ("mlm", "label sentence", "sentence", {}), ("mlm", "positive anchor", "anchor", {})])
def test_of_the_data_s_columns_those_that_the_loss_compares_are_used_in_its_order(method, columns, used, options):
    """What is refused: tests/refusals/method-options.yaml."""
    assert roles(method, *columns.split(), **options) == tuple(used.split())


@pytest.mark.parametrize("name", [name for name in [*RUNS, *INSTALLED] if name not in VARIANTS])
def test_a_run_trains_every_stage_by_finite_losses(place, whole, name):
    logged = {}
    for line in log_of(whole(name)):
        if line["kind"] == "train":
            logged.setdefault(line["stage"], set()).update(line["terms"])
            assert all(map(math.isfinite, (line["loss"], *line["terms"].values()))) and line["gradient_norm"] > 0
    assert list(logged) == list(load_plan(recipe_of(place, name)).stages)
    assert name not in STAGES or logged == STAGES[name]


def test_the_better_of_two_encoders_is_kept_at_each_evaluation(whole):
    run = whole("ct")
    summary = json.loads((run / "train.json").read_text("utf-8"))
    lines = [line for line in log_of(run) if line["kind"] == "dev"]
    assert [line["step"] for line in lines] == [0, 2, 3]
    for line in lines:
        assert set(line["encoders"]) == {"model1", "model2"}
        assert line["score"] == max(line["encoders"].values()) == line["encoders"][line["encoder"]]
    assert lines[0]["encoders"]["model1"] == lines[0]["encoders"]["model2"] and lines[0]["encoder"] == "model2"
    assert lines[-1]["encoders"]["model1"] != lines[-1]["encoders"]["model2"]
    best = max(lines[1:], key=lambda line: line["score"])
    assert (summary["best"]["step"], summary["best"]["score"]) == (best["step"], best["score"])
    assert summary["encoder"] == best["encoder"] and summary["after"] == lines[-1]["score"]
    assert int(load_trained(run, "cpu").kept) == int(best["encoder"][-1])
    pytest.importorskip("stsbench.extensions.publish")  # which writes the card
    assert f"of {best['encoder']} of step {best['step']}" in (run / "best" / "README.md").read_text("utf-8")


class Breaking(Meddling):
    """Interrupts the process behind the first step, or breaks the run off at a line of its log."""

    def __init__(self, encoder, lines=None):
        super().__init__(encoder)
        self.left = lines

    def doing(self, step, what=""):
        super().doing(step, what)
        if self.left is None and step == 1:
            signal.raise_signal(signal.SIGINT)

    def step(self, step, loss, speed):
        if self.left is not None:
            self.left -= 1
            if not self.left:
                raise Stopped


@pytest.mark.parametrize("name", RESUMED)
def test_broken_off_in_every_stage_and_resumed_in_a_program_that_meddles_is_the_same_run(place, whole, tmp_path, name):
    """At first between two lines of the log, in later stages at their last step: it is done again from the checkpoint on."""
    recipe, run = recipe_of(place, name, **LONGER, **DROPOUT), tmp_path / "run"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with disturbed(load_encoder(str(place / "model"), pooler="mean", device="cpu")) as meddling:
        with pytest.raises(KeyboardInterrupt):
            train(recipe, run, place, callback=Breaking(meddling.encoder))
        signal.signal(signal.SIGINT, before)
        assert list(run.glob("checkpoints/0-*-00000001"))
        for number in range(1, len(load_plan(recipe).stages)):
            with pytest.raises(Stopped):
                train(recipe, run, place, resume=True, callback=Breaking(meddling.encoder, 4 if number == 1 else 3))
        train(recipe, run, place, resume=True, callback=meddling)
    assert weights_of(run) == weights_of(whole(name))
    assert log_of(run) == log_of(whole(name))


@pytest.mark.parametrize("name", EXPORTED)
def test_the_export_gives_every_reader_the_vectors_of_the_run(whole, name):
    folder = whole(name)
    vectors = live_encoder(load_trained(folder, device="cpu").inference(), "live").encode(TEXTS)
    assert np.abs(load_encoder(str(folder), device="cpu").encode(TEXTS) - vectors).max() < 1e-5
    if not (folder / "best" / "stsbench_prompt.json").exists():  # a prompt of learned vectors or words is ours alone
        library = SentenceTransformer(str(folder / "best"), device="cpu", trust_remote_code=True)
        assert np.abs(library.encode(TEXTS) - vectors).max() < 1e-5


@pytest.mark.parametrize("method", INSTALLED)
def test_every_option_has_an_effect(place, tmp_path, method):
    """On the loss of the first batch, its gradients, the rates or the tested encoder. Those here: test_terms.py."""
    start, idle = effect(place, tmp_path / "run", method, {}), []
    for option, values in others(method, recipe_of(place, method).options).items():
        told = (effect(place, tmp_path / "run", method, {f"options.{option}": value}) for value in values)
        if not any(isinstance(changed, str) and changed != start for changed in told):  # the first that has one will do
            idle.append(option)
    assert isinstance(start, str) and not idle


# name -> the setting that names a model, which a run reads beside its backbone; other methods' `inputs`: their own tests
READ = {"diffcse-rtd": "options.generator", "simcse-wrapped": "guide.model"}


@pytest.mark.parametrize("name", READ)
def test_a_model_that_has_changed_since_is_no_resumption(place, tmp_path, name):
    """The path is the recipe's, and the weights are others."""
    other = shutil.copytree(place / "model", tmp_path / "other")
    file, recipe = other / "model.safetensors", recipe_of(place, name, **{READ[name]: str(other)})
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", place, callback=StopAt(2))
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.write_bytes(changed)
    with pytest.raises(StsbenchError, match="is not what"):
        train(recipe, tmp_path / "run", place, resume=True)


@pytest.fixture(scope="module")
def both(place):
    """name -> the folders of a run by one process and of the same by two, which share seven rows as four and three."""
    changes = {"backbone.dropout": 0.0, "selection.by": "none", "data.held_out": 0, "training.max_steps": 2,
               "training.epsilon": 1e-2, "training.gather": "exact"}
    recipes = {}
    for name in TOGETHER:
        rows = {} if name == "ct" else {"training.batch_size": 7}
        recipes[name] = recipe_of(place, name, **{**changes, **rows, **STILL.get(name, {})})
        train(recipes[name], place / f"alone-{name}", place)
    train_each({name: (recipe, place / f"both-{name}") for name, recipe in recipes.items()}, place / "data")
    return {name: (place / f"alone-{name}", place / f"both-{name}") for name in TOGETHER}


@pytest.mark.parametrize("name", TOGETHER)
def test_two_processes_train_what_one_trains(place, both, name):
    check_two_are_one(*both[name], place / "model", ITS_OWN.get(name, ()))


def test_a_run_on_a_device_that_refuses_the_cpu_s_tensors(place, tmp_path, monkeypatch):
    """Broken off and resumed: the state of its optimiser and its own go back to the device. Each method's loss there:
    test_terms.py."""
    recipe = recipe_of(place, "sarcse")
    with pretend_device() as pretended:
        on_device(monkeypatch, pretended)
        with pytest.raises(Stopped):
            train(recipe, tmp_path / "run", place, callback=StopAt(2))
        summary, log = train(recipe, tmp_path / "run", place, resume=True)
    assert all(steps == 2 for steps in summary["stages"].values())
    losses = [line["loss"] for line in log if line["kind"] == "train"]
    assert len(losses) == 2 * len(summary["stages"]) and np.isfinite(losses).all()
    vectors = live_encoder(load_trained(tmp_path / "run", device="cpu").inference(), "live").encode(TEXTS)
    assert np.abs(load_encoder(str(tmp_path / "run"), device="cpu").encode(TEXTS) - vectors).max() < 1e-5
