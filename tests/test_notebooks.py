"""docs/notebooks: every cell runs, in this process; `make notebooks` runs them in kernels of their own, in full.

What a notebook prints and shows is what it holds. Where a model is trained, it is a tiny one here, for two steps: its
numbers are others, and what is compared is their form."""

import json
import re
import warnings
from html import unescape
from pathlib import Path

import pytest
import tiny_models
from board_runs import read_once  # noqa: F401  fixture
from training_runs import no_pinned_memory, one_thread  # noqa: F401

from stsbench.evaluation import api, provenance

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
BOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
SHOWN = ("text/html", "text/markdown")


def cells(name):
    book = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def held(cell):
    """What a cell holds: the text on stdout, then tables as (kind, content); pictures are left out."""
    printed = "".join(line for output in cell["outputs"] for line in output.get("text", ()))
    data = [output.get("data", {}) for output in cell["outputs"]]
    return printed, [(kind, "".join(one[kind])) for one in data for kind in SHOWN if kind in one]


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """IPython in the notebooks' folder, which is what a kernel is without its process."""
    interactive = pytest.importorskip("IPython.core.interactiveshell", reason="no IPython: pip install stsbench[dev]")
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    monkeypatch.chdir(FOLDER)  # the first cell goes elsewhere
    for module in (provenance, api):  # as if the working copy were committed: a board refuses what changed code has measured
        monkeypatch.setattr(module, "git_revision", lambda: "0" * 40)
    with warnings.catch_warnings():
        made = interactive.InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
        made.shown = []
        made.displayhook.write_output_prompt = lambda: None
        made.displayhook.write_format_data = lambda data, _: made.shown.append(data)
        yield made


def run(shell, cell, capsys):
    """What a cell prints and shows, in the form of `held`."""
    capsys.readouterr()
    shell.shown.clear()
    shell.run_cell(source(cell)).raise_error()
    return capsys.readouterr().out, [(kind, data[kind]) for data in shell.shown for kind in SHOWN if kind in data]


def words(printed, tables):
    """Lines, then the text of tables, whose markup is that of a version of pandas."""
    pages = [re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL) for _, page in tables]
    texts = (text.strip() for page in pages for text in re.split(r"<[^>]*>", page))
    return printed.splitlines() + [unescape(text) for text in texts if text]


@pytest.mark.parametrize("name", ["measure-and-compare", "own-board"])
def test_what_a_notebook_shows_is_what_it_holds(name, shell, capsys):
    for cell in cells(name):
        assert words(*run(shell, cell, capsys)) == words(*held(cell))


def form(printed, tables):
    """Of lines and tables what does not depend on a model: captions and headers, and each number a 0."""
    heads = [unescape(head) for _, page in tables for head in re.findall(r"<(?:caption|th)\b[^>]*>([^<]*)", page)]
    # Lines of {...} are of sentence-transformers' trainer, which in a notebook has a table instead.
    lines = [line.removesuffix(", the best") for line in printed.splitlines() if not line.startswith("{'")]
    return {re.sub(r"[-+]?\d+(\.\d+)?", "0", " ".join(line.split())) for line in heads + lines}


@pytest.mark.parametrize("name", ["own-data", "own-loop"])
def test_what_a_notebook_that_trains_shows_has_the_form_that_it_holds(name, shell, capsys, tmp_path):
    tiny = tiny_models.build(tmp_path / "tiny", pooler=False, positions=132)
    compared = 0
    for cell in cells(name):
        shown = run(shell, cell, capsys)
        if "parameters" in cell["metadata"].get("tags", ()):
            shell.user_ns.update(backbone=str(tiny), steps=2)
        assert form(*shown) == form(*held(cell))
        compared += shown != ("", [])
    assert compared >= 6


def test_every_notebook_is_run_and_holds_no_path_or_time_of_who_ran_it():
    assert BOOKS == ["measure-and-compare", "own-board", "own-data", "own-loop"]
    for name in BOOKS:
        text = (FOLDER / f"{name}.ipynb").read_text("utf-8")
        assert not re.search(r"/home/|/tmp/|/root/|iopub|papermill|it/s\b|Warning|\b20\d\d-?\d\d-?\d\d\b", text)
        assert len(text) < 100_000
        for cell in cells(name):
            kinds = {kind for output in cell["outputs"] for kind in output.get("data", [output.get("name")])}
            assert kinds <= {"stdout", *SHOWN, "image/png"}
            assert ("image/png" in kinds) == source(cell).endswith(".plot();")
            assert kinds or not re.search(r"^(print\(|\w+$)", source(cell).splitlines()[-1])
