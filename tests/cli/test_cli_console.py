"""Every console gets every text: what its encoding lacks, and what a terminal would obey, is printed as an escape."""

import json

import pytest
from consoles import ENCODINGS, ESCAPED, HOSTILE, console  # noqa: F401 - a fixture

from stsbench.wording import printable, visible


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    rows = [f"{score}\ta {word} boat\tthe {other}" for score, word, other in zip("01234", "pqrst", "pqxyz", strict=True)]
    pairs = tmp_path / f"{HOSTILE.replace('/', '')}.tsv"
    pairs.write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n", "utf-8")
    return tmp_path


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_names(hostile, console, encoding):
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


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(("words", "wanted"), [
    (["score", HOSTILE], 1), ([HOSTILE], 2), (["eval", "--model", "lexical:token-set", "--protocol", HOSTILE], 1),
])
def test_errors(hostile, console, encoding, words, wanted):
    code, out, err = console(encoding, *words)
    assert (code, out) == (wanted, "") and r"\x1b" in err and err.count("stsbench: error:") == (wanted == 1)


def test_what_is_escaped_and_what_is_not():
    assert printable("two\nlines\tand é 漢 👩\u200d🚀") == "two\nlines\tand é 漢 👩\u200d🚀"
    assert visible("two\nlines\tand é 漢") == r"two\nlines\tand é 漢"
    assert printable("\r\b\x7f\x85\u2028\u2066\ud800\ufeff") == r"\r\x08\x7f\x85\u2028\u2066\ud800\ufeff"
