"""What tests of recipes share: the shipped ones by name, and errors of one line."""

import pytest

from stsbench import registry
from stsbench.errors import StsbenchError
from stsbench.training.recipes import GROUP, find_recipe, recipe_names

METHODS = registry.names(GROUP)
EVERY = [(method, name) for method in METHODS for name in recipe_names(method)]
U, S = "unsup-bert-base", "sup-bert-base"
BERT, BERT_LARGE = "google-bert/bert-base-uncased", "google-bert/bert-large-uncased"
ROBERTA, ROBERTA_LARGE = "FacebookAI/roberta-base", "FacebookAI/roberta-large"


def recipe(name, method="simcse"):
    return find_recipe(method, name)[0]


def one_line(call, *parts):
    with pytest.raises(StsbenchError) as caught:
        call()
    text = str(caught.value)
    assert len(text.splitlines()) == 1, text
    for part in parts:
        assert part in text, (part, text)
    return text


def settings(found):
    dump = found.model_dump(exclude={"name", "description", "source", "published"})
    sections = ("backbone", "options", "data", "training", "selection")
    inner = {f"{key}.{name}": value for key in sections for name, value in dump.pop(key).items()}
    return {**dump, **inner}
