"""docs/notebooks: every cell runs, in this process; `make notebooks` runs them in kernels of their own, in full. What a
notebook prints and shows is what it holds. Where a model is trained, it is a tiny one here, for two steps: its numbers
are others, and what is compared is their form. In a notebook the Python functions show bars; elsewhere they print
nothing."""

import json
import re
import sys
import warnings
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models
from clirun import place  # noqa: F401 - a fixture
from training_runs import no_pinned_memory, one_thread  # noqa: F401

import stsbench
from stsbench.evaluation import api, provenance
from stsbench.notebook import TrainingBar, in_notebook, working_line

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


class ZMQInteractiveShell:
    """Stands for IPython's class of this name, the shell of a kernel."""


class ColabShell(ZMQInteractiveShell):
    """Colab's is derived from it."""


class TerminalInteractiveShell:
    """IPython's in a terminal."""


@pytest.fixture
def notebook_shell(monkeypatch):
    def run_in(kind):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kind and kind()))

    return run_in


@pytest.mark.parametrize(
    ("kind", "notebook"),
    [(ZMQInteractiveShell, True), (ColabShell, True), (TerminalInteractiveShell, False), (None, False)],
)
def test_which_shell_is_a_notebook(notebook_shell, kind, notebook):
    notebook_shell(kind)
    assert in_notebook() == notebook


@pytest.mark.parametrize("notebook", [False, True])
def test_evaluate_counts_the_texts_it_encodes(notebook_shell, monkeypatch, capsys, notebook):
    monkeypatch.setattr("tqdm.auto.tqdm", __import__("tqdm").std.tqdm)  # as tqdm.auto has it without ipywidgets
    notebook_shell(ZMQInteractiveShell if notebook else None)
    stsbench.evaluate("lexical:token-set", output="run", tasks=["STS-B"], sample=True, resamples=0)
    out, err = capsys.readouterr()
    assert out == "" and ("encoding: 100%" in err and "84/84" in err if notebook else err == "")


def test_a_line_says_what_is_worked_on_and_is_gone_at_the_end(notebook_shell, monkeypatch, capsys):
    monkeypatch.setattr("tqdm.auto.tqdm", __import__("tqdm").std.tqdm)
    notebook_shell(None)
    with working_line("sweep") as working:
        assert working is None
    notebook_shell(ZMQInteractiveShell)
    with working_line("sweep") as working:
        working("trial 0, seed 42, step 20")
        working("trial 1")
    out, err = capsys.readouterr()
    shown = [line.strip() for line in err.split("\r") if line.strip()]
    assert out == "" and shown[1:] == ["sweep, 00:00, trial 0, seed 42, step 20", "sweep, 00:00, trial 1"]
    assert err.endswith("\r")


def test_a_model_is_loaded_without_tqdm_s_remark_on_ipywidgets(notebook_shell, monkeypatch):
    import tqdm.auto  # noqa: F401 - so that it comes back when the test ends

    monkeypatch.delitem(sys.modules, "tqdm.auto")
    monkeypatch.setitem(sys.modules, "tqdm.autonotebook", None)  # in a kernel its import warns: here it fails
    notebook_shell(ZMQInteractiveShell)
    with pytest.raises(ImportError, match=r"tqdm\.autonotebook"):
        stsbench.load_encoder("lexical:token-set")


def test_a_training_s_bar_has_its_loss_and_score(monkeypatch, capsys):
    monkeypatch.setattr("tqdm.auto.tqdm", __import__("tqdm").std.tqdm)
    bar = TrainingBar()
    bar.stage("main", 20, 10)
    bar.dev(10, "sts-b dev", 71.234, False)
    bar.doing(10, "saving a checkpoint")
    assert bar._bar.postfix == "sts-b dev=71.23, now=saving a checkpoint"
    bar.doing(11)
    assert bar._bar.postfix == "sts-b dev=71.23" and bar._bar.n == 11  # it trains again
    bar.step(20, 0.51239, 100.0)
    bar.doing(20, "saving a checkpoint")
    bar.stage("second", 5, 0)
    bar.close()
    bar.close()
    err = capsys.readouterr().err
    assert "main: 100%" in err and "20/20" in err and "sts-b dev=71.23" in err and "loss=0.5124" in err
    assert "second:   0%" in err
    first = err.partition("\n")[0].split("\r")[-1]
    assert "loss=0.5124" in first and "saving" not in first  # what stays when it is done
