"""TSDAE against sentence-transformers' own loss, and what its decoder does and does not see."""

import copy
import shutil

import numpy as np
import pytest
import torch
from diffcse_oracle import masked_lm
from method_oracle import MemoryRows, batch_of, make
from model_folders import adapter
from tiny_models import SHAPE, tokenizer
from transformers import BertConfig, BertForMaskedLM, DistilBertConfig, DistilBertForMaskedLM, MPNetConfig, MPNetForMaskedLM
from tsdae_oracle import TEXTS, features, folders, library_loss, rows_of, tsdae

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.tsdae.method import TSDAE
from stsbench.methods.tsdae.options import TSDAEOptions

__all__ = ["folders"]
FAMILIES = ("bert", "roberta")


def loss_of(method, batch):
    (term,) = method(batch).values()
    return term


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("pooler", ["cls", "mean"])
def test_loss_and_gradients_are_the_library_s(folders, family, tie, pooler):
    method = tsdae(folders[family], pooler, tie=tie)
    batch = batch_of(method, rows_of(folders[family]), more_padding=2)
    assert len({*batch.mask.sum(1).tolist()}) > 3, "rows are padded"
    loss, weights = library_loss(folders[family], method)
    expected = loss([features(batch, 0), features(batch, 1)], None)
    expected.backward()
    term = loss_of(method, batch)
    term.value.backward()
    assert term.value.item() == pytest.approx(float(expected.detach()), abs=1e-10)
    compared, every = 0, dict(method.named_parameters(remove_duplicate=False))
    for name, weight in every.items():
        if not weight.requires_grad:
            theirs = weights[name].grad
            assert theirs is None or float(theirs.abs().max()) < 1e-12, name  # queries and keys of one key
            continue
        assert weight.grad is not None and weights[name].grad is not None, name
        assert float((weight.grad - weights[name].grad).abs().max()) < 1e-10, name
        compared += float(weight.grad.abs().max()) > 1e-6
    assert compared > 60


def test_the_library_s_gradient_is_of_another_decoder_too(folders, tmp_path):
    """A decoder of other depth, with the encoder's vocabulary."""
    other = masked_lm(tmp_path / "other", "bert", seed=5, num_hidden_layers=1)
    method = tsdae(folders["bert"], tie=False, decoder=str(other))
    batch = batch_of(method, rows_of(folders["bert"]))
    loss, weights = library_loss(folders["bert"], method, other)
    expected = loss([features(batch, 0), features(batch, 1)], None)
    expected.backward()
    term = loss_of(method, batch)
    term.value.backward()
    assert term.value.item() == pytest.approx(float(expected.detach()), abs=1e-10)
    for name, weight in method.named_parameters():
        if weight.requires_grad:
            assert float((weight.grad - weights[name].grad).abs().max()) < 1e-10, name
    assert {*method.inputs()} == {"decoder"} and tsdae(folders["bert"]).inputs() == {}


def test_a_decoder_of_another_vocabulary_writes_its_own_tokens(folders):
    method = tsdae(folders["bert"], tie=False, decoder=str(folders["roberta"]))
    rows = rows_of(folders["bert"])
    targets = method.views(rows, np.random.default_rng(0)).tokens[1]
    texts = method.decoder.tokenizer.batch_decode([list(ids) for ids in targets], skip_special_tokens=True)
    assert [text.split() for text in texts[:2]] == [text.split() for text in TEXTS[:2]]
    assert [list(map(int, ids)) for ids in targets] != [list(map(int, ids)) for ids in rows.ids("sentence")]
    assert float(loss_of(method, batch_of(method, rows)).value) > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_tied_parameters_are_the_same_objects(folders, family):
    method = tsdae(folders[family])
    encoder = dict(method.backbone.model.named_parameters())
    decoder = dict(method.decoder.model.named_parameters())
    assert all(decoder[name] is weight for name, weight in encoder.items())
    assert all("crossattention" in name for name in decoder.keys() - encoder.keys())
    assert method.decoder.head.decoder.weight is method.backbone.model.get_input_embeddings().weight
    untied = tsdae(folders[family], tie=False)
    encoder, decoder = (dict(part.named_parameters()) for part in (untied.backbone.model, untied.decoder.model))
    assert not any(decoder[name] is weight for name, weight in encoder.items())
    assert all(torch.equal(decoder[name], weight) for name, weight in encoder.items())
    assert untied.decoder.head.decoder.weight is untied.decoder.model.get_input_embeddings().weight
    copied = copy.deepcopy(method)
    assert dict(copied.decoder.model.named_parameters())["encoder.layer.0.output.dense.weight"] is dict(
        copied.backbone.model.named_parameters())["encoder.layer.0.output.dense.weight"]


@pytest.mark.parametrize("tie", [True, False])
def test_an_encoder_that_was_changed_in_memory_keeps_its_values(folders, tie):
    """The library starts the encoder anew from its checkpoint."""
    backbone = copy.deepcopy(tsdae(folders["bert"]).backbone).float()
    with torch.no_grad():
        for weight in backbone.model.parameters():
            weight += 1
    before = [weight.clone() for weight in backbone.model.parameters()]
    method = TSDAE(backbone, TSDAEOptions(tie=tie))
    assert all(torch.equal(a, b) for a, b in zip(before, method.backbone.model.parameters(), strict=True))
    decoder = dict(method.decoder.model.named_parameters())
    assert all(torch.equal(decoder[name], weight) for name, weight in method.backbone.model.named_parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_queries_and_keys_of_the_cross_attention_do_nothing(folders, family):
    method = tsdae(folders[family])
    batch = batch_of(method, rows_of(folders[family]))
    idle = [weight for name, weight in method.named_parameters()
            if "crossattention.self.query" in name or "crossattention.self.key" in name]
    assert len(idle) == 8 and not any(weight.requires_grad for weight in idle)
    for weight in idle:
        weight.requires_grad_(True)
    before = loss_of(method, batch).value
    before.backward()
    assert all(float(weight.grad.abs().max()) < 1e-14 for weight in idle)
    with torch.no_grad():
        for weight in idle:
            weight.normal_()
    assert float(loss_of(method, batch).value) == pytest.approx(before.item(), abs=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_padding_changes_nothing(folders, family, engine):
    method = tsdae(folders[family])
    method.backbone.engine = engine
    values = []
    for more in (0, 5):
        term = loss_of(method, batch_of(method, rows_of(folders[family]), more_padding=more))
        values.append((float(term.value), term.count))
    assert values[0][0] == pytest.approx(values[1][0], abs=1e-12) and values[0][1] == values[1][1]


def test_without_values_the_cross_attention_ignores_the_vector(folders):
    method = tsdae(folders["bert"])
    one = batch_of(method, rows_of(folders["bert"]), seed=0)
    other = copy.copy(one)
    other.ids, other.mask = one.ids.clone(), one.mask.clone()
    n = len(one)
    other.ids[:n], other.mask[:n] = one.ids[:n].roll(1, 0), one.mask[:n].roll(1, 0)
    assert float(loss_of(method, one).value) != pytest.approx(float(loss_of(method, other).value), abs=1e-4)
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if "crossattention.self.value.weight" in name:
                weight.zero_()
    assert float(loss_of(method, one).value) == pytest.approx(float(loss_of(method, other).value), abs=1e-12)


def losses_of(method, vectors, ids, mask):
    """(n,) the summed loss of each target."""
    counted = mask[:, 1:].bool()
    logits = method.decoder(vectors, ids[:, :-1], counted)
    each = torch.nn.functional.cross_entropy(logits, ids[:, 1:][counted], reduction="none")
    return torch.stack([part.sum() for part in each.split(counted.sum(1).tolist())])


def test_two_swapped_sources_swap_their_targets_losses_only(folders):
    method = tsdae(folders["bert"])
    batch = batch_of(method, rows_of(folders["bert"]))
    n = len(batch)
    ids, mask = batch.ids[n:].clone(), batch.mask[n:].clone()
    ids[1], mask[1] = ids[0], mask[0]  # one target twice: swapped vectors then swap the losses
    vectors = method.backbone.pooled(batch.ids[:n], batch.mask[:n])
    before = losses_of(method, vectors, ids, mask)
    after = losses_of(method, vectors[[1, 0, *range(2, n)]], ids, mask)
    assert before[:2].tolist() == pytest.approx(after[:2].flip(0).tolist(), abs=1e-10)
    assert before[2:].tolist() == pytest.approx(after[2:].tolist(), abs=1e-10)
    assert abs(float(before[0] - before[1])) > 1e-3


def test_the_loss_is_a_mean_over_tokens_not_over_sentences(folders):
    method = tsdae(folders["bert"])
    batch = batch_of(method, rows_of(folders["bert"]))
    n = len(batch)
    vectors = method.backbone.pooled(batch.ids[:n], batch.mask[:n])
    summed = losses_of(method, vectors, batch.ids[n:], batch.mask[n:])
    counts = batch.mask[n:].sum(1) - 1  # all but [CLS]; [SEP] counts
    term = loss_of(method, batch)
    assert term.value.item() == pytest.approx(float(summed.sum() / counts.sum()), abs=1e-10)
    assert term.value.item() != pytest.approx(float((summed / counts).mean()), abs=1e-3)
    assert method.counts(batch) == {"reconstruction": term.count} == {"reconstruction": int(counts.sum())}


def test_a_word_is_written_from_those_before_it_alone(folders):
    method = tsdae(folders["bert"])
    batch = batch_of(method, rows_of(folders["bert"]))
    n = len(batch)
    vectors = method.backbone.pooled(batch.ids[:n], batch.mask[:n])
    ids = batch.ids[n:]
    first = torch.zeros_like(ids[:, :-1], dtype=torch.bool)
    first[:, 1] = True
    changed = ids.clone()
    changed[:, 2:] = 7
    expected = method.decoder(vectors, ids[:, :-1], first)
    assert torch.allclose(expected, method.decoder(vectors, changed[:, :-1], first), atol=1e-12)
    changed[:, 1] = 7
    assert not torch.allclose(expected, method.decoder(vectors, changed[:, :-1], first), atol=1e-3)


def test_dropout_acts_in_encoder_and_decoder(folders):
    method = tsdae(folders["bert"], dropout=0.1)
    batch = batch_of(method, rows_of(folders["bert"]))
    n = len(batch)
    with torch.no_grad():
        vectors = [method.backbone.pooled(batch.ids[:n], batch.mask[:n]) for _ in range(2)]
        assert not torch.equal(*vectors)
        losses = [losses_of(method, vectors[0], batch.ids[n:], batch.mask[n:]) for _ in range(2)]
        assert not torch.equal(*losses)
        method.eval()
        losses = [losses_of(method, vectors[0], batch.ids[n:], batch.mask[n:]) for _ in range(2)]
        assert torch.equal(*losses)


def refused(kind, config, folder):
    tok = tokenizer("bert")
    kind(config(vocab_size=len(tok))).save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind, config, sizes, message", [
    (DistilBertForMaskedLM, DistilBertConfig, {"dim": 32, "hidden_dim": 48, "n_layers": 1, "n_heads": 4}, "distilbert"),
    (MPNetForMaskedLM, MPNetConfig, {**SHAPE}, "mpnet"),
])
def test_a_model_that_is_no_decoder_is_refused_by_one_line(tmp_path, kind, config, sizes, message):
    folder = refused(kind, lambda **more: config(**sizes, **more), tmp_path / "model")
    with pytest.raises(StsbenchError, match=f"^tsdae has no decoder for model: .* {message}; take a BERT") as error:
        make(TSDAE, folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("options", "message"), [
    ({"decoder": "x"}, "options.decoder x has no effect with tie true: it goes with tie false; leave it at null"),
    ({"unit": "subword", "detokenise": "join"}, "options.detokenise join has no effect with unit subword: it goes with"),
])
def test_options_without_an_effect_are_refused(options, message):
    with pytest.raises(StsbenchError) as error:
        validate(TSDAEOptions, options, "recipe", "options.")
    assert str(error.value).startswith(f"recipe: {message}") and "\n" not in str(error.value)


def test_models_that_do_not_fit_are_refused(folders, tmp_path):
    def message(**options):
        with pytest.raises(StsbenchError) as error:
            make(TSDAE, folders["bert"], options)
        assert "\n" not in str(error.value)
        return str(error.value)

    tok = tokenizer("bert")
    wide = BertForMaskedLM(BertConfig(**{**SHAPE, "hidden_size": 64}, vocab_size=len(tok), max_position_embeddings=64))
    wide.save_pretrained(tmp_path / "wide")
    tok.save_pretrained(tmp_path / "wide")
    wider = message(tie=False, decoder=str(tmp_path / "wide"))
    assert wider.startswith(f"options.decoder {tmp_path / 'wide'} has the width 64, and bert 32")
    assert "options.decoder" in message(tie=False, decoder=str(tmp_path / "none"))


def test_a_checkpoint_without_a_language_model_head_gets_one_and_says_so(tmp_path):
    tok = tokenizer("bert")
    whole = BertForMaskedLM(BertConfig(**SHAPE, vocab_size=len(tok), max_position_embeddings=64))
    whole.bert.save_pretrained(tmp_path / "plain")
    tok.save_pretrained(tmp_path / "plain")
    method = make(TSDAE, tmp_path / "plain")
    assert method.notes() == ["plain stores no masked-LM head: a new one starts from random weights, its output layer from "
                              "the embeddings"]
    term = loss_of(method, batch_of(method, MemoryRows(tmp_path / "plain", {"sentence": TEXTS})))
    term.value.backward()
    assert all(weight.grad is not None for weight in method.parameters() if weight.requires_grad)


def test_an_adapter_is_merged_and_the_decoder_has_it_too(folders, tmp_path):
    """The library would read the base alone, and the encoder would lose what the adapter learned."""
    low_rank = adapter(tmp_path / "adapter", folders["bert"])
    for path in folders["bert"].glob("tokenizer*"):
        shutil.copy(path, low_rank)
    method, plain = (make(TSDAE, folder) for folder in (low_rank, folders["bert"]))
    name = "encoder.layer.0.attention.self.query.weight"
    merged, base = (dict(each.backbone.model.named_parameters())[name] for each in (method, plain))
    assert not torch.allclose(merged, base, atol=1e-3)
    assert dict(method.decoder.model.named_parameters())[name] is merged
    assert method.notes() == [] and loss_of(method, batch_of(method, rows_of(folders["bert"]))).count > 0
