"""Building a store: what is in it and in which numbers, going on after a kill anywhere, and what is refused. Reading one:
vectors:DIR, neighbours and fitting give what the same vectors in memory give."""

import os
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from clirun import contents, place  # noqa: F401 - a fixture
from toy_encoder import SPEC, Toy, vector_of
from workers import forks  # noqa: F401 - a fixture

from stsbench.data.own.texts import Texts
from stsbench.encoders.base import Encoder, EncoderOptions, EncoderSpec
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed, fitted_on_data
from stsbench.encoders.traits import Traits
from stsbench.errors import DataError, EncoderError, StsbenchError
from stsbench.extensions.devices.options import DeviceOptions
from stsbench.extensions.stores.build import build_store
from stsbench.extensions.stores.search import check_same_encoder, neighbours_in
from stsbench.extensions.stores.shard import MANIFEST, VECTORS, is_store, read_manifest, shard_folder
from stsbench.extensions.stores.vectors import StoredVectorSource, VectorStore

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
    encoder, paces, lines = Toy(), [], []
    store = build(source, tmp_path / "store", encoder, progress=paces.append)
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
    # The pace counts texts and estimates their number.
    assert [pace.texts for pace in paces] == [3, 6, 7] and {pace.kept for pace in paces} == {0}
    assert paces[0].total == round(source.stat().st_size * 3 / len("one\n\ntwo words\n")) and paces[-1].total == 7
    # A complete store is compared and stays; of a shard equal texts are encoded once.
    before, encoder = (tmp_path / "store" / MANIFEST).stat().st_mtime_ns, Toy()
    build(source, tmp_path / "store", encoder, log=lines.append, shard_rows=None)
    assert not encoder.calls and "was complete" in lines[-1]
    assert (tmp_path / "store" / MANIFEST).stat().st_mtime_ns == before
    assert len(build(source, tmp_path / "whole", encoder, shard_rows=7)) == 7
    assert encoder.calls == [["one", "", "two words", "ünï", "padded", "seven"]]
    shutil.rmtree(shard_folder(tmp_path / "store", 2))
    paces.clear()
    build(source, tmp_path / "store", progress=paces.append)
    assert [(pace.texts, pace.kept) for pace in paces] == [(3, 3), (6, 6), (7, 6)]


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
        build(source, folder, dtype="int8", shard_rows=4)
        (kept / "count").write_text(str(done))
        os._exit(0)
    except BaseException:
        os._exit(1)


def test_going_on_after_a_kill_before_every_file_operation(source, tmp_path):
    build(source, tmp_path / "whole", dtype="int8", shard_rows=4)
    expected, manifest = content(tmp_path / "whole"), read_manifest(tmp_path / "whole")
    (tmp_path / "left").mkdir()
    steps, kept, left = before_each_operation(source, tmp_path / "killed", tmp_path / "left"), set(), None
    for step in range(1, steps + 1):
        folder = tmp_path / "left" / str(step)
        before, left = left, contents(folder)
        if left == before:  # the operation changed nothing
            continue
        if (folder / MANIFEST).exists() and not read_manifest(folder).complete:
            with pytest.raises(StsbenchError, match="not complete"):
                VectorStore(folder)
        whole = {path.name for path in folder.glob("shards/[0-9]*")}
        encoder = Toy()
        build(source, folder, encoder, dtype="int8", shard_rows=4)
        assert len(encoder.calls) == 2 - len(whole), step  # what was whole is not encoded again
        assert content(folder) == expected and read_manifest(folder) == manifest, step
        kept.add(len(whole))
        shutil.rmtree(folder)
    assert steps >= 40 and kept == {0, 1, 2}


def test_a_damaged_shard_is_noticed_and_encoded_again(source, tmp_path):
    folder = tmp_path / "store"
    build(source, folder)
    expected, path = content(folder), shard_folder(folder, 1) / VECTORS
    data = path.read_bytes()
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), None):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        if damaged is None or len(damaged) < len(data):  # to open a store compares sizes; to build it reads everything
            with pytest.raises(StsbenchError, match=r"vectors.npy.*: run the `stsbench encode` again"):
                VectorStore(folder)
        encoder, lines = Toy(), []
        build(source, folder, encoder, log=lines.append)
        assert encoder.calls == [["ünï", "one", "padded"]] and content(folder) == expected
        assert [line for line in lines if "vectors.npy" in line and line.endswith("the shard is encoded again")]


def test_a_store_is_of_one_input_encoder_and_setting(source, tmp_path, monkeypatch):
    folder = tmp_path / "store"
    build(source, folder)
    before, text = content(folder), source.read_text("utf-8")
    for lines, said in ((["one", "", "TWO words", *LINES[3:]], "line 3 is another text"),
                        ([*LINES, "more"], "more than 7 lines"), (LINES[:5], "fewer than 5 lines"),
                        (LINES[:3], "it ends after 3 lines")):
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        with pytest.raises(DataError, match=f"made of another input than texts.txt: .*{said}; choose another --output"):
            build(source, folder)
    source.write_text(text, "utf-8")
    with pytest.raises(EncoderError, match=r"made by another encoder \(toy; other pooler\): choose another --output"):
        build(source, folder, Toy(replace(SPEC, pooler="cls")))
    for settings, said in (({"dtype": "float16"}, "--store-dtype float32, not float16"),
                           ({"shard_rows": 4}, "--shard-size 3, not 4"), ({"column": 0}, "--column None, not 0")):
        with pytest.raises(StsbenchError, match=f"made with {said}"):
            build(source, folder, **settings)
    assert content(folder) == before
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
    for name, value, said in (("version", lambda name: "0.1", "numpy .* -> 0.1"),
                              ("ENCODING", "6", "stsbench's encoding 5 -> 6")):
        with monkeypatch.context() as patch, pytest.raises(EncoderError, match=rf"made by other versions \({said}\)"):
            patch.setattr(f"stsbench.encoders.cache.encode.{name}", value)
            build(source, tmp_path / "versioned", versioned)
        build(source, tmp_path / "versioned", versioned)


def test_two_processes_do_not_write_to_one_store_and_a_text_without_a_vector_is_named(source, tmp_path):
    class Nested(Toy):
        def run(self, texts, progress=None):
            build(source, tmp_path / "store")

    with pytest.raises(StsbenchError, match=r"another process writes to .*store"):
        build(source, tmp_path / "store", Nested())

    lines, spoilt = [], Toy(change=lambda vectors: np.where(vectors[:, :1] == 5, np.nan, vectors))  # "seven"
    with pytest.raises(EncoderError, match="NaN or infinity for 1 texts, the first that of line 7"):
        build(source, tmp_path / "store", spoilt, log=lines.append)
    assert lines == [f"{tmp_path / 'store'} keeps 6 texts: the same command goes on there"]
    assert build(source, tmp_path / "store").shape == (7, 3)


def test_a_store_of_two_processes_is_that_of_one(place, forks):
    (place / "in.txt").write_text("".join(f"text {'x' * (i % 13)} {i}\n" for i in range(60)))
    options = EncoderOptions(model="python:mine_cli:hashed")
    encoder = load_encoder(options.model, options)
    with DeviceOptions(processes=2).runner(encoder, options) as workers:
        two = build_store(encoder, Texts("in.txt"), place / "two", dtype="int8", shard_rows=8, runner=workers)
    one = build_store(encoder, Texts("in.txt"), place / "one", dtype="int8", shard_rows=8)
    assert one.manifest == two.manifest and len(one.manifest.shards) == 8
    assert np.array_equal(np.concatenate(list(one.blocks())), np.concatenate(list(two.blocks())))


VECTORS_IN = np.array(
    [[1, -2, 0, .5, 0, 3e-5, -4, 8, 1], [-.5, 1, 0, .25, -1, 0, 2, -8, .1], [2, 3, 0, -1, .5, 0, 4, 1, -1]], np.float32)


def stored(tmp_path, dtype):
    (tmp_path / "in.txt").write_text("0\n1\n2\n")
    fixed = Toy(change=lambda vectors: VECTORS_IN[vectors[:, 1].astype(int) - ord("0")])
    store = build_store(fixed, Texts(str(tmp_path / "in.txt")), tmp_path / dtype, dtype=dtype, shard_rows=2)
    raw = [np.load(tmp_path / dtype / "shards" / f"{i:08d}" / VECTORS) for i in range(2)]
    return store, np.concatenate(raw), store.rows([0, 1, 2])


def test_float32_and_float16(tmp_path, monkeypatch):
    for dtype in (np.float32, np.float16):
        _, raw, rows = stored(tmp_path, np.dtype(dtype).name)
        assert raw.dtype == dtype and np.array_equal(rows, VECTORS_IN.astype(dtype).astype(np.float32))
    shutil.rmtree(tmp_path / "float16")
    monkeypatch.setitem(globals(), "VECTORS_IN", VECTORS_IN * 1e5)
    with pytest.raises(EncoderError, match=r"--store-dtype float16 cannot hold 800000: use float32 or int8"):
        stored(tmp_path, "float16")


def test_int8_has_a_scale_for_each_dimension_by_the_first_shard_and_binary_holds_the_signs(tmp_path):
    store, raw, rows = stored(tmp_path, "int8")
    scales = np.array([1, 2, 127, .5, 1, 3e-5, 4, 8, 1]) / 127  # the largest of rows 0 and 1; 0 throughout: 1
    assert store.manifest.scales == pytest.approx(scales) and "first 2 texts" in store.manifest.calibration
    assert raw.dtype == np.int8 and raw[0].tolist() == [127, -127, 0, 127, 0, 127, -127, 127, 127]
    assert raw[2].tolist() == [127, 127, 0, -127, 64, 0, 127, 16, -127]  # 2 of 1, 3 of 2, -1 of .5 are cut
    assert store.manifest.total("clipped") == 3
    assert rows == pytest.approx(raw * scales) and np.abs(rows[:2] - VECTORS_IN[:2]).max() <= scales.max() / 2 + 1e-6
    store, raw, rows = stored(tmp_path, "binary")
    assert raw.shape == (3, 2) and raw.tolist() == [[0b10010101, 0b10000000], [0b01010010, 0b10000000], [0b11001011, 0]]
    assert np.array_equal(rows, np.where(VECTORS_IN > 0, 1, -1)) and store.dimension == 9


RNG = np.random.default_rng(3)
SENTENCES = [" ".join(RNG.choice(["cat", "dog", "sun", "moon", "tree"], n)) for n in RNG.integers(1, 6, 60)]
SENTENCES[7] = ""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("read")
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in SENTENCES))
    build_store(Toy(), Texts(str(folder / "in.txt")), folder / "store", shard_rows=16, log=lambda line: None)
    return folder


@pytest.fixture
def store(kept):
    return VectorStore(kept / "store")


def test_rows_are_looked_up_by_text(store):
    distinct = list(dict.fromkeys(SENTENCES))
    wanted = [*distinct, "not there"]
    assert store.find(wanted).tolist() == [SENTENCES.index(text) for text in distinct] + [-1]
    first, copies = store.copies(wanted)
    assert first.tolist() == store.find(wanted).tolist() and copies.tolist() == [SENTENCES.count(text) for text in wanted]
    assert store.find([]).tolist() == []


def test_vectors_of_a_folder(kept, store):
    encoder = load_encoder(f"vectors:{kept / 'store'}")
    asked = [SENTENCES[40], f" {SENTENCES[3]} ", "", SENTENCES[40]]
    assert encoder.encode(asked).tolist() == [vector_of(text.strip()) for text in asked]
    assert encoder.dimension == 3 and not encoder.cacheable and encoder.spec.weights == store.digest
    assert Embed(encoder).truncated([SENTENCES[0]]).tolist() == [len(SENTENCES[0]) > 5] and "toy" in encoder.notes[0]
    with pytest.raises(EncoderError, match="no vector for 2 of 3 texts, the first: 'nowhere'"):
        encoder.encode(["nowhere", SENTENCES[0], "neither"])
    assert is_store(kept / "store") and not is_store(kept) and not is_store(kept / "in.txt")
    with pytest.raises(EncoderError, match="--pooler does not apply"):
        load_encoder(f"vectors:{kept / 'store'}", pooler="cls")


def test_neighbours_are_those_of_all_pairs_and_queries_come_from_the_encoder_of_the_store(store):
    queries = np.array([vector_of("cat tree"), vector_of("sun")], np.float32)
    lists = neighbours_in(store, queries, 1000)
    distinct = [text for text in dict.fromkeys(SENTENCES) if text]
    vectors = np.array([vector_of(text) for text in distinct])
    cosines = queries @ vectors.T / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(vectors, axis=1)
    for mine, expected in zip(lists, cosines, strict=True):
        assert [each.cosine for each in mine] == pytest.approx(sorted(expected, reverse=True), abs=1e-6)
        for each in mine:
            assert each.cosine == pytest.approx(expected[distinct.index(each.text)], abs=1e-6)
            assert each.row == SENTENCES.index(each.text) and each.copies == SENTENCES.count(each.text)
    check_same_encoder(store, Toy(EncoderSpec(**{**vars(SPEC), "name": "another name", "prefix": "query: "})))
    with pytest.raises(EncoderError, match=r"made by another encoder \(toy; other weights\) than toy"):
        check_same_encoder(store, Toy(EncoderSpec(**{**vars(SPEC), "weights": "1" * 64})))


@pytest.mark.parametrize("post", ["whitening:dimensions=2", "all-but-the-top:components=1"])
def test_a_map_fitted_on_a_store_is_the_one_fitted_on_its_texts(kept, post):
    for name in ("file.txt", "full.txt"):
        (kept / name).write_text("".join(f"{line}\n" for line in SENTENCES if line))
    build_store(Toy(), Texts(str(kept / "full.txt")), kept / "full", shard_rows=16, log=lambda line: None)
    lines, counting = [], Toy()
    stored, count = fitted_on_data(PostProcessed(counting, Chain.parse(post)), kept / "full", lines.append)
    fitted, _ = fitted_on_data(PostProcessed(Toy(), Chain.parse(post)), kept / "file.txt", lines.append)
    probe = np.array([vector_of(text) for text in SENTENCES[:9]], np.float32)
    assert stored.chain.transform(probe) == pytest.approx(fitted.chain.transform(probe), abs=1e-9)
    assert stored.spec.fitted_on == f"full@{VectorStore(kept / 'full').digest}" and count == 59
    assert "59 texts, whose vectors are read" in lines[0] and not counting.calls


def test_shuffled_vectors_are_each_row_once(kept):
    source = StoredVectorSource(VectorStore(kept / "store"), Toy())
    batches = list(source.shuffled(16, np.random.default_rng(0)))
    assert [batch.shape for batch in batches] == [(16, 1, 3)] * 3 + [(12, 1, 3)] and len(source) == 60
    rows = np.concatenate(batches)[:, 0]
    expected = [vector_of(text) for text in SENTENCES]
    assert sorted(rows.tolist()) == sorted(expected) and rows[0].tolist() != expected[0]
    with pytest.raises(EncoderError, match="no dropout"):
        source.with_dropout(0)


def test_what_cannot_be_fitted_on(kept):
    wrapped = PostProcessed(Toy(), Chain.parse("standardise"))
    build_store(Toy(), Texts(str(kept / "in.txt")), kept / "bits", dtype="binary", log=lambda line: None)
    with pytest.raises(EncoderError, match="holds signs alone"):
        fitted_on_data(wrapped, kept / "bits", lambda line: None)
    other: Encoder = Toy(EncoderSpec(**{**vars(SPEC), "pooler": "cls"}))
    with pytest.raises(EncoderError, match=r"made by another encoder \(toy\) than toy"):
        fitted_on_data(PostProcessed(other, Chain.parse("standardise")), kept / "store", lambda line: None)
