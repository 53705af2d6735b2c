"""docs/notebooks: every cell runs, in this process; `make notebooks` runs them in kernels of their own, in full.

What a notebook prints is what it holds. What is trained is a tiny model for one step, so that its numbers are others.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tiny_models
from training_runs import one_thread

__all__ = ["one_thread"]
FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
BOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def cells(name):
    """The code cells of a notebook."""
    book = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def printed(cell):
    """What a cell holds as its output on stdout."""
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """IPython in the notebooks' folder, which is what a kernel is without its process."""
    interactive = pytest.importorskip("IPython.core.interactiveshell", reason="no IPython: pip install stsbench[dev]")
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(FOLDER)
    return interactive.InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))


def run(shell, cell, capsys):
    """What a cell prints."""
    capsys.readouterr()
    result = shell.run_cell("".join(cell["source"]))
    result.raise_error()
    return capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_what_the_measuring_notebook_prints_is_what_it_holds(shell, capsys):
    for cell in cells("why-papers-differ"):
        assert run(shell, cell, capsys) == printed(cell)


def test_the_training_notebook_runs(shell, capsys, tmp_path):
    tiny = tiny_models.build(tmp_path / "tiny", pooler=False)
    for cell in cells("train-and-measure"):
        lines = run(shell, cell, capsys)
        if "parameters" in cell["metadata"].get("tags", ()):
            shell.user_ns.update(backbone=str(tiny), steps=1)
        words = [re.sub(r"[-+]?\d+(\.\d+)?", "0", text.split("\n")[0]) for text in (lines, printed(cell))]
        if "nearest" not in lines:  # which one is chance for the tiny model
            assert words[0].split() == words[1].split()


def test_every_notebook_is_run_and_holds_no_path_or_time_of_who_ran_it():
    assert BOOKS == ["train-and-measure", "why-papers-differ"]
    for name in BOOKS:
        text = (FOLDER / f"{name}.ipynb").read_text("utf-8")
        assert not re.search(r"/home/|/tmp/|/root/|iopub|papermill", text)
        for cell in cells(name):
            assert all(output["output_type"] in ("stream", "display_data") for output in cell["outputs"])
            assert not cell["outputs"] or printed(cell) or "plt.show" in "".join(cell["source"])
