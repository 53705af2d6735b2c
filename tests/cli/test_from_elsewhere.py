"""A folder from elsewhere is data: nothing that it names is imported or run, nothing outside is read, nothing hangs or
fills the memory, and an error is one line. Models are in tests/encoders, archives in tests/data."""

import json
import os
import pickle
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path

import hostile
import pytest
import tiny_models
import yaml
from run_edits import edit
from training_runs import one_thread  # noqa: F401

from stsbench.evaluation.run_file import RUN

EVAL = "eval --model run --sample --tasks STS-B --resamples 0 --no-cache --output o"
RESUME = "train simcse --resume --output run --offline --sample --device cpu"
FROM = "train simcse --from run --stage 1 --output o --offline --sample --device cpu"
TRAIN = "train simcse --recipe run/recipe.yaml --offline --sample --device cpu --output o"
SHOW = "show recipe run/recipe.yaml"
TOKENS = "plot token-loss run --text hello --output p.png"
REPRODUCE = "reproduce simcse:5 --runs ."
SCORE, COMPARE = "score measured", "compare measured other"
ADD = "leaderboard add measured --entry x --board board --method M --backbone B --setting unsup"
VECTORS = "eval --model vectors:v.npz --sample --tasks STS-B --resamples 0 --output o"
TOUCH, NAMED = f"os.system [touch {hostile.MARKER}]", f"method: !!python/name:os.system\npath: {hostile.SECRET}.txt\n"
WORDS = "eval --model words:w.txt --sample --tasks STS-B --resamples 0 --output o"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A trained run, a measured one and another, made by the commands."""
    root = tmp_path_factory.mktemp("base")
    folder = root / "work"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("STSBENCH_CACHE", str(root / "cache"))
        tiny_models.build(Path("tiny"), pooler=False)
        Path("text.txt").write_text("\n".join(tiny_models.sentences(40, longest=9)) + "\n", "utf-8")
        Path("m.py").write_text(hostile.CODE, "utf-8")
        for words in (
            "train simcse --backbone tiny --data text.txt --sample --offline --max-steps 2 --set training.batch_size=10 "
            "--set selection.every=1 --device cpu --dtype float32 --output run",
            "eval --model lexical:tfidf --sample --tasks STS-B,STS12 --resamples 0 --output measured",
            "eval --model lexical:token-set --sample --tasks STS-B --resamples 0 --output other"):
            done = hostile.told(words.split(), folder)
            assert done.code == 0 and not done.ran and not done.read, (words, done)
    return root


@pytest.fixture
def work(base, tmp_path, monkeypatch):
    """A copy of these, to be spoilt, beside a folder that nobody may read."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    hostile.forbidden(tmp_path)
    return Path(shutil.copytree(base / "work", tmp_path / "work"))


@hostile.spoils
def recipe(work, **values):
    path = work / "run" / "recipe.yaml"
    stored = yaml.safe_load(path.read_text("utf-8"))
    hostile.assign(stored, values)
    path.write_text(yaml.safe_dump(stored), "utf-8")


@hostile.spoils
def in_json(work, pattern, **values):
    path = next(iter(sorted(work.glob(pattern))))
    stored = json.loads(path.read_text("utf-8"))
    hostile.assign(stored, values)
    path.write_text(json.dumps(stored), "utf-8")


@hostile.spoils
def record(work, **values):
    def change(row):
        hostile.assign(row.record, values)
        with suppress(ValueError, KeyError):  # one that is no record at all keeps its name
            row.renamed()

    edit(work / "measured", change)


@hostile.spoils
def linked(work, name, target):
    path = next(iter(sorted(work.glob(name))), work / name)
    path.unlink(missing_ok=True)
    os.mkfifo(path) if target == "pipe" else path.symlink_to(target)


def header(shape):
    """An array file of this shape, without its numbers."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + (len(text) + 1).to_bytes(2, "little") + text + b"\n"


@hostile.spoils
def vectors(work, **members):
    with zipfile.ZipFile(work / "v.npz", "w", zipfile.ZIP_DEFLATED) as stream:
        for name, content in members.items():
            stream.writestr(f"{name}.npy", content)


def nothing(work):
    """The folder as it is."""


VARIANTS = {
    # run folders
    "method": (recipe(method=hostile.METHODS[0]), EVAL, RESUME, FROM, TOKENS, SHOW, REPRODUCE),
    "method outside": (recipe(method=hostile.METHODS[-1]), RESUME),
    "extends outside": (recipe(extends=f"../{hostile.SECRET}.yaml"), EVAL),
    "recipe bomb": (hostile.written("run/recipe.yaml", hostile.BOMB), EVAL),
    "recipe's tag": (hostile.written("run/recipe.yaml", f"method: !!python/object/apply:{TOUCH}\n"), SHOW),
    "recipe without an end": (linked("run/recipe.yaml", "/dev/zero"), SHOW),
    "train.json of other things": (in_json("run/train.json", data=3, stages=[], best="x"), EVAL),
    "begun.json deep": (hostile.written("run/begun.json", hostile.DEEP), RESUME),
    "position outside": (hostile.several(
        in_json("run/checkpoints/*/position.json", files={f"../../../{hostile.SECRET}.txt": "0"}),
        lambda work: (work / "run" / "train.json").unlink()), RESUME),
    # recipes: sizes
    "steps": (recipe(training__max_steps=10**15, training__epochs=1e6), TRAIN),
    "channels": (recipe(backbone__pooler="text_cnn", backbone__text_cnn={"channels": 10**7}), TRAIN),
    "rows": (recipe(data__held_out=10**12), TRAIN),
    "text without an end": (recipe(data__file="/dev/zero"), TRAIN),
    "backbone of code": (recipe(backbone__model="python:m:call"), TRAIN),
    "seeds": (nothing, "train simcse --backbone tiny --seeds 1000000000"),
    # records and observations
    "protocol": (record(protocol__name="m.py:M"), SCORE),
    "spec": (record(encoder__spec__name="python:m:call"), SCORE),
    "record's recipe": (record(provenance__recipe="m.py:M/run/recipe.yaml"), REPRODUCE),
    "shared outside": (record(observations__shared={"file": f"../{hostile.SECRET}.txt", "sha256": "0" * 64}), COMPARE),
    "data outside": (record(data__id=f"../{hostile.SECRET}.txt"), ADD),
    "run without an end": (linked(f"measured/{RUN}", "/dev/zero"), SCORE),
    "run a pipe": (linked(f"measured/{RUN}", "pipe"), SCORE),
    # boards
    "entry of code": (hostile.written("board/measured/x/entry.yaml", NAMED), "leaderboard build --board board --output b"),
    # vectors
    "vectors shape": (vectors(texts=header((1,)), vectors=header((10**12, 10**6))), VECTORS),
    "vectors pickled": (hostile.written("v.npz", pickle.dumps(hostile.Evil())), VECTORS),
    "words wide": (hostile.written("w.txt", "5 1000000000000\na 1 2\n"), WORDS),
    "words in a later line": (hostile.written("w.txt", "a 1 2\nb " + "1 " * 3_000_000), WORDS),
    "callable outside": (nothing, "eval --model python:os --sample --output o")}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_folder_names_is_data(work, name):
    spoil, *commands = VARIANTS[name]
    hostile.check(work, spoil, commands)


def test_the_watch_sees_code_files_outside_and_processes(work):
    """Without which the table above would prove nothing."""
    words = ["eval", "--model", "python:m:call", "--sample", "--tasks", "STS-B", "--output", "o"]
    assert hostile.MARKER in hostile.told(words, work).ran
    seen = hostile.told(["show", "recipe", f"{hostile.SECRET}.yaml", "--method", "simcse"], work)
    assert seen.read == (str(work.parent / hostile.OUTSIDE / "secret.yaml"),)
