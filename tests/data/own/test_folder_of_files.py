"""A folder of files is one task whose subsets, or splits, are its files."""

from __future__ import annotations

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


def test_the_identity_is_that_of_one_file_with_a_column_of_subsets(tmp_path):
    folder = read_scored_pairs(write(tmp_path / "langs"))
    assert (folder.task, folder.counts) == ("langs", {"de": 3, "en": 4})
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
