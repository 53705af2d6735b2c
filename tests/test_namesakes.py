"""Files and folders that are called as something built in: a line says what is taken, and how to get the other."""

import numpy as np
import pytest

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.load import load_encoder
from stsbench.evaluation.api import EvalOptions, run
from stsbench.registry import namesakes
from stsbench.training.recipes.recipes import shadowed_recipes


class Letters(Encoder):
    spec = EncoderSpec("letters", "letters", "0" * 64)

    def run(self, texts, progress=None):
        counts = [[text.count(chr(97 + i)) + i / 9 for i in range(26)] for text in texts]
        return Encoded(np.array(counts, np.float32), np.zeros(len(texts), bool))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines_of(tmp_path, **asked):
    lines = []
    options = EvalOptions(model=Letters(), output=tmp_path / "run", sample=True, no_cache=True, resamples=0, **asked)
    run(options, log=lines.append)
    return lines


def test_nothing_is_said_without_one():
    assert namesakes("minilm", "a model") == () == shadowed_recipes("simcse", "unsup-bert-base")
    assert not load_encoder("lexical:token-set").notes


def test_a_line_says_which_is_taken_and_how_to_get_the_other(folder):
    (folder / "lexical:token-set").mkdir()
    [note] = load_encoder("lexical:token-set").notes
    assert "for the folder of that name in this folder write ./lexical:token-set" in note
    (folder / "mean").write_text("")
    assert any("for the file of that name in this folder write sts:./mean" in line
               for line in lines_of(folder, protocols=["sts:mean"]))
    (folder / "target").write_text("a\nb\n")
    lines = lines_of(folder, tasks=["STS12"], post="whitening:dimensions=4", fit_on="target")
    assert any(line.startswith("target is each set's own texts; for the file") for line in lines)
    (folder / "unsup-bert-base").write_text("")
    assert shadowed_recipes("simcse", "unsup-bert-base")[0].endswith("write ./unsup-bert-base")
