"""Results in the folders of training runs: the log and best dev score of a run, and, over several seeds or subsets, the
mean and standard deviation of the dev score and of every test score. Imports no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from stsbench.errors import DataError, StsbenchError
from stsbench.evaluation.plan import changed_settings, metric_under
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.rescore import protocol_of_record
from stsbench.evaluation.run_file import load_records
from stsbench.parsing import read_json_object
from stsbench.wording import counted

LOG = "log.jsonl"
# Keys and types that a log line of each kind must have. Lines of other kinds are not checked.
_NEEDED: dict[str, dict[str, Any]] = {
    "start": {"stage": str, "steps": int, "seed": int},
    "train": {"stage": str, "step": int, "loss": (int, float), "terms": dict},
    "dev": {"stage": str, "step": int, "name": str, "score": (int, float, type(None)), "best": bool},  # None: undefined
    "end": {"stage": str, "step": int},
}
_KEYS = ("protocol", "settings", "view", "task", "subset", "aggregation", "metric", "items")
_TEXT_VERSIONS = {"sample": "sample data", "raw": "text version raw"}  # shown beside a score


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's log.jsonl, in order, without a last line that is incomplete because the run was killed.

    Raises DataError, naming file and line, for any other line that is not a log line; StsbenchError where there is no file.
    """
    if not path.is_file():
        raise StsbenchError(f"{path.parent} is not a run folder of `stsbench train`: it has no {path.name}")
    try:
        parts = path.read_bytes().split(b"\n")
    except OSError as error:
        raise StsbenchError(f"cannot read {path}: {error.strerror or error}") from error
    lines = []
    for number, part in enumerate(parts, start=1):
        last = number == len(parts)
        if last and not part:
            break  # nothing follows the last line break
        try:
            line = json.loads(part)
        except (ValueError, RecursionError):
            if last:
                break
            raise DataError(f"{path}:{number}: not JSON: the file is damaged") from None
        if wrong := _wrong(line):
            raise DataError(f"{path}:{number}: {wrong}: the file is damaged or not a log of `stsbench train`")
        lines.append(line)
    return lines


_SCORED = {"kind": "dev", "stage": "", "step": 0, "name": "", "score": 0.0, "best": True}  # older versions left some out


def _wrong(line: Any) -> str:
    """Return what is wrong with a log line, "" where nothing is."""
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return "no object with a 'kind'"
    for key, kind in _NEEDED.get(line["kind"], {}).items():
        value = line.get(key)
        if key not in line or not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            return f"'{line['kind']}' line without a proper '{key}'"
    return ""


def best_dev(log: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the dev line whose weights are kept: the last line of the last stage that is marked as the best.

    With selection.over "all", a stage's start line holds the best so far (name, score, stage, step), maybe of an earlier
    run, which is returned where the last stage has no better one. None where there is no best.
    """
    last: dict[str, Any] = next((line for line in reversed(log) if line["kind"] == "start"), {})
    marked = (line for line in reversed(log) if line["kind"] == "dev" and line["best"])
    return next((line for line in marked if last.get("stage") in (None, line["stage"])), last.get("best"))


def summary(run: Path) -> dict[str, Any]:
    """Return a summary of a finished or unfinished run.

    seed; best: name, score, stage and step of the dev evaluation whose weights are kept, or None; steps: number of steps
    done, over all stages; final_loss: of the last logged line, None before the first; finished: whether train.json exists,
    which is written at the end; seconds, from: as in train.json, or None. Raises the errors of `read_log`.
    """
    log = read_log(run / LOG)
    starts = {line["stage"]: line for line in log if line["kind"] == "start"}
    if not starts:
        raise StsbenchError(f"{run / LOG} is empty: the run was stopped before its first step")
    trained = [line for line in log if line["kind"] == "train"]
    done = {stage: max((line["step"] for line in log if line.get("stage") == stage and "step" in line), default=0)
            for stage in starts}
    best, stored = best_dev(log), read_summary(run)
    return {
        "seed": next(iter(starts.values()))["seed"],
        "best": {key: best[key] for key in ("name", "score", "stage", "step")} if best else None,
        "steps": sum(done.values()),
        "final_loss": trained[-1]["loss"] if trained else None,
        "finished": stored is not None,
        "seconds": (stored or {}).get("seconds"),
        "from": (stored or {}).get("from"),
    }


def read_summary(run: Path) -> dict[str, Any] | None:
    """Return the content of the run's train.json, None where the file is missing. Raises DataError, one line that names the
    file and a damaged key."""
    path = run / "train.json"
    if not path.is_file():
        return None
    stored = read_json_object(path, DataError)
    best, data = stored.get("best"), stored.get("data", {})
    checks = {
        "stages": isinstance(stored.get("stages", {}), dict),
        "data": isinstance(data, dict) and all(isinstance(entry, dict) for entry in data.values()),
        "best": best is None or (isinstance(best, dict) and not _wrong({**_SCORED, **best})),
    }
    if damaged := [key for key, fine in checks.items() if not fine]:
        raise DataError(f"{path} holds no summary of a run: its '{damaged[0]}' is damaged")
    return stored


def spread(values: Mapping[Any, float]) -> dict[str, Any]:
    """Return mean, sample sd (n - 1; None for n = 1), n, and the values by key. Raises StsbenchError for NaN or infinity."""
    scores = list(values.values())
    if not all(map(math.isfinite, scores)):
        raise StsbenchError(f"a score that is NaN or infinite has no mean: {values}")
    sd = stdev(scores) if len(scores) > 1 else None
    return {"mean": fmean(scores), "sd": sd, "n": len(scores), "values": dict(values)}


def summarise_seeds(runs: Sequence[Path]) -> dict[str, Any]:
    """Return the content of RUN/seeds.json, from run folders of one recipe with a seed each.

    {"seeds", "dev": {"name", ...} or None, "dev_last": the same, "tests": [{"protocol", "settings", "view", "task",
    "subset", "aggregation", "metric", "items", ...}], "shared": {"runs", "origins", "stage", "first"} where the runs started
    from the end of a stage of fewer earlier runs, else None}, where ... are mean, sd (n - 1; None for one run), n and values
    by seed, with scores as in records. dev is the score that selected the weights, dev_last ("NAME, last step") the score
    after the last step; either is None where there is none. items is the number of items behind a score, settings those that
    differ from the protocol's defaults, view the text version of the data (or sample). A seed whose task failed is missing
    from that task's values and n.

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
    """Return dev, dev_last, tests and shared as in `summarise_seeds`, for runs by seed, or by subset and seed.

    Raises StsbenchError for an unfinished run, and for tests on different data.
    """
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

    first = next(iter(origins.values())) if 0 < len(origins) < len(runs) else None

    def over(lines: dict[Any, dict[str, Any]], ending: str = "") -> dict[str, Any] | None:
        scores = {key: one["score"] for key, one in lines.items()}
        return {"name": names[0] + ending, **spread(scores)} if scores else None

    return {
        "dev": over(best), "dev_last": over(last, ", last step"),
        "tests": [{**dict(zip(_KEYS, key, strict=True)), **spread(values)} for key, values in tests.items()],
        "shared": first and {"runs": len(runs), "origins": len(origins), "stage": first["stage"], "first": first["run"]},
    }


def shared_line(scores: dict[str, Any]) -> str | None:
    """Return a note on the standard deviations where several runs started from one earlier run; None otherwise."""
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
    """Return the dev line logged after the last step of the last stage; None where there is none."""
    end = next((line for line in reversed(log) if line["kind"] == "end"), None)
    if end is None:
        return None
    where = (end["stage"], end["step"])
    return next((line for line in reversed(log) if line["kind"] == "dev" and (line["stage"], line["step"]) == where), None)


def _tested(folder: Path, digests: dict[tuple[str, str, str], tuple[str, Path]]) -> Iterator[tuple[tuple[Any, ...], float]]:
    """Yield (key, score) for every score of an evaluation, averages included; runs are compared where keys are equal."""
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


def seed_table(scores: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of a table of `summarise_seeds` or `summarise_subsets`: (score, mean, sd, n) for the dev score and
    each task's first metric; for subsets also the sd over the subsets' means.

    The dev score is the one that selected the weights, or, where none did, the one after the last step, with its name.
    Decimals are those of the metric, three for held-out scores; the sd of one run is a dash.
    """
    return [
        (name, f"{row['mean']:.{digits}f}", shown_sd(row, digits), str(row["n"]),
         *([shown_sd(row["subsets"], digits)] if "subsets" in row else []))
        for name, row, digits in shown_scores(scores)
    ]


def shown_scores(scores: dict[str, Any]) -> list[tuple[str, dict[str, Any], int]]:
    """Return (name, entry, decimals) for the scores of `summarise_seeds` or `summarise_subsets` that a table shows."""
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


def shown_sd(row: dict[str, Any], digits: int) -> str:
    """Return the standard deviation of a `spread` as text, a dash for a single value."""
    return "–" if row["sd"] is None else f"{row['sd']:.{digits}f}"


def summarise_subsets(runs: Mapping[int, Sequence[Path]]) -> dict[str, Any]:
    """Return the content of RUN/subsets.json, from the runs of each subset, one for each seed.

    {"subsets", "seeds", "rows": {subset: {stage, or "labelled": rows trained on}}, "dev", "dev_last", "tests", "shared"}:
    the last four are as in `summarise_seeds`, over all runs, with values by "SUBSET/SEED"; each score also has "subsets":
    mean, sd, n and values of the subsets' means. Raises StsbenchError as `summarise_seeds` does.
    """
    seeds: list[int] = []
    every: dict[str, Path] = {}
    rows: dict[int, dict[str, int]] = {}
    for subset, folders in runs.items():
        trained = summarise_seeds(folders)["seeds"]
        seeds += [seed for seed in trained if seed not in seeds]
        every |= {f"{subset}/{seed}": folder for seed, folder in zip(trained, folders, strict=True)}
        stored = read_json_object(folders[0] / "train.json", DataError)
        rows[subset] = {name: data["rows"] for name, data in stored["data"].items()}
    scores = over_runs(every)
    for entry in [scores["dev"], scores["dev_last"], *scores["tests"]]:
        if entry is not None:
            values: dict[int, list[float]] = {}  # the values of each subset
            for key, value in entry["values"].items():
                values.setdefault(int(key.partition("/")[0]), []).append(value)
            entry["subsets"] = spread({subset: fmean(of_seeds) for subset, of_seeds in values.items()})
    return {"subsets": list(runs), "seeds": seeds, "rows": rows, **scores}


def subset_rows(summary: dict[str, Any]) -> list[str]:
    """Return a line for each subset with its number of rows."""
    return [
        f"subset {subset}: " + ", ".join(f"{name} {counted(count, 'row')}" for name, count in rows.items())
        for subset, rows in summary["rows"].items()
    ]
