"""A folder of files is one task whose subsets, or splits, are its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from stsbench import evaluate
from stsbench.data.own.sets import read_labelled_pairs, read_labelled_texts, read_scored_pairs

PARTS = {
    "de.csv": [("rot blau", "rot blau grau", 4.0), ("ein hund", "zwei katzen", 0.5), ("ein haus", "ein altes haus", 3.0)],
    "en.csv": [("a red cat", "a red dog", 3.0), ("one bird", "the moon", 0.0), ("two fish", "two big fish", 4.5),
               ("rain", "rain now", 2.0)],
}


def write(folder, parts=PARTS, columns=("sentence1", "sentence2", "score")):
    folder.mkdir()
    for name, rows in parts.items():
        text = "".join(",".join(map(str, row)) + "\n" for row in [columns, *rows])
        (folder / name).write_text(text, "utf-8")
    return folder


def test_each_file_is_a_subset_and_the_aggregations_are_those_of_a_year(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = read_scored_pairs(write(Path("langs")))
    assert (data.task, data.counts) == ("langs", {"de": 3, "en": 4})
    result = evaluate("lexical:token-set", output="run", protocol="sts:langs", resamples=0)
    rows = {(row.subset, row.aggregation): row.value for row in result.rows if row.metric == "spearman"}

    def cosine(a, b):
        a, b = set(a.split()), set(b.split())
        return len(a & b) / np.sqrt(len(a) * len(b))

    pairs = {name.removesuffix(".csv"): list(zip(*[(cosine(a, b), score) for a, b, score in items], strict=True))
             for name, items in PARTS.items()}
    by_part = {name: 100 * spearmanr(*columns).statistic for name, columns in pairs.items()}
    pooled = 100 * spearmanr(*(np.concatenate([part[side] for part in pairs.values()]) for side in (0, 1))).statistic
    assert {name: rows[name, None] for name in by_part} == pytest.approx(by_part)
    assert rows[None, "all"] == pytest.approx(pooled)
    assert rows[None, "mean"] == pytest.approx(np.mean([*by_part.values()]))
    assert rows[None, "wmean"] == pytest.approx(np.average([*by_part.values()], weights=[3, 4]))


def test_the_identity_is_that_of_one_file_with_a_column_of_subsets(tmp_path):
    folder = read_scored_pairs(write(tmp_path / "langs"))
    (tmp_path / "langs" / "README.md").write_text("words")
    (tmp_path / "langs" / ".hidden.csv").write_text("x")
    assert read_scored_pairs(tmp_path / "langs").warnings == ("langs: not read: README.md",)
    rows = [(*row, name.removesuffix(".csv")) for name, part in PARTS.items() for row in part]
    write(tmp_path / "one", {"all.csv": rows}, ("sentence1", "sentence2", "score", "subset"))
    assert read_scored_pairs(tmp_path / "one" / "all.csv").digest == folder.digest
    assert read_scored_pairs(tmp_path / "one").digest == folder.digest  # a single file is no part
    (tmp_path / "langs" / "en.csv").write_text("sentence1,sentence2,score\na,b,1\n")
    assert read_scored_pairs(tmp_path / "langs").digest != folder.digest


def test_pairs_and_splits(tmp_path):
    labelled = {name: [(a, b, int(score > 2)) for a, b, score in rows] for name, rows in PARTS.items()}
    assert read_labelled_pairs(write(tmp_path / "pairs", labelled, ("text1", "text2", "label"))).counts == {"de": 3, "en": 4}
    texts = {"train.csv": [("a", "x"), ("b", "y")], "validation.csv": [("c", "x")], "test.csv": [("d", "y")]}
    assert read_labelled_texts(write(tmp_path / "texts", texts, ("text", "label"))).counts == {
        "test": 1, "train": 2, "dev": 1}
