"""A small repository in the layout in which the study of prompt sensitivity publishes its results."""

import json

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
