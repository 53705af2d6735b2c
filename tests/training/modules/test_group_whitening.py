"""Shuffled group whitening: what it makes of a batch, its gradient, and where it is refused."""

import pytest
import torch
from shipped_recipes import one_line

from stsbench.training.modules.projector import GroupWhitening, whiten_groups

P, M, D = 2, 40, 12


def rows(*shape, seed=0, dtype=torch.float64):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (drawn @ (torch.eye(shape[-1]).double() + 0.3) + 1).to(dtype)


def orders(parts=P, width=D, seed=1):
    made = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(width, generator=made) for _ in range(parts)])


@pytest.mark.parametrize(("groups", "shuffled"), [(1, False), (3, True), (6, False), (12, True)])
def test_within_a_group_features_have_variance_one_and_no_correlation(groups, shuffled):
    order = orders() if shuffled else None
    whitened = whiten_groups(rows(P, M, D), groups, order)
    size, across = D // groups, 0.0
    for part in range(P):
        permuted = whitened[part] if order is None else whitened[part][:, order[part]]
        assert permuted.mean(0).abs().max() < 1e-12
        covariance = permuted.T @ permuted / M
        for group in range(groups):
            block = slice(group * size, (group + 1) * size)
            assert (covariance[block, block] - torch.eye(size)).abs().max() < 1e-10
        across = max(across, float((covariance - torch.eye(D)).abs().max()))
    assert (across > 0.1) == (groups > 1)


def test_the_matrix_is_the_symmetric_one_and_the_variance_that_of_n():
    x = rows(1, M, 3)
    centred = x[0] - x[0].mean(0)
    matrix = torch.linalg.lstsq(centred, whiten_groups(x, 1)[0]).solution
    assert (matrix - matrix.T).abs().max() < 1e-12
    assert (matrix @ matrix @ (centred.T @ centred / M) - torch.eye(3)).abs().max() < 1e-10


def test_the_released_cut_is_through_sentences_and_the_meant_one_between_views():
    """Of 18 sentences without dropout three views are equal where thirds are whitened, and differ where views are."""
    sentences = rows(18, D)
    views, order = sentences.expand(3, 18, D), orders(3)
    thirds = GroupWhitening(4, split="per_third")(views, order)
    assert torch.equal(thirds[0], thirds[1]) and torch.equal(thirds[0], thirds[2])
    for part in range(3):
        block = slice(6 * part, 6 * part + 6)
        alone = whiten_groups(sentences[block].repeat_interleave(3, dim=0)[None], 4, order[part : part + 1])[0]
        assert (thirds[0, block] - alone[::3]).abs().max() < 1e-12
    meant = GroupWhitening(4, split="per_view")(views, order)
    assert min(float((meant[0] - meant[k]).abs().max()) for k in (1, 2)) > 0.1
    for k in range(3):
        assert torch.equal(meant[k], whiten_groups(sentences[None], 4, order[k : k + 1])[0])
    whole = GroupWhitening(4, split="whole")(views, order[:1])
    assert (whole[0] - meant[0]).abs().max() < 1e-10


@pytest.mark.parametrize("groups", [4])
def test_the_full_gradient(groups):
    for x in (rows(1, 14, D), _all_eigenvalues_equal(14)):
        whole = x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x: whiten_groups(x, groups, orders(1), detach_matrix=False), whole)


def _all_eigenvalues_equal(m):
    """Where the derivative of an eigenvector is infinite."""
    centred = rows(m, D) - rows(m, D).mean(0)
    return torch.linalg.qr(centred).Q[None] * m**0.5


def test_a_detached_matrix_is_a_constant_for_the_gradient():
    """Which still passes through the mean, and is another one than the full derivative."""
    x, weights = rows(1, M, D).requires_grad_(), rows(1, M, D, seed=5)
    detached, full = (
        torch.autograd.grad((whiten_groups(x, 3, detach_matrix=each) ** 3 * weights).sum(), x)[0] for each in (True, False)
    )
    with torch.no_grad():
        grouped = (x - x.mean(1, keepdim=True)).reshape(M, 3, 4)
        matrices = [torch.linalg.lstsq(grouped[:, group], whiten_groups(x, 3)[0].reshape(M, 3, 4)[:, group]).solution
                    for group in range(3)]
    y = x - x.mean(1, keepdim=True)
    by_hand = torch.cat([y[..., 4 * group : 4 * group + 4] @ matrices[group] for group in range(3)], dim=2)
    (expected,) = torch.autograd.grad((by_hand**3 * weights).sum(), x)
    assert (detached - expected).abs().max() < 1e-9
    assert (detached - full).abs().max() > 1e-2
    assert detached.sum(1).abs().max() < 1e-9  # the mean's part


def test_float32_under_autocast_and_of_16_bits():
    x = rows(P, M, D, dtype=torch.bfloat16)
    plain = whiten_groups(x.float(), 4, orders())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for given in (x, x.float()):
            whitened = whiten_groups(given, 4, orders())
            assert whitened.dtype == torch.float32 and torch.equal(whitened, plain)
    assert whiten_groups(rows(P, M, D), 4).dtype == torch.float64
    y = x.clone().requires_grad_()
    whiten_groups(y, 4, detach_matrix=False).pow(3).sum().backward()
    assert y.grad.dtype == torch.bfloat16 and y.grad.isfinite().all()


def test_eps_is_added_to_the_variances():
    x = rows(1, M, D)
    whitened = whiten_groups(x, D, eps=3.0)
    variance = x.var(1, keepdim=True, correction=0)
    assert (whitened - (x - x.mean(1, keepdim=True)) / (variance + 3).sqrt()).abs().max() < 1e-12


def test_too_few_rows_and_equal_ones_are_refused_without_eps():
    for dtype in (torch.float32, torch.float64):
        one_line(lambda dtype=dtype: whiten_groups(rows(1, 4, D, dtype=dtype), 3), "groups of 4 features over 4 rows",
                 "options.eps, e.g. 1e-5")
        assert whiten_groups(rows(1, 5, D, dtype=dtype), 3).isfinite().all()
        equal = rows(4, D, dtype=dtype).repeat(5, 1)[None]
        one_line(lambda equal=equal: whiten_groups(equal, 3), "span too few dimensions", "options.eps")
        for few in (rows(1, 4, D, dtype=dtype), equal, equal[:, :1]):
            assert whiten_groups(few, 3, eps=1e-5).isfinite().all()
