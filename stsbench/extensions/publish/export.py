"""`stsbench.export`: write a run's results, or its trained model, in another program's format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.errors import StsbenchError, warning_log
from stsbench.files import as_path, atomic_write, new_folder
from stsbench.registry import did_you_mean

if TYPE_CHECKING:
    from stsbench.display.tabular import InFolder

RECORDS = "records.json"
TARGETS = ("sentence-transformers", "mteb", "model-card", "model-index", "json")


def export(run: str | Path | InFolder, to: str, output: str | Path | None = None) -> list[Path]:
    """Write a run's results, or the model that a training kept, in another program's format, as `stsbench export` does.

    run: the folder of a run, or what `evaluate` returned. to: "sentence-transformers", a copy of the trained model; "mteb",
    mteb's result files; "model-card", README.md for the Hub; "model-index", its metadata; "json", the records. output: a
    new folder; None: RUN-TO beside the run.

    Returns the files. Nothing is printed; scores that the format cannot hold are left out, each a StsbenchWarning. Raises
    StsbenchError, one line, for a folder without a run, an edited run, nothing to write, or if `output` exists.

    >>> import stsbench
    >>> run = stsbench.evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0, output="run")
    >>> [path.name for path in stsbench.export(run, to="json", output="exported")]
    ['records.json']
    """
    from stsbench.evaluation.run_file import run_folder

    log = warning_log()
    files, left_out = exported(run_folder(run), to, None if output is None else as_path(output, "output"))
    for task, reason in left_out.items():
        log(f"warning: {task} left out: {reason}")
    return files


def exported(run: Path, to: str, output: Path | None) -> tuple[list[Path], dict[str, str]]:
    """Write the files, and return them and what was left out with the reason. Raises StsbenchError as `export` does."""
    if to not in TARGETS:
        raise StsbenchError(f"export to '{to}': no such format{did_you_mean(str(to), TARGETS)}")
    output = output or run.resolve().with_name(f"{run.resolve().name}-{to}")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise StsbenchError(f"{output} is already there: choose another --output")
    if to == "sentence-transformers":
        return copy_model(run, output), {}
    if to == "json":
        return export_json(run, output), {}
    if to == "mteb":
        from stsbench.extensions.publish.mteb_results import export_mteb

        return export_mteb(run, output)
    from stsbench.extensions.publish.model_card import export_card

    return export_card(run, output, to)


def copy_model(run: Path, output: Path) -> list[Path]:
    """Copy the model that the training run `run` kept to `output`, a new folder; return the files.

    Raises StsbenchError for no training run, no model yet, several seeds, or if `output` exists or cannot be written.
    """
    from stsbench.encoders.transformer.find import trained_model

    best = trained_model(run)
    if best == run:
        raise StsbenchError(f"{run} is not a run folder of `stsbench train`: it has no recipe.yaml")
    with new_folder(output) as building:
        shutil.copytree(best, building, dirs_exist_ok=True)
    return sorted(path for path in output.rglob("*") if path.is_file())


def export_json(run: Path, output: Path) -> list[Path]:
    """Write the records of a run, as they stand in it and without what they observed, into `output`, a new folder.

    The file is a list of objects: `name`, and what `Record.model_json_schema()` describes. Raises StsbenchError
    for what is no run, and when `output` is already there.
    """
    from stsbench.evaluation.run_file import load_records

    records = [{"name": path.name, **record.model_dump(mode="json")} for path, record in load_records(run)]
    with new_folder(output) as building, atomic_write(building / RECORDS) as stream:
        json.dump(records, stream, indent=1, ensure_ascii=False)
        stream.write("\n")
    return [output / RECORDS]
