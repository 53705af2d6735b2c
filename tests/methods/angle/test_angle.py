"""AnglE's terms against loops over texts encoded one at a time, by the format of the data; options; two processes."""

import numpy as np
import pytest
import torch
from graded_oracle import complex_angle, cosine, naive_cosent, naive_cross_entropy, naive_in_batch
from method_oracle import MemoryRows, batch_of, make, states, total
from method_runs import cached_place, recipe_of, train
from shipped_recipes import one_line
from simcse_oracle import folder
from tiny_models import sentences
from training_runs import one_thread
from two_processes import both_find, same_gradients, second_pass

from stsbench.config import validate
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.methods.angle.method import AnglE, check_scores
from stsbench.methods.angle.options import AnglEOptions
from stsbench.training.api.batch import Shares
from stsbench.training.api.contrasting import rank_pairs
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs import run
from stsbench.training.runs.request import TrainOptions

__all__ = ["folder", "one_thread"]
TEXTS = sentences(15, longest=9, seed=3)
PAIRS = {"sentence1": TEXTS[:5], "sentence2": TEXTS[5:10]}
TRIPLETS = {"anchor": TEXTS[:5], "positive": TEXTS[5:10], "negative": TEXTS[10:]}
BINARY, GRADED = [1.0, 0.0, 0.0, 1.0, 1.0], [4.2, 0.0, 2.5, 2.5, 5.0]
SCALES = {"ibn_scale": 3.0, "cosine_scale": 7.0, "angle_scale": 11.0}


class Scored(MemoryRows):
    def __init__(self, folder, texts, scores):
        super().__init__(folder, texts)
        self.given = scores

    def scores(self):
        return [self.given[row] for row in self.rows]


def cls(folder, texts):
    return [state[0] for state in states(folder, MemoryRows(folder, {"text": texts}).ids("text"))]


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize(("scores", "weights"), [
    (BINARY, {}), (BINARY, {"ibn_weight": 30.0, "angle_weight": 1.0}), (BINARY, {"cosine_weight": 0.7, **SCALES}),
    (GRADED, {"ibn_weight": 0.0, "cosine_weight": 0.7, "angle_weight": 1.0}),
])
def test_format_a_is_the_three_terms(folder, scores, weights, padding):
    method = make(AnglE, folder, weights)
    batch = batch_of(method, Scored(folder, PAIRS, scores), more_padding=padding)
    u, v = (cls(folder, texts) for texts in PAIRS.values())
    o = method.options
    cosines, angles = ([similarity(a, b) for a, b in zip(u, v, strict=True)] for similarity in (cosine, complex_angle))
    expected = o.angle_weight * naive_cosent(angles, scores, o.angle_scale)
    expected += o.cosine_weight * naive_cosent(cosines, scores, o.cosine_scale)
    expected += o.ibn_weight * naive_in_batch(u, v, scores, o.ibn_scale) if o.ibn_weight else 0
    terms = method(batch)
    assert total(terms).item() == pytest.approx(float(expected), abs=1e-8)
    assert {term.count for term in terms.values()} == {5}


@pytest.mark.parametrize("weights", [{}, {"ibn_weight": 2.0, "cln_weight": 3.0, "cosine_weight": 0.7, **SCALES},
                                     {"ibn_weight": 0.0, "angle_weight": 1.0}, {"cln_weight": 0.0}])
def test_format_c_ranks_positives_above_negatives_beside_two_cross_entropies(folder, weights):
    method = make(AnglE, folder, {"format": "triplets", **weights})
    terms = method(batch_of(method, MemoryRows(folder, TRIPLETS), more_padding=2))
    q, p, n = (cls(folder, texts) for texts in TRIPLETS.values())
    o, scores = method.options, [1] * 5 + [0] * 5
    expected = o.ibn_weight / 2 * naive_cross_entropy(q, p, o.ibn_scale)
    expected += o.cln_weight / 2 * naive_cross_entropy(q, p + n, o.ibn_scale)
    for weight, similarity, scale in (
        (o.cosine_weight, cosine, o.cosine_scale), (o.angle_weight, complex_angle, o.angle_scale)
    ):
        ranked = [similarity(a, b) for a, b in zip(q + q, p + n, strict=True)]
        expected += weight * naive_cosent(ranked, scores, scale)
    assert total(terms).item() == pytest.approx(float(expected), abs=1e-8)


def test_format_b_is_one_cross_entropy(folder):
    method = make(AnglE, folder, {"format": "positives", "ibn_scale": 5.0})
    rows = MemoryRows(folder, {role: TRIPLETS[role] for role in ("anchor", "positive")})
    ((name, term),) = method(batch_of(method, rows)).items()
    q, p = (cls(folder, TRIPLETS[role]) for role in ("anchor", "positive"))
    assert (name, term.weight) == ("in_batch", 1.0)
    assert term.value.item() == pytest.approx(float(naive_cross_entropy(q, p, 5.0)), abs=1e-8)


CASES = {
    "labels": ({"cosine_weight": 0.5, "angle_weight": 1.0}, PAIRS, BINARY),
    "grades": ({"ibn_weight": 0.0, "cosine_weight": 0.5, "angle_weight": 1.0}, PAIRS, GRADED),
    "triplets": ({"format": "triplets", "cosine_weight": 0.5}, TRIPLETS, None),
}


def of_shares(folder, case, shares, mode):
    options, texts, scores = CASES[case]
    method = make(AnglE, folder, options)
    method.gather_mode = mode
    rows = MemoryRows(folder, texts) if scores is None else Scored(folder, texts, scores)
    views = method.views(rows, np.random.default_rng(0))
    return method, to_batch(views, shares, 0, torch.device("cpu"))


def ranked(sizes, rank=0):
    """Value and gradient of one process's share of five cosines, by the loop's weights."""
    shares = Shares(sizes, rank)
    rows = slice(shares.start, shares.start + sizes[rank])
    similarities = torch.linspace(-0.4, 0.9, 5, dtype=torch.float64)[rows].requires_grad_()
    pair = similarities.unsqueeze(1), similarities.unsqueeze(1)
    term = rank_pairs([pair], lambda first, second: first.squeeze(1), torch.tensor(GRADED)[rows], shares)
    (term.value * term.count / 5).backward()
    return term.value.item(), term.count, similarities.grad.tolist()


def compute(rank, folder):
    passes = {
        (case, sizes, mode): second_pass(*of_shares(folder, case, Shares(sizes, rank), mode), processes=2)
        for case in CASES for sizes in ((3, 2), (4, 1)) for mode in ("exact", "local", "simcse")
        if mode == "exact" or sizes == (3, 2)
    }
    return {**passes, "without rows": ranked((5, 0), rank)}


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    return both_find(tmp_path_factory.mktemp("angle"), compute, folder)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sizes", [(3, 2), (4, 1)])
def test_two_processes_have_the_loss_and_the_gradients_of_one(folder, both, case, sizes):
    means, gradients = second_pass(*of_shares(folder, case, Shares((5,)), "exact"))
    for rank in both:
        assert rank[case, sizes, "exact"][0] == pytest.approx(means, abs=1e-10)
        same_gradients(rank[case, sizes, "exact"][1], gradients)


def test_a_process_without_rows_takes_part(both):
    value, count, gradient = ranked((5,))
    assert both[0]["without rows"] == (pytest.approx(value, abs=1e-12), count, pytest.approx(gradient, abs=1e-12))
    assert both[1]["without rows"] == (0.0, 0, [])


@pytest.mark.parametrize("case", CASES)
def test_other_ways_of_gathering(folder, both, case):
    whole, gradients = second_pass(*of_shares(folder, case, Shares((5,)), "exact"))
    assert both[0][case, (3, 2), "simcse"][0] == pytest.approx(whole, abs=1e-10)
    for name, gradient in both[0][case, (3, 2), "simcse"][1].items():
        assert gradient is None or (2 * gradient - gradients[name]).abs().max() < 1e-9
    options, texts, scores = CASES[case]
    parts = []
    for rows in (slice(0, 3), slice(3, 5)):  # each process ranks its own pairs, as released
        own = {role: column[rows] for role, column in texts.items()}
        method = make(AnglE, folder, options)
        made = MemoryRows(folder, own) if scores is None else Scored(folder, own, scores[rows])
        parts.append({name: (term.value.item(), term.count) for name, term in method(batch_of(method, made)).items()})
    local = {name: sum(value * count for value, count in (part[name] for part in parts)) / 5 for name in parts[0]}
    assert both[0][case, (3, 2), "local"][0] == pytest.approx(local, abs=1e-10) and local != pytest.approx(whole, abs=1e-3)


@pytest.mark.parametrize(("options", "message"), [
    ({"label_scores": {"a": 0, "b": 1}}, "has no effect with format scored: it goes with format labelled; leave it at {"),
    ({"cln_weight": 2.0}, "options.cln_weight 2 has no effect with format scored: it goes with format triplets"),
    ({"format": "positives", "angle_weight": 1.0}, "it goes with format scored, labelled or triplets; leave it at 0.02"),
    ({"format": "positives", "angle_scale": 5.0}, "options.angle_scale 5 has no effect with format positives"),
    ({"cosine_scale": 5.0}, "options.cosine_scale 5 has no effect with cosine_weight 0"),
    ({"angle_weight": 0.0, "angle_scale": 5.0}, "options.angle_scale 5 has no effect with angle_weight 0"),
    ({"ibn_weight": 0.0, "ibn_scale": 5.0}, "options.ibn_scale 5 has no effect without ibn_weight above 0, or format trip"),
    ({"ibn_weight": 0.0, "angle_weight": 0.0}, "options.angle_weight and all other weights are 0, and there is no loss"),
    ({"format": "labelled", "label_scores": {"a": 1, "b": 1}}, "options.label_scores needs two classes with different scor"),
    ({"format": "labelled", "label_scores": {"a": 0, "b": 2}}, "has the score 2, and in-batch negatives (ibn_weight) take"),
])
def test_options_without_an_effect_and_scores_that_ibn_cannot_use_are_refused(options, message):
    one_line(lambda: validate(AnglEOptions, options, "recipe", "options."), message)
    AnglEOptions(format="labelled", label_scores={"a": 0, "b": 2}, ibn_weight=0)


def test_scores_are_looked_at_before_the_training(folder):
    assert check_scores(AnglEOptions(), np.array([0.0, 1.0, 3.0]))[0] == 2
    assert check_scores(AnglEOptions(), np.array([1.0, 0.0])) is None
    assert "no order to learn" in check_scores(AnglEOptions(), np.array([1.0, 1.0]))[1]
    assert check_scores(AnglEOptions(ibn_weight=0), np.array([1.5, 0.0])) is None
    method = make(AnglE, folder)
    with pytest.raises(StsbenchError, match=r"the score 4.2, and in-batch negatives"):
        batch_of(method, Scored(folder, PAIRS, GRADED))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("angle-place"))


FORMATS = {"data.file": "scores", "labelled": None, "options.label_scores": {"contradiction": 0, "entailment": 1},
           "options.format": "scored"}


@pytest.mark.parametrize(("changes", "words"), [
    (FORMATS, ["scores.tsv:4: the score 2, and in-batch negatives", "options.ibn_weight 0"]),
    ({**FORMATS, "data.file": "text"}, ["sentence1, sentence2 and score", "the data give sentence)"]),
    ({**FORMATS, "options.format": "triplets", "data.file": "text"}, ["the columns anchor, positive and negative"]),
    ({"options.label_scores": {"entailed": 1, "contradiction": 0}}, ["names entailed", "contradiction, entailment"]),
    ({"training.batch_size": 1}, ["training.batch_size 1"]),
])
def test_data_that_do_not_fit_are_refused_before_the_first_step(place, tmp_path, changes, words):
    def attempt():
        train(recipe_of(place, "angle", **changes), tmp_path / "run", place)

    one_line(attempt, *words)


def test_classes_without_a_score_have_no_part_and_the_test_has_its_own_pooler(place, tmp_path):
    lines, recipe = [], recipe_of(place, "angle", **{"options.test_pooler": "cls_avg"})
    run.train(TrainOptions(recipe=recipe, output=tmp_path / "run", data_dir=place / "data"), lines.append)
    assert any("4 of 12 rows cannot be used by these options" in line for line in lines)
    encoder = load_encoder(str(tmp_path / "run"), device="cpu")
    assert encoder.spec.pooler == "cls_avg"
    parts = [load_encoder(str(tmp_path / "run"), device="cpu", pooler=pooler).encode(TEXTS) for pooler in ("cls", "mean")]
    assert np.abs(encoder.encode(TEXTS) - (parts[0] + parts[1]) / 2).max() < 1e-6


def test_an_odd_width_is_told_of(folder):
    method = make(AnglE, folder)
    assert method.notes() == []
    method.backbone.model.config.hidden_size = 33
    assert "33 numbers have no halves" in method.notes()[0]
