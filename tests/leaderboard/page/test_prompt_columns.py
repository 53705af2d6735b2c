"""What the board's tables say of prompts: two columns and a sentence where a row has some, and nothing elsewhere."""

from dataclasses import replace
from html import unescape

import pytest
from markdown_it import MarkdownIt

from stsbench.leaderboard.page.tables import latex, markdown
from stsbench.leaderboard.ranks.board import Cell, PromptSpread, Rank, Row, Tab

PUBLISHED = Row("paper:1:1", "published", "paper", "BERT", "sup", {"Avg": Cell(70.0)}, source="Paper, table 1")
ROWS = (
    Row("one", "measured", "one", "MiniLM", "unsup", {"Avg": Cell(78.9, 78.0, 79.6)},
        rank=Rank(1, 1, 2, "a", prompts=(1, 3), chance=0.254), entry="one",
        prompts=PromptSpread(15, 70.1234, 1.26, 66.0, 72.5)),
    Row("two", "measured", "two", "MiniLM", "unsup", {"Avg": Cell(70.0, 69.2, 71.0)},
        rank=Rank(2, 1, 2, "a", prompts=(2, 2), chance=0.0), entry="two"),
    Row("three", "measured", "three", "MiniLM", None, {"Avg": Cell(61.0)}, unranked="not ranked: odd", entry="three",
        prompts=PromptSpread(1, -0.5, None, -0.5, -0.5)),
)


def tab(rows=ROWS):
    return Tab(id="sts-spearman-all", group="sts", title="Spearman, all", about="Cosine.", metric="spearman",
               aggregation="all", columns=("Avg",), lead="Avg", digits=2, lower_is_better=False, measured=rows,
               published=(PUBLISHED,))


def cells(text):
    """The rows of every Markdown table, as lists of cells."""
    tables, row = [], []
    for token in MarkdownIt().enable("table").parse(text):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_close":
            tables[-1].append(row)
            row = []
        elif token.type == "inline" and token.level == 4:
            row.append(token.content)
    return tables


def test_markdown_has_two_columns_and_a_sentence():
    measured, published = cells(markdown(tab()))
    assert measured[0] == ["Rank", "Method", "Backbone", "Setting", "Avg", "Over prompts", "Rank over prompts", "Flags"]
    assert [line[5] for line in measured[1:]] == ["70.12 ± 1.26 (66.00 to 72.50; 15)", "", "-0.50 (-0.50 to -0.50; 1)"]
    assert [line[6] for line in measured[1:]] == ["1-3, first in 25 %", "2, first in 0 %", ""]
    assert "Over prompts" not in published[0]
    assert markdown(tab()).count("over the draws and over items") == 1


@pytest.mark.parametrize(("chance", "shown"), [(0.001, "<1 %"), (0.999, ">99 %"), (1.0, "100 %"), (0.5, "50 %")])
def test_what_is_neither_never_nor_always_is_not_shown_as_either(chance, shown):
    row = replace(ROWS[0], rank=replace(ROWS[0].rank, chance=chance))
    assert unescape(cells(markdown(tab((row,))))[0][1][6]) == f"1-3, first in {shown}"


def test_latex_has_the_columns_in_every_line():
    text = latex(tab())
    assert r"\begin{tabular}{rlllrrrll}" in text
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 5 and {line.count("&") for line in lines} == {8}
    assert r"1-3, first in 25 \%" in text and "over the draws and over items" in text


def test_without_a_rank_over_prompts_its_column_is_not_there():
    alone = tuple(replace(row, rank=row.rank and replace(row.rank, prompts=None, chance=None)) for row in ROWS)
    assert cells(markdown(tab(alone)))[0][0][5:] == ["Over prompts", "Flags"]
    assert "Rank over prompts" not in markdown(tab(alone)) and r"\begin{tabular}{rlllrrll}" in latex(tab(alone))


def test_a_tab_without_prompts_says_nothing_of_them():
    plain = tuple(replace(row, prompts=None, rank=row.rank and replace(row.rank, prompts=None, chance=None)) for row in ROWS)
    for text in (markdown(tab(plain)), latex(tab(plain))):
        assert "prompt" not in text
