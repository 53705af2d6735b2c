"""The public names of stsbench: each function's example runs as it stands, in an empty folder; an editor sees its types."""

import doctest
import inspect
import warnings

import pytest
import tiny_models

import stsbench
from stsbench.encoders.transformer import config, find

PUBLIC = {name: getattr(stsbench, name) for name in stsbench.__all__}
PUBLIC |= {f"leaderboard.{name}": getattr(stsbench.leaderboard, name) for name in stsbench.leaderboard.__all__}
FUNCTIONS = [name for name, value in PUBLIC.items() if inspect.isfunction(value)]


def example(name):
    """The doctest of a public function; None where its docstring has none."""
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=True)
    tests = finder.find(PUBLIC[name], name, globs={})
    return next((test for test in tests if test.examples), None)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A tiny model of MiniLM's width: no example that names MiniLM prints a number of it."""
    return tiny_models.build_for_sample(tmp_path_factory.mktemp("model") / "tiny", width=384)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if example(name)])
def test_an_example_gives_what_it_says(name, tiny, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for module in (find, config):
        monkeypatch.setattr(module, "find_minilm", lambda: tiny)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    printed = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stsbench.errors.StsbenchWarning)
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        failures, _ = runner.run(example(name), out=printed.append)
    assert not failures, "".join(printed)


def test_each_function_has_an_example():
    assert not [name for name in FUNCTIONS if example(name) is None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_editor_sees_names_types_and_a_line(name):
    function = PUBLIC[name]
    signature = inspect.signature(function)
    untyped = [one.name for one in signature.parameters.values() if one.annotation is inspect.Parameter.empty]
    assert not untyped and signature.return_annotation is not inspect.Parameter.empty
    assert (inspect.getdoc(function) or "").partition("\n")[0].strip()
    kinds = {one.kind for one in signature.parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


def test_a_wrong_example_fails():
    """The check itself: what an example gives is compared with what it says."""
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "planted", None, 0)
    assert doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, out=lambda text: None).failed == 1
