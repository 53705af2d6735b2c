"""What `stsbench new` writes works under the user's name, and passes its own test."""

import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from clirun import cli, place, tiny  # noqa: F401

from stsbench import registry
from stsbench.encoders.transformer import find


def test_templates_pass_their_tests_under_the_users_names(cli, tiny, monkeypatch):
    monkeypatch.setattr(registry, "_of_files", {})
    monkeypatch.setattr(find, "find_minilm", lambda: tiny)  # of trainings
    parts = {kind: f"my-{kind}" for kind in ("method", "protocol", "encoder")}
    for kind, name in parts.items():
        code, out, _ = cli("new", kind, name)
        module = name.replace("-", "_")
        assert code == 0 and Path(name, f"{module}.py").is_file() and name in out
        texts = [path.read_text("utf-8") for path in Path(name).iterdir()]
        assert not any(word in text for text in texts for word in ("Example", "example_module", "example-name"))
        [(group, points)] = tomllib.loads(Path(name, "pyproject.toml").read_text("utf-8"))["project"]["entry-points"].items()
        monkeypatch.syspath_prepend(name)
        loaded = EntryPoint(name, points[name], group).load()
        assert group == f"stsbench.{kind}s" and loaded.__name__ == f"My{kind.capitalize()}"
        del sys.modules[module]
    assert pytest.main(["-q", "-p", "no:cacheprovider", *parts.values()]) == pytest.ExitCode.OK
    for module in [name for name in sys.modules if name.removeprefix("test_").startswith("my_")]:
        del sys.modules[module]


def test_the_command_that_is_printed_runs_the_class(cli, place, monkeypatch):
    monkeypatch.setattr(registry, "_of_files", {})  # the class is known to this process from then on
    code, out, err = cli("new", "protocol", "my-own", "--output", "parts/my-own")
    assert code == 0, err
    command = out.splitlines()[-1].partition("stsbench ")[2].replace("minilm", "lexical:token-set")
    code, out, err = cli(*command.split())
    assert code == 0 and "kendall" in out, err
