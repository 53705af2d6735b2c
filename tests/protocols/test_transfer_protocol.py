"""The transfer protocol: order, features, schemes, scores and averages, with a stand-in solver."""

import warnings
from typing import Any

import numpy as np
import pytest
from clirun import refuses
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import NearestCentroid

from stsbench.data.sets.sets import LabelledSet
from stsbench.errors import ScoreError
from stsbench.evaluation.protocol import Observations
from stsbench.metrics.bootstrap import wilson
from stsbench.protocols import transfer
from stsbench.protocols.transfer import TASKS, TransferProtocol, f1

# The stand-in classifier says so where a column is constant within a class.
pytestmark = pytest.mark.filterwarnings("ignore:self.within_class_std_dev_:UserWarning")

WORDS = {"good": 0, "fine": 1, "bad": 2, "poor": 3, "film": 4, "the": 5, "a": 6}
SMALL = {"k": 3, "grid": [1.0, 2.0], "grid_kfold": [1.0, 2.0]}


class Bag:
    """Counts of a few words beside the length, dense or CSR: enough to tell the classes apart."""

    def __init__(self, sparse: bool = False) -> None:
        self.sparse, self.asked = sparse, []

    def __call__(self, texts: list[str]) -> Any:
        self.asked.append(list(texts))
        vectors = np.array([[text.split().count(word) for word in WORDS] + [len(text) / 100] for text in texts], np.float32)
        return csr_matrix(vectors) if self.sparse else vectors


def centroids(x, y):
    """A stand-in solver that looks at nothing but the rows each fit names."""

    def solve(fits):
        return [NearestCentroid().fit(x[fit.train], y[fit.train]).predict(x[fit.predict]) for fit in fits]

    return solve


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(TransferProtocol, "_solver", lambda self, x, y, classes, counts: centroids(x, y))


def reviews(n=36, seed=0, name="mr"):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    mood = (["bad", "poor"], ["good", "fine"])
    texts = [" ".join(rng.choice([*mood[label], "film", "the", "a"], rng.integers(1, 6))) for label in labels]
    texts[3] = ""
    return LabelledSet(name, "MR", "own", first=tuple(texts), labels=labels.astype(np.int64), splits=("all",) * n)


def split(data, sizes, name, pairs=False):
    names = tuple(part for part, size in sizes.items() for _ in range(size))
    second = tuple(reversed(data.first)) if pairs else ()
    return LabelledSet(name, "X", "own", first=data.first, labels=data.labels, splits=names, second=second)


def naive_order(data, part):
    rows = [i for i in range(len(data)) if data.splits[i] == part]
    for text in ((data.labels,), (data.second,), (data.first,)):  # least significant key first: each sort is stable
        if len(text[0]):
            rows = sorted(rows, key=lambda i: int(text[0][i]) if text[0] is data.labels else len(text[0][i].split()))
    return rows


def test_tested_rows_are_all_items_once_and_blank_is_a_full_stop(stand_in):
    data, bag = reviews(), Bag()
    seen = TransferProtocol(SMALL).observe(bag, data)
    assert sorted(seen.arrays["rows"].tolist()) == list(range(len(data)))
    assert np.array_equal(seen.arrays["gold"], data.labels[seen.arrays["rows"]])
    assert bag.asked == [[data.first[i] or "." for i in naive_order(data, "all")]] and "." in bag.asked[0]
    other = Bag()
    TransferProtocol({**SMALL, "blank": "?"}).observe(other, data)
    assert other.asked[0] == ["?" if text == "." else text for text in bag.asked[0]]


def test_nested_is_what_a_plain_loop_over_sorted_items_gives(stand_in):
    data = reviews(40, seed=5)
    order = np.array(naive_order(data, "all"))
    x, y = Bag()([data.first[i] or "." for i in order]), data.labels[order]
    accuracies = []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=1111).split(x, y):
        predicted = NearestCentroid().fit(x[train], y[train]).predict(x[test])
        accuracies.append(round(100 * accuracy_score(y[test], predicted), 2))
    protocol = TransferProtocol(SMALL)
    row = protocol.score(protocol.observe(Bag(), data), "mr", "MR")[0]
    assert row.value == float(np.round(np.mean(accuracies), 2)) and 50 < row.value < 100


@pytest.mark.parametrize(("name", "parts", "pairs"), [
    ("sst2", {"train": 20, "dev": 8, "test": 8}, False), ("mrpc", {"train": 24, "test": 12}, True)])
def test_given_and_folded_sets_test_their_test_split(stand_in, name, parts, pairs):
    data = split(reviews(36, seed=2), parts, name, pairs)
    seen = TransferProtocol(SMALL).observe(Bag(), data)
    order = {part: naive_order(data, part) for part in parts}
    assert seen.arrays["rows"].tolist() == order["test"] and not seen.arrays["fold"].any()

    def features(rows: list[int]) -> Any:
        u, v = (Bag()([text[i] or "." for i in rows]) for text in (data.first, data.second or data.first))
        return np.hstack([abs(u - v), u * v]) if pairs else u

    expected = NearestCentroid().fit(features(order["train"]), data.labels[order["train"]])
    assert np.array_equal(seen.arrays["predicted"], expected.predict(features(order["test"])))
    assert seen.arrays["counts"].tolist()[2] == parts.get("dev", parts["train"])


def test_sparse_vectors_give_the_dense_features(stand_in):
    data = split(reviews(36, seed=2), {"train": 24, "test": 12}, "mrpc", pairs=True)
    dense, sparse = (TransferProtocol(SMALL).observe(Bag(kind), data).arrays for kind in (False, True))
    assert all(np.array_equal(dense[name], sparse[name]) for name in ("predicted", "grid"))


def test_too_wide_sparse_vectors_and_broken_ones_are_one_line(stand_in, monkeypatch):
    monkeypatch.setattr(transfer, "MAX_DENSE", 100)
    data, observe = reviews(), TransferProtocol(SMALL).observe
    refuses(ScoreError, r"^mr: 8 sparse columns of 36 items would fill .* use transfer:sklearn", observe, Bag(True), data)

    def broken(value: float, kind: Any) -> Any:
        def embed(texts: list[str]) -> Any:
            vectors = Bag()(texts)
            vectors[[0, 5], 2] = value
            return kind(vectors)

        return embed

    refuses(ScoreError, "^mr: the features of 2 of 36 items are NaN or infinite", observe, broken(np.nan, np.asarray), data)
    refuses(ScoreError, "^mr: the features hold NaN or infinite", observe, broken(np.inf, csr_matrix), data)
    huge = split(data, {"train": 24, "test": 12}, "mrpc", pairs=True)
    for kind in (np.asarray, csr_matrix):  # finite vectors, a product that is not
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            refuses(ScoreError, "NaN or infinite", observe, broken(3e38, kind), huge)


@pytest.mark.parametrize(("data", "message"), [
    (split(reviews(), {"train": 36}, "mrpc", True), "the test split is empty"),
    (split(reviews(), {"train": 30, "test": 6}, "sst2"), "the development split is empty"),
    (LabelledSet("mr", "MR", "own", ("a", "b"), np.array([0, 2]), ("all",) * 2), r"labels \[0, 2\], expected 0 to 1")])
def test_data_that_cannot_be_probed_are_one_line(stand_in, data, message):
    refuses(ScoreError, message, TransferProtocol(SMALL).observe, Bag(), data)


def observed(predicted, gold, fold, grid, chosen):
    arrays = {"predicted": predicted, "gold": gold, "fold": fold, "grid": grid, "chosen": chosen, "counts": [9, 2, 7],
              "regs": [1.0, 2.0], "rows": range(len(gold))}
    return Observations({name: np.array(values) for name, values in arrays.items()},
                        {"counts": ["fits", "unconverged", "development items"], "notes": ["x"]})


def test_scores_by_hand_and_means_rounded_as_numpy_rounds_them():
    seen = observed([1, 0, 1, 1, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [[60.0, 70.11], [80.0, 80.0]], [1, 0])
    rows = TransferProtocol({}, "transfer:exact").score(seen, "cr", "CR")
    assert [(row.metric, row.value, row.n) for row in rows] == [
        ("accuracy", float(np.round(np.mean([66.67, 50.0]), 2)), 5), ("dev accuracy", 75.06, 7)]
    assert {row.protocol for row in rows} == {"transfer:exact"} and rows[1].low is None
    assert [row.metric for row in TransferProtocol({}).score(seen, "mrpc", "MRPC")] == ["accuracy", "dev accuracy", "f1"]
    best = [[83.18], [81.35]]  # a mean that numpy, with which SentEval takes it, rounds to 82.26
    seen = observed([0], [0], [0], best, [0, 0])
    assert TransferProtocol({}).score(seen, "cr", "CR")[1].value == 82.26 != round(float(np.mean(best)), 2)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40))
@settings(max_examples=12)
def test_f1_is_scikit_learn_s(items):
    predicted, gold = np.array(items).T
    if not (predicted.any() or gold.any()):
        refuses(ScoreError, "F1 does not exist", f1, predicted, gold)
    else:
        assert f1(predicted, gold) == pytest.approx(f1_score(gold, predicted), abs=1e-12)


@given(st.integers(1, 12000), st.floats(0, 1))
@settings(max_examples=50)
def test_wilson_is_scipy_s(n, share):
    hits = round(share * n)
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert wilson(hits, n) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= wilson(hits, n)[0] <= hits / n <= wilson(hits, n)[1] <= 1


def test_average_needs_all_seven_and_is_the_mean_of_printed_scores():
    protocol = TransferProtocol({})

    class Stub:
        def __init__(self, task: str, value: float, label: str = "transfer") -> None:
            self.scores = [protocol.row(task, "accuracy", value, 10), protocol.row(task, "dev accuracy", 1.0, 10)]
            self.scores = [row.model_copy(update={"protocol": label}) for row in self.scores]

    values = [81.18, 86.46, 94.45, 88.88, 85.50, 89.80, 74.43]  # SimCSE table E.1, unsupervised BERT-base: Avg 85.81
    records = [Stub(task, value) for task, value in zip(TASKS, values, strict=True)]
    (row,) = protocol.summarise(records)
    assert (row.task, row.metric, row.value, row.n, row.protocol) == ("Avg", "accuracy", 85.81, 70, "transfer")
    assert protocol.summarise(records[1:]) == []
    assert protocol.summarise([*records[1:], Stub("MR", 81.18, "transfer:exact")]) == []


@pytest.mark.parametrize(("unconverged", "refused"), [(5, False), (6, True)])
def test_one_exact_fit_in_ten_may_miss(monkeypatch, unconverged, refused):
    def solver(self: Any, x: Any, y: Any, classes: int, counts: dict[str, int]) -> Any:
        counts.update(fits=57, unconverged=unconverged)
        return centroids(x, y)

    monkeypatch.setattr(TransferProtocol, "_solver", solver)
    exact, sklearn = (TransferProtocol({"classifier": name, **SMALL}) for name in ("exact", "sklearn"))
    note = [f"{unconverged} of 57 fits stopped before convergence"]
    assert sklearn.observe(Bag(), reviews()).names["notes"] == note
    if refused:
        refuses(ScoreError, "6 of 57 fits did not reach their optimum", exact.observe, Bag(), reviews())
    else:
        assert exact.observe(Bag(), reviews()).names["notes"] == note
