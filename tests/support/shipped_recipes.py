"""What tests of recipes share: the shipped ones by name, and errors of one line."""

import shlex
from functools import cache

import pytest

from stsbench import registry
from stsbench.errors import StsbenchError
from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.leaderboard.records.publications import load_publications
from stsbench.training.recipes.methods import GROUP
from stsbench.training.recipes.recipes import find_recipe, recipe_names

METHODS = registry.names(GROUP)
EVERY = [(method, name) for method in METHODS for name in recipe_names(method)]
U, S = "unsup-bert-base", "sup-bert-base"
BERT_LARGE, ROBERTA_LARGE = "google-bert/bert-large-uncased", "FacebookAI/roberta-large"


@cache
def recipe(name, method="simcse"):
    return find_recipe(method, name)[0]


@cache
def publications():
    return load_publications(PUBLISHED)


@cache
def ways():
    """What is stated of the published rows; without the board's room that reproduces them the test is skipped."""
    return pytest.importorskip("stsbench.leaderboard.reproduce.ways").load_ways()


def printed(method):
    """(recipe, protocol, metric, task, score), from the committed tables, of rows that a recipe of `method` is stated for
    (leaderboard/reproductions), and nothing after it but the length of a test. Costs are left out: they are no scores."""
    actual = set()
    for row in (row for each in publications() for row in each.rows):
        way = ways().get(row.id)
        if way is None or {*shlex.split(way.eval or "")[::2]} - {"--max-length"} or row.heading.protocol == "cost":
            continue
        for column, score in [*zip(row.heading.columns, row.scores, strict=True), ("Avg", row.average)]:
            holder, _, name = (way.column_recipe(column) or "").partition("/")
            if score is not None and holder == method and way.holds(column):
                actual.add((name, *_place(row.heading, column), score))
    return actual


def rows_of(papers, own):
    return [row for each in publications() if each.paper.id in papers for row in each.rows if own(row)]


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
    """(recipe, protocol, metric, task, score), from the recipes."""
    return {(name, row.protocol, row.metric, task, score) for name in recipe_names(method)
            for row in recipe(name, method).published for task, score in row.scores.items()}


def changed(base, name, method):
    """What differs between two recipes: key -> the second one's value."""
    before, after = settings(recipe(base, method)), settings(recipe(name, method))
    return {key: value for key, value in after.items() if before[key] != value}


def one_line(call, *parts, error=StsbenchError):
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert len(text.splitlines()) == 1, text
    for part in parts:
        assert str(part) in text, (part, text)
    return text


def settings(actual):
    dump = actual.model_dump(exclude={"name", "description", "source", "published"})
    sections = ("backbone", "options", "data", "training", "selection")
    inner = {f"{key}.{name}": value for key in sections for name, value in dump.pop(key).items()}
    return {**dump, **inner}
