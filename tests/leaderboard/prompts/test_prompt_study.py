"""The published study of prompt sensitivity, read from a small repository of the same layout, and its figures again."""

import csv
import json
from itertools import product

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401 - fixtures

from stsbench.errors import StsbenchError
from stsbench.leaderboard import prompt_sensitivity
from stsbench.leaderboard.prompts.study_files import COLUMNS, read_study, read_table

TASKS = {"STS14": 6, "STS22.v2": 4, "FEVERHardNegatives": 3}
MODELS = ("org__small", "org__large", "lab__other")
GENERATORS = ("maker-a", "maker-b")


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
    for number, generator in enumerate(GENERATORS):
        write(prompts / f"{generator}-gen-prompts.json", [one for at, one in enumerate(entries) if at % 2 == number])
    for at, model in enumerate(MODELS):
        revision = results / model / "abc"
        write(revision / "model_meta.json", {"name": model})
        for task in TASKS:
            write(revision / f"{task}.json", result(default[task][at]))
            for number, score in enumerate(scores[task][at]):
                if score is not None:
                    key = f"{task}-query" if task.startswith("FEVER") else task
                    folder = revision / "experiments" / f"exp_{task}_{number}"
                    run(folder, task, prompt_texts(task)[number], result(score), key)
                    (folder / "run_settings.jsonl").write_text("{}\n")
    return root


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
    assert "59.50" in out and "STS22.v2: ranks, 3 prompts that all models read" in out and "59.50" in made.latex()
    code, out, _ = cli("reproduce", "prompt-sensitivity", "--results", root, "--json", "-")
    assert code == 0 and json.loads(out) == made.as_json()


def refused(root):
    with pytest.raises(StsbenchError) as error:
        prompt_sensitivity(root)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_not_such_a_repository_is_refused_by_file(root):
    meta = experiments(root) / "exp_STS14_0" / "model_meta.json"
    write(meta, {"experiment_kwargs": None})
    assert refused(root).startswith(f"{meta} states no prompt of STS14")
    run(meta.parent, "STS14", prompt_texts("STS14")[1], result(0.99))
    assert "is a second result of the same model, task and prompt" in refused(root)
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


# The study read from one table instead of a clone.


rng = np.random.default_rng(5)
DRAWN = {task: rng.random((3, count)).round(6).tolist() for task, count in TASKS.items()}
DRAWN_DEFAULT = {task: rng.random(3).round(6).tolist() for task in TASKS}


def lines():
    for at, model in enumerate(MODELS):
        for task, scores in DRAWN.items():
            yield [DRAWN_DEFAULT[task][at], task, model.replace("__", "/"), "default", "True"]
            for prompt, score in zip(prompt_texts(task), scores[at], strict=True):
                yield [score, task, model.replace("__", "/"), prompt, "False"]


def write_table(path, rows, columns=COLUMNS):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])
    return path


def test_a_table_gives_what_a_clone_gives(tmp_path):
    table = prompt_sensitivity(write_table(tmp_path / "results.csv", lines()))
    clone = prompt_sensitivity(repository(tmp_path / "clone", DRAWN, DRAWN_DEFAULT))
    assert not table.study.notes() and {row["set"] for row in table.rows()} == set(TASKS)
    by_key = {(row["set"], row["model"]): row for row in clone.rows()}
    for row in table.rows():
        other = by_key[row["set"], row["model"]]
        assert {key: value for key, value in row.items() if key != "error"} == pytest.approx(
            {key: value for key, value in other.items() if key != "error"})
        assert row["error"] > 0  # each prompt is drawn by itself: who wrote it is not known
    assert sorted(map(str, table.claims)) == sorted(map(str, clone.claims))


def test_models_and_tasks_without_a_default_are_left_out_and_named(tmp_path):
    rows = [row for row in lines() if row[2:5:2] != ["org/small", "True"] and row[1:3] != ["STS14", "org/large"]]
    rows += [[0.5, "STS14", "org/new", "a:", "False"]]
    study = read_table(write_table(tmp_path / "results.csv", rows))
    assert study.models == ("other", "large")
    assert sorted(study.tasks) == ["FEVERHardNegatives", "STS22.v2"]
    assert study.notes() == [
        "new is left out: it has no result by default", "small is left out: it has no result by default",
        "STS14 is left out: no result by default, or of any prompt, of large",
    ]


def test_a_line_that_stands_there_twice_must_say_the_same(tmp_path):
    rows = list(lines())
    assert read_table(write_table(tmp_path / "same.csv", [*rows, rows[1]])).scores.keys() == set(TASKS)
    with pytest.raises(StsbenchError, match=f"line {len(rows) + 2}: a second score of the same model, task and prompt"):
        read_table(write_table(tmp_path / "other.csv", [*rows, [rows[1][0] + 0.1, *rows[1][1:]]]))
