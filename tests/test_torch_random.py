"""Draws that come from generators of one's own: the numbers are those of the process's, which are left where they were."""

import threading
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from stsbench.errors import StsbenchError
from stsbench.torch_random import Generators, checkpointed, current, drawing, forked, repeated, seeded

X = torch.ones(4, 4)
DRAWS = {
    "rand, bfloat16": lambda: torch.rand(3, dtype=torch.bfloat16),
    "randn_like": lambda: torch.randn_like(X),
    "randint": lambda: torch.randint(2**63 - 1, ()),
    "randint from": lambda: torch.randint(2, 50, (3,)),
    "randperm": lambda: torch.randperm(40),
    "normal": lambda: torch.normal(0.0, 1.0, (3,)),
    "bernoulli": lambda: torch.bernoulli(X / 2),
    "multinomial": lambda: torch.multinomial(torch.ones(40), 7),
    "poisson": lambda: torch.poisson(X),
    "binomial": lambda: torch.binomial(torch.full((3,), 10.0), torch.full((3,), 0.5)),
    "gamma": lambda: torch.distributions.Gamma(1.0, 1.0).sample(),
    "in place": lambda: torch.empty(4).exponential_() + torch.empty(4).random_(100) + torch.empty(4).uniform_(),
    "dropout": lambda: functional.dropout(X, 0.5),
    "dropout1d": lambda: functional.dropout1d(X, 0.5),
    "alpha_dropout": lambda: functional.alpha_dropout(X, 0.5, training=True),
    "feature_alpha_dropout": lambda: functional.feature_alpha_dropout(X[None], 0.5, training=True),
    "rrelu": lambda: functional.rrelu(X - 2, training=True),
    "gumbel": lambda: functional.gumbel_softmax(X),
    "attention": lambda: functional.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.5),
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2, dropout=0.5)(X, X, X)[0],
    "LSTM": lambda: nn.LSTM(4, 4, 2, dropout=0.5)(X)[0],
    "trunc_normal_": lambda: nn.init.trunc_normal_(torch.empty(9)),
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


@pytest.mark.parametrize("around", [nullcontext, torch.inference_mode])
def test_a_thread_draws_from_its_own(around):
    drawn, stop = [], threading.Event()

    def elsewhere():
        while not stop.is_set():
            torch.rand(3)
            assert current() is None

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with drawing(Generators(3)), around():
        drawn = [functional.dropout(X, 0.5) for _ in range(1000)]
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
