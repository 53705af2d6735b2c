"""AnglE's terms against loops over texts encoded one at a time, by the format of the data, and over two processes."""

import numpy as np
import pytest
import torch
from graded_oracle import complex_angle, cosine, naive_cosent, naive_cross_entropy, naive_in_batch
from method_oracle import MemoryRows, batch_of, make, states, total
from method_runs import cached_place, recipe_of
from simcse_oracle import folder
from tiny_models import sentences
from training_runs import one_thread
from two_processes import both_find, second_pass

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
    """Rows with the scores GRADED, or BINARY where `binary` is set."""

    binary = False

    def scores(self):
        return [(BINARY if self.binary else GRADED)[row] for row in self.rows]


class Labelled(Scored):
    binary = True


def ranked(pairs, scores, options):
    """CoSENT of the cosines and of the angles of pairs of vectors, each with its weight."""
    terms = ((options.cosine_weight, cosine, options.cosine_scale),
             (options.angle_weight, complex_angle, options.angle_scale))
    return sum(weight * naive_cosent([similarity(a, b) for a, b in pairs], scores, scale)
               for weight, similarity, scale in terms)


def cls(folder, texts):
    return [state[0] for state in states(folder, MemoryRows(folder, {"text": texts}).ids("text"))]


@pytest.mark.parametrize(("kind", "weights"), [
    (Labelled, {}), (Labelled, {"ibn_weight": 30.0, "angle_weight": 1.0}), (Labelled, {"cosine_weight": 0.7, **SCALES}),
    (Scored, {"ibn_weight": 0.0, "cosine_weight": 0.7, "angle_weight": 1.0}),
])
def test_scored_pairs_are_ranked_by_cosine_and_angle_beside_in_batch_negatives(folder, kind, weights):
    method, rows = make(AnglE, folder, weights), kind(folder, PAIRS)
    terms, options = method(batch_of(method, rows, more_padding=3)), method.options
    u, v = (cls(folder, texts) for texts in PAIRS.values())
    expected = ranked(list(zip(u, v, strict=True)), rows.scores(), options)
    if options.ibn_weight:
        expected += options.ibn_weight * naive_in_batch(u, v, rows.scores(), options.ibn_scale)
    assert total(terms).item() == pytest.approx(float(expected), abs=1e-8)
    assert {term.count for term in terms.values()} == {5}


@pytest.mark.parametrize("weights", [{}, {"ibn_weight": 2.0, "cln_weight": 3.0, "cosine_weight": 0.7, **SCALES},
                                     {"ibn_weight": 0.0, "angle_weight": 1.0}, {"cln_weight": 0.0}])
def test_triplets_rank_positives_above_negatives_beside_two_cross_entropies(folder, weights):
    method = make(AnglE, folder, {"format": "triplets", **weights})
    terms, options = method(batch_of(method, MemoryRows(folder, TRIPLETS), more_padding=2)), method.options
    q, p, n = (cls(folder, texts) for texts in TRIPLETS.values())
    expected = options.ibn_weight / 2 * naive_cross_entropy(q, p, options.ibn_scale)
    expected += options.cln_weight / 2 * naive_cross_entropy(q, p + n, options.ibn_scale)
    expected += ranked(list(zip(q + q, p + n, strict=True)), [1] * 5 + [0] * 5, options)
    assert total(terms).item() == pytest.approx(float(expected), abs=1e-8)


def test_positives_alone_are_one_cross_entropy(folder):
    method = make(AnglE, folder, {"format": "positives", "ibn_scale": 5.0})
    rows = MemoryRows(folder, {role: TRIPLETS[role] for role in ("anchor", "positive")})
    ((name, term),) = method(batch_of(method, rows)).items()
    q, p = (cls(folder, TRIPLETS[role]) for role in ("anchor", "positive"))
    assert (name, term.weight) == ("in_batch", 1.0)
    assert term.value.item() == pytest.approx(float(naive_cross_entropy(q, p, 5.0)), abs=1e-8)


CASES = {"labels": ({"cosine_weight": 0.5, "angle_weight": 1.0}, PAIRS, Labelled),
         "triplets": ({"format": "triplets", "cosine_weight": 0.5}, TRIPLETS, MemoryRows)}


def of_shares(folder, case, shares, mode="exact"):
    options, texts, kind = CASES[case]
    method = make(AnglE, folder, options)
    method.gather_mode = mode
    return method, to_batch(method.views(kind(folder, texts), np.random.default_rng(0)), shares, 0, torch.device("cpu"))


def ranked_share(sizes, rank=0):
    """Value, count and gradient of one process's share of five cosines, by the weights of the training loop."""
    shares = Shares(sizes, rank)
    rows = slice(shares.start, shares.start + sizes[rank])
    similarities = torch.linspace(-0.4, 0.9, 5, dtype=torch.float64)[rows].requires_grad_()
    pair = similarities.unsqueeze(1), similarities.unsqueeze(1)
    term = rank_pairs([pair], lambda first, second: first.squeeze(1), torch.tensor(GRADED)[rows], shares)
    (term.value * term.count / 5).backward()
    return term.value.item(), term.count, similarities.grad.tolist()


def compute(rank, folder):
    passes = {(case, mode): second_pass(*of_shares(folder, case, Shares((3, 2), rank), mode), processes=2)
              for case in CASES for mode in ("exact", "local", "simcse")}
    return {**passes, "without rows": ranked_share((5, 0), rank)}


def test_two_processes_rank_all_pairs_their_own_or_as_simcse_s_code_does(folder, tmp_path):
    both = both_find(tmp_path, compute, folder)
    for case in CASES:
        whole, gradients = second_pass(*of_shares(folder, case, Shares((5,))))
        # each process on its own pairs, as released: what their shares give without the other one
        parts = []
        for rank, size in enumerate((3, 2)):
            method, batch = of_shares(folder, case, Shares((3, 2), rank))
            batch.shares = Shares((size,))
            parts.append({name: term.value.item() * size / 5 for name, term in method(batch).items()})
        local = {name: parts[0][name] + parts[1][name] for name in whole}
        for rank in both:
            for mode, means in (("exact", whole), ("simcse", whole), ("local", local)):
                assert rank[case, mode][0] == pytest.approx(means, abs=1e-10), (case, mode)
            for mode, factor in (("exact", 1), ("simcse", 2)):
                for name, gradient in rank[case, mode][1].items():
                    assert gradient is None or (factor * gradient - gradients[name]).abs().max() < 1e-9, (case, mode, name)
        assert local != pytest.approx(whole, abs=1e-3)
    value, count, gradient = ranked_share((5,))  # a process without rows takes part
    assert both[0]["without rows"] == (pytest.approx(value, abs=1e-12), count, pytest.approx(gradient, abs=1e-12))
    assert both[1]["without rows"] == (0.0, 0, [])


def test_scores_that_in_batch_negatives_cannot_use_or_without_an_order_are_found(folder):
    assert check_scores(AnglEOptions(), np.array([0.0, 1.0, 3.0]))[0] == 2
    assert check_scores(AnglEOptions(), np.array([1.0, 0.0])) is None
    assert check_scores(AnglEOptions(angle_weight=0), np.array([1.0, 1.0])) is None  # nothing is ranked
    assert "no order to learn" in check_scores(AnglEOptions(), np.array([1.0, 1.0]))[1]
    assert check_scores(AnglEOptions(ibn_weight=0), np.array([1.5, 0.0])) is None
    assert AnglEOptions(format="labelled", label_scores={"a": 0, "b": 2}, ibn_weight=0)
    method = make(AnglE, folder)
    with pytest.raises(StsbenchError):  # of a foreign trainer, whose rows nobody looked at before
        batch_of(method, Scored(folder, PAIRS))


def test_pairs_of_classes_without_a_score_have_no_part(tmp_path):
    for place in cached_place(tmp_path):
        lines = []
        options = TrainOptions(recipe=recipe_of(place, "angle"), output=tmp_path / "run", data_dir=place / "data")
        run.train(options, lines.append)
        assert any("4 of 12 rows cannot be used by these options" in line for line in lines)


def test_a_width_without_halves_is_noted(folder):
    method = make(AnglE, folder)
    assert method.notes() == []
    method.backbone.model.config.hidden_size = 33
    assert "33 numbers have no halves" in method.notes()[0]
