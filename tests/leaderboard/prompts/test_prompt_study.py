"""The published study of prompt sensitivity, read from a small repository of the same layout or from one table, and its
figures again: against plain loops over every draw, scipy, and the identities that hold between them."""

import csv
import json
from functools import partial
from itertools import product

import numpy as np
import pytest
from clirun import cli, place, refuses  # noqa: F401 - fixtures
from scipy.stats import friedmanchisquare

from stsbench.errors import StsbenchError
from stsbench.leaderboard import prompt_sensitivity
from stsbench.leaderboard.prompts import rank_chances
from stsbench.leaderboard.prompts.study_files import COLUMNS, read_study, read_table

TASKS = {"STS14": 6, "STS22.v2": 4, "FEVERHardNegatives": 3}
MODELS = ("org__small", "org__large", "lab__other")
RNG = np.random.default_rng(3)
TIED = RNG.integers(0, 6, size=(4, 5)).astype(float)  # many ties
APART = RNG.normal(size=(4, 5)) + np.arange(4)[:, None]


def prompt_texts(task):
    return [f"{task} wording {number}:" for number in range(TASKS[task])]


def result(score, subset="default", split="test", more=()):
    rows = [{"main_score": score, "cosine_spearman": score, "hf_subset": subset, "languages": ["eng-Latn"]}, *more]
    return {"task_name": "any", "mteb_version": "2.12.16", "scores": {split: rows}}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def entry(task, text, number):
    described, language = ("a set" if number % 3 else ""), ("eng" if number % 3 == 2 else "")
    return {"n": 5, "task": task, "task_description": "sts", "dataset_description": described, "language": language,
            "generated_prompt": text, "generation_meta": {"prompt": "..."}}


def run(folder, task, text, content, key=None):
    write(folder / f"{task}.json", content)
    write(folder / "model_meta.json", {"name": "x", "experiment_kwargs": {"prompts": {key or task: text}}})


def repository(root, scores, default):
    """scores: by task, (models, prompts) of parts of 1, None where not run; default: by task, (models,)."""
    entries = [entry(task, text, number) for task in TASKS for number, text in enumerate(prompt_texts(task))]
    prompts, results = root / "data" / "prompts", root / "data" / "cache_data" / "mteb_cache" / "results"
    write(prompts / "deduplicated_prompts.json", entries)
    write(prompts / "deduplicated_reports.json", {})
    for number, generator in enumerate(("maker-a", "maker-b")):
        write(prompts / f"{generator}-gen-prompts.json", [one for at, one in enumerate(entries) if at % 2 == number])
    for (at, model), task in product(enumerate(MODELS), TASKS):
        revision = results / model / "abc"
        write(revision / "model_meta.json", {"name": model})
        write(revision / f"{task}.json", result(default[task][at]))
        for number, score in enumerate(scores[task][at]):
            if score is not None:
                key = f"{task}-query" if task.startswith("FEVER") else task
                folder = revision / "experiments" / f"exp_{task}_{number}"
                run(folder, task, prompt_texts(task)[number], result(score), key)
                (folder / "run_settings.jsonl").write_text("{}\n")
    return root


SCORES = {
    "STS14": [[0.51, 0.62, 0.55, 0.58, 0.6, 0.71], [0.64, 0.66, 0.61, 0.69, 0.7, 0.63], [0.6, 0.61, 0.6, 0.64, 0.59, 0.62]],
    "STS22.v2": [[0.40, 0.42, 0.41, 0.43], [0.47, 0.44, 0.45, 0.46], [0.44, 0.45, 0.465, None]],
    "FEVERHardNegatives": [[0.8, 0.7, 0.6], [0.5, 0.5, 0.5], [0.9, 0.2, 0.4]]}
DEFAULT = {"STS14": [0.80, 0.85, 0.70], "STS22.v2": [0.41, 0.46, 0.455], "FEVERHardNegatives": [0.6, 0.7, 0.65]}
ORDER = ["other", "large", "small"]  # of the folders' names


@pytest.fixture
def root(tmp_path):
    return repository(tmp_path / "clone", SCORES, DEFAULT)


def experiments(root, model="org__small"):
    return root / "data" / "cache_data" / "mteb_cache" / "results" / model / "abc" / "experiments"


def test_prompts_are_read_with_their_generator_and_context(root):
    study = read_study(root)
    assert study.models == tuple(ORDER) and set(study.tasks) == set(TASKS) and not study.dropped
    first = study.prompts["STS14"][:4]
    assert [one.text for one in first] == prompt_texts("STS14")[:4]
    assert [one.generator for one in first] == ["maker-a", "maker-b", "maker-a", "maker-b"]
    assert [one.context for one in first] == ["task", "task, data", "task, data, language", "task"]
    for number, score in enumerate((0.8, 0.8, 0.3)):  # behind prompts that no list holds
        run(experiments(root) / f"exp_old{number}", "STS14", f"older wording {number}:", result(score))
    study = read_study(root)
    assert study.dropped == {("small", "STS14"): (3, 2)} and study.scores["STS14"].shape == (3, 6)
    dropped = "3 runs dropped, whose prompt is in no prompt file; 2 of them with the very score of the default"
    assert study.notes() == [f"small, STS14: {dropped}", "other, STS22.v2: 1 of 4 prompts were not run"]


def test_the_rows_are_those_of_plain_loops(root):
    rows = {(row["set"], row["model"]): row for row in prompt_sensitivity(root).rows()}
    names = [name.split("__")[1] for name in MODELS]
    for task in TASKS:
        scores = dict(zip(names, [[100 * one for one in row if one is not None] for row in SCORES[task]], strict=True))
        default = dict(zip(names, (100 * one for one in DEFAULT[task]), strict=True))
        for name in names:
            row, mine = rows[task, name], scores[name]
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
    assert [rows["STS22.v2", name]["first_same"] for name in names] == pytest.approx(same)


def test_claims_are_judged_by_the_files(root, tmp_path, cli):
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
    # It prints the same in every form.
    code, out, err = cli("reproduce", "prompt-sensitivity", "--results", root)
    assert code == 0 and not err and "does not hold: by its own prompt any model" in out
    assert "other, STS22.v2: 1 of 4 prompts were not run" in out
    assert "59.50" in out and "STS22.v2: ranks, 3 prompts that all models read" in out and "59.50" in made.latex()
    code, out, _ = cli("reproduce", "prompt-sensitivity", "--results", root, "--json", "-")
    assert code == 0 and json.loads(out) == made.as_json()


def test_what_is_not_such_a_repository_is_refused_by_file(root):
    refused = partial(refuses, StsbenchError, "", prompt_sensitivity, root)
    meta = experiments(root) / "exp_STS14_0" / "model_meta.json"
    write(meta, {"experiment_kwargs": None})
    assert refused().startswith(f"{meta} states no prompt of STS14")
    run(meta.parent, "STS14", prompt_texts("STS14")[1], result(0.99))
    assert "is a second result of the same model, task and prompt" in refused()
    run(meta.parent, "STS14", prompt_texts("STS14")[0], result(0.51))
    other = experiments(root, "lab__other")
    (other.parent / "STS14.json").rename(other / "moved")
    assert refused().startswith(f"{other.parent.parent} holds no result by default of STS14, which other models have")
    (other / "moved").rename(other.parent / "STS14.json")
    for folder in other.glob("exp_STS14_*"):
        (folder / "STS14.json").unlink()
    assert "holds no result of any prompt of STS14" in refused()
    write(root / "data" / "prompts" / "deduplicated_prompts.json", [{"task": "STS14"}])
    assert "entry 0 has no task and generated_prompt" in refused()


def test_of_several_parts_the_english_one_counts(root):
    more = [{"main_score": 0.1, "hf_subset": "en-ext", "languages": ["eng-Latn"]}]
    text, folder = prompt_texts("STS22.v2")[0], experiments(root) / "exp_STS22.v2_0"
    run(folder, "STS22.v2", text, {"scores": {"validation": [{"main_score": 0.2, "hf_subset": "en"}],
                                              **result(0.44, "en", more=more)["scores"]}})
    assert read_study(root).scores["STS22.v2"][ORDER.index("small")][0] == pytest.approx(44)
    run(folder, "STS22.v2", text, result(0.45, "eng", "dev"))
    assert read_study(root).scores["STS22.v2"][ORDER.index("small")][0] == pytest.approx(45)
    run(folder, "STS22.v2", text, result(0.4, "de", more=more))
    refuses(StsbenchError, "holds no main_score of one English part", prompt_sensitivity, root)


def lines():
    for (at, model), (task, scores) in product(enumerate(MODELS), SCORES.items()):
        yield [DEFAULT[task][at], task, model.replace("__", "/"), "default", "True"]
        for prompt, score in zip(prompt_texts(task), scores[at], strict=True):
            if score is not None:
                yield [score, task, model.replace("__", "/"), prompt, "False"]


def write_table(path, rows, columns=COLUMNS):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])
    return path


def test_a_table_gives_what_a_clone_gives(root, tmp_path):
    table, clone = prompt_sensitivity(write_table(tmp_path / "results.csv", lines())), prompt_sensitivity(root)
    assert table.study.notes() == clone.study.notes() and {row["set"] for row in table.rows()} == set(TASKS)
    by_key = {(row["set"], row["model"]): row for row in clone.rows()}
    for row in table.rows():
        assert {key: value for key, value in row.items() if key != "error"} == pytest.approx(
            {key: value for key, value in by_key[row["set"], row["model"]].items() if key != "error"})
        assert (row["error"] > 0) == (row["sd"] > 0)  # each prompt is drawn by itself: who wrote it is not known
    assert sorted(map(str, table.claims)) == sorted(map(str, clone.claims))


def test_models_and_tasks_without_a_default_are_left_out_and_named(tmp_path):
    rows = [row for row in lines() if row[2:5:2] != ["org/small", "True"] and row[1:3] != ["STS14", "org/large"]]
    study = read_table(write_table(tmp_path / "results.csv", [*rows, [0.5, "STS14", "org/new", "a:", "False"]]))
    assert (study.models, sorted(study.tasks)) == (("other", "large"), ["FEVERHardNegatives", "STS22.v2"])
    assert study.notes() == [
        "new is left out: it has no result by default", "small is left out: it has no result by default",
        "STS14 is left out: no result by default, or of any prompt, of large",
        "other, STS22.v2: 1 of 4 prompts were not run"]
    # What says two things is one line.
    rows = list(lines())
    assert read_table(write_table(tmp_path / "same.csv", [*rows, rows[1]])).scores.keys() == set(TASKS)
    other = write_table(tmp_path / "other.csv", [*rows, [rows[1][0] + 0.1, *rows[1][1:]]])
    refuses(StsbenchError, f"line {len(rows) + 2}: a second score of the same model, task and prompt", read_table, other)


def shares_of_ranks(scores):
    """(m, m): each model's share of each rank for one score a model; those that tie share theirs."""
    out = np.zeros((len(scores), len(scores)))
    for i, score in enumerate(scores):
        above = sum(other > score for other in scores)
        equal = sum(other == score for other in scores)
        for rank in range(above, above + equal):
            out[i, rank] = 1 / equal
    return out


def by_enumeration(draws):
    """Mean shares of ranks, and of being above one another, over all draws (tuples of one score a model)."""
    above = [[[(a > b) + (a == b) / 2 for b in draw] for a in draw] for draw in draws]
    return np.mean([shares_of_ranks(draw) for draw in draws], axis=0), np.mean(above, axis=0)


def test_independent_ranks_are_those_of_every_draw():
    """Also of models with other numbers of prompts, and with gaps."""
    uneven = [np.array([1.0, 2, np.nan]), np.array([2.0]), np.array([np.nan, 0.0, 2.0, 3.0])]
    for scores in (TIED, APART, TIED[:2], TIED[:1], uneven):
        ranks, beats = by_enumeration(list(product(*(each[~np.isnan(each)] for each in scores))))
        made = rank_chances.independent_ranks(list(scores))
        np.testing.assert_allclose(made.ranks, ranks, atol=1e-12)
        others = ~np.eye(len(scores), dtype=bool)
        np.testing.assert_allclose(made.beats[others], beats[others], atol=1e-12)
        np.testing.assert_allclose(made.beats + made.beats.T, 1, atol=1e-12)
        np.testing.assert_allclose(made.expected, 1 + (1 - made.beats).sum(axis=1) - 0.5, atol=1e-12)
        np.testing.assert_allclose([made.first, rank_chances.chances_of_first(list(scores))], [ranks[:, 0]] * 2, atol=1e-12)


@pytest.mark.parametrize("scores", [TIED, APART])
def test_common_ranks_are_those_of_each_prompt_and_kendalls_w_is_friedmans_statistic_by_prompts_and_models(scores):
    ranks, beats = by_enumeration([tuple(column) for column in scores.T])
    made = rank_chances.common_ranks(scores)
    np.testing.assert_allclose([made.ranks, made.beats], [ranks, beats], atol=1e-12)
    with_gap = np.column_stack([scores, np.where(np.arange(4) == 2, np.nan, 1.0)])
    np.testing.assert_allclose(rank_chances.common_ranks(with_gap).ranks, made.ranks, atol=1e-12)
    assert rank_chances.shared_prompts(with_gap).shape == scores.shape
    statistic = friedmanchisquare(*scores).statistic
    assert rank_chances.kendall_w(scores) == pytest.approx(statistic / (scores.shape[1] * (len(scores) - 1)))
    assert np.isnan(rank_chances.kendall_w(np.ones((3, 4)))) and np.isnan(rank_chances.kendall_w(scores[:1]))


def test_bounds_are_those_of_every_choice():
    default = np.array([0.4, 1.5, 2.2, 3.1])
    made = rank_chances.rank_bounds(APART.min(axis=1), APART.max(axis=1), default)
    for i in range(4):
        own = [1 + sum(np.delete(default, i) > score) for score in APART[i]]
        every = [1 + sum(other > draw[i] for other in draw) for draw in product(*APART)]
        assert (made.own_best[i], made.own_worst[i]) == (min(own), max(own))
        assert (made.every_best[i], made.every_worst[i]) == (min(every), max(every))


def test_a_variance_is_split_as_by_loops():
    total, parts = 0.0, [0.0, 0.0, 0.0]
    for i, k in np.ndindex(APART.shape):
        model, prompt = APART[i].mean() - APART.mean(), APART[:, k].mean() - APART.mean()
        rest = APART[i, k] - APART.mean() - model - prompt
        total += (APART[i, k] - APART.mean()) ** 2
        parts = [a + b**2 for a, b in zip(parts, (model, prompt, rest), strict=True)]
    made = rank_chances.variance_split(APART)
    np.testing.assert_allclose([made.model, made.prompt, made.rest], np.array(parts) / total)
    assert made.model + made.prompt + made.rest == pytest.approx(1)
    additive = rank_chances.variance_split(np.array([[1.0], [4.0]]) + np.array([[0.0, 2.0, 7.0]]))
    assert additive.rest == pytest.approx(0, abs=1e-15) and additive.model > 0 and additive.prompt > 0
    assert np.isnan(rank_chances.variance_split(np.ones((2, 3))).model)


def intervals_by_enumeration(models, scores, different, level=0.95):
    """(first, last) of each model: the quantiles of the ranks that are not ruled out, over every draw of a score a model."""
    at = [np.flatnonzero(models == model) for model in range(max(models) + 1)]
    best, worst = [], []
    for draw in product(*at):
        better = [sum(scores[b] > scores[a] and different[a, b] for b in draw) for a in draw]
        worse = [sum(scores[b] < scores[a] and different[a, b] for b in draw) for a in draw]
        best.append([1 + count for count in better])
        worst.append([len(at) - count for count in worse])
    outside = int((1 - level) / 2 * len(best) + 1e-9)  # draws that may lie before, or behind
    return [sorted(ranks)[outside] for ranks in zip(*best, strict=True)], [
        sorted(ranks, reverse=True)[outside] for ranks in zip(*worst, strict=True)]


def test_rank_intervals_over_prompts_are_those_of_every_draw():
    for sizes, level in product([(3, 1, 4, 2), (5, 8, 1, 1, 2)], [0.95, 0.5]):
        rng = np.random.default_rng([len(sizes), *sizes])
        models = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
        for density in (0.2, 0.6, 0.95):
            scores = rng.integers(0, 9, size=len(models)).astype(float) + models
            different = np.triu(rng.random((len(models), len(models))) < density, 1)
            different |= different.T  # within a model, too: such pairs are never drawn
            made = rank_chances.rank_intervals_over_prompts(models, scores, different, level)
            np.testing.assert_array_equal(made, intervals_by_enumeration(models, scores, different, level))
