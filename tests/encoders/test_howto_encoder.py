"""docs/how-to/adding-an-encoder.md works as it stands: its code blocks are an installed plug-in."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

import stsbench
from stsbench import registry
from stsbench.cli.main import cli
from stsbench.errors import EncoderError

PAGE = Path(stsbench.__file__).resolve().parents[1] / "docs" / "how-to" / "adding-an-encoder.md"


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's module and, from its pyproject.toml, the metadata that pip would write; a kind that is not an encoder."""
    (tmp_path / "ngrams.py").write_text(block("python"))
    project = tomllib.loads(block("toml"))["project"]
    points = [f"{name} = {value}\n" for name, value in project["entry-points"]["stsbench.encoders"].items()]
    facts = tmp_path / "stsbench_ngrams-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points += ["odd = json:dumps\n", "bad = nowhere:X\n"]
    (facts / "entry_points.txt").write_text("[stsbench.encoders]\n" + "".join(points))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    registry._points.cache_clear()
    yield
    registry._points.cache_clear()
    sys.modules.pop("ngrams", None)


def ran(*words):
    return CliRunner().invoke(cli, [*words])


def test_the_plug_in_is_measured(installed, tmp_path):
    words = ["eval", "--model", "ngrams:3", "--protocol", "sts", "--sample", "--resamples", "0"]
    result = ran(*words, "--output", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    assert "encoder ngrams:3" in result.output and "STS-B" in result.output
    assert "ngrams" in ran("list", "encoders").output


def test_what_is_refused(installed, tmp_path):
    for words, message in (
        ("ngrams:x", "expected a number of characters"), ("ngrams", "ngrams is a kind of encoder: write ngrams:ARGUMENT"),
        ("odd:x", "not a class derived from stsbench.encoders.base.Encoder"), ("bad:x", "failed to load"),
    ):
        result = ran("eval", "--model", *words.split(), "--protocol", "sts", "--sample", "--output", str(tmp_path / "run"))
        assert result.exit_code and message in f"{result.output}{result.exception}"


CLASS = r"NGrams \(ngrams.py\)"
MISTAKES = {  # what is replaced on the page, by what, the line that the command ends with
    "spec": ("self.spec =", "spec =", f"{CLASS} does not set self.spec to an EncoderSpec"),
    "no run": ("def run", "def ran", f"{CLASS} does not define run"),
    "construction": ("int(argument)\n", "argument.size\n",
                     r"NGrams.load failed \(ngrams.py:16\): AttributeError: 'str' object has no attribute 'size'"),
    "run": ("zlib.crc32", "zlib.crc",
            r"NGrams.run failed \(ngrams.py:24\): AttributeError: module 'zlib' has no attribute 'crc'"),
    "array": ("return Encoded(", "return vectors  # ",
              rf"{CLASS}: run must return Encoded\(vectors, truncated\), not ndarray"),
    "load": ("    def run", "    def load(*_): pass\n\n    def run", f"{CLASS}: load must return an Encoder, not NoneType"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_class_is_one_line(installed, tmp_path, name):
    before, after, message = MISTAKES[name]
    code = (tmp_path / "ngrams.py").read_text()
    assert before in code
    code = code.replace(before, after)
    (tmp_path / "ngrams.py").write_text(code)
    result = ran("eval", "--model", "ngrams:3", "--protocol", "sts", "--sample", "--output", str(tmp_path / "run"))
    assert isinstance(result.exception, EncoderError) and re.fullmatch(message, str(result.exception))
