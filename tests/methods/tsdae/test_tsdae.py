"""TSDAE against sentence-transformers' own loss, and what its decoder does and does not see. TSDAE's noise: what is a
word, what is deleted and how often, and what the text looks like afterwards."""

import copy
import shutil

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, tokens
from model_folders import adapter
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tiny_models import masked_lm

from stsbench.methods.tsdae.method import TSDAE, damaged, damaged_ids, joined, keep, pieces
from stsbench.methods.tsdae.options import TSDAEOptions

TEXTS = [
    "the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue",
    "the dog runs with a cat",
]


def rows_of(folder, texts=TEXTS):
    return MemoryRows(folder, {"sentence": texts})


def tsdae(folder, pooler="cls", dropout=0.0, **options):
    """In float64 and train mode, the cross-attention with biases that a forgotten one would show by."""
    method = make(TSDAE, folder, options, pooler=pooler, dropout=dropout)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if "crossattention" in name:
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return method


def library_loss(folder, method, decoder=None):
    """The library's loss in float64, without dropout, and decoder weights equal to the method's, by the method's names."""
    words = Transformer(str(folder), max_seq_length=LIMIT)
    pooling = Pooling(method.backbone.width, pooling_mode=method.backbone.pooler)
    model = SentenceTransformer(modules=[words, pooling], device="cpu")
    tie = method.options.tie
    loss = DenoisingAutoEncoderLoss(model, None if tie else str(decoder or folder), tie_encoder_decoder=tie).double()
    whole = loss.decoder
    base = getattr(whole, whole.base_model_prefix)
    weights = {f"decoder.model.{name}": weight for name, weight in base.named_parameters(remove_duplicate=False)}
    owners = dict(whole.named_children())
    for part in method.decoder.head.parts:
        named = owners[part].named_parameters(remove_duplicate=False)
        weights |= {f"decoder.head.parts.{part}.{name}": weight for name, weight in named}
    every = dict(method.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, weight in weights.items():
            if name in every:
                weight.copy_(every[name])
    encoder = model[0].auto_model if hasattr(model[0], "auto_model") else model[0].model
    weights |= {f"backbone.model.{name}": weight for name, weight in encoder.named_parameters() if "pooler" not in name}
    for module in loss.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return loss.eval(), weights


def features(batch, view):
    """Of one view, padded to its own longest row as the library's collator does."""
    rows = slice(view * len(batch), (view + 1) * len(batch))
    longest = int(batch.mask[rows].sum(1).max())
    return {"input_ids": batch.ids[rows, :longest], "attention_mask": batch.mask[rows, :longest]}


def loss_of(method, batch):
    (term,) = method(batch).values()
    return term


def check_library(folder, method, decoder=None):
    """Value and gradients are the library's; how many of these are above 1e-6."""
    batch = batch_of(method, rows_of(folder), more_padding=2)
    assert len({*batch.mask.sum(1).tolist()}) > 3, "rows are padded"
    loss, weights = library_loss(folder, method, decoder)
    expected = loss([features(batch, 0), features(batch, 1)], None)
    expected.backward()
    term = loss_of(method, batch)
    term.value.backward()
    assert term.value.item() == pytest.approx(float(expected.detach()), abs=1e-10)
    compared = 0
    for name, weight in method.named_parameters(remove_duplicate=False):
        theirs = weights[name].grad
        if not weight.requires_grad:
            assert theirs is None or float(theirs.abs().max()) < 1e-12, name  # queries and keys of one key
            continue
        assert float((weight.grad - theirs).abs().max()) < 1e-10, name
        compared += float(weight.grad.abs().max()) > 1e-6
    return compared


@pytest.mark.parametrize(("family", "tie", "pooler"), [
    ("roberta", True, "cls"), ("bert", False, "mean")])
def test_loss_and_gradients_are_the_library_s(masked_lms, family, tie, pooler):
    method = tsdae(masked_lms[family], pooler, tie=tie)
    method.backbone.engine = "padded" if pooler == "mean" else "packed"
    assert check_library(masked_lms[family], method) > 60


def test_a_decoder_of_another_depth_has_the_library_s_loss_too_and_is_an_input(masked_lms, tmp_path):
    other = masked_lm(tmp_path / "other", "bert", seed=5, num_hidden_layers=1)
    method = tsdae(masked_lms["bert"], tie=False, decoder=str(other))
    assert check_library(masked_lms["bert"], method, other)
    assert {*method.inputs()} == {"decoder"} and tsdae(masked_lms["bert"]).inputs() == {}


def test_a_decoder_of_another_vocabulary_writes_its_own_tokens(masked_lms, tmp_path):
    method = tsdae(masked_lms["bert"], tie=False, decoder=str(masked_lm(tmp_path / "roberta", "roberta")))
    rows = rows_of(masked_lms["bert"])
    targets = method.views(rows, np.random.default_rng(0)).tokens[1]
    texts = method.decoder.tokenizer.batch_decode([list(ids) for ids in targets], skip_special_tokens=True)
    assert [text.split() for text in texts[:2]] == [text.split() for text in TEXTS[:2]]
    assert [list(map(int, ids)) for ids in targets] != [list(map(int, ids)) for ids in rows.ids("sentence")]
    assert float(loss_of(method, batch_of(method, rows)).value) > 0


def test_an_encoder_that_was_changed_in_memory_keeps_its_values(masked_lms):
    """The library starts the encoder anew from its checkpoint."""
    backbone = copy.deepcopy(tsdae(masked_lms["bert"]).backbone).float()
    with torch.no_grad():
        for weight in backbone.model.parameters():
            weight += 1
    before = [weight.clone() for weight in backbone.model.parameters()]
    method = TSDAE(backbone, TSDAEOptions())
    assert all(torch.equal(a, b) for a, b in zip(before, method.backbone.model.parameters(), strict=True))
    decoder = dict(method.decoder.model.named_parameters())
    assert all(torch.equal(decoder[name], weight) for name, weight in method.backbone.model.named_parameters())


def test_an_adapter_is_merged_and_the_decoder_has_it_too(masked_lms, tmp_path):
    """The library would read the base alone, and the encoder would lose what the adapter learned."""
    low_rank = adapter(tmp_path / "adapter", masked_lms["bert"])
    for path in masked_lms["bert"].glob("tokenizer*"):
        shutil.copy(path, low_rank)
    method, plain = (make(TSDAE, folder) for folder in (low_rank, masked_lms["bert"]))
    name = "encoder.layer.0.attention.self.query.weight"
    merged, base = (dict(each.backbone.model.named_parameters())[name] for each in (method, plain))
    assert not torch.allclose(merged, base, atol=1e-3)
    assert dict(method.decoder.model.named_parameters())[name] is merged
    assert method.notes() == [] and loss_of(method, batch_of(method, rows_of(masked_lms["bert"]))).count > 0


SENTENCES = {
    "He didn't pay $1,000 (or 3.5 %): \"Why?\"": [
        "He", "did", "n't", "pay", "$", "1,000", "(", "or", "3.5", "%", ")", ":", '"', "Why", "?", '"'],
    "Mr. Reed's well-known cats' bowl, U.S. made...": [
        "Mr.", "Reed", "'s", "well-known", "cats", "'", "bowl", ",", "U.S.", "made", "..."],
    "It's 'fine', they'll say -- at 10:30.": [
        "It", "'s", "'", "fine", "'", ",", "they", "'ll", "say", "--", "at", "10:30", "."],
    "": [], "  \t": [], "Öl, ça va?": ["Öl", ",", "ça", "va", "?"], "...": ["..."], "a": ["a"],
}


def test_words_are_those_of_the_penn_treebank():
    for text, words in SENTENCES.items():
        assert [piece.text for piece in pieces(text)] == words


@pytest.mark.parametrize("text", [
    "He didn't pay (or not): \"Why?\"", "Mr. Reed's cats' bowl, U.S. made...", "A [big] dog; 'red', 5% of $3.",
    "She said: “No.”",
])
def test_nothing_deleted_is_the_text_again(text):
    rng = np.random.default_rng(0)
    assert damaged(text, 0.0, "treebank-like", rng) == text
    assert damaged(text, 0.0, "join", rng) == " ".join(piece.text for piece in pieces(text))


def test_punctuation_is_joined_where_its_word_is_gone():
    every = pieces("He said (today): \"I don't know.\"")
    without = {"said", "today", "do", "I"}
    assert joined([piece for piece in every if piece.text not in without], "treebank-like") == "He (): \"n't know.\""


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_so_many_are_deleted(share):
    """40,000 words in sentences of 20: the share that is kept, within four standard deviations."""
    rng = np.random.default_rng(1)
    kept = sum(len(keep(20, share, rng)) for _ in range(2000)) / 40_000
    certain = share**20 / 20  # a sentence without a word gets one
    assert kept == pytest.approx(1 - share + certain, abs=4 * (share * (1 - share) / 40_000) ** 0.5)


def test_one_word_stays_and_any_of_them_may():
    rng = np.random.default_rng(2)
    draws = [damaged("a dog runs", 0.999, "treebank-like", rng) for _ in range(600)]
    assert {*draws} == {"a", "dog", "runs"} and min(map(draws.count, {*draws})) > 150
    assert damaged("  ", 0.6, "treebank-like", rng) == "  " and keep(0, 0.6, rng).tolist() == []


def test_sub_words_are_deleted_and_special_tokens_stay(masked_lms):
    ids = np.array([1, 9, 10, 11, 12, 2], np.int32)
    rng = np.random.default_rng(4)
    draws = [damaged_ids(ids, np.array([0, 1, 2, 3]), 0.6, rng).tolist() for _ in range(400)]
    assert all(row[0] == 1 and row[-1] == 2 and 3 <= len(row) <= 6 and row == [*sorted(row[:-1]), 2] for row in draws)
    assert {token for row in draws for token in row} == {*ids.tolist()}
    assert damaged_ids(np.array([1, 2], np.int32), np.array([1, 2]), 0.6, rng).tolist() == [1, 2]
    method = tsdae(masked_lms["bert"], unit="subword")
    rows = rows_of(masked_lms["bert"])
    source, target = method.views(rows, rng).tokens
    assert [list(map(int, ids)) for ids in target] == tokens(masked_lms["bert"], TEXTS)
    assert sum(map(len, source)) < sum(map(len, target)) and min(map(len, source)) >= 3
