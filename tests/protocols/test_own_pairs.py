"""`sts:FILE`: a user's own scored pairs, against scipy, and what such a file may not hold."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from clirun import cli, fails, place  # noqa: F401 - fixtures
from scipy.stats import pearsonr, spearmanr

from stsbench import evaluate, load_encoder
from stsbench.data.own.sets import read_scored_pairs
from stsbench.errors import DataError
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import load_records

PAIRS = [
    ("A man plays a guitar.", 'A man is "playing", the guitar.', 4.8, "music"),
    ("A drum is loud.", "The piano is quiet.", 1.5, "music"),
    ("She sings.", "A woman is singing\u2028a song.", 4.1, "music"),
    ("A dog runs.", "A cat sleeps.", -0.5, "animals"),
    ("Two horses eat grass.", "Horses are eating grass.", 4.2, "animals"),
    ("A bird flies.", "A fish swims.", 0.9, "animals"),
]
NAMES = ("sentence1", "sentence2", "score", "subset")


def quoted(text):
    return '"' + str(text).replace('"', '""') + '"'


WRITERS = {
    "pairs.csv": lambda rows: "\ufeff" + "".join(",".join(map(quoted, row)) + "\r\n" for row in [NAMES, *rows]),
    "pairs.jsonl": lambda rows: "\n".join(json.dumps(dict(zip(NAMES, row, strict=True))) for row in rows),
}


def write(name, rows=PAIRS):
    Path(name).write_text(WRITERS[name](rows), "utf-8", newline="")
    return name


def test_scores_are_those_of_scipy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "pairs.csv"
    result = evaluate("lexical:token-set", output="run", protocols=[f"sts:{write(name)}"], resamples=20)
    vectors = load_encoder("lexical:token-set").encode([text for row in PAIRS for text in row[:2]])
    vectors = np.asarray(vectors.todense() if hasattr(vectors, "todense") else vectors, dtype=float)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine, gold = (unit[::2] * unit[1::2]).sum(axis=1), np.array([row[2] for row in PAIRS])
    groups = [slice(0, 3), slice(3, 6)]
    for metric, of in {"spearman": spearmanr, "pearson": pearsonr}.items():
        parts = [100 * of(cosine[at], gold[at]).statistic for at in groups]
        want = {"all": 100 * of(cosine, gold).statistic, "mean": np.mean(parts), "wmean": np.mean(parts)}
        rows = {row.aggregation: row for row in result.rows if row.subset is None and row.metric == metric}
        assert {how: row.value for how, row in rows.items()} == pytest.approx(want)
        assert {row.task for row in rows.values()} == {name} and rows["all"].n == len(PAIRS)
    ((path, record),) = load_records(Path("run"))
    assert record.protocol.label == f"sts:{name}" and record.data.text_version == "own" and record.data.task == name
    assert str(tmp_path) not in record.model_dump_json()
    assert rescored(path, record)[1] == record.scores


def test_the_command_line(cli, place):
    words = ("eval", "--model", "lexical:token-set", "--protocol")
    name = write("pairs.csv")
    for run, similarity in (("a", "cosine"), ("b", "dot")):
        code, out, err = cli(*words, f"sts:{name}", "--similarity", similarity, "--output", run)
        assert code == 0 and "No average" not in out, err
    code, out, _ = cli("compare", "a", "a")
    assert code == 0 and "sts:pairs.csv" in out and "not part of the average" not in out
    write(name, [*PAIRS[:-1], (*PAIRS[-1][:2], 1.1, "animals")])
    assert cli(*words, f"sts:{name}", "--output", "other")[0] == 0
    assert "the data differ" in " ".join(cli("compare", "a", "other")[1:])


VARIANTS = {
    "a.csv": "sentence1;sentence2;score\na;b;1\nc, d;e;2\n",
    "b.csv": "sentence1\tsentence2\tscore\na\tb\t1\nc, d\te\t2\n",
    "c.tsv": "sentence1,sentence2,score\na,b,1\n\"c, d\",e,2\n",
    "d.csv": "a,b,1\n\"c, d\",e,2\n",
    "e.tsv": "a\tb\t1\nc, d\te\t2\n",
    "f.csv": "label,text1,text2\n1,a,b\n2,\"c, d\",e\n",
    "g.csv": "Sent_1|Sent_2|Similarity\na|b|1\nc, d|e|2\n",
    "h.jsonl": '{"sentence_A": "a", "sentence_B": "b", "relatedness_score": 1}\n'
               '{"sentence_A": "c, d", "sentence_B": "e", "relatedness_score": 2}',
}


def test_usual_delimiters_names_and_formats_hold_one_set(tmp_path, monkeypatch):
    """Equal pairs are one set by id and digest, whatever file holds them; what was not as expected is in a warning."""
    import datasets
    import pyarrow as pa
    from pyarrow import parquet

    monkeypatch.chdir(tmp_path)
    columns = {"sentence1": ["a", "c, d"], "sentence2": ["b", "e"], "score": [1.0, 2.0]}
    parquet.write_table(pa.table(columns), "i.parquet")
    parquet.write_table(pa.table({**columns, "score": [Decimal("1.00"), Decimal("2.00")]}), "j.parquet")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns).save_to_disk("saved")
    for name, text in VARIANTS.items():
        Path(name).write_text(text, "utf-8", newline="")
    sets = {name: read_scored_pairs(Path(name)) for name in (*VARIANTS, "i.parquet", "j.parquet", "saved")}
    assert {tuple(each.rows()) for each in sets.values()} == {(("all", "a", "b", 1.0), ("all", "c, d", "e", 2.0))}
    assert len({(each.id, each.digest) for each in sets.values()}) == 1
    assert {name for name, each in sets.items() if not each.warnings} == {"i.parquet", "j.parquet", "saved"}
    assert sets["a.csv"].warnings == ("a.csv: its columns are separated by semicolons",)
    datasets.DatasetDict({"test": datasets.Dataset.from_dict(columns)}).save_to_disk("splits")
    with pytest.raises(DataError):
        read_scored_pairs(Path("splits"))  # several: which one is to be measured?
    assert read_scored_pairs(Path("splits/test")).id == sets["saved"].id


def test_equal_pairs_in_two_files_have_equal_intervals_and_can_be_compared(cli, place):
    words = ("eval", "--model", "lexical:token-set", "--protocol")
    for name in ("pairs.csv", "pairs.jsonl"):
        assert cli(*words, f"sts:{write(name)}", "--output", name[6:], "--resamples", "100")[0] == 0
    one, two = ([(row.value, row.low, row.high) for _, record in load_records(Path(run)) for row in record.scores]
                for run in ("csv", "jsonl"))
    assert one == two
    code, out, _ = cli("compare", "csv", "jsonl")
    assert code == 0 and "only A has it" not in out and "sts: spearman" in out


@pytest.mark.parametrize("fault", [TypeError("no such text"), ValueError("x"), MemoryError()])
def test_what_fails_in_one_task_does_not_cost_the_others(tmp_path, monkeypatch, fault):
    """An encoder that fails on a text of one of two files: the other's record is kept, the reason stands by the task."""
    monkeypatch.chdir(tmp_path)
    write("pairs.csv")
    Path("bad.csv").write_text("sentence1,sentence2,score\na,b,1\nbad text,c,2\nd,e,3\n")

    def encode(texts):
        if "bad text" in texts:
            raise fault
        return np.random.default_rng(0).standard_normal((len(texts), 4)).astype(np.float32)

    result = evaluate(encode, output="run", protocols=["sts:bad.csv", "sts:pairs.csv"], resamples=0)
    assert [record.data.task for record in result.records] == ["pairs.csv"] and len(load_records(Path("run"))) == 1
    ((task, reason),) = result.failures.items()
    assert task == "sts:bad.csv bad.csv" and type(fault).__name__ in reason


def test_few_pairs_are_said_to_show_little(cli, place):
    """Over two pairs a correlation is 1 or -1; over fewer than ten its interval is nearly everything."""
    words = ("eval", "--model", "lexical:token-set", "--resamples", "0", "--output")
    rest = [*PAIRS, ("A.", "B.", 1.0, "rest"), ("C.", "D.", 2.0, "rest")]
    assert "subset rest: a correlation needs at least three pairs" in cli(
        *words, "two", "--protocol", f"sts:{write('pairs.csv', rest)}")[2]
    code, _, err = cli(*words, "few", "--protocol", f"sts:{write('pairs.csv')}")
    assert code == 0 and "3 pairs in music, 3 pairs in animals: a correlation over fewer than 10 says next to nothing" in err
    ((path, record),) = load_records(Path("few"))
    assert rescored(path, record)[1] == record.scores
    code, _, err = cli(*words, "sample", "--protocol", "sts", "--sample")
    assert code == 0 and "says next to nothing" not in err
