"""Nearest rows: equal to sorting the whole product matrix, whatever the block, the ties, the kind of matrix. Hard
negatives against sentence-transformers' mine_hard_negatives, a loop, and by a guide; and as rows of a training. `encode`
and `neighbours`, commands and functions: the same rows, the same files, byte for byte."""

import io
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from clirun import cli, contents, fails, lines, place, tiny  # noqa: F401
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives
from tiny_models import build, sentences

import stsbench
from stsbench.data.fetch.sources import load_data
from stsbench.data.own.sets import read_triplets
from stsbench.encoders.load import load_encoder
from stsbench.errors import ScoreError, StsbenchError, StsbenchWarning
from stsbench.extensions.stores import search as module
from stsbench.extensions.stores.build import Pace
from stsbench.extensions.stores.command import Clock, duration
from stsbench.extensions.stores.mine import mine_negatives as mine
from stsbench.extensions.stores.search import nearest
from stsbench.extensions.stores.vectors import VectorStore

SMALL = st.integers(-2, 2).map(float)  # few values: ties everywhere


def unit(rows):
    norms = np.linalg.norm(np.asarray(rows, np.float64), axis=1, keepdims=True)
    return np.asarray(rows, np.float64) / np.where(norms > 0, norms, 1)


def sorted_whole(queries, corpus, k, exclude=()):
    """Stable argsort of the full float64 matrix, rounded to float32: the lower position wins. Places without a row: -1."""
    scores = (np.asarray(queries, np.float64) @ np.asarray(corpus, np.float64).T).astype(np.float32)
    for row, hidden in zip(scores, exclude, strict=False):
        if hidden >= 0:
            row[hidden] = -np.inf
    scores = np.pad(scores, ((0, 0), (0, max(0, k - scores.shape[1]))), constant_values=-np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, axis=1)
    return best, np.where(np.isneginf(best), -1, order)


def check(found, expected, rtol=3e-7, atol=1e-6):
    """The same positions, and as good as the same scores."""
    assert np.array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=rtol, atol=atol)


def random(q=40, n=500, d=24, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((q, d)).astype(np.float32), rng.standard_normal((n, d)).astype(np.float32)


@given(arrays(np.float32, (5, 3), elements=SMALL), arrays(np.float32, (17, 3), elements=SMALL), st.integers(1, 20),
       st.integers(1, 20), st.lists(st.integers(-1, 16), min_size=5, max_size=5))
@settings(max_examples=15, deadline=None)
def test_ties_go_by_position_whatever_the_block(queries, corpus, k, block, exclude):
    scores, positions = nearest(queries, corpus, k, block=block, exclude=np.array(exclude))
    assert scores.dtype == np.float32 and positions.dtype == np.int64
    check((scores, positions), sorted_whole(queries, corpus, k, exclude), 0, 0)


def test_it_is_sorting_the_whole_matrix_also_of_near_ties_within_float32_error():
    rng = np.random.default_rng(2)
    corpus = np.repeat(rng.standard_normal((1, 600)), 300, axis=0)
    corpus += 1e-5 * rng.standard_normal(corpus.shape)  # products differ by less than a float32 sum may be off
    queries, corpus = rng.standard_normal((25, 600)).astype(np.float32), corpus.astype(np.float32)
    for rows, k, block in ((corpus, 5, 37), (corpus, 5, 300), (random(d=600)[1], 500, 100)):
        check(nearest(queries, rows, k, block=block), sorted_whole(queries, rows, k))


def test_cosine_scales_and_a_zero_row_has_cosine_zero():
    queries, corpus = random(seed=3)
    corpus[4] = 0
    scales = np.random.default_rng(1).uniform(1e-3, 1e3, (500, 1)).astype(np.float32)
    scores, positions = nearest(queries * 17, corpus * scales, 500, cosine=True, block=64)
    want = unit(queries) @ unit(corpus).T
    np.testing.assert_allclose(np.take_along_axis(want, positions, axis=1), scores, atol=3e-7)
    assert (np.diff(scores, axis=1) <= 0).all() and (scores[positions == 4] == 0).all()
    assert np.array_equal(np.sort(positions, axis=1), np.tile(np.arange(500), (40, 1)))
    queries, corpus = random(q=5, n=40, d=6, seed=6)
    for length in (1e-30, 1e-20, 1e20):
        check(nearest(queries, corpus * np.float32(length), 4, cosine=True), nearest(queries, corpus, 4, cosine=True))


def test_iterator_memmap_sparse_and_more_queries_than_fit_give_the_same(tmp_path, monkeypatch):
    queries, corpus = random(seed=7)
    corpus[np.abs(corpus) < 1] = 0
    exclude, steps = np.arange(40), []
    want = nearest(queries, corpus, 4, exclude=exclude, block=90, progress=steps.append)
    assert steps == [90] * 5 + [50]
    stored = np.memmap(tmp_path / "rows", dtype=np.float32, mode="w+", shape=corpus.shape)
    stored[:] = corpus
    for form in ((corpus[i : i + 90] for i in range(0, 500, 90)), stored):
        check(nearest(queries, form, 4, exclude=exclude, block=50), want)
    for cosine in (False, True):
        dense = nearest(queries, corpus, 4, cosine=cosine)
        check(nearest(csr_matrix(queries), csr_matrix(corpus), 4, cosine=cosine, block=50), dense)
    monkeypatch.setattr(module, "_QUERIES", 7)
    monkeypatch.setattr(module, "_RESCORED", 5)
    check(nearest(queries, corpus, 4, exclude=exclude, block=90), want, 0, 0)


@pytest.mark.parametrize("backend", ["exact", "faiss"])
def test_vectors_that_are_none_are_refused(backend):
    if backend == "faiss":
        pytest.importorskip("faiss")
    for value in (np.nan, np.inf):
        queries, corpus = random()
        corpus[321, 3] = value
        with pytest.raises(ScoreError, match="corpus row 321 "):
            nearest(queries, corpus, 2, block=100, backend=backend)
        with pytest.raises(ScoreError, match="query 21 "):
            nearest(corpus[300:340], queries, 2, backend=backend)


def test_faiss_agrees(monkeypatch):
    pytest.importorskip("faiss")
    queries, corpus = random()
    exclude = np.where(np.arange(40) % 2, nearest(queries, corpus, 1)[1][:, 0], -1)
    for cosine in (False, True):
        want = nearest(queries, corpus, 5, cosine=cosine, exclude=exclude)
        check(nearest(queries, corpus, 5, cosine=cosine, exclude=exclude, backend="faiss", block=99), want, atol=1e-5)
    check(nearest(queries, corpus[:3], 5, backend="faiss"), nearest(queries, corpus[:3], 5), atol=1e-5)
    with pytest.raises(StsbenchError, match="dense"):
        nearest(csr_matrix(queries), csr_matrix(corpus), 2, backend="faiss")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(StsbenchError, match="pip install"):
        nearest(queries, corpus, 2, backend="faiss")


TEXTS = sentences(60, seed=4)
PAIRS = [*zip(TEXTS[:24], TEXTS[24:48], strict=True), *zip(TEXTS[:5], TEXTS[40:45], strict=True)]  # five have two positives
FURTHER = TEXTS[48:]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return load_encoder(build(tmp_path_factory.mktemp("mine") / "tiny"), pooler="mean", device="cpu")


def found(rows):
    return [(row["anchor"], row["positive"], row["negative"]) for row in rows]


@pytest.mark.parametrize("options", [
    {"num_negatives": 2, "range_min": 3, "absolute_margin": 0.02}, {"range_max": 9, "num_negatives": 4},
    {"relative_margin": 0.03, "num_negatives": 5}, {"max_score": 0.97, "min_score": 0.9, "range_min": 1}])
def test_negatives_are_those_of_sentence_transformers(encoder, place, options):
    Path("further.txt").write_text("\n".join(FURTHER) + "\n", "utf-8")
    names = {"num_negatives": "negatives", "range_min": "skip", "range_max": "depth"}
    ours = mine(encoder, PAIRS, corpus="further.txt", **{names.get(name, name): value for name, value in options.items()})
    data = Dataset.from_dict({"anchor": [a for a, _ in PAIRS], "positive": [p for _, p in PAIRS]})
    model = SentenceTransformer(encoder.spec.name, device="cpu")
    theirs = mine_hard_negatives(data, model, corpus=FURTHER, verbose=False, output_scores=True, **options)
    assert found(ours) == found(theirs) and len(ours) > 15
    scores = np.array([[row["positive_cosine"], row["cosine"]] for row in ours])
    assert np.abs(scores - np.array(theirs["scores"])).max() < 1e-5


def test_a_guide_leaves_out_what_it_finds_too_near(encoder):
    every = mine(encoder, PAIRS, negatives=48, depth=48)
    kept = mine(encoder, PAIRS, guide="lexical:token-set", absolute_margin=0.01, negatives=48, depth=48)
    words = {text: set(text.split()) for text in TEXTS}

    def cosine(a, b):
        return len(words[a] & words[b]) / math.sqrt(len(words[a]) * len(words[b]))

    lowest = {anchor: min(cosine(anchor, p) for a, p in PAIRS if a == anchor) for anchor, _ in PAIRS}
    assert found(kept) == [row for row in found(every) if cosine(row[0], row[2]) <= lowest[row[0]] - 0.01]
    assert 0 < len(kept) < len(every)
    assert kept.counts["candidates above absolute_margin"] == 24 * 24 - 29 - len({(a, n) for a, _, n in found(kept)})


def test_random_negatives_are_of_the_same_window_and_go_by_the_seed(encoder):
    every = found(mine(encoder, PAIRS, negatives=8, depth=8))
    drawn = [found(mine(encoder, PAIRS, draw="random", seed=seed, negatives=2, depth=8)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {*drawn[0]} <= {*every} and len(drawn[0]) == 2 * len(PAIRS)


def test_the_command_writes_rows_that_are_read_as_triplets(encoder, place, cli):
    Path("pairs.csv").write_text("anchor,positive\n" + "".join(f"{a},{p}\n" for a, p in PAIRS), "utf-8")
    words = ("mine", "--model", encoder.spec.name, "--pooler", "mean", "--device", "cpu", "--data", "pairs.csv")
    code, out, err = cli(*words, "--negatives", 1, "--output", "triplets.jsonl")
    assert code == 0 and "triplets" in out and f"{len(PAIRS)} triplets" in err
    rows = [json.loads(line) for line in Path("triplets.jsonl").read_text("utf-8").splitlines()]
    assert found(rows) == found(mine(encoder, "pairs.csv", negatives=1))
    assert read_triplets(Path("triplets.jsonl")).negative == tuple(row["negative"] for row in rows)


def test_texts_that_differ_by_white_space_are_one_and_blank_ones_none(tmp_path):
    (tmp_path / "pairs.csv").write_text("anchor,positive\na cat naps,the  cat sat\na dog barks, the dog barked \n ,x\ny,\n")
    (tmp_path / "corpus.txt").write_text("the cat sat\n\n the dog barked\na cat naps\nthe bird sang\n")
    mined = mine("lexical:token-set", tmp_path / "pairs.csv", corpus=tmp_path / "corpus.txt", negatives=9)
    assert {row["positive"] for row in mined} == {"the  cat sat", " the dog barked "}
    assert sorted((row["anchor"], " ".join(row["negative"].split())) for row in mined) == [
        ("a cat naps", "the bird sang"), ("a cat naps", "the dog barked"),
        ("a dog barks", "a cat naps"), ("a dog barks", "the bird sang"), ("a dog barks", "the cat sat")]


pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
HASHED = "python:mine_cli:hashed"


def test_encode_by_a_transformer_warns_of_cut_texts(cli, tiny, lines):
    said = cli("encode", "--model", tiny, "--pooler", "mean", "--max-length", 4, "--input", lines, "--output", "a")[2]
    with pytest.warns(StsbenchWarning) as caught:
        stsbench.encode(tiny, lines, "b", pooler="mean", max_length=4)
    assert contents("a") == contents("b") and {Path(one.filename) for one in caught} == {Path(__file__)}
    warned = [str(one.message).removeprefix("b: ") for one in caught]
    assert warned == [line for line in said.splitlines() if "empty texts" in line or "truncated" in line]
    assert len(warned) == 2


def test_in_a_notebook_encode_counts_texts(monkeypatch, capsys, place):
    monkeypatch.setattr("tqdm.auto.tqdm", __import__("tqdm").std.tqdm)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    texts = ["A cat sleeps.", "Rain falls.", "Birds sing."]
    stsbench.encode(lambda texts: [[len(text), 1] for text in texts], texts, "listed")
    listed = capsys.readouterr().err
    stsbench.encode(lambda texts: [[len(text), 1] for text in texts], iter(texts), "streamed", shard_size=2)
    streamed = capsys.readouterr().err
    assert "encoding: 100%" in listed and "3/3" in listed
    assert "encoding: 3text" in streamed and streamed.count("\n") == 1


CORPUS = ["a cat sleeps", "the dog runs", "a cat sleeps", "rain falls", "the old man reads", "birds sing"]
QUERIES = ["cats sleep", "a dog runs"]


@pytest.fixture
def corpus_folder(place):
    """A relevance folder of the user's own, and its texts as plain lines."""
    folder = place / "mine"
    folder.mkdir()
    (folder / "queries.tsv").write_text("".join(f"q{i}\t{text}\n" for i, text in enumerate(QUERIES)))
    (folder / "corpus.tsv").write_text("".join(f"d{i}\t{text}\n" for i, text in enumerate(CORPUS)))
    (folder / "relevance.tsv").write_text("q0\td0\nq1\td1\n")
    (place / "all.txt").write_text("\n".join([*QUERIES, *CORPUS]))
    return place


def test_encode_then_retrieval_then_neighbours(cli, corpus_folder):
    code, out, err = cli("encode", "--model", HASHED, "--input", "all.txt", "--output", "v")
    assert (code, out) == (0, "") and err.endswith("v: 8 texts x 3, float32, 781 bytes with texts\n")
    scores = []
    for model in (HASHED, "vectors:v"):
        how = ("--protocol", "retrieval:mine", "--resamples", "0", "--output", "measured")
        code, out, _ = cli("eval", "--model", model, *how, "--json", "-")
        assert code == 0
        scores.append([(row["metric"], row["value"]) for row in json.loads(out)])
    assert scores[0] == scores[1] and len(scores[0]) > 2
    rows = []
    for where in ("all.txt", "v"):
        how = ("--query", "a cat sleeps", "--query", "new text", "--top", "4")
        code, out, _ = cli("neighbours", "--model", HASHED, "--corpus", where, *how, "--json", "-")
        assert code == 0
        rows.append(json.loads(out))
    assert [{**row, "cosine": 0} for row in rows[0]] == [{**row, "cosine": 0} for row in rows[1]]
    assert [row["cosine"] for row in rows[0]] == pytest.approx([row["cosine"] for row in rows[1]], abs=1e-6)
    assert rows[1][0] == {"query": "a cat sleeps", "rank": 1, "cosine": pytest.approx(1), "line": 3, "copies": 2,
                          "text": "a cat sleeps"}
    fails(cli("neighbours", "--model", "python:mine_cli:constant", "--corpus", "v", "--query", "x"), "another encoder")
    for store in (VectorStore(Path("v")), "v"):
        assert stsbench.neighbours(HASHED, store, ["a cat sleeps", "new text"], top=4).rows == rows[1]
    with pytest.raises(StsbenchError, match="do not apply to v, a folder of vectors"):
        stsbench.neighbours(HASHED, "v", "a cat", sample=True)
    with pytest.warns(StsbenchWarning, match="the vector of the query 'x' is zero"):
        stsbench.neighbours(lambda texts: np.array([[text != "x", 0.0] for text in texts]), ["a", "b"], "x")


def test_standard_input_and_columns_and_what_int8_cuts(cli, corpus_folder, monkeypatch):
    table = "".join(f"{i}\t{text}\n" for i, text in enumerate(CORPUS)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table)))
    assert cli("encode", "--model", HASHED, "--input", "-", "--column", "2", "--output", "v")[0] == 0
    store = VectorStore(Path("v"))
    assert store.texts(range(6)) == CORPUS and store.manifest.input.name == "-"
    encode = ("encode", "--model", HASHED, "--input", "all.txt", "--store-dtype", "int8", "--output")
    assert "cut to int8's scale" not in cli(*encode, "w")[2]
    err = cli(*encode, "x", "--shard-size", "2")[2]
    assert "were cut to int8's scale, which is of the largest absolute numbers of the first 2 texts" in err


def test_the_time_left_is_that_of_what_this_call_encodes():
    times = iter([0.0, 10.0, 10.0, 10.0])
    clock = Clock(lambda: next(times))
    assert clock(Pace(6000, 5000, 17_000)) == "100 texts/s, 2 min left" and clock(Pace(5000, 5000, None)) == ""
    assert clock(Pace(6000, 5000, None)) == "100 texts/s"
    shown = {0.4: "0 s", 99: "99 s", 101: "2 min", 5940: "99 min", 7500: "2 h 5 min", -3: "0 s"}
    assert {seconds: duration(seconds) for seconds in shown} == shown


CAPTIONS = "x.jpg#0\tA cat sleeps .\nx.jpg#1\tTwo dogs run .\n\ny.jpg#0\tA  cat sleeps .\ny.jpg#1\tA [big] dog runs .\n"


@pytest.fixture
def command(cli):
    """What `stsbench neighbours` prints."""
    def run(*words, corpus="lines.tsv", column=("--column", "2")):
        Path("lines.tsv").write_text(CAPTIONS)
        code, out, err = cli("neighbours", "--model", "lexical:token-set", "--corpus", corpus, *column, *words)
        assert code == 0, err
        return out

    return run


def test_neighbours_rank_distinct_texts_with_their_first_line(command):
    rows = json.loads(command("--query", "a cat sleeps .", "--query", "dogs", "--top", "9", "--json", "-"))
    assert [row["rank"] for row in rows] == [1, 2, 3] * 2
    best = {key: value for key, value in rows[0].items() if key != "cosine"}
    assert best == {"query": "a cat sleeps .", "rank": 1, "line": 1, "copies": 2, "text": "A cat sleeps ."}
    assert rows[0]["cosine"] == pytest.approx(1) and rows[0]["cosine"] > rows[1]["cosine"]
    assert rows[3]["text"] == "Two dogs run ." and rows[3]["line"] == 2
    Path("asked.txt").write_text("big [dog]\n")
    out = command("--query-file", "asked.txt", "--top", "1", "--json", "rows.json")
    assert "query: big [dog]" in out and "A [big] dog runs ." in out and "line" in out
    [row] = json.loads(Path("rows.json").read_text())
    assert row["line"] == 5 and f"{row['cosine']:.4f}" in out
    # A file comes before a data set of its name.
    Path("stsb").mkdir()
    Path("stsb/test").write_text("a cat\na dog\n")
    [row] = json.loads(command("--query", "a dog", "--top", "1", "--json", "-", corpus="stsb/test", column=()))
    assert (row["text"], row["line"]) == ("a dog", 2)


def test_neighbours_in_a_data_set(command):
    """As in a file that holds its sentences, but that the numbers are the pairs'."""
    data = load_data("stsb/test", sample=True)
    Path("sentences.txt").write_text("\n".join([*data.first, *data.second]) + "\n")
    words = ("--query", data.second[2], "--query", "a dog runs", "--top", "4", "--json", "-")
    rows = json.loads(command(*words, "--sample", corpus="stsb/test", column=()))
    plain = json.loads(command(*words, corpus="sentences.txt", column=()))
    assert len(rows) == 8 and rows[0]["text"] == data.second[2] and rows[0]["item"] == 3
    for row, other in zip(rows, plain, strict=True):
        assert row.pop("item") == (other.pop("line") - 1) % len(data) + 1
        assert row.pop("cosine") == pytest.approx(other.pop("cosine")) and row == other
    table = command("--query", "a dog runs", "--sample", corpus="sst2", column=())
    assert "item" in table and "line" not in table
