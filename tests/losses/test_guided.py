"""The guide's masks against a loop, values and gradients, in float64; GISTEmbedLoss: training/api/test_wrapping.py."""

import guided_oracle
import pytest
import torch
from guided_oracle import naive_guided
from torch.nn.functional import normalize

from stsbench.losses.contrastive import info_nce, nt_xent
from stsbench.losses.variants import GuideCosines, GuideRule, guided_info_nce, guided_nt_xent, masked_share

N, D = 7, 5


def drawn(seed, blocks, rows=N, width=D):
    numbers = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, width, generator=numbers, dtype=torch.float64).requires_grad_() for _ in range(blocks)]


def cosines(guides):
    units = [normalize(block.detach(), dim=1) for block in guides]
    a, p, *negatives = units
    return GuideCosines(a @ p.T, tuple(a @ block.T for block in negatives), a @ a.T, p @ p.T)


def guides_near(seed, blocks, spread=0.8):
    """A guide's vectors: positives near their anchors."""
    first, *others = drawn(seed, blocks)
    return [first.detach(), *((first + spread * block).detach() for block in others)]


def gradients(value, vectors):
    return torch.autograd.grad(value, vectors, allow_unused=True)


def differ(ours, theirs):
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True) if a is not None or b is not None)


RULES = [
    {"threshold": threshold, "margin": margin, "phi": 0.2, "contrast_anchors": one, "contrast_positives": other}
    for threshold, margin, one, other in (
        ("absolute", 0.0, True, True), ("absolute", 0.3, True, False), ("relative", 0.5, False, True),
        ("fixed", 0.0, False, False), ("relative", 0.5, True, True))
]
KINDS = [(0, {}), (2, {}), (2, {"masked": "zero"}), (0, {"loss": "bce_of_softmax"}),
         (2, {"masked": "zero", "loss": "bce_of_softmax"}), (0, {"diagonals": "by_guide"})]


@pytest.mark.parametrize(("rule", "blocks", "kind"), [
    (RULES[number % len(RULES)], *kind) for number, kind in enumerate(KINDS)
], ids=str)
def test_value_and_gradient_are_the_loop_s(rule, blocks, kind):
    vectors, guides = drawn(1, 2 + blocks), guides_near(2, 2 + blocks)
    rule = {**rule, **kind}
    ours = guided_info_nce(vectors[0], vectors[1], cosines(guides), GuideRule(**rule), anchors=vectors[0],
                           temperature=0.1, negatives=vectors[2:])
    theirs, count = naive_guided(vectors[0], vectors[1], guides, negatives=vectors[2:], temperature=0.1, **rule)
    assert count > 0 and abs(ours - theirs) < 1e-10
    assert differ(gradients(ours, vectors), gradients(theirs, vectors)) < 1e-8
    others = N * ((1 + rule["contrast_anchors"] + rule["contrast_positives"]) * (N - 1) + blocks * N)
    assert float(masked_share(cosines(guides), GuideRule(**rule))) == pytest.approx(count / others)


def test_where_everything_is_masked_stored_vectors_are_left_which_the_guide_has_not_read():
    (a, p, m), guides = drawn(7, 3), guides_near(8, 3)
    known, alone = cosines(guides), {"contrast_anchors": False, "contrast_positives": False}
    assert guided_info_nce(a, p, known, GuideRule(margin=9.0), anchors=a, negatives=[m]).item() == 0.0
    # y ln p alone over 2 B^2 entries is the cross-entropy over 2 B
    rule = GuideRule(margin=9.0, loss="bce_of_softmax", **alone)
    assert guided_info_nce(a, p, known, rule, negatives=[m]).item() == 0.0
    stored = torch.randn(4, D, dtype=torch.float64)
    kept = guided_info_nce(a, p, known, GuideRule(margin=9.0, **alone), negatives=[m], stored=stored)
    expected = [info_nce(a[i : i + 1], p[i : i + 1], stored=stored) for i in range(N)]
    assert kept.item() == pytest.approx(sum(expected).item() / N, abs=1e-12)


def test_the_bce_is_finite_where_p_is_1():
    a, guides = drawn(9, 3)[0], guides_near(10, 3)
    rule = GuideRule("fixed", contrast_anchors=False, contrast_positives=False, loss="bce_of_softmax")
    wrong = [block.detach().float().requires_grad_() for block in (a, -a, a)]  # p is 1 at a hard negative
    value = guided_info_nce(wrong[0], wrong[1], cosines(guides), rule, negatives=wrong[2:], temperature=0.001)
    value.backward()
    assert torch.isfinite(value) and value > 1 and all(torch.isfinite(block.grad).all() for block in wrong)


@pytest.mark.parametrize("masked", ["remove", "zero"])
def test_nt_xent_under_a_guide_is_the_loop_s(masked):
    first, second = drawn(11, 2)
    guide = normalize(drawn(12, 1)[0].detach(), dim=1)
    guide = (guide @ guide.T).fill_diagonal_(1.0)
    rule, losses, count = GuideRule(margin=0.6, masked=masked), [], 0
    views = [*first, *second]
    for r in range(2 * N):
        total, right = 0.0, None
        for other in range(2 * N):
            logit = guided_oracle.cosine(views[r], views[other]) / 0.1
            if other == r:
                continue
            if other == (r + N) % (2 * N):
                right = logit
            elif guide[r % N, other % N] > 1 - 0.6:
                count += 1
                if masked == "remove":
                    continue
                logit = logit * 0
            total = total + logit.exp()
        losses.append(-(right - total.log()))
    ours, theirs = guided_nt_xent(first, second, guide, rule), sum(losses) / (2 * N)
    assert count and abs(ours - theirs) < 1e-10
    assert differ(gradients(ours, (first, second)), gradients(theirs, (first, second))) < 1e-9
    none = guided_nt_xent(first, second, guide, GuideRule(margin=-1.0))
    assert abs(none - nt_xent(first, second)) < 1e-12


def test_no_row_gives_zero_with_a_gradient_and_of_one_text_alone_nothing_is_masked():
    (a, p), guides = drawn(13, 2), guides_near(14, 2)
    known = cosines(guides)
    empty = GuideCosines(known.positives[:0], (), known.anchors[:0], known.between_positives[:0])
    for loss in ("ce", "bce_of_softmax"):
        value = guided_info_nce(a[:0], p, empty, GuideRule(loss=loss), anchors=a)
        assert value == 0 and value.requires_grad
    value = guided_nt_xent(a[:0], p[:0], known.anchors[:0], GuideRule(), all_first=a, all_second=p)
    assert value == 0 and value.requires_grad
    with pytest.raises(ValueError, match="needs the anchors"):
        guided_info_nce(a, p, known, GuideRule())
    one = torch.ones(1, 1)
    assert float(masked_share(GuideCosines(one, (), one, one), GuideRule(margin=0.5))) == 0


def test_bfloat16_vectors_are_compared_in_float32():
    (a, p), guides = drawn(15, 2), guides_near(16, 2)
    low = [block.detach().bfloat16() for block in (a, p)]
    with torch.autocast("cpu", torch.bfloat16):
        ours = guided_info_nce(*low, cosines(guides), GuideRule(), anchors=low[0], temperature=0.05)
    theirs, _ = naive_guided(*(block.double() for block in low), guides, temperature=0.05)
    assert ours.dtype == torch.float32 and abs(ours - theirs) < 1e-4 * theirs.item()
