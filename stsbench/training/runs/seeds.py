"""One recipe trained with several seeds: mean and standard deviation of its dev score and of every test score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import changed_settings, metric_under
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.rescore import protocol_of_record
from stsbench.evaluation.run_file import load_records
from stsbench.training.runs.report import LOG, read_log, spread, summary

_KEYS = ("protocol", "settings", "view", "task", "subset", "aggregation", "metric", "items")
_TEXT_VERSIONS = {"sample": "sample data", "raw": "text version raw"}  # what must be said of a score


def summarise_seeds(runs: Sequence[Path]) -> dict[str, Any]:
    """What RUN/seeds.json holds, from the run folders of one recipe, a seed each.

    {"seeds", "dev": {"name", ...} or None, "dev_last": the same, "tests": [{"protocol", "settings", "view", "task",
    "subset", "aggregation", "metric", "items", ...}], "shared": {"runs", "origins", "stage", "first"} where runs went on
    from the end of that stage of fewer earlier ones, else None}, where ... are mean, sd (n - 1; None for one run), n and
    values by seed, scores as in records. dev is the score that chose the weights, dev_last ("NAME, last step") that after
    the last step, None where there is none; items are those that a score is of, settings those that differ from the
    protocol's own, view the text version of the data (or sample). A seed whose task failed is missing from its values, and n
    says so.

    Raises StsbenchError for an unfinished run, a seed used twice, runs selected by different dev data, or tests on
    different data.
    """
    by_seed: dict[int, Path] = {}
    for run in runs:
        seed = _finished(run)["seed"]
        if seed in by_seed:
            raise StsbenchError(f"{run} was trained with seed {seed}, as another run was: one run does not count twice")
        by_seed[seed] = run
    return {"seeds": list(by_seed), **over_runs(by_seed)}


def over_runs(runs: Mapping[Any, Path]) -> dict[str, Any]:
    """dev, dev_last, tests and shared as `summarise_seeds` has them, over runs that stand under any keys."""
    best: dict[Any, dict[str, Any]] = {}
    last: dict[Any, dict[str, Any]] = {}
    tests: dict[tuple[Any, ...], dict[Any, float]] = {}
    digests: dict[tuple[str, str, str], tuple[str, Path]] = {}
    origins: dict[str, dict[str, Any]] = {}
    for key, run in runs.items():
        run_summary = _finished(run)
        if run_summary["best"]:
            best[key] = run_summary["best"]
        line = _last_dev(read_log(run / LOG))
        if line and line["score"] is not None:
            last[key] = line
        if earlier := run_summary["from"]:
            origins.setdefault(earlier["weights"], earlier)
        if (run / "eval").is_dir():
            for test, value in _tested(run / "eval", digests):
                tests.setdefault(test, {})[key] = value
    names = sorted({one["name"] for one in (*best.values(), *last.values())})
    if len(names) > 1:
        raise StsbenchError(f"the runs were selected by different dev scores ({', '.join(names)}): no common mean")

    def over(lines: dict[Any, dict[str, Any]], ending: str = "") -> dict[str, Any] | None:
        scores = {key: one["score"] for key, one in lines.items()}
        return {"name": names[0] + ending, **spread(scores)} if scores else None

    return {
        "dev": over(best), "dev_last": over(last, ", last step"),
        "tests": [{**dict(zip(_KEYS, key, strict=True)), **spread(values)} for key, values in tests.items()],
        "shared": _shared(origins, len(runs)),
    }


def _shared(origins: Mapping[str, dict[str, Any]], runs: int) -> dict[str, Any] | None:
    """origins: those of the runs, by their weights."""
    if not 0 < len(origins) < runs:
        return None
    first = next(iter(origins.values()))
    return {"runs": runs, "origins": len(origins), "stage": first["stage"], "first": first["run"]}


def shared_line(scores: dict[str, Any]) -> str | None:
    """What must be said of the standard deviations where runs went on from the same earlier run; None elsewhere."""
    shared = scores.get("shared")
    if shared is None:
        return None
    one = f"one run, {shared['first']}" if shared["origins"] == 1 else f"{shared['origins']} runs"
    return (
        f"note: {shared['runs']} runs went on from the end of stage {shared['stage']} of {one}: the sd leaves out how "
        "much that stage differs from seed to seed"
    )


def _finished(run: Path) -> dict[str, Any]:
    run_summary = summary(run)
    if not run_summary["finished"]:
        raise StsbenchError(f"{run} is not finished: resume it before its scores are averaged")
    return run_summary


def _last_dev(log: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The dev line after the last step of the last stage; None where there is none."""
    end = next((line for line in reversed(log) if line["kind"] == "end"), None)
    if end is None:
        return None
    where = (end["stage"], end["step"])
    return next((line for line in reversed(log) if line["kind"] == "dev" and (line["stage"], line["step"]) == where), None)


def _tested(folder: Path, digests: dict[tuple[str, str, str], tuple[str, Path]]) -> Iterator[tuple[tuple[Any, ...], float]]:
    """Every score of an evaluation, averages included, by what makes it the same measurement in another run."""
    groups: dict[str, list[tuple[Path, Record]]] = {}
    for path, record in load_records(folder):
        groups.setdefault(record.protocol.model_dump_json(), []).append((path, record))
    for group in groups.values():
        records = [record for _, record in group]
        label, settings = records[0].protocol.label, changed_settings(records[0].protocol)
        for record in records:
            known, other = digests.setdefault((label, settings, record.data.id), (record.data.digest, folder))
            if known != record.data.digest:
                reason = f"measured on different data ({label} {record.data.id})"
                raise StsbenchError(f"{other} and {folder} were {reason}: their scores have no common mean")
        whole = ", ".join(dict.fromkeys(record.data.text_version for record in records))
        rows: list[tuple[str, ScoreRow]] = [(record.data.text_version, row) for record in records for row in record.scores]
        rows += [(whole, row) for row in protocol_of_record(*group[0]).summarise(records)]
        for text_version, row in rows:
            yield (row.protocol, settings, text_version, row.task, row.subset, row.aggregation, row.metric, row.n), row.value


def seed_table(scores: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """`summarise_seeds` for a terminal: (what, mean, sd, n) of the dev score and of each task's first metric.

    The dev score is the one that chose the weights; where no step was a candidate, that after the last step, named so.
    Decimals as the metric has them, three for held-out scores; an sd of one run is a dash.
    """
    return [_cells(name, row, digits) for name, row, digits in shown_scores(scores)]


def shown_scores(scores: dict[str, Any]) -> list[tuple[str, dict[str, Any], int]]:
    """(what, its entry, decimals) of those scores of `summarise_seeds` or `summarise_subsets` that a table shows."""
    lines: list[tuple[str, dict[str, Any], int]] = []
    listed = set()
    if dev := scores["dev"] or scores["dev_last"]:
        lines.append((dev["name"], dev, 3 if dev["name"].startswith("held-out") else 2))
    for row in scores["tests"]:
        key = (row["protocol"], row["settings"], row["view"], row["task"])
        if row["subset"] is None and key not in listed:
            listed.add(key)
            notes = ", ".join(filter(None, (row["settings"], _TEXT_VERSIONS.get(row["view"], ""))))
            label = f"{row['protocol']} ({notes})" if notes else row["protocol"]
            words = (label, row["task"], row["metric"], row["aggregation"])
            lines.append((" ".join(filter(None, words)), row, metric_under(row["protocol"], row["metric"]).digits))
    return lines


def _cells(name: str, row: dict[str, Any], digits: int) -> tuple[str, str, str, str]:
    return name, f"{row['mean']:.{digits}f}", shown_sd(row, digits), str(row["n"])


def shown_sd(row: dict[str, Any], digits: int) -> str:
    """The standard deviation of a `spread`, a dash for one value."""
    return "–" if row["sd"] is None else f"{row['sd']:.{digits}f}"
