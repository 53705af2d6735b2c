"""docs/how-to/adding-a-protocol.md: its code, installed as a package of someone else's, runs as the page says."""

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from stsbench import registry
from stsbench.cli.main import cli
from stsbench.evaluation import load_records

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "adding-a-protocol.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's module and its entry points, as pip leaves them."""
    (code,), (project,) = blocks("python"), blocks("toml")
    site = tmp_path / "site"
    facts = site / "sts_top-1.0.dist-info"
    facts.mkdir(parents=True)
    (site / "sts_top.py").write_text(code, "utf-8")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: sts-top\nVersion: 1.0\n")
    points = tomllib.loads(project)["project"]["entry-points"]
    lines = [line for group, names in points.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    registry._points.cache_clear()
    yield tmp_path
    registry._points.cache_clear()
    sys.modules.pop("sts_top", None)


def run(line):
    words = shlex.split(line)
    assert words[0] == "stsbench"
    return CliRunner().invoke(cli, words[1:], standalone_mode=False)


def test_the_page_s_commands_run(installed):
    (commands,) = blocks("sh")
    for line in commands.splitlines():
        done = run(line)
        assert done.exception is None and not done.return_value, (line, done.output, done.exception)
        if "show" in line:
            shown = done.output
        if line.startswith("stsbench score"):
            assert "gold of the top" in done.output
    assert '- share = 0.1 (float, > 0, < 1): the share of the pairs that counts. Source: our choice.' in shown
    assert "- similarity = \"cosine\" ('cosine', 'dot'): " in shown and "- sts-top:half" in shown
    (_, record), = load_records(installed / "run")
    assert record.protocol.settings == {"share": 0.1, "similarity": "cosine"}
    (_, half), = load_records(installed / "half")
    assert half.protocol.settings == {"share": 0.5, "similarity": "dot"}
    assert 0 < record.scores[0].value <= 100 and record.scores[0].n == half.scores[0].n


@pytest.mark.parametrize(("words", "message"), [
    ("--set sts-top.share=2", r"^sts-top: share must be below 1, not 2"),
    ("--set sts-top.similarity=cosin",
     r"^sts-top: similarity must be 'cosine' or 'dot', not 'cosin'; did you mean cosine\?$"),
    ("--set sts-top.shar=1", r"^protocol sts-top has no setting 'shar'; did you mean share\?$"),
    ("--set sts-top.share=0.001", "no task could be scored"),
])  # fmt: skip
def test_mistakes_are_one_line(installed, words, message):
    done = run(f"stsbench eval --model lexical:token-set --protocol sts-top --sample --output wrong {words}")
    assert re.search(message, str(done.exception)) and "\n" not in str(done.exception)
