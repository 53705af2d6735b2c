"""How a preset is spelled, what of it stands in a record, and what is refused in one line."""

import json

import pytest
from clirun import cli, evaluate, place, record  # noqa: F401 - fixtures
from tiny_decoders import decoder_folder

from stsbench import load_encoder
from stsbench.extensions.decoders.base import CleanUp
from stsbench.extensions.decoders.load import PRESETS, PresetPages, load_preset
from stsbench.extensions.decoders.tokenise import CLEAN_UPS

OTHER = {  # a value of a setting that is not its default
    "clean_up": "full_stop", "template": 'This says : "{}" in one word:"', "pooling": "last", "instruction": "Cluster",
    "prompt": "pretended-cot", "start": 2, "exit": 3, "token": "zero", "seed": 1, "kind": "norm", "alpha": 4.0, "at": 2,
    "wrapper": "inst", "attention": "causal", "layer": 1,
}
# what a model of four layers needs
SMALL = {"token-prepending": {"exit": 4, "layer": -2}, "contrastive": {"at": 1, "layer": -2}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return decoder_folder(tmp_path_factory.mktemp("options") / "llama")


def spelled(name, form=None, **settings):
    words = [form] if form else []
    words += [f"{key}={value}" for key, value in {**SMALL.get(name, {}), **settings}.items()]
    return f"{name}:{','.join(words)}" if words else name


def test_any_two_presets_forms_and_settings_have_two_fingerprints(folder, tmp_path):
    shots = tmp_path / "shots.tsv"
    shots.write_text("It rains.\tRain\n", "utf-8")
    asked = [spelled(name, form) for name, kind in PRESETS.items() for form in kind.forms]
    for name, kind in PRESETS.items():
        settings = {key: str(shots) if key == "demonstrations" else OTHER[key] for key in kind.Options.model_fields}
        released = "released" if name == "echo" else None  # whose instruction the first form has not
        asked += [spelled(name, released, **{key: value}) for key, value in settings.items()]
    prints = {}
    for preset in asked:
        reading = load_preset(preset).reading()
        known = json.loads(json.dumps(reading.spec_options() | {"template": reading.template, "pooler": reading.pooler}))
        prints.setdefault(json.dumps(known, sort_keys=True), []).append(preset)
    assert [presets for presets in prints.values() if len(presets) > 1] == []
    assert len(prints) == len(asked) > 50
    some = ["prompteol", "prompteol:paper", "pretended-cot", "metaeol", "echo", "weighted-mean", "llm2vec"]
    encoders = [load_encoder(str(folder), preset=preset) for preset in some]
    encoders += [load_encoder(str(folder), preset="prompteol", layer=2), load_encoder(str(folder), pooler="last"),
                 load_encoder(str(folder), pooler="last", layer=2)]
    assert len({encoder.spec.fingerprint() for encoder in encoders}) == len(encoders)


def test_what_a_preset_resolves_to_stands_in_the_spec(folder):
    spec = load_encoder(str(folder), preset="contrastive:at=1,layer=-2,kind=norm", normalize=True).spec
    assert (spec.kind, spec.pooler, spec.max_length, spec.normalize) == ("transformers", "last", 1024, True)
    irrelevant = 'The irrelevant information of this sentence : "{}" means in one word:"'
    assert spec.template == 'This sentence : "{}" means in one word:"' and spec.options == {
        "preset": "contrastive:released,kind=norm,at=1", "layer": -2, "clean_up": "prompteol",
        "contrast": {"template": irrelevant, "at": 1, "kind": "norm", "alpha": None},
    }
    assert load_preset("contrastive:paper,alpha=2.0,at=3,layer=1").spelled == "contrastive:paper,at=3"
    several = load_encoder(str(folder), preset="metaeol").spec
    assert several.template is None and len(several.options["templates"]) == 8


def test_rules_of_clean_up():
    texts = ["", "a", "a.", "a?", 'a"', "a'", 'He said "no"', "Who? Me"]
    assert [CLEAN_UPS["prompteol"](text) for text in texts] == [
        "", "a.", "a.", "a.", "a'", "a'", "He said 'no'", "Who? Me.",
    ]
    assert [CLEAN_UPS["full_stop"](text) for text in texts] == [
        "", "a.", "a.", "a?", 'a"', "a'", 'He said "no"', "Who? Me.",
    ]
    assert {*CLEAN_UPS} == {*CleanUp.__args__}


def test_the_command_line(cli, evaluate, folder):
    _, listed, _ = cli("list", "encoders")
    assert all(name in listed and kind.sentence in listed and kind.source in listed for name, kind in PRESETS.items())
    assert all(kind.source.rpartition(" ")[2] in PresetPages.page(name) for name, kind in PRESETS.items())
    _, shown, _ = cli("show", "preset", "contrastive")
    assert "# Contrastive Prompting" in shown and "- paper-knowledge: " in shown and "- alpha = 0.5" in shown
    code, _, err = evaluate(str(folder), "--preset", "pretended-cot", "--layer", "-3")
    line = next(line for line in err.splitlines() if line.startswith("encoder "))
    assert code == 0
    for part in ('template After thinking step by step , this sentence : "{}" means in one word:"', "pooler last",
                 "preset pretended-cot:released", "cleaned up by the rule prompteol", "hidden state -3, not normed"):
        assert part in line
    assert ", preset pretended-cot:released, layer -3" in cli("cache", "info")[1]
    spec = record()["encoder"]["spec"]
    assert spec["options"]["layer"] == -3 and spec["options"]["preset"] == "pretended-cot:released"
