"""Building a store: what is in it, going on after a kill at every file operation, and what it refuses to go on with."""

import io
import multiprocessing
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from toy_encoder import SPEC, Toy, vector_of

from stsbench.data.own.texts import Texts
from stsbench.encoders import load_encoder
from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.roles import Traits
from stsbench.errors import DataError, EncoderError, StsbenchError
from stsbench.extensions.devices.options import DeviceOptions
from stsbench.extensions.stores.build import build_store
from stsbench.extensions.stores.shard import MANIFEST, VECTORS, read_manifest, shard_folder
from stsbench.extensions.stores.vectors import VectorStore

LINES = ["one", "", "two words", "ünï", "one", "  padded ", "seven"]
TEXTS = [line.strip() for line in LINES]
ROWS = np.array([vector_of(text) for text in TEXTS], np.float32)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def build(source, folder, encoder=None, column=None, **settings):
    settings = {"shard_rows": 3, "log": lambda line: None, **settings}
    return build_store(encoder or Toy(), Texts(str(source), column), folder, **settings)


def content(folder):
    """File below a store -> its bytes, but for the manifest, which is checked by itself."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (MANIFEST, ".lock")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_row_i_is_line_i(source, tmp_path):
    encoder = Toy()
    store = build(source, tmp_path / "store", encoder)
    assert store.shape == (7, 3) and np.array_equal(np.concatenate(list(store.blocks(2))), ROWS)
    assert np.array_equal(store.rows([6, 0, 4]), ROWS[[6, 0, 4]]) and store.texts([5, 1]) == ["padded", ""]
    assert store.text(3) == "ünï" and store.truncated(range(7)).tolist() == [len(text) > 5 for text in TEXTS]
    assert encoder.calls == [["one", "", "two words"], ["ünï", "one", "padded"], ["seven"]]
    manifest = store.manifest
    assert [shard.rows for shard in manifest.shards] == [3, 3, 1] and manifest.total("empty") == 1
    assert manifest.input.name == "texts.txt" and manifest.input.bytes == source.stat().st_size
    assert manifest.fingerprint == SPEC.fingerprint() and store.encoder == SPEC
    with pytest.raises(IndexError, match="rows from 7 to 7"):
        store.rows([7])


def test_a_transformers_vectors_are_those_in_memory(tmp_path):
    model = tiny_models.build(tmp_path / "model")
    lines = ["the cat eats .", "a man", "the big dog runs in the park", "a man"]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    encoder = load_encoder(str(model), pooler="mean", device="cpu")
    store = build(tmp_path / "in.txt", tmp_path / "store", encoder, shard_rows=2)
    assert store.rows(range(4)) == pytest.approx(encoder.encode(lines), abs=1e-6)
    assert store.manifest.libraries.keys() - set(encoder.traits.libraries) == {"stsbench's encoding"}


def test_equal_texts_of_a_shard_are_computed_once(tmp_path):
    (tmp_path / "in.txt").write_text("same\nsame\nother\nsame\n")
    encoder = Toy()
    assert len(build(tmp_path / "in.txt", tmp_path / "store", encoder, shard_rows=4)) == 4
    assert encoder.calls == [["same", "other"]]


def test_a_stream_is_read_as_a_file_is(source, tmp_path):
    whole = build(source, tmp_path / "file")
    streamed = build_store(
        Toy(), Texts("-", stream=io.BytesIO(source.read_bytes())), tmp_path / "stream", shard_rows=3, log=lambda line: None
    )
    assert content(tmp_path / "file") == content(tmp_path / "stream")
    assert streamed.manifest.input == whole.manifest.input.model_copy(update={"name": "-"})


def before_each_operation(source, folder, kept):
    """How many file operations a build makes below `folder`; a fork makes it, and copies `folder` to kept/1, kept/2, ...
    before each: what a process that was killed then would leave."""
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return int((kept / "count").read_text())
    done, copying = 0, False

    def operation(event, arguments):
        nonlocal done, copying
        if copying or event not in ("open", "os.mkdir", "os.rename", "os.remove"):
            return
        if str(arguments[0]).startswith(str(folder)):
            done, copying = done + 1, True
            if folder.exists():
                shutil.copytree(folder, kept / str(done))
            copying = False

    try:
        sys.addaudithook(operation)
        build(source, folder, dtype="int8")
        (kept / "count").write_text(str(done))
        os._exit(0)
    except BaseException:
        os._exit(1)


def test_going_on_after_a_kill_before_every_file_operation(source, tmp_path):
    build(source, tmp_path / "whole", dtype="int8")
    expected, manifest = content(tmp_path / "whole"), read_manifest(tmp_path / "whole")
    (tmp_path / "left").mkdir()
    steps, kept = before_each_operation(source, tmp_path / "killed", tmp_path / "left"), set()
    for step in range(1, steps + 1):
        folder = tmp_path / "left" / str(step)
        if (folder / MANIFEST).exists() and not read_manifest(folder).complete:
            with pytest.raises(StsbenchError, match="not complete"):
                VectorStore(folder)
        whole = {path.name for path in folder.glob("shards/[0-9]*")}
        encoder = Toy()
        build(source, folder, encoder, dtype="int8")
        assert len(encoder.calls) == 3 - len(whole), step  # what was whole is not encoded again
        assert content(folder) == expected and read_manifest(folder) == manifest, step
        kept.add(len(whole))
        shutil.rmtree(folder)
    assert steps >= 50 and kept == {0, 1, 2, 3}


@pytest.mark.parametrize("change", ["cut", "flipped", "gone"])
def test_a_damaged_shard_is_noticed_and_encoded_again(source, tmp_path, change):
    folder = tmp_path / "store"
    build(source, folder)
    expected, path = content(folder), shard_folder(folder, 1) / VECTORS
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data[:-1] if change == "cut" else data)
    if change == "gone":
        path.unlink()
    if change != "flipped":  # to open a store compares sizes; to build it reads everything
        with pytest.raises(StsbenchError, match=r"vectors.npy.*: run the `stsbench encode` again"):
            VectorStore(folder)
    encoder, lines = Toy(), []
    build(source, folder, encoder, log=lines.append)
    assert encoder.calls == [["ünï", "one", "padded"]] and content(folder) == expected
    assert [line for line in lines if "vectors.npy" in line and line.endswith("the shard is encoded again")]


def test_a_complete_store_is_compared_and_stays(source, tmp_path):
    build(source, tmp_path / "store")
    before, encoder, lines = (tmp_path / "store" / MANIFEST).stat().st_mtime_ns, Toy(), []
    build(source, tmp_path / "store", encoder, log=lines.append, shard_rows=None)
    assert not encoder.calls and "was complete" in lines[-1]
    assert (tmp_path / "store" / MANIFEST).stat().st_mtime_ns == before


@pytest.mark.parametrize(("lines", "said"), [
    (["one", "", "TWO words", *LINES[3:]], "line 3 is another text"),
    ([*LINES, "more"], "more than 7 lines"),
    (LINES[:5], "fewer than 5 lines"),
    (LINES[:3], "it ends after 3 lines"),
])
def test_another_input_is_one_line(source, tmp_path, lines, said):
    build(source, tmp_path / "store")
    before = content(tmp_path / "store")
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with pytest.raises(DataError, match=f"made of another input than texts.txt: .*{said}; choose another --output"):
        build(source, tmp_path / "store")
    assert content(tmp_path / "store") == before


def test_another_encoder_or_setting_is_one_line(source, tmp_path, monkeypatch):
    folder = tmp_path / "store"
    build(source, folder)
    with pytest.raises(EncoderError, match=r"made by another encoder \(toy; other pooler\): choose another --output"):
        build(source, folder, Toy(replace(SPEC, pooler="cls")))
    for settings, said in (
        ({"dtype": "float16"}, "--store-dtype float32, not float16"), ({"shard_rows": 4}, "--shard-size 3, not 4"),
        ({"column": 0}, "--column None, not 0"),
    ):
        with pytest.raises(StsbenchError, match=f"made with {said}"):
            build(source, folder, **settings)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(StsbenchError, match=r"holds other things \(thesis.tex\): choose a new folder"):
        build(source, tmp_path / "other")
    with pytest.raises(EncoderError, match="a store cannot hold float8 "):
        build(source, tmp_path / "new", dtype="float8")
    assert not (tmp_path / "new").exists()
    versioned = Toy()
    versioned.traits = Traits(libraries=("numpy",))
    build(source, tmp_path / "versioned", versioned)
    monkeypatch.setattr("stsbench.encoders.cache.encode.version", lambda name: "0.1")
    with pytest.raises(EncoderError, match=r"made by other versions \(numpy .* -> 0.1\)"):
        build(source, tmp_path / "versioned", versioned)
    monkeypatch.undo()
    build(source, tmp_path / "versioned", versioned)
    monkeypatch.setattr("stsbench.encoders.cache.encode.ENCODING", "6")
    with pytest.raises(EncoderError, match=r"made by other versions \(stsbench's encoding 5 -> 6\)"):
        build(source, tmp_path / "versioned", versioned)


def test_two_processes_do_not_write_to_one_store(source, tmp_path):
    class Nested(Toy):
        def run(self, texts, progress=None):
            build(source, tmp_path / "store")

    with pytest.raises(StsbenchError, match=r"another process writes to .*store"):
        build(source, tmp_path / "store", Nested())


def test_a_text_without_a_vector_is_named_by_its_line(source, tmp_path):
    def spoil(vectors):
        vectors[vectors[:, 0] == 5] = np.nan  # "seven"
        return vectors

    lines = []
    with pytest.raises(EncoderError, match="NaN or infinity for 1 texts, the first that of line 7"):
        build(source, tmp_path / "store", Toy(change=spoil), log=lines.append)
    assert lines == [f"{tmp_path / 'store'} keeps 6 texts: the same command goes on there"]
    assert build(source, tmp_path / "store").shape == (7, 3)


@pytest.mark.parametrize(("text", "column", "said"), [
    ("a\tb\n", None, "contains a tab: choose the column of the text, e.g. --column 2"), ("", None, "contains no text"),
    ("a\tb\nc\n", 2, "texts.txt:2 has 1 column: there is no --column 2"), (b"\xff\n", None, "texts.txt:1: not valid UTF-8"),
    (b"a\nb\0\n", None, "texts.txt:2: a NUL byte"),
])
def test_what_is_not_text_is_one_line(source, tmp_path, text, column, said):
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=said):
        build(source, tmp_path / "store", column=column)


def test_columns(source, tmp_path):
    source.write_text("1\tfirst \tx\n2\tsecond\ty\n")
    assert build(source, tmp_path / "second", column=2).texts([0, 1]) == ["first", "second"]
    assert build(source, tmp_path / "whole", column=0).texts([1]) == ["2\tsecond\ty"]
    with pytest.raises(DataError, match=r"cannot read rows\.jsonl"):
        build(Path("rows.jsonl"), tmp_path / "third")


def test_encoders_that_no_store_can_hold(source, tmp_path):
    with pytest.raises(EncoderError, match="fitted on each set"):
        build(source, tmp_path / "a", load_encoder("lexical:tfidf"))
    with pytest.raises(EncoderError, match="sparse vectors, which a store cannot hold"):
        build(source, tmp_path / "b", load_encoder("lexical:token-set"))


def test_the_pace_counts_texts_and_estimates_their_number(source, tmp_path):
    paces = []
    build(source, tmp_path / "store", progress=paces.append)
    assert [pace.texts for pace in paces] == [3, 6, 7] and {pace.kept for pace in paces} == {0}
    assert paces[0].total == round(source.stat().st_size * 3 / len("one\n\ntwo words\n")) and paces[-1].total == 7
    shutil.rmtree(shard_folder(tmp_path / "store", 2))
    paces.clear()
    build(source, tmp_path / "store", progress=paces.append)
    assert [(pace.texts, pace.kept) for pace in paces] == [(3, 3), (6, 6), (7, 6)]


def test_a_store_of_two_processes_is_that_of_one(tmp_path, monkeypatch):
    (tmp_path / "mine_shared.py").write_text(
        "import numpy as np\n\n"
        "def vectors(texts):\n    return np.array([[len(t), sum(map(ord, t)) % 97, 0] for t in texts], dtype=float)\n\n"
        "vectors.fingerprint = '1'\n"
    )
    (tmp_path / "in.txt").write_text("".join(f"text {'x' * (i % 13)} {i}\n" for i in range(90)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    options = EncoderOptions(model="python:mine_shared:vectors")
    encoder = load_encoder(options.model, options)
    with DeviceOptions(processes=2).runner(encoder, options) as workers:
        two = build_store(encoder, Texts("in.txt"), tmp_path / "two", dtype="int8", shard_rows=8, runner=workers)
    one = build_store(encoder, Texts("in.txt"), tmp_path / "one", dtype="int8", shard_rows=8)
    assert one.manifest == two.manifest and len(one.manifest.shards) == 12
    assert np.array_equal(np.concatenate(list(one.blocks())), np.concatenate(list(two.blocks())))
    sys.modules.pop("mine_shared", None)
    assert not multiprocessing.active_children()
