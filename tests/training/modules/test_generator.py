"""The frozen masked LM against transformers' own logits, text by text, and what it refuses."""

from __future__ import annotations

import shutil

import pytest
import torch
from scipy.stats import chisquare
from tiny_models import build, headed, tokenizer
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM

from stsbench.errors import StsbenchError
from stsbench.training.modules import masked_lm as module
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.masked_lm import Generator

FAMILIES = ["bert", "roberta", "distilbert"]
LIMIT = 12


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("generators")
    return {family: headed(root / family, family) for family in FAMILIES}


def encoder(folder, dropout=0.0):
    backbone = load_backbone(folder, folder.name, max_length=LIMIT, dropout=dropout)
    backbone.folder, backbone.name = folder, folder.name
    return backbone


def make(folder, model=None, mode="eval"):
    return Generator(encoder(folder), model, mode)


def batch(lengths=(5, 9, 2, 9, 1, 7), seed=1, pad=0):
    draw = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    ids = torch.randint(5, 60, mask.shape, generator=draw)  # no special token
    chosen = (torch.rand(mask.shape, generator=draw) < 0.5) & mask.bool()
    return torch.where(mask == 1, ids, pad), mask, chosen


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


@pytest.mark.parametrize(("family", "engine"), [("roberta", "auto"), ("distilbert", "auto"), ("bert", "padded")])
def test_the_likeliest_token_of_the_full_logits_is_filled_in(folders, family, engine):
    folder = folders[family]
    generator = make(folder).train()
    generator.backbone.engine = engine
    ids, mask, chosen = batch(pad=generator.backbone.tokenizer.pad_token_id)
    filled = generator.fill(ids, mask, chosen)
    assert filled.tolist() == naive_fill(folder, ids, mask, chosen)
    assert not torch.equal(filled, ids)
    assert torch.equal(filled[~chosen], ids[~chosen])
    forbidden = filled[chosen].unique().tolist()[:3]
    filled = generator.fill(ids, mask, chosen, forbidden=forbidden)
    assert filled.tolist() == naive_fill(folder, ids, mask, chosen, forbidden)


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
    expected = naive_fill(folder, ids, mask, chosen, range(size, size + 9))
    assert generator.fill(ids, mask, chosen).tolist() == expected


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
    bert = folders["bert"]
    bare = build(tmp_path / "bare")
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
