"""Contrastive Tension: which pairs its encoders read, sentence-transformers' losses, and the encoder that is kept (in a run:
test_method_contract.py). TSDAE against sentence-transformers' own loss, and what its decoder does and does not see; its
noise: what is a word, what is deleted and how often, and what the text looks like afterwards."""

import copy

import numpy as np
import pytest
import tiny_models
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, tokens
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer import losses as library
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from stsbench.methods.ct.method import ContrastiveTension, pair_up
from stsbench.methods.tsdae.method import TSDAE, damaged, damaged_ids, joined, keep, pieces
from stsbench.training.engine.optimiser import make_optimiser
from stsbench.training.recipes.sections import TrainingSettings

TEXTS = tiny_models.sentences(40, longest=9, seed=3)
SIZES = {("fresh", 1): 3, ("fresh", 7): 15, ("consecutive", 2): 5, ("anchor", 3): 4}  # negatives, k -> sentences of a group


@pytest.fixture
def folder(encoders):
    return encoders["bert"]


def ct(folder, *, apart=True, **options):
    """The method in float64; apart: model1 a little away from where both start, so that a mix-up shows."""
    method = make(ContrastiveTension, folder, options, pooler="mean")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in method.first.parameters():
            weight += apart * 0.05 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return method


def rows(folder, count):
    return MemoryRows(folder, {"sentence": TEXTS[:count]})


def drawn(texts, negatives, k):
    """[(what model1 reads, what model2 reads, label)] of groups that follow one another."""
    texts, pairs = list(texts), []
    while texts:
        sentence = texts.pop(0)
        if negatives == "fresh":
            first, second = ([texts.pop(0) for _ in range(k)] for _ in range(2))
            negative = zip(first, second, strict=True)
        else:
            negative = [(texts.pop(0) if negatives == "consecutive" else sentence, texts.pop(0)) for _ in range(k)]
        pairs += [(sentence, sentence, 1), *((a, b, 0) for a, b in negative)]
    return pairs


@pytest.mark.parametrize(("negatives", "k"), SIZES)
def test_which_pairs_each_encoder_reads(folder, negatives, k):
    method, size = ct(folder, negatives=negatives, k=k), SIZES[negatives, k]
    assert ContrastiveTension.needs(method.options).group_size == size
    batch = batch_of(method, rows(folder, 2 * size), more_padding=3)
    assert (len(batch), batch.views, batch.labels.tolist()) == (2 * (k + 1), 2, ([1] + [0] * k) * 2)
    pairs = drawn(TEXTS[: 2 * size], negatives, k)
    first, second = tokens(folder, [pair[0] for pair in pairs]), tokens(folder, [pair[1] for pair in pairs])
    rows_of_batch = [ids[: int(mask.sum())].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]
    assert rows_of_batch == [*first, *second] and batch.labels.tolist() == [label for *_, label in pairs]
    with pytest.raises(ValueError, match="whole groups"):
        pair_up(size + 1, method.options)


def library_model(folder, pooler="mean"):
    transformer = Transformer(str(folder), max_seq_length=LIMIT)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode=pooler)
    return SentenceTransformer(modules=[transformer, pooling], device="cpu").double().eval()


def features(method, texts):
    return dict(method.backbone.tokenizer.pad({"input_ids": method.backbone.tokenise(list(texts))}, return_tensors="pt"))


def test_the_library_s_pairs_have_its_loss_and_its_gradients(folder):
    """Its loader's pairs, its sum, its two copies of a model."""
    loader = library.ContrastiveTensionDataLoader(list(TEXTS[:30]), batch_size=16, pos_neg_ratio=8)
    (examples,) = list(loader)
    assert [(*example.texts, example.label) for example in examples] == drawn(loader.sentences, "consecutive", 7)
    method = ct(folder, apart=False, negatives="consecutive", reduction="sum")
    term = method(batch_of(method, MemoryRows(folder, {"sentence": loader.sentences})))["tension"]
    (term.weight * term.value).backward()
    theirs = library.ContrastiveTensionLoss(library_model(folder))
    sides = [features(method, texts) for texts in zip(*(example.texts for example in examples), strict=True)]
    loss = theirs(sides, torch.tensor([example.label for example in examples]))
    loss.backward()
    assert abs(term.weight * term.value.item() - loss.item()) < 1e-8
    for ours, model in ((method.first, theirs.model1), (method.backbone, theirs.model2)):
        expected = dict(model[0].auto_model.named_parameters())
        for name, weight in ours.model.named_parameters():
            assert (weight.grad - expected[name].grad).abs().max() < 1e-8, name


@pytest.mark.parametrize(("options", "more"), [
    ({}, {"scale": 1, "similarity_fct": util.dot_score}), ({"similarity": "cosine", "scale": 20.0}, {})])
def test_the_library_s_loss_over_the_batch_and_its_learned_scale(folder, options, more):
    method = ct(folder, apart=False, objective="in-batch", **options)
    value = method(batch_of(method, rows(folder, 6)))["in_batch"].value
    value.backward()
    theirs = library.ContrastiveTensionLossInBatchNegatives(library_model(folder), **more).double()
    loss = theirs([features(method, TEXTS[:6])], torch.zeros(6))
    loss.backward()
    assert abs(value.item() - loss.item()) < 1e-8
    assert abs(method.log_scale.grad.item() - theirs.logit_scale.grad.item()) < 1e-8
    decayed = [group["weight_decay"] for group in make_optimiser(method, TrainingSettings(weight_decay=0.01)).param_groups
               if any(weight is method.log_scale for weight in group["params"])]
    assert decayed == [0.01]  # as in the library


@pytest.mark.parametrize(("keep", "expected"), [("best", "backbone"), ("model2", "backbone"), ("model1", "first")])
def test_the_encoder_that_is_kept_is_model1_only_once_it_is_trained(folder, keep, expected):
    """A stage of labelled rows (recipe.semi) trains model2 alone, which the next begins with; selection.over all may keep
    its weights."""
    method = ct(folder, keep=keep)
    assert all(kept.model is method.backbone.model for kept in (method.inference(), *method.candidates().values()))
    labelled = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    method.start_stage("main")
    first, second = method.first.state_dict(), method.backbone.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in second)
    assert method.inference().model is getattr(method, expected).model and method.inference().pooler == "mean"
    assert [kept.model for kept in method.candidates().values()] == (
        [method.backbone.model, method.first.model] if keep == "best" else [])
    for name, encoder in (("model1", method.first), ("model2", method.backbone)):
        method.choose(name)
        assert method.inference().model is encoder.model and int(method.state_dict()["kept"]) == int(name[-1])
    method.choose("model1")
    method.load_state_dict(labelled)
    assert method.inference().model is method.backbone.model


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
    model, tie = library_model(folder, method.backbone.pooler), method.options.tie
    loss = library.DenoisingAutoEncoderLoss(model, None if tie else str(decoder or folder), tie_encoder_decoder=tie).double()
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


def features_of(batch, view):
    """Of one view, padded to its own longest row as the library's collator does."""
    rows = slice(view * len(batch), (view + 1) * len(batch))
    longest = int(batch.mask[rows].sum(1).max())
    return {"input_ids": batch.ids[rows, :longest], "attention_mask": batch.mask[rows, :longest]}


def check_library(folder, method, decoder=None):
    """Value and gradients are the library's; how many of these are above 1e-6."""
    batch = batch_of(method, rows(folder, 6), more_padding=2)
    assert len({*batch.mask.sum(1).tolist()}) > 3, "rows are padded"
    loss, weights = library_loss(folder, method, decoder)
    expected = loss([features_of(batch, 0), features_of(batch, 1)], None)
    expected.backward()
    (term,) = method(batch).values()
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


@pytest.mark.parametrize(("family", "tie", "pooler"), [("roberta", True, "cls"), ("bert", False, "mean")])
def test_loss_and_gradients_are_the_library_s(masked_lms, family, tie, pooler):
    method = tsdae(masked_lms[family], pooler, tie=tie)
    method.backbone.engine = "padded" if pooler == "mean" else "packed"
    assert check_library(masked_lms[family], method) > 60


def test_a_decoder_of_another_depth_has_the_library_s_loss_too_and_is_an_input(masked_lms, tmp_path):
    other = tiny_models.masked_lm(tmp_path / "other", "bert", seed=5, num_hidden_layers=1)
    method = tsdae(masked_lms["bert"], tie=False, decoder=str(other))
    assert check_library(masked_lms["bert"], method, other)
    assert {*method.inputs()} == {"decoder"} and tsdae(masked_lms["bert"]).inputs() == {}


def test_a_decoder_of_another_vocabulary_writes_its_own_tokens(masked_lms, tmp_path):
    method = tsdae(masked_lms["bert"], tie=False, decoder=str(tiny_models.masked_lm(tmp_path / "roberta", "roberta")))
    read = rows(masked_lms["bert"], 6)
    targets = method.views(read, np.random.default_rng(0)).tokens[1]
    texts = method.decoder.tokenizer.batch_decode([list(ids) for ids in targets], skip_special_tokens=True)
    assert [text.split() for text in texts[:2]] == [text.split() for text in TEXTS[:2]]
    assert [list(map(int, ids)) for ids in targets] != [list(map(int, ids)) for ids in read.ids("sentence")]
    (term,) = method(batch_of(method, read)).values()
    assert float(term.value) > 0


def test_an_encoder_that_was_changed_in_memory_keeps_its_values(masked_lms):
    """The library starts the encoder anew from its checkpoint."""
    backbone = copy.deepcopy(tsdae(masked_lms["bert"]).backbone).float()
    with torch.no_grad():
        for weight in backbone.model.parameters():
            weight += 1
    before = [weight.clone() for weight in backbone.model.parameters()]
    method = TSDAE(backbone, TSDAE.Options())
    assert all(torch.equal(a, b) for a, b in zip(before, method.backbone.model.parameters(), strict=True))
    decoder = dict(method.decoder.model.named_parameters())
    assert all(torch.equal(decoder[name], weight) for name, weight in method.backbone.model.named_parameters())


def test_words_are_those_of_the_penn_treebank():
    for text, words in (
            ("He didn't pay $1,000 (or 3.5 %): \"Why?\"", "He did n't pay $ 1,000 ( or 3.5 % ) : \" Why ? \""),
            ("Mr. Reed's well-known cats' bowl, U.S. made...", "Mr. Reed 's well-known cats ' bowl , U.S. made ..."),
            ("It's 'fine', they'll say -- at 10:30.", "It 's ' fine ' , they 'll say -- at 10:30 ."), ("", ""), ("  \t", ""),
            ("Öl, ça va?", "Öl , ça va ?"), ("...", "..."), ("a", "a")):
        assert [piece.text for piece in pieces(text)] == words.split()


def test_nothing_deleted_is_the_text_again_and_punctuation_is_joined_where_its_word_is_gone():
    rng = np.random.default_rng(0)
    for text in ("He didn't pay (or not): \"Why?\"", "Mr. Reed's cats' bowl, U.S. made...",
                 "A [big] dog; 'red', 5% of $3.", "She said: “No.”"):
        assert damaged(text, 0.0, "treebank-like", rng) == text
        assert damaged(text, 0.0, "join", rng) == " ".join(piece.text for piece in pieces(text))
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
    source, target = method.views(rows(masked_lms["bert"], 6), rng).tokens
    assert [list(map(int, ids)) for ids in target] == tokens(masked_lms["bert"], TEXTS[:6])
    assert sum(map(len, source)) < sum(map(len, target)) and min(map(len, source)) >= 3
