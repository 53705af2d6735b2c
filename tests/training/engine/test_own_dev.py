"""selection.by sts:FILE: the weights are chosen on scored pairs of the user's own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from training_runs import cache, one_thread, place, settings

import stsbench
from stsbench.errors import DataError, StsbenchError
from stsbench.jobs.content import dev_digests
from stsbench.jobs.plan_file import Defaults
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.api import resolve, train_runs
from stsbench.training.runs.finish import trained_as
from stsbench.training.runs.options import TrainRequest

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


def test_a_sweep_knows_the_pairs_by_their_content(tmp_path):
    one, again, other = (dev_digests(f"sts:{write(tmp_path / name, pairs)}", Defaults()) for name, pairs in
                         (("a.tsv", PAIRS), ("b.tsv", PAIRS), ("c.tsv", PAIRS[1:])))
    assert [*one.values()] == [*again.values()] != [*other.values()] and [*one] == [f"sts:{tmp_path / 'a.tsv'}"]


@pytest.mark.parametrize("by", ["sts-b deb", "sts:", "sts: "])
def test_other_names_are_refused(by):
    with pytest.raises(StsbenchError, match=r"selection.by must be 'sts-b dev', .*'none' or 'sts:FILE', not "):
        load_recipe("simcse", None, [f"selection.by='{by}'"])
