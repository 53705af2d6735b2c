"""Every console gets every text: what its encoding lacks, and what a terminal would obey, is printed as an escape."""

import io
import json
import sys

import pytest

from stsbench.cli.main import main
from stsbench.wording import printable, visible

HOSTILE = "a [red]boat[/red] \\[/] \U0001f31e \x1b[31m\x07 \x9b2J \u202egnol\u202c é\u2013"
ESCAPED = [r"[red]boat[/red] \[/]", r"\x1b[31m\x07 \x9b2J", r"\u202egnol\u202c"]
ENCODINGS = ["utf-8", "cp1252", "latin-1", "ascii"]


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
    """A corpus of a hostile line, and own pairs whose file has a hostile name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "corpus.txt").write_text(f"{HOSTILE}\nplain boat\nthird\n", "utf-8")
    rows = [f"{score}\ta {word} boat\tthe {other}" for score, word, other in zip("01234", "pqrst", "pqxyz", strict=True)]
    pairs = tmp_path / f"{HOSTILE.replace('/', '')}.tsv"
    pairs.write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n", "utf-8")
    return tmp_path


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_texts(hostile, console, encoding):
    of = ["--model", "lexical:token-set", "--no-cache", "--corpus", "corpus.txt"]
    words = ["neighbours", *of, "--query", "boat \U0001f31e"]
    code, out, err = console(encoding, *words)
    assert code == 0, err
    assert all(part in out for part in ESCAPED) and "plain boat" in out
    assert ("\U0001f31e" in out) == (encoding == "utf-8") and (r"\U0001f31e" in out) == (encoding != "utf-8")
    code, out, err = console(encoding, *words, "--json", "-")
    assert code == 0 and any(row["text"] == " ".join(HOSTILE.split()) for row in json.loads(out))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_names(hostile, console, encoding):
    [pairs] = hostile.glob("*.tsv")
    name = f"sts:{pairs.name}"
    words = ["eval", "--model", "lexical:token-set", "--protocol", name, "--no-cache", "--resamples", "40", "--output"]
    for form in ("table", "latex", "markdown", "csv"):
        code, out, err = console(encoding, *words, f"runs/{form}", "--format", form)
        assert code == 0 and out, err
    code, out, err = console(encoding, "compare", "runs/table", "runs/csv")
    assert code == 0 and all(part in " ".join(out.split()) for part in ESCAPED[1:]), err
    code, out, err = console(encoding, *words, "runs/table", "--json", "-")
    assert code == 0 and json.loads(out)[0]["task"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("words", "wanted"), [
    (["score", HOSTILE], 1), (["compare", HOSTILE, HOSTILE], 1), (["show", "recipe", HOSTILE], 1), ([HOSTILE], 2),
    (["neighbours", "--model", HOSTILE, "--corpus", HOSTILE, "--query", "x"], 1), (["show", "post", HOSTILE], 1),
    (["eval", "--model", "lexical:token-set", "--protocol", HOSTILE], 1), (["list", HOSTILE], 2),
])
def test_errors(hostile, console, encoding, words, wanted):
    code, out, err = console(encoding, *words)
    assert (code, out) == (wanted, "") and r"\x1b" in err and err.count("stsbench: error:") == (wanted == 1)


@pytest.mark.parametrize("words", [
    ["list", "methods"], ["list", "recipes"], ["show", "method", "simcse"], ["show", "protocol", "sts"],
    ["show", "recipe", "simcse/unsup-bert-base"], ["reproduce"], ["--help"],
])
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_lists(console, encoding, words):
    code, out, err = console(encoding, *words)
    assert code == 0 and out, err


def test_what_is_escaped_and_what_is_not():
    assert printable("two\nlines\tand é 漢 👩\u200d🚀") == "two\nlines\tand é 漢 👩\u200d🚀"
    assert visible("two\nlines\tand é 漢") == r"two\nlines\tand é 漢"
    assert printable("\r\b\x7f\x85\u2028\u2066\ud800\ufeff") == r"\r\x08\x7f\x85\u2028\u2066\ud800\ufeff"
