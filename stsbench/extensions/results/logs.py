"""Read the output of evaluation harnesses: lm-evaluation-harness samples, inspect_ai logs, mteb results, predictions."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stsbench.data.sets.lines import numbered_lines
from stsbench.errors import DataError
from stsbench.extensions.results.items import ItemScores
from stsbench.parsing import parse_json

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # inspect_ai's letters: correct, incorrect, partial, no answer
_ZSTANDARD = 93  # zip's number of this compression, which Python 3.11 does not support
_LOWER = {"bits_per_byte", "brier_score", "byte_perplexity", "perplexity", "ter", "word_perplexity"}  # lower is better
_SAMPLES = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT[\d.:-]+\.jsonl")
_NUMBER = (int, float)


def is_sample(path: Path) -> bool:
    """Return whether a file's first line is a sample of lm-evaluation-harness."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        return all(f'"{key}"' in line for line in [stream.readline()] for key in ("doc_id", "filtered_resps", "resps"))


def read_samples(path: Path) -> list[ItemScores]:
    """Return the item scores of lm-evaluation-harness's `samples_TASK_TIME.jsonl`, one ItemScores for each filter.

    Items are named by the document's number and hash, the model by the folder. Raises DataError naming file and line.
    """
    task = match[1] if (match := _SAMPLES.fullmatch(path.name)) else path.stem
    filters: dict[str, dict[str, dict[str, float]]] = {}
    for number, line in numbered_lines(path):
        sample = _parsed(line, f"{path}:{number}")
        metrics = {name: float(sample[name]) for name in sample.get("metrics", ())
                   if isinstance(sample.get(name), _NUMBER) and name not in _LOWER}
        if not metrics:
            raise DataError(f"{path}:{number}: no metric of this sample is a number, the higher the better")
        item = f"{sample['doc_id']} {str(sample.get('doc_hash', ''))[:12]}"
        if item in (its := filters.setdefault(str(sample.get("filter", "none")), {})):
            raise DataError(f"{path}:{number}: the document {sample['doc_id']} stands in it twice")
        its[item] = metrics
    return [_of_items(path.parent.name, task if len(filters) == 1 else f"{task}, {name}", items, str(path))
            for name, items in filters.items()]


def read_inspect_log(path: Path) -> list[ItemScores]:
    """Return the item scores of an inspect_ai log, .eval or .json: for each scorer, a sample's mean over its epochs.

    Letters are graded as by inspect_ai's accuracy: C 1, P 1/2, I and N 0. Raises DataError for a log without scores.
    """
    if path.suffix == ".eval":
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if name.startswith("samples/")]
                log = {"eval": _parsed(_member(archive, "header.json", path), str(path))["eval"],
                       "samples": [_parsed(_member(archive, name, path), f"{path}: {name}") for name in names]}
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{path} is no archive that can be read: {error}") from None
    else:
        log = _parsed(path.read_text("utf-8"), str(path))
    values: dict[str, dict[str, list[float]]] = {}
    for sample in log.get("samples") or ():
        for scorer, score in (sample.get("scores") or {}).items():
            value = score.get("value")
            graded = {f"{scorer} {key}": one for key, one in value.items()} if isinstance(value, dict) else {scorer: value}
            for metric, grade in graded.items():
                number = _GRADES.get(grade, grade) if isinstance(grade, str) else grade
                if not isinstance(number, _NUMBER):
                    raise DataError(f"{path}: sample {sample['id']} has the {metric} {grade!r}, which is not a number")
                values.setdefault(str(sample["id"]), {}).setdefault(metric, []).append(float(number))
    if not values:
        raise DataError(f"{path} holds no scored sample: its status is {log.get('status', 'unknown')}")
    means = {item: {metric: sum(its) / len(its) for metric, its in scores.items()} for item, scores in values.items()}
    about = log["eval"]
    return [_of_items(str(about.get("model", path.stem)), str(about.get("task", "samples")), means, str(path))]


def read_mteb_results(paths: Sequence[Path], folder: Path) -> list[ItemScores]:
    """Return one ItemScores whose items are the tasks in a model's result files, by name and data revision, each scored by
    the mean of its main scores over splits and subsets, as mteb averages them."""
    items: dict[str, dict[str, float]] = {}
    for path in paths:
        result = _parsed(path.read_text("utf-8"), str(path))
        scores = [float(row["main_score"]) for rows in result["scores"].values() for row in rows]
        item = f"{result['task_name']} {result.get('dataset_revision', '')}"
        if item in items or not scores:
            raise DataError(f"{path}: {item} stands in another file of {folder}, too, or has no score: name one revision's "
                            "folder")
        items[item] = {"main score": sum(scores) / len(scores)}
    about = paths[0].with_name("model_meta.json")
    model = _parsed(about.read_text("utf-8"), str(about)).get("name") if about.is_file() else None
    return [_of_items(str(model or folder.name), "mteb tasks", items, str(folder))]


def read_mteb_predictions(path: Path, gold: Sequence[float] | None) -> list[ItemScores]:
    """Return mteb's predictions for the pairs of an STS task. gold: the pairs' labels. Raises DataError without labels."""
    stored = _parsed(path.read_text("utf-8"), str(path))
    model = str(stored.pop("mteb_model_meta")["model_name"])
    task, made = path.name.removesuffix("_predictions.json"), []
    for subset, splits in stored.items():
        for split, predictions in splits.items():
            if not isinstance(predictions, Mapping) or "cosine_scores" not in predictions:
                raise DataError(f"{path}: predictions of pairs with scores, or of rankings, can be read, and no others")
            if gold is None:
                raise DataError(f"{path} holds no labels: stsbench import {path} --gold FILE, a table with a column score")
            cosines = predictions["cosine_scores"]
            if len(cosines) != len(gold):
                raise DataError(f"{path}: {len(cosines)} predictions of {subset} {split}, and {len(gold)} labels")
            made.append(ItemScores(model, f"{task} {split} {subset}", [f"{at:09}" for at in range(len(gold))],
                                   {"cosine": cosines}, gold=gold))
    return made


def _of_items(model: str, task: str, items: Mapping[str, Mapping[str, float]], source: str) -> ItemScores:
    metrics = list(next(iter(items.values())))
    for item, scores in items.items():
        if list(scores) != metrics:
            raise DataError(f"{source}: the item {item} has the metrics {', '.join(scores)}, others {', '.join(metrics)}")
    values = {metric: [scores[metric] for scores in items.values()] for metric in metrics}
    return ItemScores(model, task, list(items), values)


def _parsed(text: str, location: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(f"{location}: not JSON: {error}") from None


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> str:
    """Return a member's text, unpacked by pyarrow if it is compressed by Zstandard, which zipfile does not support."""
    import pyarrow as pa

    try:
        member = archive.getinfo(name)
    except KeyError:
        raise DataError(f"{path} holds no {name}: it is no whole log of inspect_ai") from None
    if member.compress_type != _ZSTANDARD:
        return archive.read(member).decode()
    with path.open("rb") as stream:
        stream.seek(member.header_offset + 26)  # the local header, 30 bytes, ends with the lengths of name and extra field
        stream.seek(sum(struct.unpack("<HH", stream.read(4))), 1)
        packed = stream.read(member.compress_size)
    return str(pa.decompress(packed, decompressed_size=member.file_size, codec="zstd", asbytes=True), "utf-8")
