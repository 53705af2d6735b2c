"""The regression protocol on invented pairs."""

from dataclasses import replace

import numpy as np
import pytest
from regression_oracle import naive_regression
from scipy import sparse, stats
from sklearn.metrics import mean_squared_error

from stsbench.data.sets.sets import LabelledSet, PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.errors import ScoreError
from stsbench.protocols.regression import TASKS, RegressionProtocol, RegressionSettings

SIZES = (150, 40, 60)
SHORT = {"round_epochs": 2, "max_epoch": 10}

WORDS = ["red", "blue", "small", "large", "cat", "dog", "house", "tree", "runs", "sleeps", "old", "new", "quiet", "stone"]


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(count)]


def pair_set(id="stsb/splits", sizes=SIZES, seed=0, noise=0.4):
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    first, second = sentences(total, seed), sentences(total, seed + 1)
    words = [({*a.split()}, {*b.split()}) for a, b in zip(first, second, strict=True)]
    gold = [5 * (len(a & b) / len(a | b)) ** 0.5 for a, b in words]
    gold = np.clip(np.round(5 * (np.array(gold) + rng.normal(0, noise, total))) / 5, 0, 5)
    names = np.repeat(["train", "dev", "test"], sizes)
    mixed = rng.permutation(total)
    first, second, names = (tuple(np.array(each)[mixed].tolist()) for each in (first, second, names))
    return PairSet(id, "STS-B", "sample", first, second, gold[mixed], names)


def labelled_set():
    pairs = pair_set()
    classes = np.digitize(pairs.gold, [1.0, 2.0]).astype(np.int64)
    return LabelledSet("sick-e/splits", "SICK-E", "sample", first=pairs.first, second=pairs.second, labels=classes,
                       splits=pairs.subsets)


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
    assert scored["mse"].value == pytest.approx(mean_squared_error(gold, predicted)) and protocol.metric("mse").lower
    assert scored["dev spearman"].value == pytest.approx(100 * seen.arrays["dev_spearman"].max())
    assert [scored[key].n for key in scored] == [60, 60, 60, 40]
    assert all(scored[key].low < scored[key].value < scored[key].high for key in ("pearson", "spearman"))
    assert scored["pearson"].value > 40  # it learnt something
    assert all(row.low is None for row in RegressionProtocol({"resamples": 0}).score(seen, data.id, "STS-B"))


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
    accuracy, dev = protocol.score(seen, data.id, "SICK-E")
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
        protocol = RegressionProtocol({**SHORT, "round_epochs": 1, "max_epoch": 2, "entailment_max_epoch": 2})
        seen = protocol.observe(Embed(Sparse(bag)), data).arrays["predicted"]
        assert seen == pytest.approx(protocol.observe(embed(), data).arrays["predicted"], abs=1e-4)


@pytest.mark.parametrize(("split", "make"), [("train", pair_set), ("dev", labelled_set)])
def test_an_empty_split_is_a_failure_with_a_reason(split, make):
    data = make()
    names = tuple("other" if name == split else name for name in (data.splits if make is labelled_set else data.subsets))
    data = replace(data, **{"splits" if make is labelled_set else "subsets": names})
    with pytest.raises(ScoreError, match=f"{data.id}: the {split} split is empty"):
        RegressionProtocol({}).observe(embed(), data)


def test_settings_are_all_in_the_record_and_all_used():
    """Each setting of the head changes what is found, so that none is written into records without meaning."""
    assert RegressionProtocol({}).settings == RegressionSettings().model_dump() and RegressionProtocol({}).tasks() == TASKS
    data = pair_set(sizes=(70, 20, 10))
    base = {"round_epochs": 2, "max_epoch": 40, "learning_rate": 0.03}
    plain = RegressionProtocol(base).observe(embed(), data).arrays
    changes = {"seed": 1, "batch": 32, "learning_rate": 0.01, "round_epochs": 3, "tenacity": 0, "max_epoch": 2}
    for key, value in changes.items():
        other = RegressionProtocol({**base, key: value}).observe(embed(), data).arrays
        assert other["dev_spearman"].tolist() != plain["dev_spearman"].tolist(), key
