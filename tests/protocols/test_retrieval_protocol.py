"""Retrieval: DiffCSE's task on pairs, and a user's own folder in both layouts."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clirun import refuses
from realdata import real_data

from stsbench.data.fetch.sources import load_data
from stsbench.data.own.relevance import read_relevance
from stsbench.data.sets.sets import PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.errors import ScoreError
from stsbench.protocols.retrieval import RetrievalProtocol, from_pairs

FIRST = ("a cat sleeps", "two dogs run", "it rains", "a cat sleeps", "he sings")
SECOND = ("a cat is asleep", "a pair of dogs is running", "the sun shines", "a dog sleeps", "two dogs run")
GOLD = (5.0, 5.0, 1.0, 3.0, 0.4)


def pairs(first=FIRST, second=SECOND, gold=GOLD):
    return PairSet("x/test", "X", "own", first, second, np.array(gold), ("X",) * len(first))


def embedder(table, width=4):
    """The same random vector for the same text, but for those in `table`."""

    def embed(texts):
        rows = [table.get(text, np.random.default_rng(list(text.encode())).standard_normal(width)) for text in texts]
        return np.array(rows, dtype=np.float32)

    return Embed(CallableEncoder(embed))


def measured(protocol, data, table=None):
    seen = protocol.observe(embedder(table or {}), data)
    return {row.metric: row for row in protocol.score(seen, data.id, "X")}, seen


def test_each_sentence_of_a_pair_with_gold_5_looks_for_the_other():
    actual = from_pairs(pairs(), "merge")
    assert actual.queries == (FIRST[0], FIRST[1], SECOND[0], SECOND[1])
    assert [actual.corpus[i] for (i,) in actual.relevant] == [SECOND[0], SECOND[1], FIRST[0], FIRST[1]]
    assert [actual.corpus[i] for (i,) in actual.hidden] == list(actual.queries)
    assert len(actual.corpus) == 8 and len(set(actual.corpus)) == 8
    kept = from_pairs(pairs(), "keep")
    assert kept.queries == actual.queries and kept.corpus == FIRST + SECOND
    assert kept.hidden == ((0,), (1,), (5,), (6,)) and kept.relevant == ((5,), (6,), (0,), (1,))


def test_what_becomes_of_equal_sentences():
    # Partners lie close to one another, everything else far away; both first sentences stand in the set twice.
    table = {FIRST[0]: [1, 0, 0, 0], SECOND[0]: [1, 0.2, 0, 0], FIRST[1]: [0, 0, 1, 0], SECOND[1]: [0, 0, 1, 0.2]}
    table |= {text: [-1, -1, -1, i] for i, text in enumerate(("it rains", "he sings", "the sun shines", "a dog sleeps"))}
    want = {"merge": [1, 1, 1, 1], "keep": [2, 2, 2, 2], "drop": [1, 1, 2, 2]}
    for duplicates, ranks in want.items():
        rows, seen = measured(RetrievalProtocol({"duplicates": duplicates, "ks": [1, 2]}), pairs(), table)
        assert seen.arrays["rank"].tolist() == ranks
        assert rows["recall@1"].value == 100 * np.mean([rank == 1 for rank in ranks]) and rows["recall@2"].value == 100
        assert rows["mrr"].value == pytest.approx(100 * np.mean([1 / rank for rank in ranks]))
    rows, seen = measured(RetrievalProtocol({"duplicates": "keep", "ties": "mid"}), pairs(), table)
    assert seen.arrays["rank"].tolist() == [2, 2, 1.5, 1.5]
    assert set(rows) == {"recall@1", "recall@5", "recall@10", "mrr"} and {row.n for row in rows.values()} == {4}


def test_a_set_without_work_is_a_failure_with_a_reason():
    protocol = RetrievalProtocol({})
    refuses(ScoreError, "no pair with gold 5", measured, protocol, pairs(gold=(1, 2, 3, 4, 4.9)))
    refuses(ScoreError, "pair 1: the two sentences are the same", measured, protocol, pairs(second=FIRST[:1] + SECOND[1:]))


# A user's own folder.

OWN = {"queries.tsv": "q1\tWhere does the cat sleep?\nq2\tWhat do dogs like?\nd3\tThe weather.\n",
       "corpus.tsv": "d1\tA cat sleeps on the sofa.\nd2\tDogs like bones.\nd3\tThe weather.\nd4\tDogs like long walks.\n",
       "relevance.tsv": "q1\td1\nq2\td2\t2\nq2\td4\t1\nq2\td1\t0\nd3\td1\n"}


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


BEIR = {  # the same in BEIR's layout, with a title and a query of another split
    "queries": [{"_id": "q1", "text": "Where does the cat sleep?"}, {"_id": "q2", "text": "What do dogs like?"},
                {"_id": "d3", "text": "The weather."}, {"_id": "train7", "text": "A query of the training split."}],
    "corpus": [{"_id": "d1", "text": "cat sleeps on the sofa.", "title": "A"}, {"_id": "d2", "text": "Dogs like bones."},
               {"_id": "d3", "text": "The weather."}, {"_id": "d4", "text": "Dogs like long walks."}],
    "qrels": [{"query-id": query, "corpus-id": text, "score": score} for query, text, score in (
        ("q1", "d1", 1), ("q2", "d2", 2), ("q2", "d4", 1), ("q2", "d1", 0), ("d3", "d1", 1))]}


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def beir():
    judged = [BEIR["qrels"][0], *(row.values() for row in BEIR["qrels"])]
    return {"queries.jsonl": jsonl(BEIR["queries"]), "corpus.jsonl": jsonl(BEIR["corpus"]),
            "qrels/test.tsv": "".join("\t".join(map(str, row)) + "\n" for row in judged)}


def test_both_layouts_read_the_same(tmp_path):
    folder = write(tmp_path / "mine", OWN)
    write(tmp_path / "b", {})
    theirs = write(tmp_path / "b" / "mine", beir())
    one, two = read_relevance(folder), read_relevance(theirs)
    assert one.queries == ("Where does the cat sleep?", "What do dogs like?", "The weather.")
    assert one.relevant == ((0,), (1, 3), (0,)) and one.hidden == ((), (), (2,))
    assert (one.task, one.text_version) == ("mine", "own") and one.warnings == ()
    assert one.id == two.id and one.digest == two.digest
    assert two.warnings == ("1 of 4 queries have no relevant text in test.tsv: left out",)
    write(folder, {"corpus.tsv": OWN["corpus.tsv"].replace("bones", "balls")})
    assert read_relevance(folder).digest != one.digest


def parquet(rows):
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream)
    return stream.getvalue()


def arrow(rows):
    table, stream = pa.Table.from_pylist(rows), io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


ALSO_TRAIN = {"qrels/train-00000-of-00001.parquet": parquet([{"query-id": "train7", "corpus-id": "d1", "score": 1}])}


@pytest.mark.parametrize(("names", "renamed", "more"), [
    ("{0}/{0}.parquet", {}, {}), ("{0}/test-0000{1}-of-00002.parquet", {}, ALSO_TRAIN), ("{0}/dev.parquet", {}, {}),
    ("{0}.jsonl", {"_id": "id", "query-id": "query_id", "corpus-id": "corpus_id"}, {}), ("{0}/test.jsonl", {}, ALSO_TRAIN),
    ("{0}/data-00000-of-00001.arrow", {},
     {f"{part}/{name}.json": "{}" for part in BEIR for name in ("state", "dataset_info")})])
def test_parquet_and_json_lines_as_the_hub_keeps_them_are_the_same_set(tmp_path, names, renamed, more):
    files, shards = {}, 2 if "{1}" in names else 1
    for part, rows in BEIR.items():
        rows = [{renamed.get(key, key): value for key, value in row.items()} for row in rows]
        for shard in range(shards):
            some = rows[shard * 2 : shard * 2 + 2] if shard == 0 and shards == 2 else rows[shard * 2 :]
            kind = {"parquet": parquet, "arrow": arrow, "jsonl": jsonl}[names.rpartition(".")[2]]
            files[names.format(part, shard)] = kind(some)
    one, two = read_relevance(write(tmp_path / "a", beir())), read_relevance(write(tmp_path / "b", files | more))
    assert (one.id, one.digest) == (two.id, two.digest) and one.grades == two.grades and one.hidden == two.hidden


def test_a_query_itself_is_known_by_its_id_or_else_by_its_text(tmp_path):
    """BEIR leaves out the document of the query's id, whatever its text; without one, equal texts are the query."""
    asked, line = "Where does the cat sleep?", "corpus texts that are a query itself and not counted for it: "
    write(tmp_path / "mine", beir())
    for corpus, hidden, note in (
        ([("q1", "A title", asked), ("d1", "", "x"), ("d2", "", asked)], ((0,), (), ()),
         "1 by id (the query's own id, BEIR's rule)"),
        ([("d2", "", "x"), ("a", "", "What do dogs like?"), ("b", "What", "do dogs like?"), ("d1", "The", "The weather.")],
         ((), (1, 2), ()), "2 by text (no corpus text has the query's id)")):
        rows = [json.dumps({"_id": key, "title": title, "text": text}) for key, title, text in corpus]
        write(tmp_path / "mine", {"corpus.jsonl": "\n".join(rows)})
        actual = read_relevance(tmp_path / "mine")
        assert (actual.hidden, actual.notes) == (hidden, (line + note,))


def test_a_split_is_named_by_its_place_and_an_equal_judgement_counts_once(tmp_path):
    files = beir()
    judged = files.pop("qrels/test.tsv")
    folder = write(tmp_path / "mine", files | {"qrels/dev.tsv": judged, "qrels/train.tsv": judged, "qrels.tsv": judged})
    once = read_relevance(folder)
    write(folder, {"qrels.tsv": judged + judged.splitlines()[1] + "\n"})
    twice = read_relevance(folder)
    assert (twice.id, twice.relevant) == (once.id, once.relevant) and len(twice.warnings) == len(once.warnings) + 1
    assert "qrels.tsv:7: 'q1' and 'd1' are judged twice, the same both times (1 such judgements)" in twice.warnings[0]


def test_equals_trec_eval_under_beirs_rule(tmp_path):
    """Graded judgements, several relevant texts, texts not in the corpus, empty and double texts, numbers as ids, TREC's
    columns: every metric against pytrec_eval without the document of the query's id."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    for seed in (0, 1, 5):
        rng = np.random.default_rng(seed)
        texts = [f"text {i}" for i in range(30)] + [""] + ["text 3"]
        docs = {str(i): text for i, text in enumerate(texts)}
        queries = {str(i): f"query {i}" if i % 2 else docs[str(i)] for i in range(0, 12)}
        drawn = {key: [str(d) for d in rng.choice(50, 6, replace=False) if str(d) != key] for key in queries}
        qrels = {key: {**{d: int(rng.integers(-1, 4)) for d in some}, "49": 2} for key, some in drawn.items()}
        lines = ["\t".join((q, *["0"] * (seed % 2), d, str(x))) for q, r in qrels.items() for d, x in r.items()]
        title = "T" * (seed % 3)
        folder = write(tmp_path / str(seed), {
            "corpus.jsonl": "\n".join(json.dumps({"_id": int(k), "text": v, "title": title}) for k, v in docs.items()),
            "queries.jsonl": "\ufeff" + "\n".join(json.dumps({"_id": k, "text": v}) for k, v in queries.items()) + "\n\n",
            "qrels.tsv": "\r\n".join(lines)})
        data = read_relevance(folder)
        vectors = {text: rng.standard_normal(3) for text in data.texts}
        rows, _ = measured(RetrievalProtocol({**RetrievalProtocol.variant(str(folder)), "resamples": 0}), data, vectors)
        unit = {text: vector / np.linalg.norm(vector) for text, vector in vectors.items()}
        cosine = {(q, d): float(unit[queries[q]] @ unit[data.corpus[int(d)]]) for q in queries for d in docs}
        run = {q: {d: cosine[q, d] for d in docs if d != q} for q in queries}
        # Copies tie: trec_eval puts the larger id first, this counts irrelevant ones before the relevant.
        for q in queries:
            copies = {key: qrels[q].get(key, 0) > 0 for key in ("3", "31") if key in run[q]}
            if sum(copies.values()) == 1 < len(copies):
                run[q]["3" if copies["3"] else "31"] -= 1e-6
            elif sum(copies.values()) == 2:
                run[q]["31"] -= 1e-6  # of two relevant ones the first in the corpus comes first
        asked = {"recall.1,5,10", "recip_rank", "ndcg_cut.1,5,10", "map", "P.1,5,10"}
        trec = pytrec_eval.RelevanceEvaluator(qrels, asked).evaluate(run)
        names = {"mrr": "recip_rank", "map": "map"} | {f"{one}@{k}": f"{name}_{k}" for k in (1, 5, 10) for one, name in
                                                       (("recall", "recall"), ("ndcg", "ndcg_cut"), ("precision", "P"))}
        for metric, name in names.items():
            assert rows[metric].value == pytest.approx(100 * np.mean([each[name] for each in trec.values()])), (seed, metric)


def test_a_folder_is_a_variant_and_its_path_stays_out_of_the_record(tmp_path, monkeypatch):
    folder = write(tmp_path / "mine", OWN)
    protocol = RetrievalProtocol({**RetrievalProtocol.variant(str(folder)), "ks": [1, 3]}, f"retrieval:{folder}")
    assert protocol.tasks() == {"mine": f"own:{folder}"} and protocol.load("stsb/test") is None
    data = protocol.load(f"own:{folder}")
    rows, seen = measured(protocol, data)
    several = {f"{name}@{k}" for name in ("recall", "hit", "ndcg", "precision") for k in (1, 3)}
    assert set(rows) == {*several, "mrr", "map"}
    # The third query is itself in the corpus and not counted: three texts are left to it.
    assert rows["recall@3"].n == 3 and seen.arrays["rank"].tolist()[3] <= 3 and seen.arrays["query"].tolist() == [0, 1, 1, 2]
    assert str(tmp_path) not in json.dumps([protocol.settings, protocol.label, data.id, data.task])
    monkeypatch.chdir(tmp_path / "mine")
    assert RetrievalProtocol(RetrievalProtocol.variant(".")).settings == {**protocol.settings, "ks": [1, 5, 10]}
    # Scoring again needs no folder, and a link of that name changes nothing: settings and label come from the record.
    monkeypatch.chdir(tmp_path)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    again = RetrievalProtocol(protocol.settings, protocol.label)
    assert again.tasks() == {"mine": "own:mine"} and again.label == protocol.label == "retrieval:mine"
    assert {row.metric: row for row in again.score(seen, data.id, "X")} == rows


def test_counts_of_the_real_task():
    data = load_data("stsb/test", data_dir=real_data())
    merged, kept = from_pairs(data, "merge"), from_pairs(data, "keep")
    assert len(kept.corpus) == 2758 and len(merged.corpus) == 2551
    assert len(merged) == len(kept) == 2 * 97  # the denominators in protocol-retrieval.md
    assert sum(kept.corpus.count(text) > 1 for text in kept.queries) == 39
