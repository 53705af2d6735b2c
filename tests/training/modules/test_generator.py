"""The frozen masked LM against transformers' own logits, text by text, and what it refuses. What stands behind the
encoder in a loss: the projector with batch normalisation, and shuffled group whitening."""

import math
import shutil

import pytest
import torch
from scipy.stats import chisquare
from shipped_recipes import one_line
from tiny_models import build, headed, tokenizer
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForMaskedLM

from stsbench.errors import StsbenchError
from stsbench.methods.whitenedcse.method import GroupWhitening, whiten_groups
from stsbench.training.api.method import BatchNormProjector
from stsbench.training.modules import masked_lm as module
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.masked_lm import Generator


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("generators")
    return {family: headed(root / family, family) for family in ("bert", "roberta")}


def make(folder, model=None, mode="eval"):
    backbone = load_backbone(folder, folder.name, max_length=12, dropout=0.0)
    backbone.folder, backbone.name = folder, folder.name
    return Generator(backbone, model, mode)


def batch(lengths=(5, 9, 2, 9, 1, 7), seed=1, pad=0):
    draw = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    ids = torch.randint(5, 60, mask.shape, generator=draw)  # no special token
    return torch.where(mask == 1, ids, pad), mask, (torch.rand(mask.shape, generator=draw) < 0.5) & mask.bool()


def naive_logits(folder, ids, mask):
    """[row] -> (length, V) logits by transformers, each text alone and without padding."""
    whole = AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return [whole(input_ids=row[: int(m.sum())].unsqueeze(0)).logits[0] for row, m in zip(ids, mask, strict=True)]


def naive_fill(folder, ids, mask, chosen, forbidden=()):
    filled = ids.tolist()
    for row, scores in enumerate(naive_logits(folder, ids, mask)):
        for place, score in enumerate(scores.tolist()):
            if chosen[row, place]:
                filled[row][place] = max((i for i in range(len(score)) if i not in forbidden), key=score.__getitem__)
    return filled


@pytest.mark.parametrize(("family", "engine"), [("roberta", "auto"), ("bert", "padded")])
def test_the_likeliest_token_of_the_full_logits_is_filled_in(folders, family, engine):
    folder = folders[family]
    generator = make(folder).train()
    generator.backbone.engine = engine
    ids, mask, chosen = batch(pad=generator.backbone.tokenizer.pad_token_id)
    filled = generator.fill(ids, mask, chosen)
    assert filled.tolist() == naive_fill(folder, ids, mask, chosen)
    assert not torch.equal(filled, ids)
    assert torch.equal(filled[~chosen], ids[~chosen])
    banned = filled[chosen].unique().tolist()[:3]
    assert generator.fill(ids, mask, chosen, forbidden=banned).tolist() == naive_fill(folder, ids, mask, chosen, banned)


def test_only_chosen_places_get_logits_and_only_their_rows_are_run(folders, monkeypatch):
    generator = make(folders["bert"])
    ids, mask, chosen = batch()
    chosen[1], chosen[3] = False, False
    run, scored = [], []
    generator.backbone.register_forward_pre_hook(lambda _, inputs: run.append(inputs[0]))
    generator.head.register_forward_pre_hook(lambda _, inputs: scored.append(inputs[0].shape))
    whole = generator.fill(ids, mask, chosen)
    monkeypatch.setattr(module, "_PLACES", 3)
    assert torch.equal(generator.fill(ids, mask, chosen), whole)
    rows = chosen.any(1)
    assert 0 < int(rows.sum()) < len(ids) and all(torch.equal(given, ids[rows]) for given in run)
    count = int(chosen.sum())
    assert scored == [(count, 32), *[(3, 32)] * (count // 3), *([(count % 3, 32)] if count % 3 else [])]
    run.clear()
    assert torch.equal(generator.fill(ids, mask, torch.zeros_like(chosen)), ids)
    assert not run


def test_sampling_follows_the_softmax(folders):
    forbidden, generator = (7, 20, 41), make(folders["bert"])
    ids, mask, _ = batch((6,))
    chosen = torch.zeros_like(ids, dtype=torch.bool)
    chosen[0, 2] = True
    shares = naive_logits(folders["bert"], ids, mask)[0][2].double().softmax(0)
    shares[list(forbidden)] = 0
    shares /= shares.sum()
    rows = 4000
    torch.manual_seed(3)
    many = [values.repeat(rows, 1) for values in (ids, mask, chosen)]
    filled = generator.fill(*many, sampling=True, forbidden=forbidden)
    torch.manual_seed(3)
    again = [generator.fill(*many, sampling=True, forbidden=forbidden) for _ in range(2)]
    assert torch.equal(filled, again[0]) and not torch.equal(*again)  # torch's generator alone decides
    assert torch.equal(filled[~many[2]], many[0][~many[2]])
    counts = torch.bincount(filled[:, 2], minlength=len(shares)).double()
    assert not counts[list(forbidden)].any()
    drawn, expected = counts[shares > 0], shares[shares > 0] * rows
    assert len(drawn) == len(shares) - len(forbidden) and expected.min() > 5
    assert chisquare(drawn.numpy(), expected.numpy()).pvalue > 0.001
    other = (expected.log() * 0.7).softmax(0) * rows  # and the test can tell another temperature
    assert chisquare(drawn.numpy(), other.numpy()).pvalue < 0.001


def test_an_id_that_no_token_has_is_never_filled_in(folders, tmp_path):
    folder = headed(tmp_path / "padded", extra_rows=9)
    generator = make(folders["bert"], str(folder))
    size = len(generator.backbone.tokenizer)
    ids, mask, chosen = batch()
    best = torch.cat([scores.argmax(1) for scores in naive_logits(folder, ids, mask)])
    assert (best >= size).all()  # each of them would be
    assert (generator.fill(ids, mask, chosen, sampling=True)[chosen] < size).all()
    assert generator.fill(ids, mask, chosen).tolist() == naive_fill(folder, ids, mask, chosen, range(size, size + 9))


def test_its_dropout_is_on_in_train_mode_and_only_with_that_mode(folders, tmp_path):
    folder = shutil.copytree(folders["bert"], tmp_path / "dropping")
    config = AutoConfig.from_pretrained(folder)
    config.hidden_dropout_prob = 0.5
    config.save_pretrained(folder)
    inputs = batch()
    expected = torch.tensor(naive_fill(folder, *inputs))
    for mode in ("train", "eval"):
        method = nn.ModuleDict({"generator": make(folders["bert"], str(folder), mode)})
        for training in (True, False):
            method.train(training)
            dropping = training and mode == "train"
            assert all(part.training == dropping for part in method["generator"].modules())
            assert torch.equal(method["generator"].fill(*inputs), expected) == (not dropping)


def test_what_does_not_fit_is_one_line(folders, tmp_path):
    bert, bare = folders["bert"], build(tmp_path / "bare")
    with pytest.raises(StsbenchError, match=r"^bare stores no masked-LM head.* in options.generator, or train a head first"):
        make(bare)
    assert make(bare, str(bert)).head.stored
    with pytest.raises(StsbenchError, match=r"^options.generator .*roberta\S* must share the vocabulary of bert\S*, and"):
        make(bert, str(folders["roberta"]))
    for mask, said in ((None, "needs a mask token, and the tokenizer of .*other has none"), ("[UNK]", "must have the mask")):
        other = shutil.copytree(bert, tmp_path / f"{mask}" / "other")
        changed = tokenizer("bert")
        changed.mask_token = mask
        changed.save_pretrained(other)
        with pytest.raises(StsbenchError, match=said):
            make(bert, str(other))
    with pytest.raises(StsbenchError, match=r"^options.generator /nowhere: no such folder"):
        make(bert, "/nowhere")


# --- batch normalisation ---
def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def projector(width=4, out=3, std=0.5):
    torch.manual_seed(4)
    module = BatchNormProjector(width, out, std).double()
    with torch.no_grad():  # 1 and 0 would hide a forgotten one
        module.inner_norm.weight.normal_(1, 0.3)
        module.inner_norm.bias.normal_(0, 0.3)
    return module


@torch.no_grad()
def test_the_projector_is_the_equation_in_training_and_in_evaluation():
    """By torch's own normalisation, which keeps the running means and unbiased variances. One row has no variance."""
    module, x = projector().train(), random(6, 4, seed=3)
    w = {name: value.clone() for name, value in module.state_dict().items()}

    def expected(training):
        inner = functional.batch_norm(x @ w["inner.weight"].T, w["inner_norm.running_mean"], w["inner_norm.running_var"],
                                      w["inner_norm.weight"], w["inner_norm.bias"], training, 0.1, 1e-5).clamp(min=0)
        return functional.batch_norm(inner @ w["outer.weight"].T, w["outer_norm.running_mean"], w["outer_norm.running_var"],
                                     training=training, momentum=0.1, eps=1e-5)

    out = module(x)
    assert (out - expected(training=True)).abs().max() < 1e-10
    after = module.state_dict()
    assert all((after[name] - value).abs().max() < 1e-10 for name, value in w.items() if "running" in name)
    module.eval()
    want = expected(training=False)
    assert (module(x) - want).abs().max() < 1e-10 and (module(x[:1]) - want[:1]).abs().max() < 1e-10
    assert (want - out).abs().max() > 0.1
    with pytest.raises(StsbenchError, match=r"^batch normalisation needs 2 vectors .* raise training.batch_size$"):
        module.train()(x[:1])


def test_the_projectors_sizes_and_start():
    torch.manual_seed(0)
    module = BatchNormProjector(96, 64, 0.02)
    assert module.inner.weight.shape == (192, 96) and module.outer.weight.shape == (64, 192)
    assert module.inner.bias is None and module.outer.bias is None
    assert module.outer_norm.weight is None and module.outer_norm.bias is None
    assert (module.inner_norm.weight == 1).all() and (module.inner_norm.bias == 0).all()
    for linear in (module.inner, module.outer):
        count = linear.weight.numel()
        assert abs(linear.weight.mean().item()) < 4.5 * 0.02 / math.sqrt(count)
        assert abs(linear.weight.std().item() / 0.02 - 1) < 4.5 / math.sqrt(2 * count)


def test_under_autocast_the_projector_computes_in_float32():
    module = projector(16, 16, 0.3).float().train()
    x = (random(64, 16, seed=7) + 100).float()  # in bfloat16 the deviations would be lost in the mean
    expected = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        actual = module(x)
        assert module(x.to(torch.bfloat16)).dtype == torch.float32
    assert actual.dtype == torch.float32 and torch.equal(actual, expected)
# --- group whitening ---
P, M, D = 2, 40, 12


def rows(*shape, seed=0, dtype=torch.float64):
    return (random(*shape, seed=seed) @ (torch.eye(shape[-1]).double() + 0.3) + 1).to(dtype)


def orders(parts=P, width=D, seed=1):
    made = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(width, generator=made) for _ in range(parts)])


@pytest.mark.parametrize(("groups", "shuffled"), [(1, False), (3, True), (12, True)])
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


def test_the_matrix_is_the_symmetric_one_and_eps_is_added_to_the_variances():
    x = rows(1, M, 3)
    centred = x[0] - x[0].mean(0)
    matrix = torch.linalg.lstsq(centred, whiten_groups(x, 1)[0]).solution
    assert (matrix - matrix.T).abs().max() < 1e-12
    assert (matrix @ matrix @ (centred.T @ centred / M) - torch.eye(3)).abs().max() < 1e-10
    whitened = whiten_groups(x, 3, eps=3.0)[0]
    assert (whitened - centred / (x[0].var(0, correction=0) + 3).sqrt()).abs().max() < 1e-12


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
    assert (GroupWhitening(4, split="whole")(views, order[:1])[0] - meant[0]).abs().max() < 1e-10


def test_the_full_gradient():
    centred = rows(7, 6) - rows(7, 6).mean(0)
    equal = torch.linalg.qr(centred).Q[None] * 7**0.5  # eigenvalues, where the derivative of an eigenvector is infinite
    for x in (rows(1, 6, 6), equal):
        whole = x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x: whiten_groups(x, 2, orders(1, 6), detach_matrix=False), whole)


def test_a_detached_matrix_is_a_constant_for_the_gradient():
    """Which still passes through the mean, and is another one than the full derivative."""
    x, weights = rows(1, M, D).requires_grad_(), rows(1, M, D, seed=5)
    detached, full = (
        torch.autograd.grad((whiten_groups(x, 3, detach_matrix=each) ** 3 * weights).sum(), x)[0] for each in (True, False))
    y = x - x.mean(1, keepdim=True)
    with torch.no_grad():
        whitened = whiten_groups(x, 3)[0]
        blocks = [slice(4 * group, 4 * group + 4) for group in range(3)]
        matrices = [torch.linalg.lstsq(y[0, :, block], whitened[:, block]).solution for block in blocks]
    by_hand = torch.cat([y[..., block] @ matrix for block, matrix in zip(blocks, matrices, strict=True)], dim=2)
    (expected,) = torch.autograd.grad((by_hand**3 * weights).sum(), x)
    assert (detached - expected).abs().max() < 1e-9 and (detached - full).abs().max() > 1e-2


def test_float32_under_autocast_and_of_16_bits():
    x = rows(P, M, D, dtype=torch.bfloat16)
    plain = whiten_groups(x.float(), 4, orders())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for given in (x, x.float()):
            whitened = whiten_groups(given, 4, orders())
            assert whitened.dtype == torch.float32 and torch.equal(whitened, plain)
    assert whiten_groups(rows(P, M, D), 4).dtype == torch.float64


def test_too_few_rows_and_equal_ones_are_refused_without_eps():
    for dtype in (torch.float32, torch.float64):
        one_line(lambda dtype=dtype: whiten_groups(rows(1, 4, D, dtype=dtype), 3), "groups of 4 features over 4 rows",
                 "options.eps, e.g. 1e-5")
        assert whiten_groups(rows(1, 5, D, dtype=dtype), 3).isfinite().all()
        equal = rows(4, D, dtype=dtype).repeat(5, 1)[None]
        one_line(lambda equal=equal: whiten_groups(equal, 3), "span too few dimensions", "options.eps")
        for few in (rows(1, 4, D, dtype=dtype), equal, equal[:, :1]):
            assert whiten_groups(few, 3, eps=1e-5).isfinite().all()
