"""Tokenizers that do not know the word "a": what they put around a text is found by a word that they know."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from stsbench.encoders.prompt.template import Template, Tokeniser
from stsbench.encoders.prompt.tokenizer import known_text
from stsbench.errors import EncoderError
from stsbench.methods.declutr.method import _ends

LETTERS, SPECIAL = "xyzw", ("[CLS]", "[SEP]", "[MASK]", "[PAD]")


def without_a(letters=LETTERS):
    """Single characters, without an unknown token: others vanish."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *letters])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP] [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", pad_token="[PAD]"
    )


def test_the_special_tokens_around_a_text():
    tokenizer = without_a()
    assert tokenizer("a")["input_ids"] == tokenizer("")["input_ids"] == [0, 1, 1]
    assert known_text(tokenizer) == "x" and known_text(without_a("xa")) == "a"
    assert [part.tolist() for part in _ends(tokenizer)] == [[0], [1, 1]]


def test_a_template_keeps_its_tokens_where_a_text_is_cut():
    made = Tokeniser(without_a(), 7, Template("x", "y[MASK]"))
    assert (made.head, made.tail) == ([0, 4], [5, 2, 1, 1])
    ids, cut = made(["zwzwzw"])
    assert ids == [[0, 4, 6, 5, 2, 1, 1]] and cut.tolist() == [True] and made.mark(ids[0], "zw") == 4


def test_one_that_reads_nothing_is_refused():
    with pytest.raises(EncoderError, match="reads none of its own words"):
        known_text(without_a(""))
