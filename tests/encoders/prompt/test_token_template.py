"""Templates in tokens, and the template's mask at test: against the tokenizer's own reading of the filled text."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_models import BERT, ROBERTA, bpe
from tiny_models import tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from stsbench.encoders.prompt.template import Tokeniser, TokenTemplate, parse_template, with_full_stop
from stsbench.encoders.prompt.tokenizer import known_text
from stsbench.errors import EncoderError
from stsbench.methods.declutr.method import _ends

# family -> a template as its paper's code writes it
TEMPLATES = {"bert": BERT, "roberta": 'the man of "{}" means [MASK].', "bpe": ROBERTA}
FIRST = {"bert": '[MASK] means "{}" .', "roberta": "{mask} means : {} .", "bpe": "{mask} means : ' {} '."}
TEXTS = ["the cat eats", "", "cat", "   ", " the  dog ", "the [MASK] dog", "a<mask>b", "means . \"", "x" * 9]


@cache
def tok(family):
    return bpe() if family == "bpe" else tokenizer(family)


def plain(family, text):
    """Token ids of a text with special tokens, by the tokenizer's own call."""
    return tok(family)(text, truncation=False, padding=False)["input_ids"]


def filled(family, template, text):
    mask = tok(family).mask_token
    for name in ("[MASK]", "{mask}"):
        template = template.replace(name, mask)
    before, after = template.split("{}")
    return before + text + after, (len(before), len(before) + len(text))


def test_the_published_templates_as_their_authors_tokenise_them():
    wrapper = TokenTemplate(tok("bpe"), ROBERTA, "options.template")
    names = tok("bpe").convert_ids_to_tokens
    assert names(wrapper.before) == ["<s>", "This", "Ġsentence", "Ġ:", "Ġ'"]
    assert names(wrapper.after) == ["Ġ'", "Ġmeans", "<mask>", ".", "</s>"]
    bert = TokenTemplate(tok("bert"), BERT, "options.template")
    names = tok("bert").convert_ids_to_tokens
    assert names(bert.before) == ["[CLS]", "the", "man", "o", "##f", "[UNK]"] and bert.mask_last
    assert names(bert.after) == ["[UNK]", "means", "[MASK]", ".", "[SEP]"] and bert.length == 11
    # blanks before a mask that swallows them change no token
    assert TokenTemplate(tok("bpe"), ROBERTA.replace("means{", "means {"), "t").after == wrapper.after


EACH = pytest.mark.parametrize(("family", "template"), [*TEMPLATES.items(), *FIRST.items()])


@EACH
def test_places_counts_and_words(family, template):
    wrapper = TokenTemplate(tok(family), template, "t")
    inner = [plain(family, text) for text in TEXTS]
    rows = wrapper.wrap(inner)
    mask = (torch.arange(max(map(len, rows)) + 2) < torch.tensor([*map(len, rows)])[:, None]).long()
    assert wrapper.counts(mask).tolist() == [len(row) - 2 for row in inner]
    special = {wrapper.before[0], wrapper.after[-1]}
    own = [token for token in [*wrapper.before, *wrapper.after] if token not in special | {tok(family).mask_token_id}]
    assert wrapper.word_ids == own and {row.dtype for row in rows} == {np.dtype(np.int64)}
    assert {wrapper.counts(mask).dtype, wrapper.mask_indices(mask).dtype, wrapper.words(mask, mask).dtype} == {torch.int64}
    indices, learned = wrapper.mask_indices(mask).tolist(), wrapper.words(mask, mask).tolist()
    for row, ids, place, words in zip(rows, inner, indices, learned, strict=True):
        assert row.tolist() == [*wrapper.before, *ids[1:-1], *wrapper.after]
        # a mask token of the sentence stands between the template's parts, the template's own does not
        inside = range(len(wrapper.before), len(row) - len(wrapper.after))
        assert row[place] == tok(family).mask_token_id and place not in inside
        assert [row[i] for i, number in enumerate(words) if number >= 0] == own
        assert [number for number in words if number >= 0] == list(range(len(own)))
        assert all(words[i] == -1 for i in [*inside, place, 0, len(row) - 1, *range(len(row), len(words))])


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["bert", "bpe"]), st.text("ab the.'\"?!\t\n", max_size=16))
def test_pieces_are_those_inside_the_filled_template(family, text):
    wrapper = TokenTemplate(tok(family), TEMPLATES[family], "t")
    assert wrapper.wrap(wrapper.pieces([text]))[0].tolist() == plain(family, filled(family, TEMPLATES[family], text)[0])


def test_pieces_are_cut_and_hold_the_blank_before_them():
    wrapper = TokenTemplate(tok("bpe"), ROBERTA, "t")
    names = tok("bpe").convert_ids_to_tokens
    pieces = [["<s>", "Ġthe", "Ġcat", "</s>"], ["<s>", "Ġcat", "</s>"]]
    assert [names(row) for row in wrapper.pieces(["the cat eats", "cat"], 2)] == pieces
    assert names(wrapper.alone(["the cat"])[0])[1] in ("the", "t", "th")  # alone there is none
    assert wrapper.pieces([]) == []


# ---- at test: encoders/prompt/template.py


@EACH
def test_the_templates_mask_is_the_one_that_stands_where_the_template_put_it(family, template):
    reader = Tokeniser(tok(family), 64, parse_template(template, tok(family).mask_token, True))
    for text in (*TEXTS, "[MASK]", "<mask>", "[MASK] [MASK] cat <mask>"):
        whole, (start, stop) = filled(family, template, text)
        read = tok(family)(whole, truncation=False, padding=False, return_offsets_mapping=True)
        masks = [  # the oracle goes by characters: the mask outside the sentence
            i for i, (left, right) in enumerate(read["offset_mapping"])
            if read["input_ids"][i] == tok(family).mask_token_id and not start <= right - 1 < stop and right > left]
        assert len(masks) == 1
        ids, cut = reader([text])
        assert ids[0] == read["input_ids"] and not cut[0]
        assert reader.mark(ids[0], text) == masks[0]


@EACH
def test_a_text_over_the_limit_loses_its_last_tokens_and_nothing_else(family, template):
    limit = 17
    wrapper = TokenTemplate(tok(family), template, "t")
    reader = Tokeniser(tok(family), limit, parse_template(template, tok(family).mask_token, True))
    behind = len(wrapper.after)
    for text in ("the cat eats " * 8, "[MASK] " * 30, "<mask> cat " * 20, "'\" " * 20, "the cat\t\n" * 9):
        full = plain(family, filled(family, template, text)[0])
        (ids,), (cut,) = reader([text])
        assert cut and len(ids) == limit < len(full)
        assert ids == full[: limit - behind] + full[len(full) - behind :]
        assert reader.mark(ids, text) == wrapper.mask_index(limit)
        shorter, cut = Tokeniser(tok(family), len(full), reader.template)([text])
        assert shorter[0] == full and not cut[0]


class Own(PreTrainedTokenizerFast):
    """A folder's own class, which may do more with a text than hand it on."""


def test_a_tokenizer_of_a_folders_own_is_cut_as_well():
    template, known = " the {} means [MASK] .", tok("bert")
    own = Own(tokenizer_object=known.backend_tokenizer, **known.special_tokens_map)
    reader = Tokeniser(own, 9, parse_template(template, "[MASK]", True))
    assert reader.backend is None
    texts = ["cat dog", "", "cat [MASK] dog the cat dog cat of", "[MASK]"]
    ids, cut = reader(texts)
    assert cut.tolist() == [False, False, True, False]
    wrapper = TokenTemplate(own, template, "t")
    for text, row in zip(texts, ids, strict=True):
        assert row == [*wrapper.before, *own(text)["input_ids"][1:-1][: 9 - wrapper.length], *wrapper.after]
        assert reader.mark(row, text) == wrapper.mask_index(len(row))


def test_tokens_that_template_and_sentence_share_are_never_cut():
    # without a blank the quote and the text's own are one token: the text is cut by characters
    template = 'This sentence of "{}" means [MASK].'
    reader = Tokeniser(tok("bpe"), 20, parse_template(template, "<mask>", True))
    text = '"' + "the cat eats " * 12
    full = plain("bpe", filled("bpe", template, text)[0])
    before = TokenTemplate(tok("bpe"), template, "t").before
    assert full[: len(before)] != before
    (ids,), (cut,) = reader([text])
    behind = len(TokenTemplate(tok("bpe"), template, "t").after)
    assert cut and len(ids) == 20 and ids == full[: 20 - behind] + full[-behind:]
    assert ids[reader.mark(ids, text)] == tok("bpe").mask_token_id


def test_the_full_stop_belongs_to_the_sentence():
    for text in ("", "a cat.", "a cat?", 'a "cat"', "a 'cat'", "."):
        assert with_full_stop(text) == text
    assert [with_full_stop(text) for text in ("a cat", "a cat!", "a cat ", " ")] == ["a cat.", "a cat!.", "a cat .", " ."]
    template = parse_template(BERT, "[MASK]", True)
    with_one, without = (Tokeniser(tok("bert"), 64, template, full_stop) for full_stop in (True, False))
    assert with_one(["the cat", "the cat.", "", "cat?"])[0] == without(["the cat.", "the cat.", "", "cat?"])[0]
    short = Tokeniser(tok("bert"), TokenTemplate(tok("bert"), BERT, "t").length + 2, template, True)
    assert short(["cat", "the cat", "the cat."])[1].tolist() == [False, True, True]
    assert short(["the cat"])[0] == without(["the cat"])[0]


# ---- tokenizers that do not know the word "a": what they put around a text is found by a word that they know


def without_a(letters="xyzw"):
    """Single characters, without an unknown token: others vanish."""
    vocabulary = {token: number for number, token in enumerate(["[CLS]", "[SEP]", "[MASK]", "[PAD]", *letters])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP] [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", pad_token="[PAD]")


def test_the_special_tokens_around_a_text_and_a_tokenizer_that_reads_nothing():
    tokenizer = without_a()
    assert tokenizer("a")["input_ids"] == tokenizer("")["input_ids"] == [0, 1, 1]
    assert known_text(tokenizer) == "x" and known_text(without_a("xa")) == "a"
    assert [part.tolist() for part in _ends(tokenizer)] == [[0], [1, 1]]
    with pytest.raises(EncoderError, match="reads none of its own words"):
        known_text(without_a(""))
