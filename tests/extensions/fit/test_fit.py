"""`stsbench fit`: a folder that stsbench reads to the last bit and sentence-transformers to float32; whole or absent."""

import re
from unittest.mock import Mock

import numpy as np
import pytest
from clirun import cli, contents, place  # noqa: F401
from live_models import library
from prompted import MORE, models, with_prompt  # noqa: F401
from tiny_models import add_modules, build, sentences

import stsbench
from stsbench import evaluate, load_encoder
from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.post.chain import read_post
from stsbench.errors import EncoderError
from stsbench.extensions.fit import fit as fit_module
from stsbench.extensions.fit.fit import fit_model
from stsbench.training.runs.export import export_model

TEXTS = sentences(12, seed=3)


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in sentences(60, seed=1)))
    return path


def fit(tmp_path, data, post, name="out", **options):
    fit_model(str(tmp_path / "model"), EncoderOptions(**options), post, data, tmp_path / name, log=lambda line: None)
    return tmp_path / name


def close(vectors, want):
    gap = np.linalg.norm(np.asarray(vectors) - want, axis=1) / np.linalg.norm(want, axis=1)
    assert gap.max() < 1e-5, gap.max()


@pytest.mark.parametrize(("pooler", "post", "modules"), [
    ("first_last:layer1", "standardise+whitening:dimensions=9", ["Transformer", "WeightedLayerPooling", "Pooling", "Dense"]),
    ("cls+dense", "whitening:dimensions=3", ["Transformer", "Pooling", "Dense", "Dense"])])
def test_three_readers_give_the_same_vectors(tmp_path, data, pooler, post, modules):
    build(tmp_path / "model")
    folder = fit(tmp_path, data, post, pooler=pooler)
    base = load_encoder(str(tmp_path / "model"), pooler=pooler)
    encoder = load_encoder(str(folder))
    chain, fitted_on = read_post(folder)
    np.testing.assert_array_equal(encoder.encode(TEXTS), chain.transform(base.encode(TEXTS)).astype(np.float32))
    assert encoder.spec.post == f"{post},divisor=n-1" and encoder.dimension == chain.dimension(32)
    assert encoder.spec.fitted_on == fitted_on and fitted_on.startswith("texts.txt@")
    assert encoder.spec.options["post_state"] == chain.digest()
    model = library(folder)
    close(model.encode(TEXTS), encoder.encode(TEXTS))
    assert [type(module).__name__ for module in model] == modules
    model.save(str(tmp_path / "saved"))  # anew: it runs by its modules
    close(load_encoder(str(tmp_path / "saved")).encode(TEXTS), encoder.encode(TEXTS))


def test_a_map_that_is_not_affine_is_a_module_of_ours(tmp_path, data):
    build(tmp_path / "model")
    folder = fit(tmp_path, data, "renormalise", pooler="mean")
    encoder, model = load_encoder(str(folder)), library(folder, trust_remote_code=True)
    close(model.encode(TEXTS), encoder.encode(TEXTS))
    assert type(model[-1]).__name__ == "PostProcessing" and model.get_embedding_dimension() == 32
    model.save(str(tmp_path / "saved"))
    close(library(tmp_path / "saved", trust_remote_code=True).encode(TEXTS), encoder.encode(TEXTS))


def test_it_is_measured(tmp_path, data):
    build(tmp_path / "model")
    folder = fit(tmp_path, data, "whitening:dimensions=5", pooler="mean")
    done = evaluate(str(folder), output=tmp_path / "run", sample=True, tasks=["STS-B"], resamples=0)
    spec = done.records[0].encoder.spec
    assert spec["fitted_on"].startswith("texts.txt@") and spec["post"].startswith("whitening:dimensions=5")


def test_another_file_in_its_place_is_noticed(tmp_path, data):
    build(tmp_path / "model")
    one, other = (fit(tmp_path, data, f"whitening:dimensions={k}", str(k), pooler="mean") for k in (4, 5))
    (one / "post.safetensors").write_bytes((other / "post.safetensors").read_bytes())
    with pytest.raises(EncoderError, match="its digest differs"):
        read_post(one)
    assert load_encoder(str(one)).spec.kind == "sentence-transformers"  # the Dense is still what it was
    (other / "post.json").write_text("{}")
    with pytest.raises(EncoderError, match="cannot read its post-processing"):
        read_post(other)


def test_an_interrupted_fit_leaves_nothing(tmp_path, data, monkeypatch):
    build(tmp_path / "model")
    before = set(tmp_path.iterdir())
    for where in ("_inference", "_card", "fitted_on_data"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(fit_module, where, Mock(side_effect=KeyboardInterrupt))
            fit(tmp_path, data, "standardise", pooler="mean")
    assert {path.name for path in set(tmp_path.iterdir()) - before} <= {"cache"}


@pytest.mark.parametrize("kind", ["a prompt with prefixes in a run", "a stored normalisation"])
def test_other_kinds_of_model_keep_what_they_have(tmp_path, data, models, kind):
    """Whitening to 4 dimensions: stsbench's vectors are the base's through the map, the library's are those in float32."""
    if kind == "a stored normalisation":
        add_modules(build(tmp_path / "model"), {"pooling_mode": "mean"})
    else:
        export_model(with_prompt(models, *MORE[0]), tmp_path / "model" / "best", card="")
        (tmp_path / "model" / "recipe.yaml").write_text("name: mine\n")
    base = load_encoder(str(tmp_path / "model"))
    folder = fit(tmp_path, data, "whitening:dimensions=4")
    encoder, (chain, _) = load_encoder(str(folder)), read_post(folder)
    vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(vectors, chain.transform(base.encode(TEXTS)), atol=1e-4)
    np.testing.assert_allclose(library(folder, trust_remote_code=True).encode(TEXTS), vectors, atol=1e-4)
    assert all(getattr(encoder.spec, key) == getattr(base.spec, key)
               for key in ("pooler", "template", "max_length", "normalize"))
    assert base.spec.normalize == (kind == "a stored normalisation")  # before the map, not behind it


@pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
def test_the_function_writes_what_the_command_writes(cli, place):
    tiny, lines = build(place / "model"), ["a cat sleeps", "the dog runs", "a cat sleeps", "", "rain falls", "birds sing"]
    (place / "lines.txt").write_text("\n".join(lines) + "\n", "utf-8")
    words = ("fit", "whitening", "--set", "dimensions=2", "--model", tiny, "--pooler", "mean", "--data", "lines.txt")
    code, out, err = cli(*words, "--output", "by-command")
    assert (code, out) == (0, "") and "fitting whitening:dimensions=2,divisor=n-1 on lines.txt: 5 texts" in err
    assert re.search(r"fitted on lines\.txt@[0-9a-f]{12}\n", err)
    encoder = stsbench.fit("whitening", tiny, "lines.txt", "by-function", settings={"dimensions": 2}, pooler="mean")
    written = contents("by-function")
    assert contents("by-command") == written and b"# whitening of model" in written["README.md"]
    assert encoder.encode("a cat").shape == (2,)
    listed = stsbench.fit("whitening:dimensions=2", stsbench.load_encoder(tiny, pooler="mean"), lines, "by-list")
    assert np.array_equal(listed.encode(lines), encoder.encode(lines))
