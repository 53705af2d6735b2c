"""What a training text shares with test sets: in train.json, the exported encoder, its records; never "none" unseen."""

import json

import numpy as np
import pytest
from training_runs import settings

import stsbench
from stsbench.data.fetch.sources import load_data
from stsbench.data.own.overlap import TESTS, shared_texts
from stsbench.data.sets.sentences import normalise
from stsbench.encoders.traits import texts_not_compared, texts_shared
from stsbench.evaluation.run_file import load_records
from stsbench.training.rows.batches import stream
from stsbench.training.runs.options import TrainRequest, resolve
from stsbench.training.runs.seed_runs import train_runs


def planted(folder, name="planted.txt"):
    """A text with five texts of a sample's test set as they stand, three in capitals and one twice."""
    tests = sorted(load_data("sts13/test", sample=True).texts, key=len)[-8:]
    lines = (folder / "text.txt").read_text("utf-8").splitlines()
    changed = [f"{text.upper()} !" for text in tests[5:]]
    (folder / name).write_text("\n".join([*lines[:30], *tests[:5], *changed, tests[0], *lines[30:]]) + "\n", "utf-8")
    return folder / name


def train(place, text, output, evaluate=(), **values):
    more = {"training.max_steps": 2, "selection.by": "none", **values}
    values = settings(place / "tiny", text, **more)
    request = TrainRequest("simcse", settings=values, output=output, device="cpu", sample=True, evaluate=evaluate)
    lines = []
    return train_runs(resolve(request, lambda line: None)[0], None, None, lines.append), lines


@pytest.fixture(scope="module")
def run(place, tmp_path_factory):
    """(folder, summary, lines printed) of a run on the planted text, tested on a user's own pairs, too."""
    folder = tmp_path_factory.mktemp("planted-run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        rows = (place / "text.txt").read_text("utf-8").splitlines()[:6]
        pairs = ["sentence1,sentence2,score", f"{rows[0]},{rows[1]},1", "Nobody wrote this.,Nor this.,2",
                 f"{rows[2]},New.,3"]
        (place / "own.csv").write_text("\n".join(pairs) + "\n", "utf-8")
        summary, lines = train(place, planted(place), folder / "run", [f"sts:{place / 'own.csv'}"])
    return folder / "run", summary, lines


def test_the_record_of_the_training_has_what_a_set_intersection_finds(run, place):
    folder, summary, _ = run
    about = json.loads((folder / "train.json").read_text("utf-8"))["overlap"]["main"]
    assert about == summary["overlap"]["main"] and about["text"] == "planted.txt" and about["sample"] is True
    lines = {line.strip() for line in (place / "planted.txt").read_text("utf-8").splitlines()}
    plain = {normalise(line) for line in lines} - {""}
    for name in TESTS:
        data = load_data(name, sample=True)
        texts = {text for text in data.texts if text} if not hasattr(data, "splits") or "test" not in data.splits else {
            text for side in (data.first, data.second) for text, split in zip(side, data.splits, strict=bool(side))
            if split == "test" and text}
        exact = {text for text in texts if text.strip() in lines}
        other = {text for text in texts - exact if normalise(text) in plain}
        counts = about["shared"].get(name, {"texts": len(texts), "exact": 0, "normalised": 0})
        assert (counts["texts"], counts["exact"], counts["normalised"]) == (len(texts), len(exact), len(other)), name
        assert (name in about["none"]) == (not exact and not other)
    count = len(load_data("sts13/test", sample=True).texts)
    assert about["shared"]["sts13/test"] == {"texts": count, "exact": 5, "normalised": 3, "rows": 9}
    assert about["looked_for"] == ["exact", "normalised"] and about["not_looked_for"] == []
    numbered = enumerate(map(str.strip, (place / "planted.txt").read_text("utf-8").splitlines()), 1)
    (same,) = shared_texts(((row, text) for row, text in numbered if text), [load_data("sts13/test", sample=True)])
    assert {key: getattr(same, key) for key in ("texts", "exact", "normalised", "rows")} == about["shared"]["sts13/test"]


def test_the_encoder_and_its_records_say_it(run):
    folder, summary, lines = run
    (about,) = stsbench.load_encoder(str(folder)).traits.training_overlap
    assert about == summary["overlap"]["main"]
    records = [record for _, record in load_records(folder / "eval")]
    assert records and all(record.provenance["training_overlap"] == [about] for record in records)
    assert any(line.startswith("planted.txt: holds test texts: 8 of ") and "of sts13/test" in line for line in lines)
    (own,) = (record.data for record in records if record.data.id.startswith("own:"))  # data of the user's, too
    assert about["shared"][own.id] == {"texts": 6, "exact": 3, "normalised": 0, "rows": 3}
    assert any("3 of 6 of own:own.csv" in line for line in lines)


def test_without_test_sets_nothing_is_said_to_be_absent(place, tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.training.rows.overlap.available_tests", lambda **where: ([], [*TESTS]))
    summary, lines = train(place, place / "text.txt", tmp_path / "run")
    about = summary["overlap"]["main"]
    assert (about["looked_for"], about["shared"], about["none"], about["not_looked_for"]) == ([], {}, [], [*TESTS])
    assert f"text.txt: not compared with {', '.join(TESTS)}" in lines
    monkeypatch.undo()  # sentences within documents are not looked for
    monkeypatch.setenv("STSBENCH_CACHE", str(place / "cache"))
    more = {"data.lines_per_row": 3, "training.max_steps": 1}
    about = train(place, planted(place), tmp_path / "documents", **more)[0]["overlap"]["main"]
    assert about["none"] == [] == about["looked_for"] and about["not_looked_for"] == [*TESTS]


def test_only_rows_that_are_trained_on_count(place, tmp_path):
    summary, _ = train(place, planted(place), tmp_path / "run", **{"data.held_out": 35, "selection.by": "held-out"})
    text = (place / "planted.txt").read_text("utf-8").splitlines()
    order = stream(42, "held-out rows").permutation(np.arange(len(text)))
    trained, held_out = ({text[row] for row in rows} for rows in (order[:-35], order[-35:]))
    exact = (trained - held_out) & set(load_data("sts13/test", sample=True).texts)
    assert summary["overlap"]["main"]["shared"]["sts13/test"]["exact"] == len(exact) < 5


def test_a_run_on_an_exported_encoder_says_what_that_one_was_trained_on(run, place, tmp_path):
    folder, summary, _ = run
    train(place, place / "text.txt", tmp_path / "later", **{"backbone.model": str(folder / "best")})
    first, second = stsbench.load_encoder(str(tmp_path / "later")).traits.training_overlap
    assert first == summary["overlap"]["main"] and second["text"] == "text.txt"


ONE = {"text": "a.txt", "shared": {"sts12/test": {"texts": 9, "exact": 1, "normalised": 2, "rows": 4}},
       "none": ["sick-r/test"], "not_looked_for": ["mr"]}


def test_a_set_is_known_by_its_sentences():
    for id, shared, unknown in (
        ("sts12/test", 1, []), ("mteb:STS12", 1, []), ("sick-r/test", 0, []), ("mr", 0, ["a.txt"]), ("own:1", 0, ["a.txt"]),
        ("sick-e/splits", 0, []), ("sick-r/mteb", 0, ["a.txt"]), ("mteb:SICK-R", 0, ["a.txt"]),
    ):
        assert len(texts_shared([ONE], id)) == shared and texts_not_compared([ONE], id) == unknown
        assert texts_shared([ONE], id, sample=True) == [] and texts_not_compared([ONE], id, sample=True) == ["a.txt"]
    one = {**ONE, "shared": {"sick-r/test": {"texts": 9, "exact": 1, "normalised": 0, "rows": 1}}}
    assert len(texts_shared([one], "sick-r/mteb")) == 1 == len(texts_shared([one], "mteb:SICK-R"))  # all of SICK
    assert texts_not_compared([one], "sick-r/mteb") == []
