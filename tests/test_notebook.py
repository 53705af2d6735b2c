"""In a notebook the Python functions show bars; elsewhere they print nothing."""

import sys
from types import SimpleNamespace

import pytest
from clirun import place  # noqa: F401 - a fixture

import stsbench
from stsbench.notebook import TrainingBar, in_notebook

ZMQInteractiveShell = type("ZMQInteractiveShell", (), {})  # stands for IPython's class of this name, the shell of a kernel
ColabShell = type("ColabShell", (ZMQInteractiveShell,), {})  # Colab's is derived from it
TerminalInteractiveShell = type("TerminalInteractiveShell", (), {})  # IPython's in a terminal


@pytest.fixture
def shell(monkeypatch):
    return lambda kind: monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kind and kind()))


@pytest.mark.parametrize(("kind", "notebook"), [
    (ZMQInteractiveShell, True), (ColabShell, True), (TerminalInteractiveShell, False), (None, False)])
def test_which_shell_is_a_notebook(shell, kind, notebook):
    shell(kind)
    assert in_notebook() == notebook


@pytest.mark.parametrize("notebook", [False, True])
def test_evaluate_counts_the_texts_it_encodes(shell, monkeypatch, capsys, notebook):
    monkeypatch.setattr("tqdm.auto.tqdm", __import__("tqdm").std.tqdm)  # as tqdm.auto has it without ipywidgets
    shell(ZMQInteractiveShell if notebook else None)
    stsbench.evaluate("lexical:token-set", output="run", tasks=["STS-B"], sample=True, resamples=0)
    out, err = capsys.readouterr()
    assert out == "" and ("encoding: 100%" in err and "84/84" in err if notebook else err == "")


def test_a_model_is_loaded_without_tqdm_s_remark_on_ipywidgets(shell, monkeypatch):
    import tqdm.auto  # noqa: F401 - so that it comes back when the test ends

    monkeypatch.delitem(sys.modules, "tqdm.auto")
    monkeypatch.setitem(sys.modules, "tqdm.autonotebook", None)  # in a kernel its import warns: here it fails
    shell(ZMQInteractiveShell)
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
