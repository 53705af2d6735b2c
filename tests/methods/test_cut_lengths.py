"""Recipes of what an old sentence-transformers trained cut a text where it did: its limits counted no special tokens."""

import pytest
import tiny_models
from shipped_recipes import recipe

from stsbench.data.text.tokens import cutting
from stsbench.training.recipes.recipes import recipe_names


def first(pieces, limit):
    """Up to 0.2.4, models/BERT.py: so many pieces, and the special tokens around them."""
    return pieces[:limit]


def later(pieces, limit):
    """To 0.3.9, models/Transformer.py: prepare_for_model cuts at three tokens more, of which two are special."""
    return pieces[: min(len(pieces), limit) + 3 - 2]


def port(pieces, limit):
    """BERT's own code and Keras ports: the limit counts the special tokens."""
    return pieces[: limit - 2]


def rule_of(method, name):
    if method != "sbert":
        return later, 40 if "large-released" in name and method == "consert" else 128 if method != "consert" else 64
    if "consert" in name:
        return later, 64
    return (port, 64) if "flow" in name or "whitening" in name else (first, 128)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_where_a_long_text_is_cut(family):
    tokenizer = tiny_models.tokenizer(family)
    words = tiny_models.sentences(1, longest=1)[0].split() * 300
    pieces = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(" ".join(words)))
    assert len(pieces) >= 300
    cut = {}
    for method in ("sbert", "sg-opt", "is-bert", "consert"):
        for name in recipe_names(method):
            length = recipe(name, method).backbone.max_length
            if length not in cut:
                with cutting(tokenizer, length) as encode:
                    (cut[length],) = encode([" ".join(words)])[0]
            rule, limit = rule_of(method, name)
            assert cut[length] == [tokenizer.cls_token_id, *rule(pieces, limit), tokenizer.sep_token_id], (method, name)
