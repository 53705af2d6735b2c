"""`stsbench calibrate`: what it prints, writes and draws of a run of labelled pairs."""

import json
from pathlib import Path

import numpy as np
import pytest
from clirun import cli, fails, place  # noqa: F401 - fixtures

import stsbench
from stsbench.errors import StsbenchError


def write_pairs(path, n=120):
    rng = np.random.default_rng(0)
    words = np.array(["red", "green", "blue", "cat", "dog", "bird", "runs", "sleeps", "eats"])
    lines = ["sentence1,sentence2,label"]
    for i in range(n):
        text = rng.choice(words, 6)
        other = np.where(rng.random(6) < (0.25 if i % 3 == 0 else 0.8), rng.choice(words, 6), text)
        lines.append(f"{' '.join(text)},{' '.join(other)},{int(i % 3 == 0)}")
    path.write_text("\n".join(lines) + "\n")


WORDS = ("eval", "--model", "lexical:token-set", "--resamples", "0")


def test_the_command(cli, place):
    write_pairs(Path("pairs.csv"))
    code, _, err = cli(*WORDS, "--protocol", "pairs:pairs.csv", "--output", "one")
    assert code == 0, err
    asked = ("--precision", "0.7", "--precision", "1")
    code, out, err = cli("calibrate", "one", *asked, "--output", "c.json", "--plot", "c")
    assert code == 0 and "precision 0.7: a similarity of" in out and "Brier score of held-out pairs" in out, err
    assert {path.name for path in Path().glob("c.*")} == {"c.json", "c.png", "c.svg"}
    made = json.loads(Path("c.json").read_text())
    assert made["format"] == "stsbench-calibration/1" and made["pairs"] == 120 and made["matches"] == 40
    assert made["data"] == "pairs.csv" and len(made["curve"]["similarity"]) == len(made["curve"]["probability"])
    calibration = stsbench.calibrate("one", method="logistic")
    assert calibration.probability([0.0, 1.0])[0] < calibration.probability(1.0)
    write_pairs(Path("more.csv"), 60)
    assert cli(*WORDS, "--protocol", "pairs:pairs.csv,pairs:more.csv", "--output", "two")[0] == 0
    fails(cli("calibrate", "two"), "two has several tasks: name one (pairs.csv, more.csv)")
    fails(cli("calibrate", "two", "--task", "mor.csv"), "two has no task 'mor.csv'; did you mean more.csv")
    assert stsbench.calibrate("two", task="more.csv").record.data.n == 60


def test_a_run_without_labelled_pairs(cli, place):
    assert cli(*WORDS, "--sample", "--tasks", "STS-B", "--output", "sts")[0] == 0
    with pytest.raises(StsbenchError, match="sts holds no labelled pairs: measure them by"):
        stsbench.calibrate("sts")
