"""The published study of prompt sensitivity, read from a small repository of the same layout, and its figures again."""

import csv
import io
import json
from itertools import product

import numpy as np
import pytest
from clirun import cli, fails, place  # noqa: F401 - fixtures
from prompt_repository import MODELS, TASKS, prompt_texts, repository, result, run, write

from stsbench.errors import StsbenchError
from stsbench.leaderboard import prompt_sensitivity
from stsbench.leaderboard.prompts.study_files import read_study

SCORES = {
    "STS14": [[0.51, 0.62, 0.55, 0.58, 0.60, 0.71], [0.64, 0.66, 0.61, 0.69, 0.70, 0.63],
              [0.60, 0.61, 0.60, 0.64, 0.59, 0.62]],
    "STS22.v2": [[0.40, 0.42, 0.41, 0.43], [0.47, 0.44, 0.45, 0.46], [0.44, 0.45, 0.465, None]],
    "FEVERHardNegatives": [[0.8, 0.7, 0.6], [0.5, 0.5, 0.5], [0.9, 0.2, 0.4]],
}
DEFAULT = {"STS14": [0.80, 0.85, 0.70], "STS22.v2": [0.41, 0.46, 0.455], "FEVERHardNegatives": [0.6, 0.7, 0.65]}
ORDER = ["other", "large", "small"]  # of the folders' names


@pytest.fixture
def root(tmp_path):
    return repository(tmp_path / "clone", SCORES, DEFAULT)


def experiments(root, model="org__small"):
    return root / "data" / "cache_data" / "mteb_cache" / "results" / model / "abc" / "experiments"


def row_of(made, task, model):
    return next(row for row in made.rows() if (row["set"], row["model"]) == (task, model))


def test_scores_are_read_by_the_text_of_their_prompt(root):
    study = read_study(root)
    assert study.models == tuple(ORDER) and set(study.tasks) == set(TASKS) and not study.dropped
    for task in TASKS:
        for name, scores, default in zip(MODELS, SCORES[task], DEFAULT[task], strict=True):
            at = ORDER.index(name.split("__")[1])
            want = [np.nan if score is None else 100 * score for score in scores]
            np.testing.assert_allclose(study.scores[task][at], want)
            assert study.default[task][at] == pytest.approx(100 * default)
    first = study.prompts["STS14"][:4]
    assert [one.text for one in first] == prompt_texts("STS14")[:4]
    assert [one.generator for one in first] == ["maker-a", "maker-b", "maker-a", "maker-b"]
    assert [one.context for one in first] == ["task", "task, data", "task, data, language", "task"]
    assert study.notes() == ["other, STS22.v2: 1 of 4 prompts were not run"]


def test_runs_of_prompts_that_no_list_holds_are_dropped_and_told(root):
    for number, score in enumerate((0.8, 0.8, 0.3)):
        run(experiments(root) / f"exp_old{number}", "STS14", f"older wording {number}:", result(score))
    study = read_study(root)
    assert study.dropped == {("small", "STS14"): (3, 2)} and study.scores["STS14"].shape == (3, 6)
    [note, _] = study.notes()
    assert note == ("small, STS14: 3 runs dropped, whose prompt is in no prompt file; 2 of them with the very "
                                "score of the default")


def test_the_rows_are_those_of_plain_loops(root):
    made = prompt_sensitivity(root)
    for task in TASKS:
        names = [name.split("__")[1] for name in MODELS]
        run_at_all = [[100 * one for one in row if one is not None] for row in SCORES[task]]
        scores = dict(zip(names, run_at_all, strict=True))
        default = dict(zip(names, (100 * one for one in DEFAULT[task]), strict=True))
        for name in names:
            row, mine = row_of(made, task, name), scores[name]
            assert (row["n"], row["min"], row["max"]) == (len(mine), pytest.approx(min(mine)), pytest.approx(max(mine)))
            assert row["mean"] == pytest.approx(np.mean(mine)) and row["sd"] == pytest.approx(np.std(mine, ddof=1))
            assert row["percentile"] == pytest.approx(np.mean([(one < default[name]) + (one == default[name]) / 2
                                                               for one in mine]))
            others = [other for other in names if other != name]
            draws = list(product(mine, *(scores[other] for other in others)))
            chance = np.mean([(draw[0] == max(draw)) / draw.count(max(draw)) for draw in draws])
            assert row["first_alone"] == pytest.approx(chance)
            best = [1 + sum(default[other] > one for other in others) for one in mine]
            assert (row["own_best"], row["own_worst"]) == (min(best), max(best))
            assert row["default_rank"] == 1 + sum(default[other] > default[name] for other in others)
    shared = list(zip(*(SCORES["STS22.v2"][at][:3] for at in range(3)), strict=True))
    same = np.mean([[(one == max(column)) / column.count(max(column)) for one in column] for column in shared], axis=0)
    for at, name in enumerate(("small", "large", "other")):
        assert row_of(made, "STS22.v2", name)["first_same"] == pytest.approx(same[at])


def test_claims_are_judged_by_the_files(root, tmp_path):
    made = prompt_sensitivity(root)
    mine, chosen, only, above, outside = made.claims
    sets = "FEVERHardNegatives: other, small; STS14: none; STS22.v2: other, large; mean of the sets: "
    assert not mine.holds and sets in mine.because
    assert not only.holds and sets.replace("other, large", "other") in only.because
    assert chosen.holds == all(best == 1 for best in made.mean_bounds.every_best)
    assert above.holds and "2 of 3 models (other, large)" in above.because
    assert outside.holds and "Of 9 defaults 4 are above every prompt's score, and 0 below" in outside.because
    calm = {task: [[base + 0.001 * k for k in range(TASKS[task])] for base in DEFAULT[task]] for task in TASKS}
    quiet = prompt_sensitivity(repository(tmp_path / "calm", calm, DEFAULT))
    assert [claim.holds for claim in quiet.claims] == [False, False, True, False, False]
    assert "mean of the sets: large" in quiet.claims[1].because and "1 of 5 claims hold" in repr(quiet)


def test_it_prints_the_same_in_every_form(root, cli):
    made = prompt_sensitivity(root)
    code, out, err = cli("reproduce", "prompt-sensitivity", "--results", root)
    assert code == 0 and not err and "does not hold: by its own prompt any model" in out
    assert "other, STS22.v2: 1 of 4 prompts were not run" in out
    for text in (out, str(made), made.markdown(), made.latex(), made._repr_html_()):
        assert "59.50" in text and "STS22.v2: ranks, 3 prompts that all models read" in text
    code, out, _ = cli("reproduce", "prompt-sensitivity", "--results", root, "--format", "csv")
    assert code == 0 and out == made.csv() and len(list(csv.DictReader(io.StringIO(out)))) == 9
    code, out, _ = cli("reproduce", "prompt-sensitivity", "--results", root, "--json", "-")
    assert code == 0 and json.loads(out) == made.as_json() == json.loads(made.to_json())
    assert made.to_arrow().num_rows == 9
    for words, reason in ((("prompt-sensitivity",), "--results is missing: a clone of the study's repository (git clone"),
                          (("simcse:5", "--results", root), "--results goes with prompt-sensitivity")):
        code, out, err = cli("reproduce", *words)
        assert (code, out) == (2, "") and reason in err


def refused(root):
    with pytest.raises(StsbenchError) as error:
        prompt_sensitivity(root)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_not_such_a_repository_is_refused_by_file(root, tmp_path):
    assert "holds no data/prompts/deduplicated_prompts.json: give a clone of https://" in refused(tmp_path)
    meta = experiments(root) / "exp_STS14_0" / "model_meta.json"
    write(meta, {"experiment_kwargs": None})
    assert refused(root).startswith(f"{meta} states no prompt of STS14")
    run(meta.parent, "STS14", prompt_texts("STS14")[1], result(0.99))
    assert "is a second result of the same model, task and prompt" in refused(root)
    run(meta.parent, "STS14", prompt_texts("STS14")[0], {"scores": {"validation": []}})
    assert "holds no main_score of one English part" in refused(root)
    run(meta.parent, "STS14", prompt_texts("STS14")[0], result(0.51))
    other = experiments(root, "lab__other")
    (other.parent / "STS14.json").rename(other / "moved")
    assert refused(root).startswith(f"{other.parent.parent} holds no result by default of STS14, which other models have")
    (other / "moved").rename(other.parent / "STS14.json")
    for folder in other.glob("exp_STS14_*"):
        (folder / "STS14.json").unlink()
    assert "holds no result of any prompt of STS14" in refused(root)
    write(root / "data" / "prompts" / "deduplicated_prompts.json", [{"task": "STS14"}])
    assert "entry 0 has no task and generated_prompt" in refused(root)


def test_of_several_parts_the_english_one_counts(root):
    more = [{"main_score": 0.1, "hf_subset": "en-ext", "languages": ["eng-Latn"]}]
    text, folder = prompt_texts("STS22.v2")[0], experiments(root) / "exp_STS22.v2_0"
    run(folder, "STS22.v2", text, {"scores": {"validation": [{"main_score": 0.2, "hf_subset": "en"}],
                                              **result(0.44, "en", more=more)["scores"]}})
    study = read_study(root)
    assert study.scores["STS22.v2"][ORDER.index("small")][0] == pytest.approx(44)
    run(folder, "STS22.v2", text, result(0.45, "eng", "dev"))
    assert read_study(root).scores["STS22.v2"][ORDER.index("small")][0] == pytest.approx(45)
    run(folder, "STS22.v2", text, result(0.4, "de", more=more))
    assert "holds no main_score of one English part" in refused(root)
