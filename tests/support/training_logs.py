"""Invented training runs for the tests of reports and pictures: a log, and what stands in it."""

import json

import numpy as np


def lines_of(stages=(("main", 200),), *, terms=("contrastive",), seed=1, every=5, dev=50, name="sts-b dev", until=None,
             **metrics):
    """A log's lines: losses that fall with noise, dev scores; `until`: the run was killed after this step.
    As the loop writes them: the score before training is no candidate, and every stage has its own best."""
    rng, lines = np.random.default_rng(seed), []
    for stage, steps in stages:
        best = -np.inf
        size = {"steps": steps, "examples": 64 * steps, "batch_size": 64}
        lines.append({"kind": "start", "stage": stage, **size, "seed": seed})
        for step in range((until or steps) + 1):
            if step and step % every == 0:
                values = {term: float(3 * np.exp(-step / 80) + rng.uniform(0.02, 0.3)) for term in terms}
                lines.append({
                    "kind": "train", "stage": stage, "step": step, "epoch": step / steps, "loss": sum(values.values()),
                    "terms": values, "learning_rate": 3e-5 * (1 - step / steps), "gradient_norm": float(rng.uniform(1, 9)),
                    "sentences_per_second": 800.0, **{key: float(rng.random()) for key in metrics}})
            if dev and step % dev == 0:
                score = float(70 + rng.normal())
                where = {"kind": "dev", "stage": stage, "step": step}
                lines.append({**where, "name": name, "score": score, "best": step > 0 and score > best})
                best = max(best, score) if step else best
        if not until:
            lines.append({"kind": "end", "stage": stage, "step": steps})
    return lines


def write_run(folder, *args, **options):
    """A run folder with such a log, and a train.json unless it was killed; returns the lines."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = lines_of(*args, **options)
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    if not options.get("until"):
        (folder / "train.json").write_text('{"seconds": 12.5}', "utf-8")
    return lines
