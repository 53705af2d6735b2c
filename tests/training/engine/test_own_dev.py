"""selection.by sts:FILE, pairs:FILE: the weights are chosen on scored or labelled pairs of the user's own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score
from training_runs import cache, one_thread, place, settings

import stsbench
from stsbench.data.fetch.sources import load
from stsbench.errors import DataError, StsbenchError
from stsbench.training.engine.selection import Selection
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.finish import trained_as
from stsbench.training.runs.request import TrainRequest, resolve
from stsbench.training.runs.seed_runs import train_runs

__all__ = ["cache", "one_thread", "place"]
PAIRS = [("a cat runs .", "the cat runs .", 4.5), ("a dog eats food", "the man plays a guitar", 0.5),
         ("a man sleeps", "the woman sleeps", 3.0), ("the red park", "a blue park", 2.0), ("a big dog", "small food", 0.0)]


def write(path, pairs=PAIRS):
    path.write_text("sentence1\tsentence2\tscore\n" + "".join("\t".join(map(str, row)) + "\n" for row in pairs), "utf-8")
    return path


def train(place, pairs, output, **more):
    values = settings(place / "tiny", place / "text.txt", **{"selection.by": f"sts:{pairs}"})
    request = TrainRequest("simcse", settings=values, output=output, device="cpu", **more)
    return train_runs(resolve(request, lambda line: None)[0], None, None, lambda line: None)


def test_the_best_is_the_best_on_these_pairs(place, tmp_path):
    summary = train(place, write(tmp_path / "pairs.tsv"), tmp_path / "run", sample=True)
    encoder = stsbench.load_encoder(str(tmp_path / "run" / "best"))
    first, second = (encoder.encode([row[side] for row in PAIRS]).astype(float) for side in (0, 1))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert summary["best"]["score"] == pytest.approx(100 * spearmanr(cosines, [row[2] for row in PAIRS])[0], abs=1e-9)
    assert summary["selected_by"] == summary["best"]["name"] == "sts:pairs.tsv" and not summary["sample"]
    write(tmp_path / "pairs.tsv", PAIRS[1:])
    (tmp_path / "run" / "train.json").unlink()  # as if it had been stopped
    with pytest.raises(StsbenchError, match="the dev data is not what"):
        train(place, tmp_path / "pairs.tsv", tmp_path / "run", sample=True, resume=True)


def test_pairs_that_are_not_there_stop_it_before_anything_is_trained(place, tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*/none.tsv"):
        train(place, tmp_path / "none.tsv", tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.yaml").exists()


def test_the_folder_of_the_pairs_makes_no_other_training():
    one, other, third = (trained_as(load_recipe("simcse", None, [f"selection.by=sts:{file}"]))["settings"]
                         for file in ("/a/dev.tsv", "/b/dev.tsv", "/a/other.tsv"))
    assert one == other != third


@pytest.mark.parametrize("by", ["sts-b deb", "sts:", "sts: ", "pairs:"])
def test_other_names_are_refused(by):
    with pytest.raises(StsbenchError, match=r"selection.by must be 'sts-b dev', .*'none', 'sts:FILE' or 'pairs:FILE', not "):
        load_recipe("simcse", None, [f"selection.by='{by}'"])


MATCHES = [("a cat runs .", "the cat runs .", 0), ("a dog eats food", "the man plays a guitar", 1),
           ("a man sleeps", "food", 0), ("the woman sleeps", "a man sleeps", 1), ("the red park", "a blue park", 1),
           ("a big dog", "small food", 0)]


def labelled(path, pairs=MATCHES):
    path.write_text("sentence1\tsentence2\tlabel\n" + "".join("\t".join(map(str, row)) + "\n" for row in pairs), "utf-8")
    return path


def train_by(place, by, output):
    values = settings(place / "tiny", place / "text.txt", **{"selection.by": by})
    request = TrainRequest("simcse", settings=values, output=output, device="cpu", sample=True)
    return train_runs(resolve(request, lambda line: None)[0], None, None, lambda line: None)


def test_labelled_pairs_choose_by_average_precision(place, tmp_path):
    """scikit-learn's average precision of the exported encoder's cosines is the score that chose it."""
    summary = train_by(place, f"pairs:{labelled(tmp_path / 'pairs.tsv')}", tmp_path / "run")
    encoder = stsbench.load_encoder(str(tmp_path / "run" / "best"))
    first, second = (encoder.encode([row[side] for row in MATCHES]).astype(float) for side in (0, 1))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    oracle = average_precision_score([row[2] for row in MATCHES], cosines)
    assert summary["best"]["score"] == pytest.approx(100 * oracle, abs=1e-9) and 0 < oracle < 1
    assert summary["selected_by"] == summary["best"]["name"] == "pairs:pairs.tsv" and not summary["sample"]


def test_one_file_by_labels_and_by_scores_is_another_training():
    one, other, scored = (trained_as(load_recipe("simcse", None, [f"selection.by={by}"]))["settings"]
                          for by in ("pairs:/a/dev.tsv", "pairs:dev.tsv", "sts:/a/dev.tsv"))
    assert one == other != scored


@pytest.mark.parametrize("kind", ["pairs", "sts"])
def test_pairs_of_a_test_set_choose_no_weights(kind, place, tmp_path):
    """Whatever their scores and order, and either way round; some of them alone are a warning."""
    test = load("stsb/test", sample=True)
    rows = [(second, first, int(gold > 2)) for first, second, gold in zip(test.first, test.second, test.gold, strict=True)]
    with pytest.raises(DataError, match=r"pairs.tsv holds the pairs of stsb/test, a test set: choose the weights on other"):
        Selection(f"{kind}:{labelled(tmp_path / 'pairs.tsv', rows[::-1])}", sample=True)
    some = Selection(f"{kind}:{labelled(tmp_path / 'pairs.tsv', [*rows[:9], *MATCHES])}", sample=True).warnings
    holds = f"selection.by {kind}:pairs.tsv: it holds 9 of the {len(set(rows))} pairs of stsb/test, a test set"
    assert [line for line in some if line.startswith(holds)]
    none = Selection(f"{kind}:{labelled(tmp_path / 'pairs.tsv')}", sample=True).warnings
    assert not any("test set" in line for line in none)


@pytest.mark.parametrize("kind", ["pairs", "sts"])
def test_pairs_that_the_run_is_tested_on_choose_no_weights(kind, place, tmp_path):
    path = labelled(tmp_path / "pairs.tsv")
    values = settings(place / "tiny", place / "text.txt", **{"selection.by": f"{kind}:{path}"})
    request = TrainRequest("simcse", settings=values, output=tmp_path / "run", device="cpu", sample=True,
                           evaluate=[f"{kind}:{path}"])
    with pytest.raises(DataError, match=r"pairs.tsv holds the pairs of own:pairs.tsv, a test set"):
        train_runs(resolve(request, lambda line: None)[0], None, None, lambda line: None)
    assert not (tmp_path / "run" / "recipe.yaml").exists()


def test_labels_of_one_kind_are_refused_before_anything_is_trained(place, tmp_path):
    with pytest.raises(DataError, match="every pair has the label '0'"):
        train_by(place, f"pairs:{labelled(tmp_path / 'pairs.tsv', MATCHES[:1])}", tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.yaml").exists()
