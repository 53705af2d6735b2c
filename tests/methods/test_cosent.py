"""CoSENT against a loop over texts encoded one at a time, by scores and by classes; what it was trained on is told."""

import json

import pytest
from graded_oracle import cosine, naive_cosent
from method_oracle import MemoryRows, batch_of, make, states
from method_runs import cached_place, recipe_of, train
from simcse_oracle import folder
from tiny_models import sentences

from stsbench.methods.cosent.method import CoSENT

__all__ = ["folder"]
TEXTS = sentences(12, longest=9, seed=3)
SCORES = [4.2, 0.0, 2.5, 2.5, 5.0, 1.0]


class Scored(MemoryRows):
    def scores(self):
        return [SCORES[row] for row in self.rows]


@pytest.mark.parametrize("scale", [20.0, 3.0])
def test_the_loss_is_that_of_a_loop_over_pairs_of_pairs(folder, scale):
    method = make(CoSENT, folder, {"scale": scale})
    rows = Scored(folder, {"sentence1": TEXTS[:6], "sentence2": TEXTS[6:]})
    ((name, term),) = method(batch_of(method, rows, more_padding=3)).items()
    u, v = ([state[0] for state in states(folder, rows.ids(role))] for role in rows.roles)
    expected = naive_cosent([cosine(a, b) for a, b in zip(u, v, strict=True)], SCORES, scale)
    assert (name, term.count, term.weight) == ("cosent", 6, 1.0)
    assert term.value.item() == pytest.approx(float(expected), abs=1e-8)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("cosent-place"))


PLAIN = {"data.held_out": 0, "selection.by": "none"}


def test_pairs_with_a_class_train_as_the_same_pairs_with_its_number(place, tmp_path):
    number = {"contradiction": 0, "neutral": 1, "entailment": 2}
    rows = [line.split("\t") for line in (place / "pairs.tsv").read_text("utf-8").splitlines()[1:]]
    numbered = "\n".join(["sentence1\tsentence2\tscore", *(f"{a}\t{b}\t{number[c]}" for a, b, c in rows)])
    (tmp_path / "numbered.tsv").write_text(numbered + "\n", "utf-8")
    classes = {"options.format": "labelled", "data.file": None, "labelled.file": "pairs"}
    losses = []
    for name, changes in (("classes", classes), ("scores", {"data.file": str(tmp_path / "numbered.tsv")})):
        _, log = train(recipe_of(place, "cosent", **PLAIN, **changes), tmp_path / name, place)
        losses.append([line["loss"] for line in log if line["kind"] == "train"])
    assert len(losses[0]) == 2 and losses[0] == losses[1]


def test_scores_of_sts_b_are_flagged_where_its_sentences_are_tested(place, tmp_path):
    pairs = place / "data" / "downstream" / "STS" / "STSBenchmark" / "sts-train.csv"
    texts = sentences(40, longest=9, seed=7)
    rows = [f"main\tinvented\t0\t{i}\t{i % 6}.0\t{texts[i]}\t{texts[i + 20]}" for i in range(20)]
    pairs.write_text("\n".join(rows) + "\n", "utf-8")
    recipe = recipe_of(place, "cosent", **PLAIN, **{"data.file": None})
    train(recipe.model_copy(update={"data": recipe.data.model_copy(update={"file": "stsb/train"})}), tmp_path / "run", place)
    stored = json.loads((tmp_path / "run" / "best" / "stsbench.json").read_text("utf-8"))
    assert {"sts12", "sts16"} <= set(stored["trained_on"])
