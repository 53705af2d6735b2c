"""`stsbench fit` on other kinds of model: a trained prompt, a training run, modules that another library runs."""

import shutil

import numpy as np
import pytest
from live_models import inference
from prompted import MORE, models, with_prompt  # noqa: F401
from tiny_models import add_modules, build, sentences

from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.load import load_encoder
from stsbench.encoders.post.chain import read_post
from stsbench.errors import StsbenchError
from stsbench.training.export.export import export_model
from stsbench.training.export.fitted import fit_model

TEXTS = sentences(12, seed=3)


@pytest.fixture
def fit(tmp_path, monkeypatch):
    """Whitening to 4 dimensions of the model `name`; where the result lies."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(60, seed=1)))

    def run(name):
        post, data, output = "whitening:dimensions=4", tmp_path / "texts.txt", tmp_path / "out"
        fit_model(str(name), EncoderOptions(), post, data, output, log=lambda line: None)
        return output

    return run


def same(folder, base):
    """stsbench's vectors are the base's through the map, and sentence-transformers' are those in float32."""
    encoder, (chain, _) = load_encoder(str(folder)), read_post(folder)
    vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(vectors, chain.transform(base.encode(TEXTS)), atol=1e-4)
    library = pytest.importorskip("sentence_transformers").SentenceTransformer
    theirs = library(str(folder), device="cpu", local_files_only=True, trust_remote_code=True).encode(TEXTS)
    np.testing.assert_allclose(theirs, vectors, atol=1e-4)
    return encoder


@pytest.mark.parametrize("more", [MORE[0], MORE[3]])
def test_a_trained_prompt_stays(tmp_path, fit, models, more):
    export_model(with_prompt(models, *more), tmp_path / "model", card="")
    base = load_encoder(str(tmp_path / "model"))
    encoder = same(fit(tmp_path / "model"), base)
    assert encoder.spec.pooler == "mask" and encoder.spec.template == base.spec.template
    assert encoder.spec.max_length == base.spec.max_length


def test_a_training_run_is_a_model(tmp_path, fit):
    export_model(inference(tmp_path / "tiny", "bert", "cls"), tmp_path / "run" / "best", card="", method="simcse")
    (tmp_path / "run" / "recipe.yaml").write_text("name: mine\n")
    same(fit(tmp_path / "run"), load_encoder(str(tmp_path / "run")))


def test_modules_of_another_library_are_refused_by_name(tmp_path, fit):
    folder = add_modules(build(tmp_path / "model"), {"pooling_mode": ["mean", "max"]}, extra=())
    with pytest.raises(StsbenchError, match=r"run by sentence-transformers.*choose a --pooler"):
        fit(folder)
    assert not (tmp_path / "out").exists()
    shutil.rmtree(folder)
    with pytest.raises(StsbenchError, match="no such folder"):
        fit(folder)
