"""How a preset is spelled, what of it stands in a record, and what is refused in one line."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from clirun import cli, evaluate, place, record  # noqa: F401 - fixtures
from tiny_decoders import decoder_folder
from tiny_models import add_modules, build

from stsbench import load_encoder
from stsbench.encoders.options import EncoderOptions
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.decoders.base import CleanUp
from stsbench.extensions.decoders.load import PRESETS, PresetPages, load_preset
from stsbench.extensions.decoders.tokenise import CLEAN_UPS
from stsbench.training.export.fitted import fit_model

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
    assert asdict(spec) | {"weights": "", "name": ""} == {
        "name": "", "kind": "transformers", "weights": "", "tokenizer": "", "pooler": "last", "prefix": None,
        "template": 'This sentence : "{}" means in one word:"', "max_length": 1024, "dtype": "float32", "normalize": True,
        "post": None, "fitted_on": None, "options": {
            "preset": "contrastive:released,kind=norm,at=1", "layer": -2, "clean_up": "prompteol",
            "contrast": {
                "template": 'The irrelevant information of this sentence : "{}" means in one word:"', "at": 1,
                "kind": "norm", "alpha": None,
            },
        },
    }
    assert load_preset("contrastive:paper,alpha=2.0,at=3,layer=1").spelled == "contrastive:paper,at=3"
    several = load_encoder(str(folder), preset="metaeol").spec
    assert several.template is None and len(several.options["templates"]) == 8


def test_layer_takes_the_place_of_the_preset_s(folder):
    assert load_encoder(str(folder), preset="knowledge").spec.options["layer"] == -2
    asked = load_encoder(str(folder), preset="knowledge", layer=3)
    assert asked.spec == load_encoder(str(folder), preset="knowledge:layer=3").spec and asked.spec.options["layer"] == 3


def test_rules_of_clean_up():
    texts = ["", "a", "a.", "a?", 'a"', "a'", 'He said "no"', "Who? Me"]
    assert [CLEAN_UPS["prompteol"](text) for text in texts] == [
        "", "a.", "a.", "a.", "a'", "a'", "He said 'no'", "Who? Me.",
    ]
    assert [CLEAN_UPS["full_stop"](text) for text in texts] == [
        "", "a.", "a.", "a?", 'a"', "a'", 'He said "no"', "Who? Me.",
    ]
    assert {*CLEAN_UPS} == {*CleanUp.__args__}


@pytest.mark.parametrize(("options", "reason"), [
    ({"preset": "prompteoll"}, "unknown preset 'prompteoll'; did you mean prompteol?"),
    ({"preset": "prompteol:relased"}, "--preset prompteol: unknown form 'relased'; did you mean released?"),
    ({"preset": "prompteol:layers=2"}, "--preset prompteol: no setting 'layers'; did you mean layer?"),
    ({"preset": "prompteol:layer=two"}, "--preset prompteol"), ({"preset": "prompteol:paper,released"}, "write NAME"),
    ({"preset": "prompteol:"}, "write NAME"), ({"preset": "prompteol:layer=1,layer=2"}, "each setting once"),
    ({"preset": "prompteol:template=A {} and {}"}, "must hold {} exactly once"),
    ({"preset": "prompteol", "template": "{}"}, "--preset and --template exclude each other: the preset decides it"),
    ({"preset": "prompteol", "pooler": "mean"}, "--preset and --pooler exclude each other"),
    ({"preset": "prompteol", "prompt": "query: "}, "--preset prompteol and --prompt query:  exclude each other"),
    ({"preset": "prompteol", "full_stop": True}, "--preset and --full-stop exclude each other"),
    ({"preset": "prompteol", "layer": 5}, "layer 5: ... has 4 layers, so 0 (the embeddings) to 4, or -1 to -5"),
    ({"preset": "token-prepending"}, "released: layer 27: ... has 4 layers"),
    ({"preset": "contrastive:layer=1"}, "at=4: ... has 4 layers"),
    ({"preset": "token-prepending:layer=1"}, "start=1, exit=7: ... has 4 layers"),
    ({"preset": "prompteol", "max_length": 5}, "--max-length 5 leaves no token for the sentence"),
    ({"preset": "prompteol:demonstrations=nowhere.tsv"}, "cannot read nowhere.tsv"),
])
def test_what_cannot_be_meant_is_one_line(folder, options, reason):
    with pytest.raises(StsbenchError) as caught:
        load_encoder(str(folder), **options)
    assert all(part in str(caught.value) for part in reason.split(" ... ")) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("content", "reason"), [("", "holds no demonstration"), ("It rains.", ":1: a demonstration is"),
                                                 ("A.\tB\nC\tD\tE\n", ":2: a demonstration is")])
def test_a_broken_file_of_demonstrations(folder, tmp_path, content, reason):
    (tmp_path / "shots.tsv").write_text(content, "utf-8")
    with pytest.raises(EncoderError, match=f"shots.tsv.*{reason}|shots.tsv{reason}"):
        load_encoder(str(folder), preset=f"prompteol:demonstrations={tmp_path / 'shots.tsv'}")


def test_a_model_that_reads_both_ways_is_refused(tmp_path):
    bert = build(tmp_path / "bert", "bert")
    with pytest.raises(EncoderError, match="is no causal model: a BertModel reads what follows, too"):
        load_encoder(str(bert), preset="weighted-mean").encode("A cat")
    with pytest.raises(EncoderError, match="--preset does not apply to lexical:token-set"):
        load_encoder("lexical:token-set", preset="prompteol")


def test_every_preset_has_a_page_that_names_its_source():
    for name, kind in PRESETS.items():
        text = PresetPages.page(name)
        assert text.startswith("# ") and kind.source.rpartition(" ")[2] in text, name
        assert kind.sentence and "\n" not in kind.sentence and not kind.sentence.endswith(".")


def test_the_command_line(cli, evaluate, folder):
    _, listed, _ = cli("list", "encoders")
    assert all(name in listed and kind.sentence in listed and kind.source in listed for name, kind in PRESETS.items())
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


def test_no_folder_can_hold_one(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("A cat sleeps.\nIt rains.\n", "utf-8")
    with pytest.raises(StsbenchError, match="with --preset cannot be written"):
        fit_model(str(folder), EncoderOptions(preset="prompteol"), "standardise", tmp_path / "texts.txt", tmp_path / "out",
                  log=print)


def test_what_a_folder_stores_is_set_aside_with_a_note(tmp_path):
    folder = decoder_folder(tmp_path / "llama")
    add_modules(folder, {"pooling_mode": "mean"}, extra=("LayerNorm",))
    (folder / "2_LayerNorm").mkdir()
    (folder / "2_LayerNorm/config.json").write_text('{"dimension": 32}')
    for option in ({"preset": "weighted-mean"}, {"pooler": "mean"}):
        said = f"--{next(iter(option))} sets the modules of {folder} aside"
        assert any(note.startswith(said) for note in load_encoder(str(folder), **option).notes)
