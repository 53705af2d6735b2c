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


@pytest.mark.parametrize("model", ["lexical:token-set", "minilm"])
def test_models(folder, model):
    try:
        load_encoder(model)
    except Exception as error:
        pytest.skip(str(error))
    (folder / model).mkdir()
    assert f"for the folder of that name in this folder write ./{model}" in load_encoder(model).notes[0]


def test_variants_of_protocols(folder):
    (folder / "mean").write_text("")
    assert any("for the file of that name in this folder write sts:./mean" in line
               for line in lines_of(folder, protocols=["sts:mean"]))


def test_what_a_post_processing_is_fitted_on(folder):
    (folder / "target").write_text("a\nb\n")
    lines = lines_of(folder, tasks=["STS12"], post="whitening:dimensions=4", fit_on="target")
    assert any(line.startswith("target is each set's own texts; for the file") for line in lines)


def test_recipes(folder):
    (folder / "unsup-bert-base").write_text("")
    assert shadowed_recipes("simcse", "unsup-bert-base")[0].endswith("write ./unsup-bert-base")
