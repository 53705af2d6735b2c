"""The encoders that PromptBERT selects by and tests, against the oracle's one text at a time; and what is exported."""

import numpy as np
import pytest
import torch
from promptbert_oracle import FIRST, TEXTS, Oracle, folders, promptbert, texts_of
from training_runs import one_thread

from stsbench.encoders.load import load_encoder
from stsbench.training.engine.selection import live_encoder
from stsbench.training.export.export import export_model

__all__ = ["folders", "one_thread"]
LEARNED = {"trained": "prompt", "head": "none"}
CHOSEN = {
    "published": {},
    "no full stop": {"full_stop": False},
    "denoised": {"test_denoise": True},
    "denoised, empty positions": {"test_denoise": True, "denoise_positions": "empty"},
    "kept": {"head": "mlp", "test_denoise": True},
    "kept, raw": {"head": "mlp", "denoise": False},
    "transform": {"head": "transform", "test_denoise": True},
    "transform, raw": {"head": "transform"},
    "no head": {"head": "none"},
    "learned": LEARNED,
    "learned, transform": {"trained": "prompt", "head": "transform", "test_denoise": True},
    "learned, released": {"trained": "prompt_rightmost", "head": "transform_train_only", "denoise": False},
    "learned, released, denoised": {"trained": "prompt_rightmost", "head": "none", "test_denoise": True},
    "inside": {"text": "inside", "dev": "test", "test_denoise": True},
}
ROWS = [*range(1, 6), 17, 18]  # an empty text is for the tests of the template


def changed(folder, **options):
    """The method in float32, its learned words away from where they started."""
    method = promptbert(folder, **options).float()
    if method.words is not None:
        torch.manual_seed(6)
        with torch.no_grad():
            method.words += 0.3 * torch.randn_like(method.words)
    return method


def expected(folder, family, method, texts, *, dev=False):
    oracle = Oracle(folder, family, method)
    if method.words is not None:
        oracle.words = method.words.detach().double()
    if oracle.mlp is not None:
        oracle.mlp = [weight.double() for weight in oracle.mlp]
    with torch.no_grad():
        return torch.stack([oracle.tested(text, dev=dev) for text in texts]).numpy()


@pytest.mark.parametrize("family", FIRST)
@pytest.mark.parametrize("chosen", CHOSEN)
def test_the_encoder_tested(folders, family, chosen):
    method = changed(folders[family], **CHOSEN[chosen])
    texts = [*texts_of(family, ROWS), "cat.", "a dog means :", "the man ?", "cat '"]
    found = live_encoder(method.inference(), "live").encode(texts)
    assert np.abs(found - expected(folders[family], family, method, texts)).max() < 1e-5
    assert method.backbone.training and method.inference().pooler == "mask"
    ended = live_encoder(method.inference(), "live").encode(["cat", "cat."])
    assert np.array_equal(*ended) == method.options.full_stop


@pytest.mark.parametrize("family", FIRST)
@pytest.mark.parametrize("chosen", CHOSEN)
def test_the_encoder_selected_by(folders, family, chosen):
    method = changed(folders[family], **CHOSEN[chosen])
    texts = [*texts_of(family, ROWS), TEXTS[17] + " " + TEXTS[17]]  # nothing is cut
    found = live_encoder(method.dev_inference(), "dev").encode(texts)
    released = method.options.dev == "released"
    assert np.abs(found - expected(folders[family], family, method, texts, dev=released)).max() < 1e-5


def test_the_dev_score_is_of_another_encoder(folders):
    """The trap of section 7, and the way around it."""
    method = changed(folders["bert"])
    both = method.dev_inference(), method.inference()
    dev, test = (live_encoder(made, "x").encode(["cat runs", "dog"]) for made in both)
    assert np.abs(dev - test).max() > 0.1
    assert method.dev_inference().prompt.settings() != method.inference().prompt.settings()
    same = changed(folders["bert"], dev="test")
    assert same.dev_inference().prompt.settings() == same.inference().prompt.settings()


def test_a_released_position_of_roberta_at_test(folders):
    texts = texts_of("roberta", ROWS)
    found = {}
    for start in ("own", "zero"):
        method = changed(folders["roberta"], denoise_start=start, test_denoise=True)
        found[start] = live_encoder(method.inference(), "live").encode(texts)
        assert np.abs(found[start] - expected(folders["roberta"], "roberta", method, texts)).max() < 1e-5
    assert np.abs(found["own"] - found["zero"]).max() > 1e-2


def test_a_live_encoder_reads_the_weights_as_they_are(folders):
    for options in ({"head": "transform"}, LEARNED):
        method = changed(folders["bert"], **options)
        encoder = live_encoder(method.inference(), "live")
        before = encoder.encode(["cat"])
        with torch.no_grad():
            (method.head.dense.bias if method.words is None else method.words).add_(torch.linspace(-1, 1, 32))
        assert np.abs(encoder.encode(["cat"]) - before).max() > 1e-2


@pytest.mark.parametrize("family", FIRST)
@pytest.mark.parametrize("chosen", CHOSEN)
def test_exported_and_loaded_again(folders, family, chosen, tmp_path):
    method = changed(folders[family], **CHOSEN[chosen]).eval()
    texts = [*texts_of(family, [0, *ROWS]), "cat."]
    vectors = live_encoder(method.inference(), "live").encode(texts)
    export_model(method.inference(), tmp_path / "best", card="# a card\n", method="promptbert", recipe="x")
    loaded = load_encoder(str(tmp_path / "best"))
    assert np.abs(loaded.encode(texts) - vectors).max() < 1e-6
    assert loaded.spec.template == method.options.template
