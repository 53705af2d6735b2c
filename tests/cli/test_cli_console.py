"""Every console gets every text: what its encoding lacks, and what a terminal would obey, is printed as an escape."""

import io
import json
import sys

import pytest

from stsbench.cli.main import main
from stsbench.wording import printable, visible

HOSTILE = "a [red]boat[/red] \\[/] \U0001f31e \x1b[31m\x07 \x9b2J \u202egnol\u202c é\u2013"
ESCAPED = [r"[red]boat[/red] \[/]", r"\x1b[31m\x07 \x9b2J", r"\u202egnol\u202c"]


@pytest.fixture
def console(monkeypatch):
    """Run the command line on a console of an encoding: (exit code, stdout and stderr in it)."""

    def run(encoding, *words):
        streams = [io.TextIOWrapper(io.BytesIO(), encoding, newline="\n") for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        monkeypatch.setattr(sys, "argv", ["stsbench", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        both = []
        for stream in streams:
            stream.flush()
            both.append(stream.buffer.getvalue().decode(encoding))
        for text in both:
            assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e", "\u202c"} and "Traceback" not in text
        return stop.value.code, *both

    return run


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    rows = [f"{score}\ta {word} boat\tthe {other}" for score, word, other in zip("01234", "pqrst", "pqxyz", strict=True)]
    pairs = tmp_path / f"{HOSTILE.replace('/', '')}.tsv"
    pairs.write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n", "utf-8")
    return tmp_path


def test_names(hostile, console):
    encoding = "ascii"
    [pairs] = hostile.glob("*.tsv")
    name = f"sts:{pairs.name}"
    words = ["eval", "--model", "lexical:token-set", "--protocol", name, "--no-cache", "--resamples", "40", "--output"]
    for form in ("table", "csv"):
        code, out, err = console(encoding, *words, f"runs/{form}", "--format", form)
        assert code == 0 and out, err
    code, out, err = console(encoding, "compare", "runs/table", "runs/csv")
    assert code == 0 and all(part in " ".join(out.split()) for part in ESCAPED[1:]), err
    code, out, err = console(encoding, *words, "runs/table", "--json", "-")
    assert code == 0 and json.loads(out)[0]["task"]


@pytest.mark.parametrize(("encoding", "words", "wanted"), [
    ("utf-8", ["score", HOSTILE], 1), ("cp1252", [HOSTILE], 2),
    ("ascii", ["eval", "--model", "lexical:token-set", "--protocol", HOSTILE], 1),
])
def test_errors(hostile, console, encoding, words, wanted):
    code, out, err = console(encoding, *words)
    assert (code, out) == (wanted, "") and r"\x1b" in err and err.count("stsbench: error:") == (wanted == 1)


def test_what_is_escaped_and_what_is_not():
    assert printable("two\nlines\tand é 漢 👩\u200d🚀") == "two\nlines\tand é 漢 👩\u200d🚀"
    assert visible("two\nlines\tand é 漢") == r"two\nlines\tand é 漢"
    assert printable("\r\b\x7f\x85\u2028\u2066\ud800\ufeff") == r"\r\x08\x7f\x85\u2028\u2066\ud800\ufeff"
