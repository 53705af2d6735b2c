"""Import other tools' results as runs: recognise the tool of a file, and write a run folder for each model."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from stsbench.data.own.table import named_columns
from stsbench.data.sets.readers import parse_score
from stsbench.errors import DataError, StsbenchError
from stsbench.evaluation.run_file import RUN, Item, write_run
from stsbench.extensions.results.items import ItemScores, items_of_run
from stsbench.extensions.results.logs import (
    is_sample,
    read_inspect_log,
    read_mteb_predictions,
    read_mteb_results,
    read_samples,
)
from stsbench.extensions.results.rankings import is_ranking, read_ranking, read_relevance, score_ranking
from stsbench.extensions.results.tables import read_table
from stsbench.files import temporary
from stsbench.parsing import read_json

_TABLES = (".csv", ".tsv", ".jsonl", ".parquet")


def import_results(
    source: str | Path, output: str | Path | None = None, *, columns: str = "", gold: str | Path | None = None,
) -> list[Path]:
    """Write a run for each model in another tool's results, for `compare`, `choose`, `power` and reports.

    source: a table with one row per item, `samples_*.jsonl` of lm-evaluation-harness or a folder of them, a log of
    inspect_ai, a folder of mteb's result files, its predictions, or a run of TREC or ranx. columns: roles of a table's
    columns that their names do not tell, such as `id=q,score=f1,cluster=text`. gold: relevance judgements of a ranking, or
    a table with the labels of predictions. output: the run's folder, for several models the parent of theirs; None: a
    temporary one, until the process ends. Returns the run folders. Raises StsbenchError, one line.

    >>> from pathlib import Path
    >>> from stsbench.extensions.results.api import import_results
    >>> rows = "".join(f"{number},{number % 3},{number % 4}\\n" for number in range(12))
    >>> _ = Path("scores.csv").write_text("id,small,large\\n" + rows)
    >>> [run.name for run in import_results("scores.csv", "runs")]
    ['small', 'large']
    """
    path = Path(source)
    items = _read(path, columns, gold)
    models = list(dict.fromkeys(its.model for its in items))
    folder = Path(output) if output is not None else temporary("results")
    made: dict[Path, list[Item]] = {}
    for model in models:
        run = folder / (re.sub(r"[^\w.-]+", "-", model) or "model") if len(models) > 1 or output is None else folder
        if run in made:
            raise DataError(f"{path}: two models would have the folder {run.name}: rename one")
        if output is not None and (run / RUN).exists():
            raise StsbenchError(f"{run} holds a run already: name another folder")
        made[run] = items_of_run([its for its in items if its.model == model], path.name)
    for run, stored in made.items():
        run.mkdir(parents=True, exist_ok=True)
        write_run(run / RUN, stored)
    return list(made)


def imported_runs(word: Path) -> list[Path]:
    """Return the runs of a results file given in place of a run, FILE or FILE:MODEL; [] if it is not a results file."""
    path, model = word, ""
    if not word.exists():
        before, colon, model = str(word).rpartition(":")
        path = Path(before)
        if not colon or not path.is_file():
            return []
    elif path.is_dir() and not _results_in(path):
        return []
    runs = import_results(path)
    if not model and len(runs) > 1:
        listed = ", ".join(f"{path}:{run.name}" for run in runs[:4])
        raise StsbenchError(f"{path} holds {len(runs)} models: name one, as {listed}{', ...' if len(runs) > 4 else ''}")
    chosen = [run for run in runs if model in ("", run.name)]
    if not chosen:
        raise StsbenchError(f"{path} has no model {model}, only {', '.join(run.name for run in runs)}")
    return chosen


def _read(path: Path, columns: str, gold: str | Path | None) -> list[ItemScores]:
    if not path.exists():
        raise StsbenchError(f"{path}: there is no such file or folder")
    if path.is_dir():
        files = _results_in(path)
        if not files:
            raise StsbenchError(f"{path} holds no results that can be read: samples_*.jsonl, *.eval, or mteb's result files")
        if files[0].suffix == ".json":
            return read_mteb_results(files, path)
        read = [its for file in files for its in (read_inspect_log if file.suffix == ".eval" else read_samples)(file)]
        times = Counter((its.model, its.task) for its in read)
        if several := [key for key, count in times.items() if count > 1]:
            raise DataError(f"{path}: several files hold {several[0][1]} of {several[0][0]}: name one of them")
        return read
    value = _json_object(path) if path.suffix == ".json" else None
    if path.suffix == ".eval" or (value is not None and {"eval", "samples"} <= value.keys()):
        return read_inspect_log(path)
    if value is not None and "mteb_model_meta" in value:
        return _mteb_predictions(path, value, gold)
    if value is not None and {"task_name", "scores"} <= value.keys():
        return read_mteb_results([path], path.parent)
    if path.suffix == ".jsonl" and is_sample(path):
        return read_samples(path)
    if path.suffix in _TABLES and not _is_ranx(path):
        return read_table(path, columns)
    ranking, name = read_ranking(path)
    return [score_ranking(name, _judgements(path, gold).stem, ranking, read_relevance(_judgements(path, gold)), str(path))]


def _judgements(path: Path, gold: str | Path | None) -> Path:
    if gold is None:
        raise StsbenchError(f"{path} is a ranking, which is scored by judgements: stsbench import {path} --gold QRELS "
                            f"--output runs/{path.stem}")
    if not Path(gold).is_file():
        raise StsbenchError(f"{gold}: there is no such file")
    return Path(gold)


def _mteb_predictions(path: Path, value: dict[str, Any], gold: str | Path | None) -> list[ItemScores]:
    """Return the scores of mteb's predictions: rankings by relevance judgements, pairs by labels."""
    parts = {(subset, split): its for subset, splits in value.items() if subset != "mteb_model_meta"
             for split, its in splits.items()}
    if parts and all(map(is_ranking, parts.values())):
        relevance, task = read_relevance(_judgements(path, gold)), path.name.removesuffix("_predictions.json")
        return [score_ranking(str(value["mteb_model_meta"]["model_name"]), f"{task} {split} {subset}", ranking, relevance,
                              str(path)) for (subset, split), ranking in parts.items()]
    labels = None if gold is None else [parse_score(row["score"], location)
                                        for location, row in named_columns(Path(gold), ["score"])]
    return read_mteb_predictions(path, labels)


def _results_in(folder: Path) -> list[Path]:
    """Return the results files of one tool in a folder: samples, else logs, else mteb's results; [] without any."""
    for pattern in ("samples_*.jsonl", "*.eval"):
        if files := sorted({*folder.glob(pattern), *folder.glob(f"*/{pattern}")}):
            return files
    models = {about.parent for about in (*folder.glob("model_meta.json"), *folder.glob("*/model_meta.json"))}
    return sorted(file for model in models for file in model.glob("*.json") if _is_mteb_result(file))


def _is_mteb_result(path: Path) -> bool:
    try:
        return {"task_name", "scores"} <= (_json_object(path) or {}).keys()
    except DataError:  # some other JSON file of the folder
        return False


def _json_object(path: Path) -> dict[str, Any] | None:
    value = read_json(path, DataError)
    return value if isinstance(value, dict) else None


def _is_ranx(path: Path) -> bool:
    from pyarrow import parquet

    return path.suffix == ".parquet" and {"q_id", "doc_id", "score"} <= set(parquet.read_schema(path).names)

