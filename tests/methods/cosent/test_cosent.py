"""CoSENT against a loop over texts encoded one at a time, by scores and by classes; what is refused; what is flagged."""

import json

import numpy as np
import pytest
from graded_oracle import cosine, naive_cosent
from method_oracle import MemoryRows, batch_of, make, states
from method_runs import cached_place, recipe_of, train
from shipped_recipes import one_line
from simcse_oracle import folder
from tiny_models import sentences

from stsbench.config import validate
from stsbench.methods.cosent.method import CoSENT
from stsbench.methods.cosent.options import CoSENTOptions
from stsbench.training.runs import run
from stsbench.training.runs.request import TrainOptions

__all__ = ["folder"]
TEXTS = sentences(12, longest=9, seed=3)
SCORES = [4.2, 0.0, 2.5, 2.5, 5.0, 1.0]


class Scored(MemoryRows):
    def scores(self):
        return [SCORES[row] for row in self.rows]


@pytest.mark.parametrize("scale", [20.0, 3.0])
@pytest.mark.parametrize("padding", [0, 3])
def test_the_loss_is_the_loop(folder, scale, padding):
    method = make(CoSENT, folder, {"scale": scale})
    rows = Scored(folder, {"sentence1": TEXTS[:6], "sentence2": TEXTS[6:]})
    ((name, term),) = method(batch_of(method, rows, more_padding=padding)).items()
    u, v = ([state[0] for state in states(folder, rows.ids(role))] for role in rows.roles)
    expected = naive_cosent([cosine(a, b) for a, b in zip(u, v, strict=True)], SCORES, scale)
    assert (name, term.count, term.weight) == ("cosent", 6, 1.0)
    assert term.value.item() == pytest.approx(float(expected), abs=1e-8)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("cosent-place"))


PLAIN = {"data.held_out": 0, "selection.by": "none"}
CLASSES = {**PLAIN, "options.format": "labelled", "data.file": None, "labelled.file": "pairs"}


def test_classes_are_scores_of_the_same_order(place, tmp_path):
    """Pairs with a class train as the same pairs with the class's number."""
    lines = (place / "pairs.tsv").read_text("utf-8").splitlines()[1:]
    number = {"contradiction": 0, "neutral": 1, "entailment": 2}
    rows = [line.split("\t") for line in lines]
    numbered = "\n".join(["sentence1\tsentence2\tscore", *(f"{a}\t{b}\t{number[c]}" for a, b, c in rows)])
    (tmp_path / "numbered.tsv").write_text(numbered + "\n", "utf-8")
    logs = []
    for name, changes in (("classes", CLASSES), ("scores", {**PLAIN, "data.file": str(tmp_path / "numbered.tsv")})):
        _, log = train(recipe_of(place, "cosent", **changes), tmp_path / name, place)
        logs.append([line["loss"] for line in log if line["kind"] == "train"])
    assert len(logs[0]) == 2 and logs[0] == logs[1]


@pytest.mark.parametrize(("changes", "words"), [
    ({**PLAIN, "data.file": "text"}, ["cosent learns from pairs with scores", "(the data give sentence)"]),
    ({**PLAIN, "data.file": "same"}, ["same.tsv:2: every row has the score 3: there is no order to learn"]),
    ({**CLASSES, "options.label_scores": {"contradiction": 0, "entailed": 1}},
     ["options.label_scores names entailed", "contradiction, entailment, neutral"]),
    ({**CLASSES, "labelled.file": "text"}, ["premise, hypothesis and label"]),
])
def test_data_without_an_order_are_refused(place, tmp_path, changes, words):
    (place / "same.tsv").write_text("sentence1\tsentence2\tscore\na cat\ta dog\t3\na man\ta cat\t3\n", "utf-8")
    changes = {**changes, "data.file": str(place / "same.tsv")} if changes["data.file"] == "same" else changes
    one_line(lambda: train(recipe_of(place, "cosent", **changes), tmp_path / "run", place), *words)


def test_options_without_an_effect_are_refused():
    for options, line in (
        ({"label_scores": {"a": 0, "b": 1}}, "has no effect with format scored: it goes with format labelled; leave it"),
        ({"format": "labelled", "label_scores": {"a": 1, "b": 1}}, "options.label_scores needs two classes with different"),
    ):
        one_line(lambda options=options: validate(CoSENTOptions, options, "recipe", "options."), line)


def test_scores_of_sts_b_are_flagged_where_its_sentences_are_tested(place, tmp_path):
    pairs = place / "data" / "downstream" / "STS" / "STSBenchmark" / "sts-train.csv"
    texts = sentences(40, longest=9, seed=7)
    rows = [f"main\tinvented\t0\t{i}\t{i % 6}.0\t{texts[i]}\t{texts[i + 20]}" for i in range(20)]
    pairs.write_text("\n".join(rows) + "\n", "utf-8")
    recipe = recipe_of(place, "cosent", **{**PLAIN, "data.file": None})
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"file": "stsb/train"})})
    run.train(TrainOptions(recipe=recipe, output=tmp_path / "run", data_dir=place / "data"), lambda line: None)
    stored = json.loads((tmp_path / "run" / "best" / "stsbench.json").read_text("utf-8"))
    assert {"sts12", "sts16"} <= set(stored["trained_on"])
    assert np.isfinite([line["loss"] for line in map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
                        if line["kind"] == "train"]).all()
