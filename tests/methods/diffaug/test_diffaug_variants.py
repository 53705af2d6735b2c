"""DiffAug's adapters and LoRA, the vectors of its test before and after an export, and what stage 1 is watched by."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from diffaug_oracle import FIRST, LAYERS, TEMPLATES, encode, joined, oracle_of
from diffaug_small import NLI, PLAIN, TEXTS, TRIPLETS, Texts, batch_for, check, diffaug, folders, with_mask
from safetensors.torch import load_file
from shipped_recipes import one_line
from training_runs import one_thread

from stsbench.config import validate
from stsbench.encoders.load import load_encoder
from stsbench.methods.diffaug.options import DiffAugOptions
from stsbench.training.engine.selection import live_encoder
from stsbench.training.export.export import export_model

__all__ = ["folders", "one_thread"]
VARIANTS = [
    {"module": "adapter"}, {"module": "adapter", "rank": 2, "adapter_activation": "gelu"}, {"module": "lora"},
    {"module": "lora", "rank": 2, "lora_scale": 2.5},
]
ALIKE = [{"module": "adapter", "views": "same"}, {"module": "lora", "views": "same", "joint_trains": "module"}]


# --- adapters and LoRA in training ---


@pytest.mark.parametrize("family", FIRST)
@pytest.mark.parametrize("options", [VARIANTS[0], VARIANTS[3], ALIKE[1]], ids=str)
def test_stage_prefix(folders, family, options):
    _, trained = check(diffaug(folders[family], family, stage="prefix", **options), folders[family], family, NLI)
    parts = {"lora" if ".lora_" in name else name.split(".")[0] for name in trained}
    assert parts == {"classifier", "lora" if options["module"] == "lora" else "modules_of_views"}


@pytest.mark.parametrize("family", FIRST)
@pytest.mark.parametrize("options", [*VARIANTS, *ALIKE], ids=str)
def test_stage_joint(folders, family, options):
    """The template alone runs under the view's own module, too."""
    check(diffaug(folders[family], family, **options), folders[family], family, PLAIN)


@pytest.mark.parametrize("options", [VARIANTS[1], VARIANTS[2]], ids=str)
def test_triplets_with_the_cross_entropy_beside(folders, options):
    method = diffaug(folders["bert"], "bert", view="given", aux_weight=0.5, **options)
    check(method, folders["bert"], "bert", TRIPLETS, NLI)


# --- the vectors of the test ---


def vectors_of(method):
    return live_encoder(method.inference(), "live").run(with_mask(method, TEXTS)).vectors


def expected(method, folder, family):
    oracle, _ = oracle_of(method, folder, family)
    changes = oracle.changes
    both = [joined(changes)] if len(changes) == 2 else changes
    seen = {"both": both, "first": changes[:1], "second": changes[1:], "average": changes}[method.options.at_test]
    with torch.no_grad():
        return oracle.at_test(with_mask(method, TEXTS), seen).numpy()


def near(found, wanted):
    return np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()


CASES = [
    *({"at_test": at_test} for at_test in ("both", "first", "second", "average")), {"views": "same"},
    *({**variant, "at_test": at_test} for variant in VARIANTS[1::2] for at_test in ("both", "first", "second")), *ALIKE,
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_whole_texts_under_the_modules_of_the_test(folders, options):
    family = "roberta" if options.get("at_test") in ("both", "average") else "bert"
    method = diffaug(folders[family], family, dropout=0.1, **options)
    assert near(vectors_of(method), expected(method, folders[family], family))
    assert all(part.training for part in method.modules())


def test_a_full_stop_where_asked_for(folders):
    one, other = (diffaug(folders["bert"], "bert", full_stop=flag) for flag in (True, False))
    texts = ["the cat", "the cat ."]
    stopped, plain = (live_encoder(method.inference(), "live").run(texts).vectors for method in (one, other))
    assert near(stopped[1], plain[1]) and not near(stopped[0], plain[0]) and not near(plain[0], plain[1])


@pytest.mark.parametrize("options", [CASES[0], CASES[3], CASES[5], CASES[8]], ids=str)
def test_an_export_holds_what_a_test_needs_and_gives_the_same_vectors(folders, options, tmp_path):
    family = "roberta"
    method = diffaug(folders[family], family, **options).float()
    export_model(method.inference(), tmp_path / "out", card="", method="diffaug")
    loaded = load_encoder(str(tmp_path / "out"), device="cpu")
    found = loaded.run(with_mask(method, TEXTS)).vectors
    assert near(found, expected(method, folders[family], family)) and near(found, vectors_of(method))
    prompt = tmp_path / "out" / "prompt.safetensors"
    held = {name: tuple(weight.shape) for name, weight in load_file(prompt).items()} if prompt.exists() else {}
    module = options.get("module", "prefix")
    if module == "prefix":  # plain keys and values, without the network that made them
        slots = {"both": [4], "average": [2, 2]}[options["at_test"]]
        assert held == {
            f"prefix.{i}.{kind}": (LAYERS, count, 32) for i, count in enumerate(slots) for kind in ("keys", "values")
        }
    elif module == "adapter":
        assert held == {"bottlenecks.down": (1, LAYERS, 2, 32, 4), "bottlenecks.up": (1, LAYERS, 2, 4, 32)}
    else:
        assert held == {}
    names = load_file(tmp_path / "out" / "model.safetensors").keys()
    assert not [name for name in names if "lora" in name or "base_layer" in name or "prefix" in name]
    said = json.loads((tmp_path / "out" / "stsbench.json").read_text("utf-8"))
    assert said["pooler"] == "mask" and loaded.spec.template == TEMPLATES[family]


# --- what stage 1 is watched by ---


def naive_delta(first, second):
    unit = [vector / vector.norm() for vector in (*first, *second)]
    n = len(first)
    return (
        sum((u - v).norm().item() for u, v in zip(first, second, strict=True)) / n,
        sum((u - v).norm().item() for u, v in zip(unit[:n], unit[n:], strict=True)) / n,
    )


@pytest.mark.parametrize("options", [{}, {"views": "same"}, VARIANTS[0], VARIANTS[2]], ids=str)
def test_divergence_and_convergence(folders, options):
    """delta: the same text through both modules; kappa: mean key and value norms of all real tokens less the slots'."""
    folder, data = folders["bert"], {"anchor": [*PLAIN["sentence"], *NLI["anchor"]]}
    method = diffaug(folder, "bert", stage="prefix", diagnose=20, dropout=0.1, **options)
    method.prepare(Texts(folder, data))
    with torch.no_grad():
        found = method.diagnose()
    oracle, _ = oracle_of(method, folder, "bert")
    changes = [oracle.changes[0], oracle.changes[-1]]
    vectors = [[oracle.vector(text, change, 8)[0] for text in data["anchor"]] for change in changes]
    delta, unit = naive_delta(*vectors)
    assert found["delta"] == pytest.approx(delta, rel=1e-8, abs=1e-8)
    assert found["delta_normalised"] == pytest.approx(unit, rel=1e-8, abs=1e-8)
    assert (delta == 0) == (options.get("views") == "same") and found["delta_dropout"] > 0
    assert ("kappa" in found) == ("module" not in options)
    if "kappa" in found:
        assert found["kappa"] == pytest.approx(naive_kappa(oracle, changes, data["anchor"]), rel=1e-8)


def naive_kappa(oracle, changes, texts):
    """The norms of the keys and values that every layer computes of its own tokens, read off linear maps by hand."""
    before, after = oracle.parts()
    own = {(layer, kind): [] for layer in range(LAYERS) for kind in ("key", "value")}
    slots = {place: [] for place in own}
    for change in changes:
        for text in texts:
            inner = [*before, *_pieces(oracle, text), *after]
            positions = list(range(oracle.shift, oracle.shift + len(inner)))
            for layer, states in enumerate(encode(oracle.weights, inner, positions, change, every=True)[:LAYERS]):
                for kind, held in (("key", change.keys), ("value", change.values)):
                    name = f"encoder.layer.{layer}.attention.self.{kind}"
                    rows = states @ oracle.weights[f"{name}.weight"].T + oracle.weights[f"{name}.bias"]
                    own[layer, kind] += [row.norm().item() for row in rows]
                    slots[layer, kind] += [row.norm().item() for row in held[layer]]
    means = [sum(own[place]) / len(own[place]) - sum(slots[place]) / len(slots[place]) for place in own]
    return sum(means) / len(means)


def _pieces(oracle, text):
    return Texts(oracle.folder, {"anchor": [text]}).ids("anchor")[0][1:-1].tolist()


def test_nothing_is_watched_in_stage_joint_or_without_texts(folders):
    method = diffaug(folders["bert"], "bert", stage="prefix", diagnose=0)
    method.prepare(Texts(folders["bert"], PLAIN))
    assert method.diagnose() == {}
    watched = diffaug(folders["bert"], "bert", diagnose=4)
    watched.prepare(Texts(folders["bert"], PLAIN))
    assert watched.diagnose() == {}
    watched.start_stage("prefix")
    with torch.no_grad():
        assert set(watched.diagnose()) == {
            "delta", "delta_normalised", "delta_dropout", "delta_dropout_normalised", "kappa",
        }


# --- refused in one line ---


@pytest.mark.parametrize(("options", "line"), [
    ({"module": "adapter", "at_test": "average"}, "at_test average runs two prefixes one after another: with module"),
    ({"module": "lora", "clip_frozen": True}, "clip_frozen true has no effect with module lora: it goes with module prefix"),
    ({"module": "lora", "prefix_length": 4}, "prefix_length 4 has no effect with module lora: it goes with module prefix"),
    ({"rank": 8}, "rank 8 has no effect with module prefix: it goes with module adapter or lora; leave it at 4"),
    ({"module": "lora", "adapter_activation": "gelu"}, "adapter_activation gelu has no effect with module lora: it goes"),
    ({"module": "adapter", "lora_scale": 2.0}, "lora_scale 2 has no effect with module adapter: it goes with module lora"),
    ({"views": "same", "at_test": "second"}, "at_test second has no effect with views same: it goes with views different"),
    ({"denoise": False, "denoise_offset": 8}, "denoise_offset 8 has no effect with denoise false"),
    ({"denoise": False, "denoise_start": "zero"}, "denoise_start zero has no effect with denoise false"),
    ({"similarity": "dot", "temperature": 0.1}, "temperature 0.1 has no effect with similarity dot: it goes with"),
], ids=str)
def test_options_that_do_not_go_together(options, line):
    one_line(lambda: validate(DiffAugOptions, options, "recipe", "options."), f"recipe: options.{line}")


@pytest.mark.parametrize(("options", "line"), [
    ({"denoise_start": "zero"}, "positions of bert begin with 0"), ({"prefix_length": 30}, "and bert has 64"),
], ids=str)
def test_options_that_do_not_go_with_the_model(folders, options, line):
    one_line(lambda: diffaug(folders["bert"], "bert", **options), line)


def test_a_live_lora_model_is_as_it_was_after_a_test(folders):
    method = diffaug(folders["bert"], "bert", module="lora")
    batch = batch_for(method, Texts(folders["bert"], PLAIN))
    before, state = method(batch)["contrastive"].value.item(), {k: v.clone() for k, v in method.state_dict().items()}
    made = replace(method.inference())
    vectors_of(method)
    assert method(batch)["contrastive"].value.item() == before
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    assert made.model is not method.backbone.model and not [name for name in made.model.state_dict() if "lora" in name]
