"""Agreement of annotators by naive loops and by labels whose reliability is known; the four ways that labels are written."""

import csv
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401
from realdata import real_data
from scipy.stats import spearmanr

from stsbench.evaluation.records import ScoreRow
from stsbench.extensions.ceiling import labels
from stsbench.extensions.ceiling.labels import (
    ceiling_of_ratings,
    ceiling_of_votes,
    krippendorff_alpha,
    measure_ceiling,
    remarks,
)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(labels, "RESAMPLES", 12)


def ratings(n, k, noise, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    made = rng.normal(size=(n, 1)) + noise * rng.normal(size=(n, k))
    made[rng.random(made.shape) < missing] = np.nan
    return made


def test_alpha_is_that_of_a_double_loop():
    made = ratings(12, 4, 0.8, missing=0.2)
    made = made[np.isfinite(made).sum(axis=1) >= 2]
    rows = [row[np.isfinite(row)] for row in made]
    every = np.concatenate(rows)
    observed = sum((x - y) ** 2 / (len(row) - 1) for row in rows for x, y in permutations(row, 2)) / len(every)
    expected = sum((x - y) ** 2 for x, y in permutations(every, 2)) / (len(every) * (len(every) - 1))
    assert krippendorff_alpha(made) == pytest.approx(1 - observed / expected)


def test_half_and_reliability_are_those_of_every_division():
    made = ratings(40, 4, 0.7)
    halves = [spearmanr(made[:, list(half)].mean(axis=1), np.delete(made, half, axis=1).mean(axis=1)).statistic
              for half in combinations(range(4), 2)]
    found = ceiling_of_ratings("made", made)
    half = float(np.mean(halves))
    assert found.half == pytest.approx(100 * half, abs=1)
    assert found.reliability == pytest.approx(100 * 2 * half / (1 + half), abs=1)
    assert found.best == pytest.approx(10 * np.sqrt(found.reliability))


def test_a_model_that_knows_the_true_scores_has_the_expected_best():
    """Of three labels, whose halves are of unequal sizes."""
    truth = np.random.default_rng(1).normal(size=4000)
    made = truth[:, None] + 1.2 * np.random.default_rng(2).normal(size=(4000, 3))
    found = ceiling_of_ratings("made", made)
    score = 100 * spearmanr(truth, made.mean(axis=1)).statistic
    assert found.best == pytest.approx(score, abs=0.7) and found.low < score < found.high + 1
    assert found.one < found.half < found.reliability < found.best


def test_votes_order_the_items_as_their_true_scores():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=60)
    votes = []
    for _ in range(800):
        shown = rng.choice(60, 4, replace=False)
        seen = truth[shown] + 0.3 * rng.normal(size=4)
        votes.append([*shown, shown[np.argmax(seen)], shown[np.argmin(seen)]])
    found = ceiling_of_votes("made", np.array(votes))
    assert 90 < found.half < found.reliability < found.best < 100 and found.items == 60 and found.one is None


def test_labels_are_read_however_they_are_written(place, cli):
    made = np.round(ratings(30, 3, 0.5), 2)
    forms = {
        "wide.csv": ("a,b,c", [",".join(map(str, row)) for row in made]),
        "list.tsv": ("id\tlabels", [f"{i}\t{','.join(map(str, row))}" for i, row in enumerate(made)]),
        "json.csv": ("labels", [f'"[{", ".join(map(str, row))}]"' for row in made]),
        "long.csv": ("id,score", [f"{i},{value}" for i, row in enumerate(made) for value in row])}
    for name, (header, lines) in forms.items():
        (place / name).write_text("\n".join([header, *lines, ""]), "utf-8")
    wanted = ceiling_of_ratings("wide.csv", made)
    found = [measure_ceiling("wide.csv", ["a", "b", "c"]), measure_ceiling("list.tsv"), measure_ceiling("json.csv"),
             measure_ceiling("long.csv", ["score"], item="id")]
    assert {(one.best, one.alpha, one.labels) for one in found} == {(wanted.best, wanted.alpha, 90)}
    code, out, _ = cli("data", "ceiling", "long.csv", "--labels", "score", "--item", "id")
    last = f"expected best of a perfect model: {wanted.best:.1f} ({wanted.low:.1f} to {wanted.high:.1f})"
    assert code == 0 and out.splitlines()[-1] == last


def test_usts_has_the_figures_that_were_measured_elsewhere():
    file = real_data() / "more" / "usts" / "ustsc.tsv"
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    with file.open(encoding="utf-8") as stream:
        assert sum(1 for _ in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)) == 2001
    found = measure_ceiling(file)
    assert (found.one, found.half, found.reliability, found.best) == pytest.approx((61.1, 81.9, 90.0, 94.9), abs=0.3)


def test_a_run_on_raw_labels_says_how_high_a_perfect_model_would_score(place, cli):
    rng = np.random.default_rng(4)
    words = ["boat", "lake", "otter", "bank", "river", "harbour"]
    with Path("raw.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["sentence1", "sentence2", "score", "labels"])
        for _ in range(80):
            first, second = (rng.choice(words, 4) for _ in "ab")
            labels = [len({*first} & {*second}) + int(rng.integers(0, 3)) for _ in range(4)]
            writer.writerow([" ".join(first), " ".join(second), float(np.mean(labels)), labels])
    expected = measure_ceiling("raw.csv")
    code, out, _ = cli("eval", "--model", "lexical:token-set", "--protocol", "sts:raw.csv", "--output", "run")
    assert code == 0 and f"raw.csv: a perfect model is expected to score {expected.best:.1f} ({expected.low:.1f} to" in out
    assert "is above it" not in out
    row = ScoreRow(protocol="sts", task="raw.csv", metric="spearman", value=99.9, n=80)
    assert "99.90 is above it" in remarks("sts", Path("raw.csv"), "own:x", [row])[0]
    assert remarks("pairs", Path("raw.csv"), "own:x", [row]) == remarks("sts", Path("none.csv"), "own:x", [row]) == []


def test_a_set_whose_ceiling_is_known_says_so(cli):
    """Of two of SemRel's languages the authors published raw votes."""
    rows = [ScoreRow(protocol="sts", task="SemRel24STS", subset=part, metric="spearman", value=86.5, n=100)
            for part in ("arb", "eng")]
    (line,) = remarks("sts", None, "semrel24/test", rows)
    assert line.startswith("arb: a perfect model is expected to score 85.0 (84.0 to 85.9)") and "86.50 is above it" in line
    assert remarks("sts", None, "stsb/test", rows) == remarks("regression", None, "semrel24/test", rows) == []
    code, out, _ = cli("data", "ceiling", "semrel24/test")
    assert code == 0 and out.splitlines()[0] == "arb: expected best of a perfect model: 85.0 (84.0 to 85.9)"
