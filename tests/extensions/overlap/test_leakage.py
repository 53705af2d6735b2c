"""What a training file shares with test sets: planted texts are found, each as the nearest kind, by line."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clirun import cli, fails, place  # noqa: F401 - fixtures
from realdata import real_data

from stsbench.data.fetch.sources import load_data, sts_texts
from stsbench.data.own.overlap import overlapping_pairs
from stsbench.data.sets.sentences import normalise
from stsbench.data.sets.sets import LabelledSet, PairSet
from stsbench.extensions.overlap.leakage import jaccard, leakage, overlap

WORDS = ["a", "the", "old", "young", "man", "woman", "dog", "cat", "horse", "plays", "eats", "sees", "guitar", "apple",
         "garden", "street", "slowly", "quickly", "near", "behind"]


def texts(n, seed):
    rng = np.random.default_rng(seed)
    return list(dict.fromkeys(" ".join(rng.choice(WORDS, rng.integers(6, 14))) for _ in range(n)))


def scored(name, *rows):
    first, second = zip(*rows, strict=True) if rows else ((), ())
    return PairSet(id=name, task="T", text_version="own", first=first, second=second, gold=np.zeros(len(rows)),
                   subsets=("x",) * len(rows))


def pair_set(name, some):
    return scored(name, *zip(some[0::2], some[1::2], strict=False))


def test_planted_texts_are_found(tmp_path):
    tests, training = texts(80, 0), texts(100, 1)
    data = pair_set("one", tests)
    longest = sorted(data.texts, key=len)[-30:]
    exact, other_case, changed = longest[:10], longest[10:20], longest[20:]
    planted = [*exact, *(text.upper() + " !" for text in other_case), *(text + " xylophone" for text in changed)]
    lines = [*training[:50], *planted, *training[50:]]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    (shared,) = leakage(tmp_path / "train.txt", [data])
    plain = {text: normalise(text) for text in {*data.texts, *lines}}
    loop = {text for text in data.texts for line in lines
            if text != line and plain[text] != plain[line] and jaccard(plain[text], plain[line]) >= 0.7}
    assert (shared.texts, shared.exact, shared.normalised) == (len(data.texts), 10, 10)
    assert shared.near == len(loop - set(exact) - set(other_case)) == 10 and shared.any == 30
    assert shared.rows == 30 and [example.line for example in shared.examples] == [51, 52, 61, 62, 71, 72]
    assert {example.kind for example in shared.examples} == {"exact", "normalised", "near"}
    assert shared.examples[0].training == exact[0]
    (only,) = leakage(tmp_path / "train.txt", [data], near=None)
    assert (only.exact, only.normalised, only.near, only.rows) == (10, 10, 0, 20)


def test_near_duplicates_are_those_of_a_loop(tmp_path):
    """MinHash proposes and the Jaccard decides: of pairs at .7 or more hardly one is missed, and none is invented."""
    rng = np.random.default_rng(1)
    data = pair_set("one", texts(60, 1))
    training = [" ".join(np.where(rng.random(len(words := text.split())) < 0.12, rng.choice(WORDS, len(words)), words))
                for text in data.texts]
    (tmp_path / "train.txt").write_text("\n".join(training) + "\n")
    (shared,) = leakage(tmp_path / "train.txt", [data])
    plain, lines = [normalise(text) for text in data.texts], [normalise(line) for line in training]
    best = [max(2 * (line == text) + jaccard(line, text) for line in lines) for text in plain]
    near = sum(0.7 <= value < 2 for value in best)
    assert near > 8 and near - 2 <= shared.near <= near and shared.exact == sum(value >= 2 for value in best)


def test_every_text_of_a_file_counts(tmp_path):
    """A file without a header begins with a row, JSON may hold lists of texts, a folder that `datasets` saved is read."""
    texts = ["one two three", "five six"]
    files = {
        "a.csv": "x,y\none two three,five six\nnine ten,a b c d\n", "a.tsv": "x\ty\none two three\tfive six\n",
        "bare.csv": "one two three,five six\n", "bare.tsv": "one two three\tfive six\n",
        "lists.jsonl": '{"query": "one two three", "positives": ["five six", "x"], "meta": {"n": 1}}\n',
        "columns.json": '{"text": ["one two three", "five six"]}\n'}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        (shared,) = leakage(tmp_path / name, [pair_set("one", texts)])
        assert shared.exact == 2 and shared.examples[0].line == (2 if name.startswith("a.") else 1), name
    for mark in ";|":
        (tmp_path / "a.csv").write_text(f'anchor{mark}positive\n"A cat, asleep"{mark}"a dog; awake"\n')
        assert leakage(tmp_path / "a.csv", [pair_set("one", ["a dog; awake", "z"])])[0].exact == 1
    pq.write_table(pa.table({"text": texts, "id": [1, 2]}), tmp_path / "a.parquet")
    assert leakage(tmp_path / "a.parquet", [pair_set("one", texts)])[0].exact == 2
    (tmp_path / "none.txt").write_text("")
    assert leakage(tmp_path / "none.txt", [pair_set("one", texts)])[0].any == 0
    rows, folder = pa.table({"text": [texts[0], None, texts[1]], "n": [1, 2, 3]}), tmp_path / "saved"
    folder.mkdir()
    (folder / "state.json").write_text("{}")
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", rows.schema) as stream:
        stream.write_table(rows)
    assert leakage(folder, [pair_set("one", texts)])[0].exact == 2


def test_only_the_test_split_counts_and_a_text_may_lack_grams(tmp_path):
    (tmp_path / "train.txt").write_text("seen in train\nseen in test\nhi\n\n?\n")
    data = LabelledSet(id="c", task="C", text_version="own", first=("seen in train", "seen in test"),
                       labels=np.array([0, 1]), splits=("train", "test"))
    split, short = leakage(tmp_path / "train.txt", [data, pair_set("one", ["Hi", "?", "longer text", "ok"])])
    assert (split.texts, split.exact, split.rows) == (1, 1, 1)
    assert (short.exact, short.normalised, short.near) == (1, 1, 0)


def test_own_test_sets_by_what_eval_calls_them(cli, place):
    (place / "train.csv").write_text("text\nA cat sits.\nNothing of the tests.\n")
    (place / "mine.csv").write_text("text1,text2,label\na cat sits,It rains.,1\nWe go.,They stay.,0\n")
    tests = "pairs:mine.csv,stsb/test"
    code, out, err = cli("data", "overlap", "train.csv", "--with", tests, "--sample", "--json", "out.json")
    assert code == 0 and "train.csv:2" in out, err
    mine, catalog = json.loads((place / "out.json").read_text())["sets"]
    assert (mine["texts"], mine["exact"], mine["normalised"], mine["rows"]) == (4, 0, 1, 1) and catalog["id"] == "stsb/test"
    code, out, _ = cli("data", "overlap", "pairs:mine.csv", "--sample")
    assert code == 0 and "pairs:mine.csv: 4 distinct sentences; 0 of 2 pairs have at least one shared sentence" in out
    fails(cli("data", "overlap", "train.csv", "--with", "pairs:none.csv"), "pairs:none.csv: there is no file none.csv")
    fails(cli("data", "overlap", "none.txt", "--sample"), "none.txt")
    for asked in (["train.csv", "--with", "sts:mean,stsb/test"], ["sts:mean", "--with", "stsb/test"]):  # no set is left out
        fails(cli("data", "overlap", *asked, "--sample"), "sts:mean: it names no file")


# STS-B was drawn from STS12 to STS16: what its training split shares with them, counted naively.
STATED = [("sts12/test", 4946, 1908), ("sts13/test", 2638, 1145), ("sts14/test", 6351, 3352), ("sts15/test", 5170, 2153),
          ("sts16/test", 1867, 391)]  # distinct texts of the scored pairs, and how many of them are there


def test_stsb_s_training_and_dev_splits_hold_texts_of_the_years_test_sets(place):
    """The docs print the first figures."""
    data_dir = real_data()
    path = sts_texts(data_dir, name="stsb-train-texts", offline=True).path
    sets = [load_data(name, data_dir=data_dir, offline=True) for name, *_ in STATED]
    assert [(one.id, one.texts, one.any) for one in leakage(path, sets, near=None)] == STATED
    others = [*sets, load_data("stsb/test", data_dir=data_dir, offline=True)]
    report = overlap(load_data("stsb/dev", data_dir=data_dir, offline=True), others)
    assert (report.sentences, report.shared, report.touched_pairs) == (2907, 2237, 1180)
    assert round(report.percent, 2) == 76.95


def test_counts_and_mask():
    target = scored("t", ("A man, runs.", "b"), ("c", "d"), ("e", "A man runs"), ("...", "f"))
    report = overlap(target, [scored("u", ("a man runs", "x")), scored("v", ("D!", "???"), ("a  man runs", "y"))])
    assert (report.sentences, report.shared, report.by_other) == (6, 2, {"u": 1, "v": 2})
    assert report.percent == pytest.approx(100 * 2 / 6) and (report.pairs, report.touched_pairs) == (4, 3)
    mask = overlapping_pairs(target, [scored("u", ("a man runs", "x"))])
    assert mask.tolist() == [True, False, True, False] and target.keep(~mask).first == ("c", "...")
    assert overlap(target, [target]).shared == 6
    assert overlap(scored("t"), []).percent == 0.0 and overlapping_pairs(scored("t"), []).shape == (0,)


def test_a_set_of_the_catalog_and_others(cli, place):
    code, out, err = cli("data", "overlap", "stsb/dev", "--sample", "--json", "o.json")
    assert code == 0 and "any of these" in out and "not comparable with published numbers" in out, err
    assert json.loads((place / "o.json").read_text())["target"] == "stsb/dev"
    report = json.loads(cli("data", "overlap", "stsb/dev", "--with", "stsb/test,stsb/dev", "--sample", "--json", "-")[1])
    assert report["others"] == ["stsb/test"] and report["view"] == "sample" and len(report["digests"]["stsb/dev"]) == 64
    fails(cli("data", "overlap", "stsb/dev", "--with", "stsb/dev", "--sample"), "at least one set other than the target")
