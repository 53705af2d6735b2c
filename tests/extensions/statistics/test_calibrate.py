"""`stsbench calibrate`: probabilities against scikit-learn's, thresholds against a loop and how often their intervals
cover; a user's pairs that repeat count once."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from clirun import cli, fails, place  # noqa: F401 - fixtures
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import stsbench
from stsbench import calibrate, evaluate
from stsbench.extensions.statistics.calibrate import METHODS, brier, cross_fitted, fit_curve, reliability, threshold_for
from stsbench.metrics.bootstrap import wilson


def write_pairs(path, n=120):
    rng = np.random.default_rng(0)
    words = np.array(["red", "green", "blue", "cat", "dog", "bird", "runs", "sleeps", "eats"])
    lines = ["sentence1,sentence2,label"]
    for i in range(n):
        text = rng.choice(words, 6)
        other = np.where(rng.random(6) < (0.25 if i % 3 == 0 else 0.8), rng.choice(words, 6), text)
        lines.append(f"{' '.join(text)},{' '.join(other)},{int(i % 3 == 0)}")
    path.write_text("\n".join(lines) + "\n")


EVAL = ("eval", "--model", "lexical:token-set", "--resamples", "0")


def test_the_command(cli, place):
    write_pairs(Path("pairs.csv"))
    code, _, err = cli(*EVAL, "--protocol", "pairs:pairs.csv", "--output", "one")
    assert code == 0, err
    asked = ("--precision", "0.7", "--precision", "1")
    code, out, err = cli("calibrate", "one", *asked, "--output", "c.json", "--plot", "c.svg")
    assert code == 0 and "precision 0.7: a similarity of" in out and "Brier score of held-out pairs" in out, err
    assert {path.name for path in Path().glob("c.*")} == {"c.json", "c.svg"}
    made = json.loads(Path("c.json").read_text())
    assert made["format"] == "stsbench-calibration/1" and made["pairs"] == 120 and made["matches"] == 40
    assert made["data"] == "pairs.csv" and len(made["curve"]["similarity"]) == len(made["curve"]["probability"])
    calibration = stsbench.calibrate("one", method="logistic")
    assert calibration.probability([0.0, 1.0])[0] < calibration.probability(1.0)
    write_pairs(Path("more.csv"), 60)
    assert cli(*EVAL, "--protocol", "pairs:pairs.csv,pairs:more.csv", "--output", "two")[0] == 0
    fails(cli("calibrate", "two"), "two has several tasks: name one (pairs.csv, more.csv)")
    fails(cli("calibrate", "two", "--task", "mor.csv"), "two has no task 'mor.csv'; did you mean more.csv")
    assert stsbench.calibrate("two", task="more.csv").record.data.n == 60


def pairs(n, seed, step=0.2):
    rng = np.random.default_rng(seed)
    label = np.r_[np.ones(6), np.zeros(6), rng.random(n - 12) < 0.4].astype(np.int64)
    return rng.normal(0.4, 0.15, n) + step * label, label


@pytest.mark.parametrize("method", METHODS)
def test_probabilities_are_those_of_scikit_learn(method):
    similarity, label = pairs(300, 0)
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    if method == "isotonic":
        model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        whole = model.fit(similarity, label).predict(similarity)
        held = cross_val_predict(model, similarity, label, cv=folds)
    else:
        model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
        whole = model.fit(similarity[:, None], label).predict_proba(similarity[:, None])[:, 1]
        held = cross_val_predict(model, similarity[:, None], label, cv=folds, method="predict_proba")[:, 1]
    np.testing.assert_allclose(fit_curve(similarity, label, method)(similarity), whole, atol=1e-6)
    fitted = cross_fitted(similarity, label, method, folds=5, seed=3)
    np.testing.assert_allclose(fitted, held, atol=1e-6)
    assert brier(fitted, label) == pytest.approx(brier_score_loss(label, held), abs=1e-6)
    values = fit_curve(-similarity, label, method)(np.linspace(-1, 1, 50))  # never falls, even where similarity misleads
    assert (np.diff(values) >= 0).all() and np.allclose(values, label.mean(), atol=0.15)


def test_reliability_groups_pairs_of_like_probability():
    rng = np.random.default_rng(2)
    probability = rng.random(1000)
    label = (rng.random(1000) < probability).astype(int)
    bins = reliability(probability, label, 10)
    share, mean = calibration_curve(label, probability, n_bins=10, strategy="quantile")
    np.testing.assert_allclose([one.probability for one in bins], mean, atol=0.01)
    np.testing.assert_allclose([one.share for one in bins], share, atol=0.03)
    assert sum(one.n for one in bins) == 1000 and all(one.low <= one.share <= one.high for one in bins)
    alike = reliability(np.full(50, 0.3), np.r_[np.ones(20), np.zeros(30)])
    assert [(one.n, one.share) for one in alike] == [(50, 0.4)]


def test_the_threshold_for_a_precision_is_that_of_a_loop():
    for precision, seed in product((0.5, 0.8, 0.95, 1.0), range(5)):
        similarity, label = pairs(80, seed)
        enough = [t for t in similarity if label[similarity >= t].mean() >= precision - 1e-12]
        threshold = threshold_for(similarity, label, precision)
        if not enough:
            assert threshold is None
            continue
        chosen, wanted = similarity >= threshold.value, similarity >= min(enough)
        assert (chosen == wanted).all() and threshold.precision == pytest.approx(label[chosen].mean())
        assert threshold.recall == pytest.approx(label[chosen].sum() / label.sum())


def test_the_interval_is_where_wilsons_test_does_not_decide():
    similarity, label = pairs(200, 7)
    threshold = threshold_for(similarity, label, 0.7)

    def ends(value):
        return wilson(int(label[similarity >= value].sum()), int((similarity >= value).sum()))

    values = np.sort(similarity)
    assert ends(threshold.low)[1] >= 0.7 and all(ends(value)[1] < 0.7 for value in values[values < threshold.low])
    assert ends(threshold.high)[0] > 0.7
    below = values[values < threshold.high][-1]
    assert ends(below)[0] <= 0.7
    few = threshold_for(similarity[:20], label[:20], 0.95)
    assert few is None or few.high is None  # twenty pairs never show a precision of .95


def test_a_calibration_counts_and_folds_pairs(place):
    """A file with every pair six times, in half of them the other way round."""
    write_pairs(Path("once.csv"), n=60)
    header, *rows = Path("once.csv").read_text().splitlines()
    swapped = [f"{second},{first},{label}" for first, second, label in (row.split(",") for row in rows)]
    Path("six.csv").write_text("\n".join([header, *rows * 3, *swapped * 3]) + "\n")
    once, six = (calibrate(evaluate("lexical:token-set", protocol=f"pairs:{name}.csv", output=name, resamples=0))
                 for name in ("once", "six"))
    assert six.fitted == pytest.approx(np.tile(once.fitted, 6)) and six.brier == pytest.approx(once.brier)
    assert [one.n for one in six.bins] == [one.n for one in once.bins]
    for one, other in zip(once.bins, six.bins, strict=True):
        assert (other.low, other.high) == pytest.approx((one.low, one.high))
    assert six.thresholds == once.thresholds
    assert {key: six.as_json()[key] for key in ("pairs", "matches", "rows")} == {"pairs": 60, "matches": 20, "rows": 360}
    assert six.lines()[0] == once.lines()[0].replace("once.csv", "six.csv")
    assert any("360 rows of six.csv are 60 different items" in line for line in six.lines())
