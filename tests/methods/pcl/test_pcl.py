"""PCL's peer, weights and views. Its terms: tests/methods/test_terms.py; their loops: tests/losses/test_contrastive.py."""

import shutil

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, total
from tiny_models import build, sentences
from transformers import AutoModel, BertModel

from stsbench import losses
from stsbench.methods.pcl.method import PCL

TEXTS = sentences(60, longest=9, seed=5)
TERMS = ("contrastive", "contrastive_peer", "group", "group_peer", "cross", "symmetric")
N = 5
FEW = {"augmentations": ["shuffle", "delete", "repeat"]}


def pcl(folder, *, dropout=0.0, pooler="cls", **options):
    return make(PCL, folder, options, dropout=dropout, pooler=pooler)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """With a stored pooler: two BERTs of one vocabulary, and a RoBERTa."""
    place = tmp_path_factory.mktemp("pcl")
    made = {name: build(place / name, name) for name in ("bert", "roberta")}
    made["other"] = place / "other"
    shutil.copytree(made["bert"], made["other"])
    model = BertModel.from_pretrained(made["other"])
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.9)
    model.save_pretrained(made["other"])
    return made


def rows(folder, start=0):
    return MemoryRows(folder, {"sentence": TEXTS[start : start + N]})


@pytest.mark.parametrize(("family", "mask"), [("roberta", False), ("bert", True)])
def test_padding_is_text_to_a_peer_without_a_mask_and_to_nobody_else(folders, family, mask):
    """The peer's vectors are transformers' of one text, with as much padding as the batch has, or without any."""
    method = pcl(folders[family], **FEW, peer={"mask": mask})
    assert method.views(rows(folders[family]), np.random.default_rng(0)).one_length != mask
    batch = batch_of(method, rows(folders[family]), more_padding=3)
    model = AutoModel.from_pretrained(folders[family], dtype=torch.float32).double().eval()
    for ids, real, vector in zip(batch.ids, batch.mask, method.peer(batch.ids, batch.mask), strict=True):
        read = ids[: int(real.sum())] if mask else ids
        pooled = model(input_ids=read[None], attention_mask=torch.ones(1, len(read))).pooler_output[0]
        assert (vector - pooled).abs().max() < 1e-10


def test_the_group_terms_are_of_a_sentence_s_first_view_as_anchor(folders):
    """Of views that differ, as dropout makes them: without it the first two are one."""
    method = pcl(folders["bert"], **FEW)
    numbers = torch.Generator().manual_seed(3)
    views = {name: list(torch.randn(5, N, 8, generator=numbers, dtype=torch.float64)) for name in ("z", "q")}
    terms = method._group_terms(views, batch_of(method, rows(folders["bert"])))
    plain = sum(losses.infocse(*views[name][:2], temperature=0.05) for name in views)
    assert total(terms).item() + plain.item() == pytest.approx(losses.pcl(views["z"], views["q"]).item(), abs=1e-12)


def test_every_weight_weighs_its_term_and_zero_leaves_it_out(folders):
    names = [f"{term}_weight" for term in TERMS]
    weights = dict(zip(names, (2.0, 0.5, 3.0, 0.25, 0.75, 1.5), strict=True))
    method = pcl(folders["bert"], **FEW, **weights)
    terms = method(batch_of(method, rows(folders["bert"])))
    assert {f"{name}_weight": term.weight for name, term in terms.items()} == weights
    for left_out in (set(names[1:4]), set(names[4:])):
        method = pcl(folders["bert"], **FEW, **dict.fromkeys(left_out, 0.0))
        assert {f"{term}_weight" for term in method(batch_of(method, rows(folders["bert"])))} == {*names} - left_out


def test_it_starts_as_the_encoder_and_has_the_stored_pooler(folders):
    method = pcl(folders["bert"], peer={"head": "own"})
    for (name, first), (other, second) in zip(method.backbone.named_parameters(), method.peer.backbone.named_parameters(),
                                              strict=True):
        assert name == other and torch.equal(first, second) and first.data_ptr() != second.data_ptr()
    stored = AutoModel.from_pretrained(folders["bert"]).pooler.dense
    assert torch.equal(method.peer.pooler.dense.weight, stored.weight.double()) and method.notes() == []
    assert not torch.equal(method.peer_head.dense.weight, method.head.dense.weight)


def test_a_checkpoint_without_a_pooler_is_told(tmp_path):
    folder = build(tmp_path / "bare", "roberta", pooler=False)
    method = pcl(folder)
    assert method.notes() == ["bare stores no pooler: the peer's starts from random weights"]
    assert float(method.peer.pooler.dense.weight.detach().std()) == pytest.approx(0.3, rel=0.1)
    again = pcl(folder)
    assert torch.equal(method.peer.pooler.dense.weight, again.peer.pooler.dense.weight)


def test_a_peer_from_elsewhere_is_an_input(folders):
    method = pcl(folders["bert"], peer={"model": str(folders["other"])})
    assert [*method.inputs()] == ["peer"] and pcl(folders["bert"]).inputs() == pcl(folders["bert"], peer=None).inputs() == {}
    ours, theirs = (next(module.parameters()) for module in (method.backbone, method.peer.backbone))
    assert (theirs - 0.9 * ours).abs().max() < 1e-6


@pytest.fixture
def folder(folders):
    return folders["roberta"]


def test_the_ends_stay(folder):
    method = pcl(folder, augmentations=["shuffle", "reverse", "delete", "repeat", "copy"])
    made = method.views(MemoryRows(folder, {"sentence": TEXTS[:30]}), np.random.default_rng(0)).tokens
    tokenizer, views = method.backbone.tokenizer, [[list(map(int, ids)) for ids in view] for view in made]
    for view in views:
        assert all((ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id) for ids in view)
    plain, second, shuffle, reverse, delete, repeat, copy = views
    assert plain == second == copy == [list(ids) for ids in MemoryRows(folder, {"sentence": TEXTS[:30]}).ids("sentence")]
    assert len(pcl(folder).views(rows(folder), np.random.default_rng(0)).tokens) == 10
    assert [ids[1:-1][::-1] for ids in plain] == [ids[1:-1] for ids in reverse]
    assert shuffle != plain and [sorted(ids) for ids in shuffle] == [sorted(ids) for ids in plain]
    for ids, fewer, more in zip(plain, delete, repeat, strict=True):
        m = len(ids) - 2
        assert len(fewer) == len(ids) - round(0.2 * m)
        assert len(more) == min(len(ids) + round(0.2 * m), LIMIT)
        assert set(fewer) <= set(ids) and set(more) == set(ids)
    assert any(len(ids) == LIMIT for ids in plain) and max(map(len, repeat)) == LIMIT


def test_a_text_without_a_word_is_left_alone_and_one_without_special_tokens_has_no_ends_to_keep(folder):
    method, generator = pcl(folder), np.random.default_rng(0)
    views = method.views(MemoryRows(folder, {"sentence": ["", "a"]}), generator).tokens
    assert all([len(ids) for ids in view] == [2, 3] for view in views)
    ended = np.array([20, 21, method.backbone.tokenizer.sep_token_id])
    assert method._augmented(np.array([20, 21, 22]), "reverse", generator).tolist() == [22, 21, 20]
    assert method._augmented(ended, "reverse", generator).tolist() == [21, 20, ended[2]]
