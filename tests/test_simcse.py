"""SimCSE's loss under every option against loops over texts encoded one at a time by transformers."""

import math

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, logits, make, masked_lm_folder, states, tokens, total
from tiny_models import build, sentences, tokenizer
from transformers import AutoTokenizer

from stsbench.data import augment
from stsbench.errors import DataError, StsbenchError
from stsbench.methods.simcse.method import SimCSE
from stsbench.methods.simcse.options import SimCSEOptions
from stsbench.methods.simcse.replacement import words_to_replace

TEXTS = sentences(60, longest=9, seed=5)
PLAIN = {"sentence": TEXTS[:5]}
PAIRS = {"anchor": TEXTS[:5], "positive": TEXTS[5:10]}
TRIPLETS = {**PAIRS, "negative": TEXTS[10:15]}
QUADRUPLES = {**TRIPLETS, "negative2": TEXTS[15:20]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return masked_lm_folder(tmp_path_factory.mktemp("simcse") / "tiny-mlm")


@pytest.fixture(scope="module")
def headless(tmp_path_factory):
    return build(tmp_path_factory.mktemp("simcse") / "tiny-bert")


def simcse(folder, *, dropout=0.0, pooler="cls", **options):
    return make(SimCSE, folder, options, dropout=dropout, pooler=pooler)


def loss(method, rows, **batch):
    return method(batch_of(method, rows, **batch))["contrastive"].value


# --- the independent implementation: lists of floats, loops, math ---


def heads(vectors, dense):
    """tanh(W x + b), entry by entry; without a dense layer the vectors themselves."""
    rows = [vector.tolist() for vector in vectors]
    if dense is None:
        return rows
    weight, bias = dense.weight.tolist(), dense.bias.tolist()
    return [[math.tanh(sum(w * x for w, x in zip(line, row, strict=True)) + b)
             for line, b in zip(weight, bias, strict=True)] for row in rows]


def naive_info_nce(queries, keys, negatives=(), temperature=0.05, similarity="cosine", alpha=1.0):
    def likeness(a, b):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot if similarity == "dot" else dot / (math.hypot(*a) * math.hypot(*b)) / temperature

    losses = []
    for i, query in enumerate(queries):
        scores = [likeness(query, key) for key in keys]
        weights = [1.0] * len(keys)
        for block in negatives:
            scores += [likeness(query, key) for key in block]
            weights += [alpha if i == j else 1.0 for j in range(len(block))]
        top = max(scores)
        partition = sum(w * math.exp(score - top) for w, score in zip(weights, scores, strict=True))
        losses.append(math.log(partition) + top - scores[i])
    return sum(losses) / len(losses)


def cls(folder, texts, dense=None):
    return heads([state[0] for state in states(folder, tokens(folder, texts))], dense)


def same(value, expected):
    assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


# --- the contrastive term ---


@pytest.mark.parametrize("options", [{}, {"temperature": 0.2}, {"similarity": "dot"}, {"head": "mlp"}, {"head": "none"}])
def test_plain_sentences(folder, options):
    method = simcse(folder, **options)
    dense = None if options.get("head") == "none" else method.head.dense
    vectors = cls(folder, PLAIN["sentence"], dense)
    rest = {key: value for key, value in options.items() if key != "head"}
    same(loss(method, MemoryRows(folder, PLAIN)), naive_info_nce(vectors, vectors, **rest))


@pytest.mark.parametrize(("data", "options"), [
    (PAIRS, {}), (TRIPLETS, {}), (TRIPLETS, {"alpha": 0.5}), (QUADRUPLES, {"alpha": 2.0}),
    (QUADRUPLES, {"similarity": "dot"}),
])  # fmt: skip
def test_pairs_and_hard_negatives(folder, data, options):
    method = simcse(folder, **options)
    queries, keys, *negatives = [cls(folder, texts, method.head.dense) for texts in data.values()]
    same(loss(method, MemoryRows(folder, data)), naive_info_nce(queries, keys, negatives, **options))


@pytest.mark.parametrize("pooler", ["mean", "first_last:layer1", "max"])
def test_other_poolers_have_no_head(folder, pooler):
    method = simcse(folder, pooler=pooler, head="none")
    model = method.backbone.model.eval()
    vectors = []
    with torch.no_grad():
        for row in tokens(folder, PLAIN["sentence"]):
            hidden = [state[0] for state in model(torch.tensor([row]), output_hidden_states=True).hidden_states]
            means = [state.mean(0) for state in hidden]
            options = {"mean": means[-1], "first_last:layer1": (means[1] + means[-1]) / 2, "max": hidden[-1].amax(0)}
            vectors.append(options[pooler].tolist())
    same(loss(method, MemoryRows(folder, PLAIN)), naive_info_nce(vectors, vectors))
    with pytest.raises(StsbenchError, match=r"options\.head mlp_train_only stands on the pooler cls"):
        simcse(folder, pooler=pooler)


def test_a_batch_of_one_sentence_over_and_over_has_the_loss_of_a_guess(folder):
    rows = MemoryRows(folder, {"sentence": [TEXTS[0]] * 7})
    same(loss(simcse(folder), rows), math.log(7))


@pytest.mark.parametrize("data", [PLAIN, QUADRUPLES])
@pytest.mark.parametrize("options", [{}, {"mlm_weight": 0.1}])
def test_padding_changes_nothing(folder, data, options):
    method, rows = simcse(folder, **options), MemoryRows(folder, data)
    short, long = (total(method(batch_of(method, rows, more_padding=columns))) for columns in (0, 7))
    same(long, short.item())


def test_the_parameters_that_learn(folder):
    method = simcse(folder, mlm_weight=0.1)
    total(method(batch_of(method, MemoryRows(folder, PLAIN)))).backward()
    without = {name for name, weight in method.named_parameters() if weight.grad is None or not weight.grad.any()}
    assert not without
    assert not [name for name, _ in method.named_parameters() if "pooler" in name]


# --- dropout as the only difference ---


def count_passes(backbone):
    """(texts, their pooled vectors) of each pass through a backbone from now on."""
    calls, pooled = [], backbone.pooled

    def counted(ids, mask):
        vectors = pooled(ids, mask)
        calls.append((len(ids), vectors.detach()))
        return vectors

    backbone.pooled = counted
    return calls


def test_two_dropout_masks_in_one_forward_pass(folder):
    method = simcse(folder, dropout=0.1)
    calls = count_passes(method.backbone)
    first = loss(method, MemoryRows(folder, PLAIN))
    ((rows, pooled),) = calls
    assert rows == 2 * 5
    assert (pooled[:5] - pooled[5:]).abs().amax(1).min() > 1e-3  # every sentence's two vectors differ
    vectors = heads(pooled, method.head.dense)
    same(first, naive_info_nce(vectors[:5], vectors[5:]))
    method.eval()
    plain = cls(folder, PLAIN["sentence"], method.head.dense)
    same(loss(method, MemoryRows(folder, PLAIN)), naive_info_nce(plain, plain))


def test_fixed_dropout_mask_makes_both_views_one_vector(folder):
    method = simcse(folder, dropout=0.1, fixed_dropout_mask=True)
    calls = count_passes(method.backbone)
    value = loss(method, MemoryRows(folder, PLAIN))
    ((rows, pooled),) = calls
    assert rows == 5
    vectors = heads(pooled, method.head.dense)
    same(value, naive_info_nce(vectors, vectors))
    plain = cls(folder, PLAIN["sentence"], method.head.dense)
    assert abs(value.item() - naive_info_nce(plain, plain)) > 1e-4  # dropout did act


def test_with_a_fixed_dropout_mask_both_sides_carry_the_gradient(folder):
    method, rows, step = simcse(folder, fixed_dropout_mask=True), MemoryRows(folder, PLAIN), 1e-6
    weight = method.head.dense.weight
    (exact,) = torch.autograd.grad(loss(method, rows), weight)
    place, values = divmod(int(exact.abs().argmax()), exact.shape[1]), []
    for change in (step, -2 * step):
        with torch.no_grad():
            weight[place] += change
            values.append(loss(method, rows).item())
    assert exact[place].item() == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)


# --- two encoders ---


def test_two_encoders(folder):
    method = simcse(folder, encoders=2)
    backbone, head = method.second
    for mine, other in zip(method.backbone.parameters(), backbone.parameters(), strict=True):
        assert torch.equal(mine, other) and mine is not other
    assert backbone.tokenizer is method.backbone.tokenizer
    assert torch.equal(head.dense.weight, method.head.dense.weight)
    rows = MemoryRows(folder, TRIPLETS)
    same(loss(method, rows), loss(simcse(folder), rows).item())  # they start alike
    with torch.no_grad():
        for weight in method.second.parameters():
            weight.add_(0.05)
    first, second = count_passes(method.backbone), count_passes(backbone)
    value = loss(method, rows)
    assert [count for count, _ in first] == [5] and [count for count, _ in second] == [10]
    backbone.model.eval()
    with torch.no_grad():
        keys, negatives = [
            heads([backbone.model(torch.tensor([row])).last_hidden_state[0, 0] for row in tokens(folder, texts)], head.dense)
            for texts in (TRIPLETS["positive"], TRIPLETS["negative"])
        ]
    queries = cls(folder, TRIPLETS["anchor"], method.head.dense)
    same(value, naive_info_nce(queries, keys, [negatives]))
    value.backward()
    assert all(weight.grad.any() for weight in method.second.parameters())
    assert method.inference().model is method.backbone.model


# --- the masked-LM term ---


def naive_mlm(folder, batch):
    """Mean of -log p over the labelled positions, row by row, by AutoModelForMaskedLM."""
    ids, labels = batch.extra["mlm_ids"], batch.extra["mlm_labels"]
    lost = []
    for row, wanted, real in zip(ids, labels, batch.mask, strict=True):
        length = int(real.sum())
        (found,) = logits(folder, [row[:length].tolist()])
        for position in range(length):
            if wanted[position] != -100:
                scores = found[position].tolist()
                top = max(scores)
                lost.append(math.log(sum(math.exp(s - top) for s in scores)) + top - scores[int(wanted[position])])
    return sum(lost) / len(lost), len(lost)


@pytest.mark.parametrize("in_place", [False, True])
def test_masked_lm_term(folder, in_place):
    method = simcse(folder, mlm_weight=0.3, mlm_probability=0.4, mlm_in_place=in_place)
    batch = batch_of(method, MemoryRows(folder, TRIPLETS))
    terms = method(batch)
    expected, count = naive_mlm(folder, batch)
    same(terms["mlm"].value, expected)
    assert terms["mlm"].count == count and terms["mlm"].weight == 0.3 and terms["contrastive"].weight == 1
    ids = batch.extra["mlm_ids"] if in_place else batch.ids
    rows = [row[: int(real.sum())].tolist() for row, real in zip(ids, batch.mask, strict=True)]
    vectors = heads([state[0] for state in states(folder, rows)], method.head.dense)
    same(terms["contrastive"].value, naive_info_nce(vectors[:5], vectors[5:10], [vectors[10:]]))


def test_masked_copies_differ_between_the_views(folder):
    method = simcse(folder, mlm_weight=0.1, mlm_probability=0.5)
    rows = MemoryRows(folder, {"sentence": TEXTS[:40]})
    views = method.views(rows, np.random.default_rng(0))
    assert [row.tolist() for row in views.tokens[0]] == [row.tolist() for row in views.tokens[1]]
    first, second = ([row.tolist() for row in view] for view in views.extra["mlm_labels"])
    assert first != second


def test_the_masked_lm_head_is_not_tied(folder):
    method = simcse(folder, mlm_weight=0.1)
    assert method.lm_head.decoder.weight is not method.backbone.model.get_input_embeddings().weight
    assert simcse(folder).lm_head is None


# --- positives made of the sentence itself ---


@pytest.fixture
def thesaurus(tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("cat\tdog\nbig\tsmall\tred\n", encoding="utf-8")
    return path


def changed_views(thesaurus):
    table = augment.read_thesaurus(thesaurus)
    return {
        "crop": ({"rate": 0.3}, lambda words, rng: augment.crop(words, 0.3, rng)),
        "delete_words": ({"rate": 0.3}, lambda words, rng: augment.delete_words(words, 0.3, rng)),
        "delete_one_word": ({}, augment.delete_one_word),
        "synonym": ({"thesaurus": str(thesaurus)}, lambda words, rng: augment.synonym(words, table, rng)),
    }


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("view", ["crop", "delete_words", "delete_one_word", "synonym"])
def test_changed_words(folder, thesaurus, view, both):
    options, change = changed_views(thesaurus)[view]
    method = simcse(folder, view=view, augment_both=both, **options)
    rows = MemoryRows(folder, {"sentence": [*TEXTS[:12], "", "the big cat plays a red guitar in the blue park with a dog"]})
    rng, texts = np.random.default_rng(3), rows.texts("sentence")
    first = [" ".join(change(text.split(), rng)) for text in texts] if both else texts
    second = [" ".join(change(text.split(), rng)) for text in texts]
    views = method.views(rows, np.random.default_rng(3))
    assert [[list(row) for row in view] for view in views.tokens] == [tokens(folder, first), tokens(folder, second)]
    assert second != texts and (first != texts) == both
    queries, keys = cls(folder, first, method.head.dense), cls(folder, second, method.head.dense)
    same(loss(method, rows, seed=3), naive_info_nce(queries, keys))
    # what it tokenises itself leaves the tokenizer that training and testing share alone
    assert len(method.backbone.tokenizer.backend_tokenizer.encode(" ".join(["cat"] * 30)).ids) == len(
        AutoTokenizer.from_pretrained(folder).backend_tokenizer.encode(" ".join(["cat"] * 30)).ids
    )


DOCUMENTS = [0] * 6 + [1] * 2 + [2] * 5


@pytest.mark.parametrize(("view", "reach"), [("next", 1), ("next3", 3)])
def test_following_sentences(folder, view, reach):
    method = simcse(folder, view=view)
    every = MemoryRows(folder, {"sentence": TEXTS[:13]}, documents=DOCUMENTS)
    usable = SimCSE.usable(method.options, every)
    assert np.flatnonzero(~usable).tolist() == [5, 7, 12]
    seen = {}
    for seed in range(60):
        rows = every.at(np.flatnonzero(usable)[::-1])
        views = method.views(rows, np.random.default_rng(seed))
        for row, first, second in zip(rows.rows, *views.tokens, strict=True):
            assert first.tolist() == tokens(folder, [TEXTS[row]])[0]
            seen.setdefault(row, set()).add(tuple(second.tolist()))
    for row, found in seen.items():
        ahead = [other for other in range(row + 1, min(row + reach, 12) + 1) if DOCUMENTS[other] == DOCUMENTS[row]]
        assert found == {tuple(ids) for ids in tokens(folder, [TEXTS[other] for other in ahead])}
    keys = [TEXTS[row + 1] for row in (0, 6, 8)]
    if reach == 1:
        queries = [TEXTS[row] for row in (0, 6, 8)]
        vectors = [cls(folder, texts, method.head.dense) for texts in (queries, keys)]
        same(loss(method, every.at([0, 6, 8])), naive_info_nce(*vectors))
    with pytest.raises(StsbenchError, match="row 7 has no next sentence"):
        method.views(every.at([0, 7]), np.random.default_rng(0))


def test_every_row_is_usable_but_for_following_sentences(folder):
    rows = MemoryRows(folder, PLAIN, documents=range(5))
    assert SimCSE.usable(SimCSEOptions(), rows) is None
    with pytest.raises(StsbenchError, match=r"set data\.contiguous"):
        SimCSE.usable(SimCSEOptions(view="next"), rows)


# --- words filled in by a masked LM ---


def naive_replaced(folder, ids, labels):
    special = AutoTokenizer.from_pretrained(folder).all_special_ids
    mask = AutoTokenizer.from_pretrained(folder).mask_token_id
    result = []
    for row, wanted in zip(ids, labels, strict=True):
        masked = [mask if label != -100 else int(token) for token, label in zip(row, wanted, strict=True)]
        (scores,) = logits(folder, [masked])
        best = [max((i for i in range(len(s)) if i not in special), key=s.tolist().__getitem__) for s in scores]
        result.append([guess if label != -100 else int(t) for t, label, guess in zip(row, wanted, best, strict=True)])
    return result


@pytest.mark.parametrize("both", [False, True])
def test_words_filled_in_by_a_masked_lm(folder, both):
    method = simcse(folder, view="mlm", rate=0.4, augment_both=both)
    rows = MemoryRows(folder, {"sentence": [*TEXTS[:4], "xyz catdog"]})
    views = method.views(rows, np.random.default_rng(2))
    replaced = [naive_replaced(folder, *pair) for pair in zip(views.tokens, views.extra["replaced_labels"], strict=True)]
    plain = tokens(folder, rows.texts("sentence"))
    assert [[list(row) for row in view] for view in views.tokens] == [plain, plain]
    assert replaced[1] != plain and (replaced[0] != plain) == both
    queries, keys = (heads([state[0] for state in states(folder, ids)], method.head.dense) for ids in replaced)
    value = loss(method, rows, seed=2)
    same(value, naive_info_nce(queries, keys))
    value.backward()
    assert not any(weight.requires_grad or weight.grad is not None for weight in method.replacer.parameters())
    assert not method.replacer.backbone.training and method.backbone.training


def test_the_replacer_is_frozen_while_the_backbone_learns(folder):
    method, rows = simcse(folder, view="mlm", rate=0.4), MemoryRows(folder, PLAIN)
    with torch.no_grad():
        for weight in method.backbone.parameters():
            weight.mul_(1.5)
    batch = batch_of(method, rows)
    replaced = method.replacer(batch.ids, batch.mask, batch.extra["replaced_labels"])
    expected = naive_replaced(folder, *([*first, *second] for first, second in (
        method.views(rows, np.random.default_rng(0)).tokens,
        method.views(rows, np.random.default_rng(0)).extra["replaced_labels"],
    )))  # fmt: skip
    assert [row[: int(m.sum())].tolist() for row, m in zip(replaced, batch.mask, strict=True)] == expected


def test_whole_words_are_replaced_in_the_stated_share(folder):
    tok, rng = AutoTokenizer.from_pretrained(folder), np.random.default_rng(0)
    texts = ["catdog the manx plays", "a", "", "the cat eats red food in the big park ."]  # catdog, manx: in pieces
    encoded = tok(texts, padding=False, truncation=False)
    drawn = []
    for _ in range(500):
        ids, labels = words_to_replace(encoded, 0.25, rng)
        assert [row.tolist() for row in ids] == encoded["input_ids"]
        for number, (row, wanted) in enumerate(zip(ids, labels, strict=True)):
            words = encoded.word_ids(number)
            chosen = {word for word, label in zip(words, wanted, strict=True) if label != -100}
            assert None not in chosen
            assert all((word in chosen) == (label != -100) for word, label in zip(words, wanted, strict=True))
            assert all(label in (-100, token) for token, label in zip(row, wanted, strict=True))
            count = len({word for word in words if word is not None})
            assert len(chosen) == math.floor(0.25 * count + 0.5)
            drawn += [word for word in chosen if number == 3]
    counts = np.bincount(drawn, minlength=10)
    assert np.abs(counts - len(drawn) / 10).max() < 5 * math.sqrt(len(drawn) * 0.1 * 0.9)


def test_a_replacer_needs_a_head_and_the_same_vocabulary(folder, headless, tmp_path):
    with pytest.raises(StsbenchError, match="tiny-bert stores no masked-LM head"):
        simcse(headless, view="mlm", rate=0.15)
    assert simcse(headless, view="mlm", rate=0.15, replacer=str(folder)).replacer.head.found
    other = masked_lm_folder(tmp_path / "other")
    tokenizer("roberta").save_pretrained(other)
    with pytest.raises(StsbenchError, match="must share the vocabulary of tiny-mlm"):
        simcse(folder, view="mlm", rate=0.15, replacer=str(other))


# --- views, roles, options, the tested encoder ---

EVERY_VIEW = [
    {}, {"fixed_dropout_mask": True}, {"mlm_weight": 0.1}, {"view": "crop", "rate": 0.2},
    {"view": "delete_words", "rate": 0.2}, {"view": "delete_one_word"}, {"view": "next"}, {"view": "next3"},
    {"view": "mlm", "rate": 0.3},
]  # fmt: skip
RANDOM = [options for options in EVERY_VIEW[2:] if options.get("view") != "next"]


def listed(views):
    return [[[list(map(int, row)) for row in view] for view in part] for part in (views.tokens, *views.extra.values())]


@pytest.mark.parametrize("options", EVERY_VIEW)
def test_views_depend_on_the_generator_alone(folder, options):
    method = simcse(folder, dropout=0.1, **options)
    rows = MemoryRows(folder, {"sentence": TEXTS}, range(30), documents=[0] * 60)
    first = listed(method.views(rows, np.random.default_rng(8)))
    torch.manual_seed(99), np.random.seed(99)
    assert listed(method.views(rows, np.random.default_rng(8))) == first
    assert (listed(method.views(rows, np.random.default_rng(9))) != first) == (options in RANDOM)
    assert all(len(row) <= LIMIT for part in first for view in part for row in view)


@pytest.mark.parametrize(("given", "used"), [
    (("sentence",), ("sentence",)), (("positive", "anchor"), ("anchor", "positive")),
    (("anchor", "positive", "negative", "label"), ("anchor", "positive", "negative")),
    (("negative2", "negative", "anchor", "positive"), ("anchor", "positive", "negative", "negative2")),
])  # fmt: skip
def test_roles(given, used):
    assert SimCSE.roles(SimCSEOptions(), given) == used


@pytest.mark.parametrize(("options", "given", "expected"), [
    ({}, ("premise", "hypothesis"), "needs the column sentence, or anchor and positive (the data give premise, hypothesis)"),
    ({}, (), "the data give none"),
    ({}, ("anchor",), "needs the column positive beside anchor"),
    ({}, ("negative", "positive"), "needs the column anchor beside positive"),
    ({}, ("sentence", "anchor", "positive"), "name one or the other"),
    ({}, ("anchor", "positive", "negative2"), "negative2 without negative"),
    ({"view": "next"}, ("anchor", "positive"), "options.view next makes positives of plain sentences"),
    ({"view": "crop", "rate": 0.1}, ("anchor", "positive"), "options.view crop"),
    ({"fixed_dropout_mask": True}, ("anchor", "positive"), "is for plain sentences"),
    ({"alpha": 2}, ("sentence",), "plain sentences have none"),
    ({"alpha": 2}, ("anchor", "positive"), "the data have none"),
    ({"view": "crop"}, ("sentence",), "needs options.rate"),
    ({"view": "mlm"}, ("sentence",), "needs options.rate"),
    ({"rate": 0.1}, ("sentence",), "options.rate acts on the views crop, delete_words, mlm"),
    ({"view": "synonym"}, ("sentence",), "needs options.thesaurus"),
    ({"thesaurus": "x"}, ("sentence",), "acts on the view synonym"),
    ({"replacer": "x"}, ("sentence",), "acts on the view mlm"),
    ({"augment_both": True}, ("sentence",), "options.augment_both acts on"),
    ({"fixed_dropout_mask": True, "view": "delete_one_word"}, ("sentence",), "set options.view dropout"),
    ({"fixed_dropout_mask": True, "encoders": 2}, ("sentence",), "options.encoders must be 1"),
    ({"mlm_in_place": True}, ("sentence",), "set options.mlm_weight"),
    ({"mlm_weight": 0.1, "view": "mlm", "rate": 0.1}, ("sentence",), "options.mlm_weight must be 0 with the view mlm"),
    ({"mlm_weight": 0.1, "encoders": 2}, ("sentence",), "options.mlm_weight must be 0 with options.encoders 2"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_in_one_line(options, given, expected):
    with pytest.raises(StsbenchError) as caught:
        SimCSE.roles(SimCSEOptions(**options), given)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_a_broken_thesaurus_is_noticed_before_training(folder, tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        simcse(folder, view="synonym", thesaurus=str(tmp_path / "none.tsv"))


@pytest.mark.parametrize(("options", "pooler"), [({}, "cls"), ({"head": "mlp"}, "cls+dense"), ({"head": "none"}, "cls")])
def test_the_tested_encoder(folder, options, pooler):
    method = simcse(folder, dropout=0.1, **options)
    found = method.inference()
    assert found.pooler == pooler and found.masked_lm is None and found.tokenizer is method.backbone.tokenizer
    assert (found.dense is method.head.dense) if pooler == "cls+dense" else (found.dense is None)
    found.model.eval()
    ids = tokens(folder, PLAIN["sentence"])
    with torch.no_grad():
        for row, state in zip(ids, states(folder, ids), strict=True):
            assert torch.allclose(found.model(torch.tensor([row])).last_hidden_state[0], state, atol=1e-10)


def test_the_head_starts_as_published_and_is_not_the_checkpoints_pooler(headless):
    method = simcse(headless)
    weight = method.head.dense.weight
    assert not method.head.dense.bias.any()
    assert weight.std().item() == pytest.approx(method.backbone.model.config.initializer_range, rel=0.1)
    assert torch.equal(weight, simcse(headless).head.dense.weight)  # by the seed
