"""InfoCSE's reconstruction by transformers, one sentence at a time; its parts; and the file of a Condenser head. PCL's peer,
weights and views. Their other terms: tests/methods/test_terms.py; in loops: tests/losses/test_contrastive.py."""

import copy
import shutil

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, total
from tiny_models import build, sentences
from transformers import AutoModel, AutoModelForMaskedLM

from stsbench import losses
from stsbench.encoders.forward.identity import model_digest
from stsbench.errors import StsbenchError
from stsbench.methods.infocse.method import InfoCSE
from stsbench.methods.pcl.method import PCL

TEXTS = sentences(60, longest=9, seed=5)
N = 5
# At temperature 0.05 normalised views without dropout leave a loss of 1e-9, which any loop would agree with.
SMALL = {"frozen_layers": 1, "head_layers": 2, "mlm_weight": 0.3, "mlm_probability": 0.4, "temperature": 1.0}


def infocse(folder, *, dropout=0.0, pooler="cls", seed=1, **options):
    return make(InfoCSE, folder, {**SMALL, **options}, dropout=dropout, pooler=pooler, seed=seed)


def naive_reconstruction(whole, head, frozen_layers, plain, masked, labels):
    """The mean loss of masked tokens, guessed by the head from the first state of the plain sentence and the states behind
    the first of the masked one in the checkpoint's first layers. whole: the checkpoint with its masked-LM head."""
    encoder, errors = getattr(whole, whole.base_model_prefix), []
    for ids, other, wanted in zip(plain, masked, labels, strict=True):
        with torch.no_grad():
            below = encoder(input_ids=other[None], output_hidden_states=True).hidden_states[frozen_layers]
        hidden = torch.cat([encoder(input_ids=ids[None]).last_hidden_state[:, :1], below[:, 1:]], 1)
        for layer in head:
            hidden = layer(hidden)
        logits = (whole.cls if whole.base_model_prefix == "bert" else whole.lm_head)(hidden)[0]
        errors.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum", ignore_index=-100))
    return sum(errors) / sum(int((wanted != -100).sum()) for wanted in labels)


@pytest.mark.parametrize(("family", "attention", "options"), [
    ("bert", "eager", {}), ("roberta", "sdpa", {"mlm_probability": 0.9, "frozen_layers": 2, "head_layers": 1})])
def test_the_reconstruction_is_that_of_transformers_with_its_gradients(masked_lms, family, attention, options):
    """To 1e-8, with padding that no row needs. The contrastive term: tests/methods/test_terms.py."""
    folder = masked_lms[family]
    method = infocse(folder, **options)
    for part in method.auxiliary.modules():
        if hasattr(part, "config"):
            part.config._attn_implementation = attention
    batch = batch_of(method, MemoryRows(folder, {"sentence": TEXTS[:N]}), more_padding=3)
    lengths = batch.mask.sum(1).tolist()
    plain, masked, labels = ([row[:length] for row, length in zip(part, lengths, strict=True)]
                             for part in (batch.ids, batch.extra["mlm_ids"], batch.extra["mlm_labels"]))
    whole = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).double().eval()
    head = copy.deepcopy(method.auxiliary.head).eval()
    expected = naive_reconstruction(whole, head, method.options.frozen_layers, plain, masked, labels)
    term = method(batch)["mlm"]
    assert term.value.item() == pytest.approx(expected.item(), abs=1e-8) and term.weight == method.options.mlm_weight
    term.value.backward()
    expected.backward()
    encoder = dict(getattr(whole, whole.base_model_prefix).named_parameters())
    table = "embeddings.word_embeddings.weight"  # to transformers it is the masked-LM head's last layer, too
    for name, weight in method.backbone.model.named_parameters():
        theirs = encoder[name].grad - method.auxiliary.lm_head.decoder.weight.grad if name == table else encoder[name].grad
        assert (weight.grad - theirs).abs().max() < 1e-8, name
    for (name, weight), other in zip(method.auxiliary.head.named_parameters(), head.parameters(), strict=True):
        assert (weight.grad - other.grad).abs().max() < 1e-8, name


def test_the_head_starts_at_random_with_the_encoders_dropout_and_the_lm_head_as_a_copy(masked_lms):
    method = infocse(masked_lms["bert"], dropout=0.4, head_layers=3)
    auxiliary, encoder = method.auxiliary, method.backbone.model
    rates = {part.p for part in auxiliary.head.modules() if isinstance(part, torch.nn.Dropout)}
    assert len(auxiliary.head) == 3 and rates == {0.4}
    for name, weight in auxiliary.head.named_parameters():
        if weight.ndim == 2:
            assert weight.std().item() == pytest.approx(encoder.config.initializer_range, rel=0.15)
        else:
            assert (weight == float(name.endswith("LayerNorm.weight"))).all(), name
    decoder, words = auxiliary.lm_head.decoder.weight, encoder.get_input_embeddings().weight
    assert torch.equal(decoder, words) and decoder is not words and decoder.requires_grad


def stored(folder, copy, layers=2):
    """A copy of the model with model.pt as Condenser's pre-training writes it, and the weights in it."""
    shutil.copytree(folder, copy)
    head = infocse(folder, head_layers=layers, seed=5).auxiliary.head.float().state_dict()
    torch.save({f"c_head.{name}": value for name, value in head.items()}, copy / "model.pt")
    return copy, head


def test_the_layers_are_those_of_the_file_which_the_digest_of_the_model_knows(masked_lms, tmp_path):
    folder, head = stored(masked_lms["roberta"], tmp_path / "model", 3)
    method, other = (infocse(folder, head_init=init, head_layers=3) for init in ("condenser", "random"))
    loaded, random = (each.auxiliary.head.state_dict() for each in (method, other))
    assert loaded.keys() == head.keys() and all(torch.equal(loaded[name], value.double()) for name, value in head.items())
    assert not torch.equal(random["0.output.dense.weight"], loaded["0.output.dense.weight"])
    before = model_digest(folder)
    torch.save({}, folder / "model.pt")
    assert model_digest(folder) != before  # so that a run is not resumed


class Planted:
    def __reduce__(self):
        return print, ("unpickled",)


def test_a_file_that_holds_no_such_layers(masked_lms, tmp_path, capsys):
    folder, _ = stored(masked_lms["bert"], tmp_path / "model", layers=3)
    two = {"c_head.0.a": torch.ones(2), "c_head.1.a": torch.ones(2)}
    for content in (None, {"c_head.0.weight": Planted()}, [1, 2], two):  # as it is it holds one layer more
        if content is not None:
            torch.save(content, folder / "model.pt")
        with pytest.raises(StsbenchError, match=r"^options\.head_init condenser reads the head's layers from "):
            infocse(folder, head_init="condenser")
    assert "unpickled" not in capsys.readouterr().out


FEW = {"augmentations": ["shuffle", "delete", "repeat"]}


def pcl(folder, *, dropout=0.0, pooler="cls", **options):
    return make(PCL, folder, options, dropout=dropout, pooler=pooler)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """With a stored pooler."""
    place = tmp_path_factory.mktemp("pcl")
    return {name: build(place / name, name) for name in ("bert", "roberta")}


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
    names = [f"{term}_weight" for term in ("contrastive", "contrastive_peer", "group", "group_peer", "cross", "symmetric")]
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


def test_a_checkpoint_without_a_pooler_is_told(encoders):
    method, again = pcl(encoders["roberta"]), pcl(encoders["roberta"])
    assert method.notes() == ["roberta stores no pooler: the peer's starts from random weights"]
    assert float(method.peer.pooler.dense.weight.detach().std()) == pytest.approx(0.3, rel=0.1)
    assert torch.equal(method.peer.pooler.dense.weight, again.peer.pooler.dense.weight)


def test_a_peer_from_elsewhere_is_an_input(folders, masked_lms):
    method = pcl(folders["bert"], peer={"model": str(masked_lms["bert"])})
    assert [*method.inputs()] == ["peer"] and pcl(folders["bert"]).inputs() == pcl(folders["bert"], peer=None).inputs() == {}
    for network, place in ((method.peer.backbone, masked_lms["bert"]), (method.backbone, folders["bert"])):
        assert torch.equal(next(network.parameters()), next(AutoModel.from_pretrained(place).double().parameters()))


def test_the_ends_stay(folders):
    folder = folders["roberta"]
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


def test_a_text_without_a_word_is_left_alone_and_one_without_special_tokens_has_no_ends_to_keep(folders):
    method, generator = pcl(folders["roberta"]), np.random.default_rng(0)
    views = method.views(MemoryRows(folders["roberta"], {"sentence": ["", "a"]}), generator).tokens
    assert all([len(ids) for ids in view] == [2, 3] for view in views)
    ended = np.array([20, 21, method.backbone.tokenizer.sep_token_id])
    assert method._augmented(np.array([20, 21, 22]), "reverse", generator).tolist() == [22, 21, 20]
    assert method._augmented(ended, "reverse", generator).tolist() == [21, 20, ended[2]]
