"""The copy of a trained model."""

from __future__ import annotations

import shutil
from pathlib import Path

from stsbench.encoders.transformer.find import trained_model
from stsbench.errors import StsbenchError
from stsbench.files import new_folder


def copy_model(run: Path, output: Path) -> list[Path]:
    """Copy the model that the training run `run` kept to `output`, a new folder; returns the files.

    Raises StsbenchError: no training run, no model yet, several seeds, or `output` is there or cannot be written.
    """
    best = trained_model(run)
    if best == run:
        raise StsbenchError(f"{run} is not a run folder of `stsbench train`: it has no recipe.yaml")
    with new_folder(output) as building:
        shutil.copytree(best, building, dirs_exist_ok=True)
    return sorted(path for path in output.rglob("*") if path.is_file())
