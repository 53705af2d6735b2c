"""The trained relatedness head against a slow autograd transcription, and the protocol around it on invented pairs."""

import io
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from regression_oracle import naive_regression, naive_soft_labels
from scipy import sparse, stats
from sklearn.metrics import mean_squared_error
from stsbench.protocols.regression import DEFAULTS, TASKS, RegressionProtocol

from stsbench.data.sets import LabelledSet, PairSet
from stsbench.encoders.callable import CallableEncoder
from stsbench.encoders.embed import Embed
from stsbench.errors import ScoreError, StsbenchError
from stsbench.plan import plan
from stsbench.probes.regressor import Recipe, _Fit, expected_scores, fit_regressor, pair_features, soft_labels
from stsbench.protocol import Observations
from stsbench.records import PLAIN

SIZES = (150, 40, 60)
SHORT = {"round_epochs": 2, "max_epoch": 10}


def problem(seed=0, width=6, spread=1.0):
    """Features and scores of three splits, related by a noisy linear map; scores in 0-5, fifths of a point."""
    rng = np.random.default_rng(seed)
    slope = rng.normal(size=width)
    parts = []
    for size in SIZES:
        x = spread * rng.normal(size=(size, width)).astype(np.float32)
        y = np.clip(2.5 + x @ slope / spread / 2 + rng.normal(0, 0.5, size), 0, 5)
        parts.append((x, np.round(5 * y) / 5))
    (train, train_gold), (dev, dev_gold), (test, _) = parts
    return train, train_gold, dev, dev_gold, test


@pytest.mark.parametrize(
    ("gold", "row"),
    [
        (0.0, [0, 0, 0, 0, 0]), (0.4, [0.4, 0, 0, 0, 0]), (1.0, [1, 0, 0, 0, 0]), (3.25, [0, 0, 0.75, 0.25, 0]),
        (4.8, [0, 0, 0, 0.2, 0.8]), (5.0, [0, 0, 0, 0, 1]),
    ],
)  # fmt: skip
def test_soft_labels_by_hand(gold, row):
    assert soft_labels(np.array([gold]))[0] == pytest.approx(row, abs=1e-6)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30))
def test_soft_labels_equal_the_definition_and_keep_the_mean(values):
    gold = np.array(values)
    labels = soft_labels(gold)
    assert labels == pytest.approx(naive_soft_labels(gold), abs=1e-6)
    assert labels @ np.arange(1, 6) == pytest.approx(gold, abs=1e-5)
    assert labels.sum(axis=1) == pytest.approx(np.minimum(gold, 1), abs=1e-6)  # below 1, class 0's share is lost


@pytest.mark.parametrize("wrong", [-0.1, 5.1, np.nan])
def test_scores_outside_the_classes_are_refused(wrong):
    with pytest.raises(ScoreError, match="1 gold scores are outside 0-5"):
        soft_labels(np.array([1.0, wrong]))


@pytest.mark.parametrize(("seed", "spread"), [(0, 1.0), (1, 0.05), (2, 30.0)])
def test_the_head_equals_the_slow_transcription(seed, spread):
    parts = problem(seed, spread=spread)
    found = fit_regressor(*parts, Recipe(round_epochs=10, max_epoch=100))
    predicted, history, epochs = naive_regression(*parts, epochs=10, rounds=11)
    assert found.predicted == pytest.approx(predicted, abs=1e-5)
    assert found.dev_spearman == pytest.approx(history, abs=1e-6) and found.epochs == epochs


def test_early_stopping_equals_the_slow_transcription():
    parts = problem(1)
    found = fit_regressor(*parts, Recipe(round_epochs=10, batch=32))
    predicted, history, epochs = naive_regression(*parts, epochs=10, rounds=101, batch=32)
    assert found.epochs == epochs < 1000 and found.dev_spearman == pytest.approx(history, abs=1e-6)
    assert found.predicted == pytest.approx(predicted, abs=1e-5)


def test_the_last_round_begins_at_the_limit():
    assert fit_regressor(*problem(), Recipe(round_epochs=10, max_epoch=100)).epochs == 110
    for epochs, tenacity in ((50, 3), (20, 0)):
        # Nothing is learnt, so after the first every round fails: tenacity + 1 of them.
        still = fit_regressor(*problem(), Recipe(round_epochs=10, learning_rate=1e-30, tenacity=tenacity))
        assert still.epochs == epochs and len(set(still.dev_spearman)) == 1


def test_failures_are_counted_over_all_rounds():
    """A counter that an improvement reset would let some of these fits run on."""
    kinds = set()
    for seed in range(8):
        train, train_gold, dev, dev_gold, test = problem(seed)
        found = fit_regressor(train, train_gold, dev, dev_gold, test, Recipe(round_epochs=2, learning_rate=0.05, batch=16))
        history = found.dev_spearman
        best = np.maximum.accumulate(np.r_[-1, history[:-1]])
        better = history > best
        assert (~better).sum() == 4 and not better[-1]
        kinds.add(bool((~better[: np.flatnonzero(better)[-1]]).any()))
    assert True in kinds  # a failure, then an improvement, then more failures


def test_a_round_without_a_spearman_counts_as_zero():
    train, train_gold, dev, dev_gold, test = problem()
    found = fit_regressor(train, train_gold, np.zeros_like(dev), dev_gold, test, Recipe(round_epochs=1))
    assert found.dev_spearman.tolist() == [0.0] * 5  # the first 0 improves on -1


def test_the_first_step_goes_down_the_numeric_gradient():
    """Adam's first step has the length of the learning rate in every weight, against the sign of its gradient."""
    train, gold, *_ = problem(5, width=3)
    fit = _Fit(train, Recipe(batch=len(train)))
    start = fit.weights.astype(np.float64)

    def loss(weights):
        z = train @ weights[:-1] + weights[-1]
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        return np.mean((p - naive_soft_labels(gold)) ** 2)

    fit.epoch(soft_labels(gold))
    checked = 0
    for index in np.ndindex(start.shape):
        up, down = start.copy(), start.copy()
        up[index], down[index] = up[index] + 1e-5, down[index] - 1e-5
        slope = (loss(up) - loss(down)) / 2e-5
        if abs(slope) > 1e-4:
            checked += 1
            assert 10 * fit._mean[index] == pytest.approx(slope, rel=1e-2)  # Adam's step alone hides the gradient's scale
            assert fit.weights[index] - start[index] == pytest.approx(-1e-3 * np.sign(slope), rel=1e-2)
    assert checked >= 15


def test_global_generators_are_left_alone():
    np.random.seed(3)
    torch.manual_seed(3)
    wanted = np.random.rand(), torch.rand(1).item()
    np.random.seed(3)
    torch.manual_seed(3)
    fit_regressor(*problem(), Recipe(round_epochs=1, max_epoch=0))
    assert (np.random.rand(), torch.rand(1).item()) == wanted


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_sparse_features_equal_dense_ones(seed, width):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, 5, width)).astype(np.float32) * (rng.random((2, 5, width)) < 0.5)
    first, second = first.astype(np.float32), second.astype(np.float32)
    dense, thin = pair_features(first, second), pair_features(sparse.csr_array(first), sparse.csr_array(second))
    assert dense.dtype == thin.dtype == np.float32 and sparse.issparse(thin)
    assert thin.toarray() == pytest.approx(dense) and dense.shape == (5, 2 * width)
    for row, u, v in zip(dense, first, second, strict=True):
        assert row.tolist() == [abs(a - b) for a, b in zip(u, v, strict=True)] + [a * b for a, b in zip(u, v, strict=True)]


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_and_dense_fits_agree(kind):
    train, train_gold, dev, dev_gold, test = problem(4)
    train, dev, test = (np.where(x > 0, x, 0) for x in (train, dev, test))
    train[:, 2] = 0  # a column that only dev and test have
    recipe = Recipe(round_epochs=5, max_epoch=20)
    dense = fit_regressor(train, train_gold, dev, dev_gold, test, recipe)
    thin = fit_regressor(kind(train), train_gold, kind(dev), dev_gold, kind(test), recipe)
    assert thin.predicted == pytest.approx(dense.predicted, abs=1e-5)


def test_predictions_are_the_softmax_mean():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(5, 5)).astype(np.float32)
    p = torch.softmax(torch.from_numpy(x @ weights[:-1] + weights[-1]), 1).double()
    assert expected_scores(x, weights) == pytest.approx((p @ torch.arange(1.0, 6).double()).numpy())
    assert expected_scores(1e4 * x, weights).max() <= 5  # no overflow


# ---- the protocol, on invented pairs

WORDS = ["red", "blue", "small", "large", "cat", "dog", "house", "tree", "runs", "sleeps", "old", "new", "quiet", "stone"]


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(count)]


def shared_words(a, b):
    a, b = set(a.split()), set(b.split())
    return len(a & b) / len(a | b)


def pair_set(id="stsb/splits", sizes=SIZES, seed=0, noise=0.4):
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    first, second = sentences(total, seed), sentences(total, seed + 1)
    gold = [5 * shared_words(a, b) ** 0.5 for a, b in zip(first, second, strict=True)]
    gold = np.clip(np.round(5 * (np.array(gold) + rng.normal(0, noise, total))) / 5, 0, 5)
    names = np.repeat(["train", "dev", "test"], sizes)
    mixed = rng.permutation(total)
    return PairSet(
        id=id, task="STS-B", view="sample", first=tuple(np.array(first)[mixed].tolist()),
        second=tuple(np.array(second)[mixed].tolist()), gold=gold[mixed], subsets=tuple(names[mixed].tolist()),
    )  # fmt: skip


def labelled_set():
    pairs = pair_set()
    classes = np.digitize(pairs.gold, [1.0, 2.0]).astype(np.int64)
    return LabelledSet(
        id="sick-e/splits", task="SICK-E", view="sample", first=pairs.first, second=pairs.second, labels=classes,
        splits=pairs.subsets,
    )  # fmt: skip


def bag(texts):
    return np.array([[text.split().count(word) for word in WORDS] for text in texts], dtype=np.float32)


def embed(function=bag):
    return Embed(CallableEncoder(function))


def test_observations_hold_the_test_pairs_and_scores_follow_from_them():
    data, protocol = pair_set(), RegressionProtocol({**SHORT, "learning_rate": 0.05, "resamples": 200})
    seen = protocol.observe(embed(), data)
    rows = seen.arrays["row"]
    assert sorted(rows) == [i for i, name in enumerate(data.subsets) if name == "test"]
    assert seen.arrays["gold"].tolist() == data.gold[rows].tolist() and seen.arrays["sizes"].tolist() == list(SIZES)
    scored = {row.metric: row for row in protocol.score(seen, data.id, "STS-B")}
    assert list(scored) == ["pearson", "spearman", "mse", "dev spearman"]
    predicted, gold = seen.arrays["predicted"], seen.arrays["gold"]
    assert scored["pearson"].value == pytest.approx(100 * stats.pearsonr(predicted, gold).statistic)
    assert scored["spearman"].value == pytest.approx(100 * stats.spearmanr(predicted, gold).statistic)
    assert scored["mse"].value == pytest.approx(mean_squared_error(gold, predicted)) and "mse" in PLAIN
    assert scored["dev spearman"].value == pytest.approx(100 * seen.arrays["dev_spearman"].max())
    assert [scored[key].n for key in scored] == [60, 60, 60, 40]
    assert all(scored[key].low < scored[key].value < scored[key].high for key in ("pearson", "spearman"))
    assert scored["pearson"].value > 40  # it learnt something
    again = protocol.score(stored(seen), data.id, "STS-B")
    assert again == list(scored.values())
    assert all(row.low is None for row in RegressionProtocol({"resamples": 0}).score(seen, data.id, "STS-B"))


def stored(seen):
    buffer = io.BytesIO()
    np.savez(buffer, **seen.arrays)
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as read:
        return Observations({key: read[key] for key in read.files}, seen.names)


def test_it_trains_on_pairs_sorted_by_words_and_score():
    """The oracle on features sorted here, in another way, gives the protocol's predictions."""
    data = pair_set(seed=7)
    seen = RegressionProtocol({"round_epochs": 10, "max_epoch": 20}).observe(embed(), data)
    parts = []
    for split in ("train", "dev", "test"):
        rows = [i for i, name in enumerate(data.subsets) if name == split]
        for key in (lambda i: data.gold[i], lambda i: len(data.second[i].split()), lambda i: len(data.first[i].split())):
            rows.sort(key=key)  # the least important first
        u, v = bag([data.first[i] for i in rows]), bag([data.second[i] for i in rows])
        parts.append((np.hstack([np.abs(u - v), u * v]), data.gold[rows]))
    (train, train_gold), (dev, dev_gold), (test, test_gold) = parts
    predicted, history, _ = naive_regression(train, train_gold, dev, dev_gold, test, epochs=10, rounds=3)
    assert seen.arrays["gold"].tolist() == test_gold.tolist()
    assert seen.arrays["predicted"] == pytest.approx(predicted, abs=1e-5)
    assert seen.arrays["dev_spearman"] == pytest.approx(history, abs=1e-6)


def test_entailment_is_learnt_and_scored():
    data = labelled_set()
    protocol = RegressionProtocol({"entailment_epoch_size": 25, "resamples": 200})
    seen = protocol.observe(embed(), data)
    accuracy, dev = protocol.score(stored(seen), data.id, "SICK-E")
    share = float(np.mean(data.labels[seen.arrays["row"]] == seen.arrays["predicted"]))
    assert (accuracy.metric, accuracy.n) == ("accuracy", 60) and accuracy.value == pytest.approx(100 * share)
    assert accuracy.low < accuracy.value < accuracy.high
    assert (dev.metric, dev.n, dev.low) == ("dev accuracy", 40, None) and dev.value == seen.arrays["dev_accuracy"].max()
    assert seen.arrays["dev_accuracy"].shape == (4,)
    most = np.bincount(data.labels[seen.arrays["row"]]).max() / 60
    assert share > most + 0.05


def test_sparse_encoders_work_in_every_task():
    class Sparse(CallableEncoder):
        def run(self, texts, progress=None):
            return replace(super().run(texts, progress), vectors=sparse.csr_matrix(bag(texts)))

    for data in (pair_set(), labelled_set()):
        protocol = RegressionProtocol({**SHORT, "entailment_max_epoch": 8})
        seen = protocol.observe(Embed(Sparse(bag)), data).arrays["predicted"]
        assert seen == pytest.approx(protocol.observe(embed(), data).arrays["predicted"], abs=1e-4)


def test_sparse_vectors_too_wide_for_entailment_are_refused():
    def wide(texts):
        return sparse.csr_matrix((len(texts), 10**6), dtype=np.float32)

    with pytest.raises(ScoreError, match=r"sparse vectors of 1000000 columns would fill 1\.9 GiB, more than the 1 GiB"):
        RegressionProtocol({}).observe(wide, labelled_set())  # a function of texts is all that is asked of it before


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize("make", [pair_set, labelled_set])
def test_an_empty_split_is_a_failure_with_a_reason(split, make):
    data = make()
    names = tuple("other" if name == split else name for name in (data.splits if make is labelled_set else data.subsets))
    data = replace(data, **{"splits" if make is labelled_set else "subsets": names})
    with pytest.raises(ScoreError, match=f"{data.id}: the {split} split is empty"):
        RegressionProtocol({}).observe(embed(), data)


@pytest.mark.parametrize("make", [pair_set, labelled_set])
def test_vectors_that_cannot_be_multiplied_are_counted(make):
    data = make()
    splits = data.splits if make is labelled_set else data.subsets
    row = splits.index("train")
    pairs = [(data.first[i], data.second[i]) for i, name in enumerate(splits) if name == "train"]
    poor = {data.first[row], data.second[row]}

    def huge(texts):
        return np.array([vector + (1e30 if text in poor else 0) for text, vector in zip(texts, bag(texts), strict=True)])

    count = sum(set(pair) <= poor for pair in pairs)  # 1e30 * 1e30 overflows float32, 1e30 * 3 does not
    with pytest.raises(ScoreError, match=f"{count} of 150 pairs of the train split have vectors that are NaN, infinite"):
        RegressionProtocol({}).observe(embed(huge), data)


def test_nan_features_and_equal_dev_scores_are_refused():
    train, train_gold, dev, dev_gold, test = problem()
    broken = test.copy()
    broken[[3, 8], 2] = np.nan
    for wrong in (broken, sparse.csr_array(broken)):
        with pytest.raises(ScoreError, match="2 of 60 pairs of the test split"):
            fit_regressor(train, train_gold, dev, dev_gold, wrong)
    with pytest.raises(ScoreError, match="all 40 gold scores of the dev split are equal"):
        fit_regressor(train, train_gold, dev, np.full(40, 2.0), test)


def test_constant_predictions_are_a_failure_not_a_zero():
    data, protocol = pair_set(), RegressionProtocol({"round_epochs": 1})
    seen = protocol.observe(embed(lambda texts: np.ones((len(texts), 3), dtype=np.float32)), data)
    with pytest.raises(ScoreError, match="STS-B: all 60 predictions are equal"):
        protocol.score(seen, data.id, "STS-B")


def test_intervals_do_not_depend_on_the_encoder_but_on_the_data():
    data, protocol = pair_set(), RegressionProtocol({**SHORT, "resamples": 100})
    seen = protocol.observe(embed(), data)
    first, other = protocol.score(seen, data.id, "STS-B"), protocol.score(seen, "sick-r/splits", "STS-B")
    moved = RegressionProtocol({**SHORT, "resamples": 100, "bootstrap_seed": 1}).score(seen, data.id, "STS-B")
    assert [row.value for row in first] == [row.value for row in other] == [row.value for row in moved]
    assert len({rows[0].low for rows in (first, other, moved)}) == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bacth": 3}, "no setting 'bacth'; did you mean batch"), ({"batch": 0}, "batch must be a whole number from 1"),
        ({"tenacity": -1}, "tenacity"), ({"seed": 2**32}, "seed"), ({"resamples": True}, "resamples"),
        ({"learning_rate": 0}, "learning_rate must be a number between 0 and 1e"),
        ({"entailment_regs": []}, "entailment_regs"),
        ({"soft_labels": "exact"}, "soft_labels must be bit-compatible, not 'exact'"),
    ],
)  # fmt: skip
def test_settings_are_checked(wrong, message):
    with pytest.raises(StsbenchError, match=message.replace("(", r"\(")):
        RegressionProtocol(wrong)


def test_metrics_choose_rows_and_move_no_number():
    data, protocol = pair_set(), RegressionProtocol({**SHORT, "resamples": 100})
    seen = protocol.observe(embed(), data)
    rows = {row.metric: row for row in protocol.score(seen, data.id, "STS-B")}
    for metrics in (["spearman"], ["mse"], ["dev spearman", "pearson"], ["spearman", "mse", "pearson"]):
        some = RegressionProtocol({**SHORT, "resamples": 100, "metrics": metrics})
        assert some.score(stored(seen), data.id, "STS-B") == [rows[metric] for metric in metrics]
    entailed = Observations({"predicted": np.array([0, 1, 2]), "gold": np.array([0, 1, 1]), "sizes": np.array([3, 3, 3]),
                             "dev_accuracy": np.array([50.0])})  # fmt: skip
    for own in ({}, {"metrics": ["mse"]}):
        both = RegressionProtocol(own).score(entailed, "sick-e/splits", "SICK-E")
        assert [row.metric for row in both] == ["accuracy", "dev accuracy"]
    flat = Observations({**seen.arrays, "predicted": np.ones(60)})
    with pytest.raises(ScoreError, match="all 60 predictions are equal"):
        RegressionProtocol({"metrics": ["mse"]}).score(flat, data.id, "STS-B")


@pytest.mark.parametrize(("name", "metric"), [("senteval", "pearson"), ("infersent", "pearson"), ("declutr", "spearman")])
def test_papers_print_one_metric(name, metric):
    [regression] = [each.protocol for each in plan([name], ["STS-B", "SICK-R"], {})[0]]
    assert regression.settings == {**DEFAULTS, "metrics": [metric]} and regression.label == name


def test_settings_are_all_in_the_record_and_all_used():
    """Each setting of the head changes what is found, so that none is written into records without meaning."""
    assert RegressionProtocol({}).settings == DEFAULTS and RegressionProtocol({}).tasks() == TASKS
    data = pair_set()
    base = {"round_epochs": 2, "max_epoch": 40, "learning_rate": 0.03}
    plain = RegressionProtocol(base).observe(embed(), data).arrays
    changes = {"seed": 1, "batch": 32, "learning_rate": 0.01, "round_epochs": 3, "tenacity": 0, "max_epoch": 2}
    for key, value in changes.items():
        other = RegressionProtocol({**base, key: value}).observe(embed(), data).arrays
        assert other["dev_spearman"].tolist() != plain["dev_spearman"].tolist(), key


def test_scoring_needs_no_torch():
    code = (
        "import sys, numpy as np\n"
        "from stsbench.protocols.regression import RegressionProtocol\n"
        "from stsbench.protocol import Observations\n"
        "seen = {'predicted': np.arange(9.0), 'gold': np.arange(9.0) ** 2, 'sizes': np.array([9, 9, 9]),\n"
        "        'dev_spearman': np.array([0.5])}\n"
        "assert len(RegressionProtocol({}).score(Observations(seen), 'stsb/splits', 'STS-B')) == 4\n"
        "assert not {'torch', 'sklearn'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 0, done.stderr
