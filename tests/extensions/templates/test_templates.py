"""What `stsbench new` writes works under the user's name, and passes its own test."""

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from clirun import cli, place  # noqa: F401

from stsbench import registry


@pytest.mark.parametrize("kind", ["method", "protocol", "encoder"])
def test_a_template_passes_its_test_under_the_users_name(cli, place, monkeypatch, kind):
    code, out, _ = cli("new", kind, "my-part")
    assert code == 0 and Path("my-part/my_part.py").is_file() and "my-part" in out
    texts = [path.read_text("utf-8") for path in Path("my-part").iterdir()]
    assert not any(word in text for text in texts for word in ("Example", "example_module", "example-name"))
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "my-part"]
    ran = subprocess.run(pytest_command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    project = tomllib.loads(Path("my-part/pyproject.toml").read_text("utf-8"))
    [points] = project["project"]["entry-points"].items()
    monkeypatch.syspath_prepend("my-part")
    loaded = EntryPoint("my-part", points[1]["my-part"], points[0]).load()
    assert points[0] == f"stsbench.{kind}s" and loaded.__name__ == "MyPart"
    del sys.modules["my_part"]


def test_the_command_that_is_printed_runs_the_class(cli, place, monkeypatch):
    monkeypatch.setattr(registry, "_of_files", {})  # the class is known to this process from then on
    code, out, err = cli("new", "protocol", "my-own", "--output", "parts/my-own")
    assert code == 0, err
    command = out.splitlines()[-1].partition("stsbench ")[2].replace("minilm", "lexical:token-set")
    code, out, err = cli(*command.split())
    assert code == 0 and "kendall" in out, err
