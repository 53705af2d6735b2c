"""Whatever a program has switched on in torch: vectors, fits and scores are those of a fresh process. Draws that come
from generators of one's own: the numbers are those of the process's, which are left where they were."""

import random
import threading
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from stsbench import evaluate, load_encoder
from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.errors import StsbenchError
from stsbench.torch_random import Generators, checkpointed, current, drawing, forked, repeated, seeded
from stsbench.torch_state import _settings, fresh_torch

TEXTS = [f"the cat {'eats ' * i}dog {i}" for i in range(24)]


@contextmanager
def put(set_, value, old):
    set_(value)
    try:
        yield
    finally:
        set_(old)


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
    "inference mode": torch.inference_mode, "no gradients": torch.no_grad,
    "deterministic": lambda: put(lambda on: torch.use_deterministic_algorithms(on, warn_only=on), True, False),
    "no mkldnn": lambda: put(lambda on: setattr(torch.backends.mkldnn, "enabled", on), False, torch.backends.mkldnn.enabled),
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
        return Encoded((made @ torch.arange(192.0).reshape(3, 64).sin()).float().numpy(), np.zeros(len(texts), bool))


def multiplied(texts):
    return Plugin.run.__wrapped__(None, texts).vectors


def vectors(folder, around):
    with around():
        model = load_encoder(str(folder), pooler="mean", offline=True)
        fitted = PostProcessed(model, Chain.parse("whitening:dimensions=8")).fit(TEXTS, "x@1")
        encoders = [model, Plugin(), CallableEncoder(multiplied), fitted, model.with_dropout(1)]
        return [encoder.encode(TEXTS) for encoder in encoders]


@pytest.mark.parametrize("state", ["autocast", "float64 by default", "another device by default", "inference mode"])
def test_vectors_do_not_depend_on_it(folder, state):
    wanted = vectors(folder, nullcontext)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    for want, got in zip(wanted, vectors(folder, STATES[state]), strict=True):
        assert np.array_equal(want, got)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]


def test_scores_of_trained_classifiers_do_not_depend_on_it(tmp_path):
    def scores(around, name):
        asked = {"protocols": ["regression"], "tasks": ["STS-B"], "sample": True, "no_cache": True, "resamples": 0,
                 "settings": {"regression.round_epochs": 5, "regression.max_epoch": 10}}
        with around():
            result = evaluate(Plugin(), output=tmp_path / name, **asked)
        return [(row.task, row.metric, row.value) for row in result.rows]

    @contextmanager
    def disturbed():
        with STATES["autocast"](), STATES["float64 by default"](), STATES["inference mode"]():
            yield

    assert scores(disturbed, "disturbed") == scores(nullcontext, "plain")


X = torch.ones(4, 4)
DRAWS = {
    "rand, bfloat16": lambda: torch.rand(3, dtype=torch.bfloat16), "randn_like": lambda: torch.randn_like(X),
    "randint": lambda: torch.randint(2**63 - 1, ()), "randint from": lambda: torch.randint(2, 50, (3,)),
    "randperm": lambda: torch.randperm(40), "normal": lambda: torch.normal(0.0, 1.0, (3,)),
    "bernoulli": lambda: torch.bernoulli(X / 2), "multinomial": lambda: torch.multinomial(torch.ones(40), 7),
    "poisson": lambda: torch.poisson(X), "binomial": lambda: torch.binomial(torch.full((3,), 10.0), torch.full((3,), 0.5)),
    "gamma": lambda: torch.distributions.Gamma(1.0, 1.0).sample(),
    "in place": lambda: torch.empty(4).exponential_() + torch.empty(4).random_(100) + torch.empty(4).uniform_(),
    "dropout": lambda: functional.dropout(X, 0.5), "dropout1d": lambda: functional.dropout1d(X, 0.5),
    "alpha_dropout": lambda: functional.alpha_dropout(X, 0.5, training=True),
    "feature_alpha_dropout": lambda: functional.feature_alpha_dropout(X[None], 0.5, training=True),
    "rrelu": lambda: functional.rrelu(X - 2, training=True), "gumbel": lambda: functional.gumbel_softmax(X),
    "attention": lambda: functional.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.5),
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2, dropout=0.5)(X, X, X)[0],
    "LSTM": lambda: nn.LSTM(4, 4, 2, dropout=0.5)(X)[0], "trunc_normal_": lambda: nn.init.trunc_normal_(torch.empty(9)),
    "orthogonal_": lambda: nn.init.orthogonal_(torch.empty(4, 4)),
    "sparse_": lambda: nn.init.sparse_(torch.empty(4, 4), 0.5),
    "svd_lowrank": lambda: torch.svd_lowrank(X + torch.eye(4))[0],
    "fractional_max_pool2d": lambda: functional.fractional_max_pool2d(torch.rand(1, 1, 9, 9), 2, output_ratio=(0.5, 0.5)),
}


@pytest.mark.parametrize("around", [nullcontext, torch.inference_mode])
def test_the_numbers_are_those_of_the_process_seeded_alike_and_it_is_left_alone(around):
    for name, draw in DRAWS.items():
        with torch.random.fork_rng(devices=[]), around():
            torch.manual_seed(11)
            expected = [draw(), draw()]
            before = torch.get_rng_state()
            with drawing(Generators(11)):
                got = [draw(), draw()]
            assert torch.equal(torch.get_rng_state(), before), name
        assert all(map(torch.equal, got, expected)) and not torch.equal(*got), name


def test_the_innermost_block_counts_and_a_generator_that_is_named():
    with drawing(Generators(1)) as outer:
        first = torch.rand(3)
        with drawing(Generators(1)):
            assert torch.equal(torch.rand(3), first)
        with forked():
            ahead = torch.rand(3)
        assert torch.equal(torch.rand(3), ahead) and current() is outer
        assert torch.equal(torch.rand(3, generator=torch.Generator().manual_seed(1)), first)
    assert current() is None
    before = torch.get_rng_state()
    with forked():
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_thread_draws_from_its_own():
    drawn, stop = [], threading.Event()

    def elsewhere():
        while not stop.is_set():
            torch.rand(3)
            assert current() is None

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with drawing(Generators(3)):
        drawn = [functional.dropout(X, 0.5) for _ in range(200)]
    stop.set()
    thread.join()
    with drawing(Generators(3)):
        assert all(torch.equal(functional.dropout(X, 0.5), mask) for mask in drawn)


def test_what_a_library_makes_up_is_the_same_at_every_call_but_in_a_block_of_draws():
    before = torch.get_rng_state()
    with seeded():
        made = torch.rand(3)
    with seeded():
        assert torch.equal(torch.rand(3), made)
    assert torch.equal(torch.get_rng_state(), before)
    with drawing(Generators(7)):
        ahead = torch.rand(3)
    with drawing(Generators(7)), seeded():
        assert torch.equal(torch.rand(3), ahead)


@pytest.mark.parametrize("own", [True, False])
def test_a_pass_that_is_computed_again_draws_the_same(own):
    def half(x):
        return functional.dropout(x * x, 0.5)

    x = torch.arange(64.0, requires_grad=True)
    with drawing(Generators(5)) if own else torch.random.fork_rng(devices=[]):
        y = checkpointed(half, x)
        torch.rand(9)
        (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        (again,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, torch.where(y > 0, 4 * x, 0)) and torch.equal(gradient, again)


@pytest.mark.parametrize("reentrant", [True, False])
def test_torchs_own_checkpoint_is_refused_where_it_would_draw_other_masks(reentrant):
    x = torch.arange(64.0, requires_grad=True)
    with drawing(Generators(5)):
        with pytest.raises(StsbenchError, match="context_fn"):
            checkpoint(functional.dropout, x, 0.5, use_reentrant=reentrant)
        y = checkpoint(lambda x: functional.dropout(x * x, 0.5), x, use_reentrant=False, context_fn=repeated)
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, torch.where(y > 0, 4 * x, 0))
