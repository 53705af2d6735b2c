"""A run of the protocol mteb as mteb's own result files, where its scores are scores on MTEB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stsbench.data.fetch.mteb import undisturbed
from stsbench.data.sets import FROM_MTEB
from stsbench.data.sets.catalog import hub_revision
from stsbench.encoders.base import EncoderSpec
from stsbench.encoders.cache.mteb import model_meta
from stsbench.encoders.traits import is_transductive, was_trained_on
from stsbench.errors import StsbenchError
from stsbench.evaluation.records import Record
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.run_file import read_observations
from stsbench.files import new_folder


def why_not_mteb(record: Record, result: dict[str, Any]) -> str | None:
    """Return why this record's mteb `result` is no score on MTEB, in one line; None where it is one.

    MTEB fixes the data and the measure: text, split, number of pairs, revision. The encoder is whatever a user measures:
    pooler, template, length and number format are its own, and its fingerprint is the revision the result is filed under.
    """
    data = record.data
    if is_transductive(record.encoder.spec.get("fitted_on"), data.id):
        return "the encoder was fitted on the very texts it is tested on"
    if was_trained_on(record.provenance.get("trained_on", ()), data.id):
        return "the encoder was trained on the sentences it is tested on"
    if data.id.startswith(FROM_MTEB):
        return None  # loaded by mteb itself, at the revision it names
    if data.text_version == "sample":
        return "it was measured on the sample data"
    if data.text_version != "raw":
        return f"it was measured on the text version '{data.text_version}', not on MTEB's text (eval --text raw reads it)"
    if not data.known:
        return "its data are not known to be the Hub's file: fetch it again (stsbench data fetch)"
    revision = hub_revision(data.id, data.text_version, data.known, data.n)
    if revision is None:
        return f"{data.id} with {data.n} pairs is not the set that MTEB measures on"
    if result["dataset_revision"] != revision:
        return f"this mteb measures on another revision of the data ({result['dataset_revision'][:12]}, not {revision[:12]})"
    return None


def export_mteb(run: Path, output: Path) -> tuple[list[Path], dict[str, str]]:
    """Write mteb's `results/<model>/<revision>/<Task>.json` and `model_meta.json` for a run into `output`, a new folder.

    Returns the files, and the tasks left out with the reason. `mteb.ResultCache(output).load_results()` reads the folder.
    Raises StsbenchError when `output` holds anything, when the run was edited, and when none of its scores is MTEB's.
    """
    good: dict[tuple[str, str], tuple[Record, str]] = {}
    left_out: dict[str, str] = {}
    for record in score_again(run).records:  # which refuses records and observations that were edited
        if record.protocol.name != "mteb":
            continue
        text = read_observations(run, record).names["task_result"][0]
        result = json.loads(text)
        task = record.scores[0].task
        key = (record.encoder.fingerprint, result["task_name"])
        reason = why_not_mteb(record, result)
        if reason is None and key in good:
            reason = f"the run holds mteb's {result['task_name']} twice"
        if reason is None:
            good[key] = (record, text)
        else:
            left_out[task] = reason
    if not good:
        first = "; ".join(f"{task}: {reason}" for task, reason in list(left_out.items())[:1])
        none = "it holds no record of the protocol mteb; `stsbench eval --protocol mteb --text raw` makes those that count"
        raise StsbenchError(f"{run} has no score that is MTEB's: {first or none}")
    return _written(list(good.values()), output), left_out


def _written(results: list[tuple[Record, str]], output: Path) -> list[Path]:
    """Return the files of all results, which appear together or not at all."""
    files = []
    with new_folder(output) as building, undisturbed() as mteb:
        cache = mteb.ResultCache(building)
        for record, text in results:
            result = mteb.TaskResult.model_validate_json(text)
            meta = model_meta(EncoderSpec(**record.encoder.spec), record.encoder.dimension)
            path = cache.get_task_result_path(result.task_name, meta)
            path.parent.mkdir(parents=True, exist_ok=True)
            result.to_disk(path)
            described = json.dumps(meta.to_dict(), default=str, indent=2)
            (path.parent / "model_meta.json").write_text(described + "\n", "utf-8")
            files.append(output / path.relative_to(building))
    return files
