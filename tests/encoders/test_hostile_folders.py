"""A model folder from elsewhere is data: whatever its files name, nothing of it is imported or run, nothing outside is read,
nothing hangs or fills the memory, and an error is one line that names the file.

Run folders, plans and records are in tests/cli; code that is named plainly is in test_folder_kinds.py."""

import pickle
import shutil
from pathlib import Path

import pytest
import torch
from hostile import CODE, MARKER, OUTSIDE, Evil, check, several, told
from model_folders import read, write
from spoilt_folders import CONFIG, MODEL, WEIGHT, WORDS, adapter_alone, linked, models, module, put, removed, set_in
from tiny_models import sentences
from training_runs import one_thread  # noqa: F401

from stsbench.encoders.model_folder import check_tokenizer

EVAL = "eval --model m --sample --tasks STS-B --resamples 0 --no-cache --output o --device cpu --offline"
PLAIN = f"{EVAL} --pooler mean"
FIT = f"{EVAL} --post standardise --fit-on text.txt"
TRAIN = ("train simcse --backbone m --data text.txt --sample --offline --max-steps 1 --set training.batch_size=10 "
         "--set selection.every=1 --device cpu --output run")
PICKLE = {WEIGHT: Evil()}
OWN = several(put("code.py", CODE), set_in(CONFIG, model_type="mine", auto_map__AutoModel="code.M",
                                           auto_map__AutoConfig="code.M"))


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder for copies of models, to be spoilt, beside one that nobody may read."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    outside, folder = tmp_path / OUTSIDE, tmp_path / "work"
    shutil.copytree(models() / "m", outside / "model")
    for name in (MODEL, CONFIG, WORDS):
        shutil.copy(models() / "m" / name, outside / f"secret{Path(name).suffix}")
    folder.mkdir()
    (folder / "text.txt").write_text("\n".join(sentences(40, longest=9)) + "\n", "utf-8")
    return folder


def router_of_code(m):
    config = read(m / "0_Router/router_config.json")
    config["types"] = {**config["types"], next(iter(config["types"])): "code.M"}
    write(m / "0_Router/router_config.json", config)
    for folder in (m, m / "0_Router"):
        (folder / "code.py").write_text(CODE, "utf-8")


# name: how it is spoilt; what the error says, None where it may do without one; which model; how it is read
VARIANTS = {
    "auto_map of its own": (OWN, "--trust-remote-code", "m", TRAIN),
    "auto_map elsewhere": (several(put("code.py", CODE), set_in(
        CONFIG, model_type="mine", auto_map={"AutoModel": "other/repo--code.M"})), "--trust-remote-code", "m", EVAL),
    "module of another library": (module(1, type="torch.hub.load"), "", "library", EVAL),
    "dense's activation in torch": (set_in("2_Dense/config.json", activation_function="torch.os.abort"), "", "library",
                                    EVAL),
    "pickled weights": (several(removed(MODEL), put("pytorch_model.bin", pickle.dumps(PICKLE))),
                        "pytorch_model.bin|weights", "m", EVAL),
    "zipped pickle": (several(removed(MODEL), lambda m: torch.save(PICKLE, m / "pytorch_model.bin")),
                      "pytorch_model.bin|[Ww]eights", "m", TRAIN),
    "pickled adapter": (several(removed("adapter_model.safetensors"), put("adapter_model.bin", pickle.dumps(Evil()))),
                        "", "adapted", PLAIN),
    "module outside": (module(1, path=f"../{OUTSIDE}/model"), "leads out", "m", FIT),
    "class of a table's tokenizer": (several(
        set_in("0_WordEmbeddings/wordembedding_config.json", tokenizer_class="code.M"), put("code.py", CODE),
        put("0_WordEmbeddings/code.py", CODE)), "code.M", "words", EVAL),
    "module in a router": (router_of_code, "code.M", "router", EVAL),
    "code of an adapter's base": (several(adapter_alone, lambda m: OWN(m.with_name("base"))),
                                  "--trust-remote-code|code.py", "adapted", PLAIN),
    "weights a pipe": (linked("model.safetensors", "pipe"), "", "m", EVAL),
    "config without an end": (linked(CONFIG, "/dev/zero"), "", "m", EVAL),
    "notes without an end, in a circle": (
        several(linked("README.md", "/dev/zero"), lambda m: (m / "again").symlink_to(m)), None, "m", EVAL),
    "a pattern without end": (several(
        set_in(WORDS, normalizer={"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": "z"}),
        lambda m: (m.parent / "text.txt").write_text("x" * 60 + "\n", "utf-8")), "tokenizer of m cannot read", "m", FIT),
    "adapter's auto_mapping": (several(put("code.py", CODE), set_in("adapter_config.json", auto_mapping={
        "base_model_class": "M", "parent_library": "code"})), None, "adapted", PLAIN),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_model_folder_names_is_data(work, name):
    spoil, line, model, words = VARIANTS[name]
    shutil.copytree(models() / model, work / "m")
    check(work, lambda work: spoil(work / "m"), [words], line)


def test_the_watch_sees_a_folder_s_code(work):
    """Without which the table above would prove nothing."""
    shutil.copytree(models() / "m", work / "m")
    OWN(work / "m")
    assert MARKER in told([*PLAIN.split(), "--trust-remote-code"], work).ran


MARKS = "\u2026\u2025\u22ef\ufe19\u0eaf\u0e2f\u1801\u2e31"


@pytest.mark.parametrize("steps", [
    [(mark, f" {mark} ") for mark in MARKS],  # none finds what another wrote
    [(mark, "..") for mark in MARKS] + [(".", "aa"), ("a", "bbb")],
    [({"Regex": "|".join(f"q{i}q" for i in range(400))}, "q")]])
def test_only_replacements_that_find_what_others_wrote_make_a_text_long(tmp_path, steps):
    """Such ones are in tests/refusals/model-folders.yaml."""
    normalizers = [{"type": "Replace", "pattern": old if isinstance(old, dict) else {"String": old}, "content": new}
                   for old, new in steps]
    write(tmp_path / WORDS, {"normalizer": {"type": "Sequence", "normalizers": normalizers}})
    check_tokenizer(tmp_path / WORDS)
