"""CoSENT and AnglE on pairs of classes, and scores that AnglE cannot use. Their losses: tests/losses, test_terms.py."""

import numpy as np
import pytest
from method_oracle import MemoryRows, batch_of, make
from method_runs import make_place, recipe_of, train
from tiny_models import sentences

from stsbench.errors import StsbenchError
from stsbench.methods.angle.method import AnglE, check_scores
from stsbench.methods.angle.options import AnglEOptions


def test_scores_that_in_batch_negatives_cannot_use_or_without_an_order_are_found(folder):
    assert check_scores(AnglEOptions(), np.array([0.0, 1.0, 3.0]))[0] == 2
    assert check_scores(AnglEOptions(), np.array([1.0, 0.0])) is None
    assert check_scores(AnglEOptions(angle_weight=0), np.array([1.0, 1.0])) is None  # nothing is put in order
    assert check_scores(AnglEOptions(), np.array([1.0, 1.0])) is not None
    assert check_scores(AnglEOptions(ibn_weight=0), np.array([1.5, 0.0])) is None
    assert AnglEOptions(format="labelled", label_scores={"a": 0, "b": 2}, ibn_weight=0)
    texts, method = sentences(6, longest=9, seed=3), make(AnglE, folder)
    with pytest.raises(StsbenchError):  # of a foreign trainer, whose rows nobody looked at before
        batch_of(method, MemoryRows(folder, {"sentence1": texts[:3], "sentence2": texts[3:]}, values=[4.2, 0, 2.5]))
    method.backbone.model.config.hidden_size = 33
    assert "33 numbers have no halves" in method.notes()[0]


def test_pairs_with_a_class_train_as_the_same_pairs_with_its_number(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    place = make_place(tmp_path)
    number = {"contradiction": 0, "neutral": 1, "entailment": 2}
    rows = [line.split("\t") for line in (place / "pairs.tsv").read_text("utf-8").splitlines()[1:]]
    numbered = "\n".join(["sentence1\tsentence2\tscore", *(f"{a}\t{b}\t{number[c]}" for a, b, c in rows)])
    (tmp_path / "numbered.tsv").write_text(numbered + "\n", "utf-8")
    plain = {"data.held_out": 0, "selection.by": "none"}
    classes = {"options.format": "labelled", "data.file": None, "labelled.file": "pairs"}
    losses = []
    for name, changes in (("classes", classes), ("scores", {"data.file": str(tmp_path / "numbered.tsv")})):
        _, log = train(recipe_of(place, "cosent", **plain, **changes), tmp_path / name, place)
        losses.append([line["loss"] for line in log if line["kind"] == "train"])
    assert len(losses[0]) == 2 and losses[0] == losses[1]
