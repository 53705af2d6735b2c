"""What tests of recipes share: the shipped ones by name, and errors of one line."""

import re

import pytest

from stsbench import registry
from stsbench.errors import StsbenchError
from stsbench.leaderboard.publications.load import load_publications
from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.training.recipes.methods import GROUP
from stsbench.training.recipes.recipes import find_recipe, recipe_names

METHODS = registry.names(GROUP)
EVERY = [(method, name) for method in METHODS for name in recipe_names(method)]
U, S = "unsup-bert-base", "sup-bert-base"
BERT, BERT_LARGE = "google-bert/bert-base-uncased", "google-bert/bert-large-uncased"
ROBERTA, ROBERTA_LARGE = "FacebookAI/roberta-base", "FacebookAI/roberta-large"
LATER = re.compile("-(joint|sup-unsup|labels-10?)$")  # of SimCSE's recipes those that DiffAug's paper added


def recipe(name, method="simcse"):
    return find_recipe(method, name)[0]


def printed(papers, own, holders):
    """(recipe, protocol, metric, task) -> score, from the committed tables of `papers`, of the rows that are `own`.

    holders: row id -> recipe; a dict: column -> recipe; None: no recipe stands for the row. Plain numbers (geometry, cost)
    are left out: a recipe holds scores x 100.
    """
    found = {}
    for row in (row for each in load_publications(PUBLISHED) if each.paper.id in papers for row in each.rows if own(row)):
        heading = row.heading
        if heading.protocol in ("geometry", "cost"):
            continue
        holder = holders[row.id]  # a row that nobody thought of fails here
        for column, score in [*zip(heading.columns, row.scores, strict=True), ("Avg", row.average)]:
            name = holder[column] if isinstance(holder, dict) and score is not None else holder
            if score is None or name is None:
                continue
            protocol, metric, task = _place(heading, column)
            assert found.setdefault((name, protocol, metric, task), score) == score, (row.id, name)
    return found


def _place(heading, column):
    """Protocol, metric and task as recipes name them."""
    if heading.protocol == "dev":
        name, task = ("transfer dev", "Avg") if heading.task == "transfer" else ("sts-b dev", "STS-B")
        return name, heading.metric, task
    if heading.protocol == "retrieval":
        return "retrieval", column, heading.task
    if heading.protocol == "few-labels":  # a column is a share of the labels; what it holds is one average
        assert heading.task == "mean of the 7 STS tasks"
        return f"sts:{heading.aggregation}", heading.metric, "Avg"
    # a task of one subset has no aggregation
    return (f"sts:{heading.aggregation or 'all'}" if heading.protocol == "sts" else heading.protocol), heading.metric, column


def held(method):
    """(recipe, protocol, metric, task) -> score, from the recipes."""
    return {
        (name, row.protocol, row.metric, task): score
        for name in recipe_names(method) for row in recipe(name, method).published for task, score in row.scores.items()
    }  # fmt: skip


def changed(base, name, method):
    """What differs between two recipes: key -> the second one's value."""
    before, after = settings(recipe(base, method)), settings(recipe(name, method))
    return {key: value for key, value in after.items() if before[key] != value}


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
