"""Whatever a program has switched on in torch: vectors, fits and scores are those of a fresh process."""

import random
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from tiny_models import build

from stsbench import evaluate
from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.load import load_encoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.torch_state import _settings, fresh_torch

TEXTS = [f"the cat {'eats ' * i}dog {i}" for i in range(24)]


@contextmanager
def put(set_, value, old):
    set_(value)
    try:
        yield
    finally:
        set_(old)


def attribute(owner, name, value):
    return put(lambda new: setattr(owner, name, new), value, getattr(owner, name))


def deterministic():
    return put(lambda on: torch.use_deterministic_algorithms(on, warn_only=on), True, False)


def new_names(value):
    """The float32 precision by torch 2.9's names, whose older ones then raise."""
    kinds = [("generic", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("mkldnn", "matmul"), ("mkldnn", "conv")]
    old = [torch._C._get_fp32_precision_getter(*kind) for kind in kinds]

    def write(values):
        for kind, each in zip(kinds, values, strict=True):
            torch._C._set_fp32_precision_setter(*kind, each)

    return put(write, ["tf32" if value == "bf16" and kind[0] != "mkldnn" else value for kind in kinds], old)


STATES = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast of another device": lambda: torch.autocast("cuda", dtype=torch.float16),
    "medium": lambda: put(torch.set_float32_matmul_precision, "medium", "highest"),
    "high": lambda: put(torch.set_float32_matmul_precision, "high", "highest"),
    "float64 by default": lambda: put(torch.set_default_dtype, torch.float64, torch.float32),
    "bfloat16 by default": lambda: put(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "another device by default": lambda: torch.device("meta"),
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "deterministic": deterministic,
    "no mkldnn": lambda: attribute(torch.backends.mkldnn, "enabled", False),
    "no flash": lambda: put(torch.backends.cuda.enable_flash_sdp, False, True),
    "no fast path": lambda: put(torch.backends.mha.set_fastpath_enabled, False, True),
}
if hasattr(torch._C, "_get_fp32_precision_getter"):
    STATES |= {"bf16 by its new name": lambda: new_names("bf16"), "tf32 by its new name": lambda: new_names("tf32")}


def snapshot():
    values = []
    for get, _, _ in _settings(torch):
        try:
            values.append(get())
        except RuntimeError:
            values.append("refused")
    devices = [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")]
    return [values, devices, torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.get_default_device()]


@pytest.mark.parametrize("state", STATES)
def test_inside_all_is_as_at_the_start_and_afterwards_as_before(state):
    start, wanted = snapshot(), [want for _, _, want in _settings(torch)]
    with STATES[state]():
        before = snapshot()
        with pytest.raises(ZeroDivisionError), fresh_torch():
            values, *others = snapshot()
            assert all(got in (want, "refused") for got, want in zip(values, wanted, strict=True))
            assert others == [[False, False], False, False, torch.device("cpu")]
            1 / 0  # noqa: B018
        assert snapshot() == before
    assert snapshot() == start


class Plugin(Encoder):
    spec = EncoderSpec("plugin", "plugin", "0" * 64)

    def run(self, texts, progress=None):
        made = torch.tensor([[len(text), text.count("a"), 1.0] for text in texts])
        weight = torch.arange(192.0).reshape(3, 64).sin()
        return Encoded((made @ weight).float().numpy(), np.zeros(len(texts), bool))


def multiplied(texts):
    return Plugin.run.__wrapped__(None, texts).vectors


def vectors(folder, around):
    with around():
        model = load_encoder(str(folder), pooler="mean", offline=True)
        fitted = PostProcessed(model, Chain.parse("whitening:dimensions=8")).fit(TEXTS, "x@1")
        encoders = [model, Plugin(), CallableEncoder(multiplied), fitted, model.with_dropout(1)]
        return [encoder.encode(TEXTS) for encoder in encoders]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A model's folder, and the vectors where nothing is set in torch."""
    folder = build(tmp_path_factory.mktemp("model") / "tiny")
    return folder, vectors(folder, nullcontext)


@pytest.mark.parametrize("state", STATES)
def test_vectors_do_not_depend_on_it(undisturbed, state):
    folder, wanted = undisturbed
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    for want, got in zip(wanted, vectors(folder, STATES[state]), strict=True):
        assert np.array_equal(want, got)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]


def test_scores_of_trained_classifiers_do_not_depend_on_it(tmp_path):
    def scores(around, name):
        with around():
            asked = {"protocols": ["regression"], "tasks": ["STS-B"], "sample": True, "no_cache": True, "resamples": 0}
            result = evaluate(Plugin(), output=tmp_path / name, **asked)
        return [(row.task, row.metric, row.value) for row in result.rows]

    plain = scores(nullcontext, "plain")
    assert all(scores(STATES[state], state) == plain for state in ("autocast", "float64 by default", "inference mode"))
