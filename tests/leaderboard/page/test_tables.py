"""The board's text tables: what csv, a Markdown parser and a reader of LaTeX get back is what the rows hold."""

import csv
import io
import re
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from stsbench.display.markup import escaped, plain_markdown
from stsbench.leaderboard.page import tables
from stsbench.leaderboard.ranks.board import Board, Cell, Exposure, PromptSpread, Rank, Row, Tab
from stsbench.wording import printable, visible

HOSTILE = "<script>alert(1)</script> | `a` & *b*\nc_d 100% {x}"
ONE_LINE = " ".join(HOSTILE.split())
COLUMNS = ("STS12", "SICK-R", "Avg", "SICK-R-MTEB")
DISAGREES = "the paper prints 74.89; its columns give 74.86"
UNRANKED = "not ranked: the best of 10 seeds"
MEASURED = (
    Row("one", "measured", HOSTILE, "MiniLM_L6", "unsup",
        {"STS12": Cell(72.368976123456, 70.27, 74.15, n=3108), "SICK-R": Cell(77.1, 76.0, 78.2, n=4927),
         "Avg": Cell(78.87, 78.0951, 79.64, n=18850), "SICK-R-MTEB": Cell(-0.0004, -1.04, 0.96, n=9927)},
        flags=("nli", "best-of-n-like"), seeds=1, rank=Rank(1, 1, 2, "a"), source="one", entry="one"),
    Row("two", "measured", "cls", "MiniLM", "semi",
        {"STS12": Cell(60.0, sd=0.456), "Avg": Cell(70.004, -3.2, 1.0, sd=0.31)}, seeds=5, rank=Rank(2, 2, 2, "ab2"),
        marks=("3 texts were cut",), source="two"),
    Row("three", "measured", "tenth", "MiniLM", None, {"STS12": Cell(61.0), "Avg": Cell(71.0)}, flags=("best-of-n",),
        best_of=10, unranked=UNRANKED))
PUBLISHED = (
    Row("sbert:1:1", "published", "SBERT", "bert-base", "sup", {"STS12": Cell(70.97), "Avg": Cell(74.86)}, flags=("nli",),
        average_printed=74.89, marks=(DISAGREES,), source="SBERT, table 1", link="https://example.org/a?b=1&c=(2)"),
    Row("other:2:3", "published", "Other", "bert-base", None, {"Avg": Cell(74.0, sd=0.5)}, marks=(DISAGREES,),
        source="Other", link="javascript:alert(1)"))


def tab(**other):
    return Tab(**{
        "id": "sts-spearman-all", "group": "sts", "title": "Spearman, all", "about": "Cosine; nothing is trained.",
        "metric": "spearman", "aggregation": "all", "columns": COLUMNS, "lead": "Avg", "digits": 2, "lower_is_better": False,
        "measured": MEASURED, "published": PUBLISHED, **other})


def board(*tabs):
    return Board(tabs or (tab(),), {})


def rendered(text):
    """The tables of rendered Markdown, lists of rows of cells' text, and every tag that was met."""
    page = ElementTree.fromstring(f"<div>{MarkdownIt('commonmark').enable('table').render(text)}</div>")
    tables = [[["".join(cell.itertext()) for cell in row] for row in table.iter("tr")] for table in page.iter("table")]
    return SimpleNamespace(tables=tables, tags={element.tag for element in page.iter()} - {"div"})


def csv_lines(board):
    return list(csv.DictReader(io.StringIO(tables.csv_table(board), newline="")))


def test_markdown_shows_the_rows_as_a_parser_reads_them():
    page = rendered(tables.markdown(tab()))
    measured, published = page.tables
    assert measured[0] == ["Rank", "Method", "Backbone", "Setting", *COLUMNS, "Flags"]
    assert measured[1] == ["1 (1-2) a", ONE_LINE, "MiniLM_L6", "unsup", "72.37", "77.10", "78.87 (78.1-79.6)", "0.00",
                           "NLI, best-of-n-like"]
    assert measured[2] == ["2 (2) ab2", "cls1", "MiniLM", "semi", "60.00 ± 0.46", "", "70.00 ± 0.31 (-3.2 to 1.0)", "",
                           "5 seeds"]
    assert measured[3] == ["best of 10", "tenth2", "MiniLM", "", "61.00", "", "71.00", "", "best of 10"]
    assert published[0] == ["Method", "Backbone", "Setting", *COLUMNS, "Flags", "Source"]
    assert published[1] == ["SBERT3", "bert-base", "sup", "70.97", "", "74.86, printed 74.89", "", "NLI", "SBERT, table 1"]
    assert published[2] == ["Other3", "bert-base", "", "", "", "74.00 ± 0.5", "", "", "Other"]
    assert page.tags == {"p", "strong", "table", "thead", "tbody", "tr", "th", "td", "sup", "a"}
    text = tables.markdown(tab())
    assert "[SBERT, table 1](<https://example.org/a?b=1&c=(2)>)" in text
    notes = [line for line in text.splitlines() if line.startswith("<sup>")]  # the marks, each sentence once
    assert notes == ["<sup>1</sup> 3 texts were cut", f"<sup>2</sup> {UNRANKED}", f"<sup>3</sup> {DISAGREES}"]
    why = "never ranked: papers give no digest of their data, and few say which text they measured:"
    assert f"Published, as the papers print it; {why}" in text
    costs = tables.markdown(tab(group="cost"))
    assert "Published, as the papers print it:" in costs and "ranked:" not in costs.replace(UNRANKED, "")
    alone = tables.markdown(tab(), published=False)  # takes their footnotes with them
    assert len(rendered(alone).tables) == 1 and "74.8" not in alone and "SBERT" not in alone


def test_a_tab_has_its_own_number_of_digits():
    def of(digits, cell):
        return tab(digits=digits, measured=(replace(MEASURED[0], cells={"Avg": cell}),))

    assert "0.214 (0.20-0.23)" in tables.markdown(of(3, Cell(0.21449, 0.2, 0.2301)))
    assert "214 (200-230)" in tables.markdown(of(0, Cell(214.49, 200.2, 230.1)))
    assert csv_lines(board(of(9, Cell(3.25e-9))))[0]["value"] == "0.00000000325"


def test_all_tabs_stand_below_their_groups_and_samples_say_so():
    for write in (tables.markdown, tables.latex, lambda tab: tables.csv_table(board(tab))):
        assert tables.SAMPLE in write(tab(sample=True)) and tables.SAMPLE not in write(tab())
    several = board(tab(), tab(id="other", group="transfer", title="accuracy"), tab(id="third", title="mean"))
    text = tables.markdown_tables(several)
    heads = [line for line in text.splitlines() if line.startswith(("#", "**"))]
    assert heads == ["# Leaderboard", "## STS", "**Spearman, all**", "**mean**", "## Transfer", "**accuracy**"]
    assert len(rendered(text).tables) == 6
    tex = tables.latex_tables(board(tab(), tab(id="third")))
    assert tex.count("\\begin{table*}") == tex.count("\\end{table*}") == 2 and tex.count("usepackage") == 1


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn"]), max_size=30))
@example("__init__ _a_ a*b*c [x](y) ![x](y)")
@example("a\\|b &lt; ~~x~~ <b> ``")
def test_any_name_is_text_in_a_markdown_cell(name):
    page = rendered(f"| a | b |\n| --- | --- |\n| x{plain_markdown(name)} | end |\n")
    assert page.tables[0][1] == ["x" + visible(" ".join(name.split()), "\u200c\u200d"), "end"]
    assert page.tags == {"table", "thead", "tbody", "tr", "th", "td"}
    assert plain_markdown("first_last:embeddings") == "first_last:embeddings"  # underscores stay readable


def test_csv_reads_back_as_every_score_of_every_row():
    lines = csv_lines(board(tab(), tab(id="sample", sample=True, published=())))
    assert tuple(lines[0]) == tables.CSV_COLUMNS and len(lines) == (4 + 2 + 2 + 2 + 1) + (4 + 2 + 2)
    actual = {(line["tab"], line["id"], line["column"]): line for line in lines}
    shown = [*(("sts-spearman-all", row) for row in (*MEASURED, *PUBLISHED)), *(("sample", row) for row in MEASURED)]
    for name, row in shown:
        for column, cell in row.cells.items():
            line = actual[name, row.id, column]
            assert float(line["value"]) == round(cell.value, 6) and line["kind"] == row.kind
            for key in ("low", "high", "sd"):
                value = getattr(cell, key)
                assert line[key] == "" if value is None else float(line[key]) == round(value, 6)
            assert line["n"] == ("" if cell.n is None else str(cell.n))
            assert line["method"] == " ".join(row.method.split()) and line["setting"] == (row.setting or "")
            ranks, rank = [line[key] for key in ("place", "first", "last", "ties", "tier")], row.rank
            assert ranks == ([str(rank.position), str(rank.first), str(rank.last), rank.ties, ""] if rank else [""] * 5)
    assert actual["sts-spearman-all", "one", "STS12"]["flags"] == "nli best-of-n-like"
    chosen = actual["sts-spearman-all", "three", "Avg"]
    assert (chosen["best_of"], chosen["notes"]) == ("10", UNRANKED)
    assert actual["sts-spearman-all", "two", "Avg"]["seeds"] == "5"
    assert actual["sample", "two", "Avg"]["notes"] == f"{tables.SAMPLE}; 3 texts were cut"
    printed = actual["sts-spearman-all", "sbert:1:1", "Avg"]  # both averages where a paper disagrees with itself
    assert (printed["value"], printed["printed"], printed["notes"]) == ("74.86", "74.89", DISAGREES)
    assert {line["printed"] for line in lines if line != printed} == {""}


@settings(max_examples=30)
@given(st.floats(-1e5, 1e5))
def test_csv_numbers_are_plain(value):
    text = csv_lines(board(tab(measured=(replace(MEASURED[0], cells={"Avg": Cell(value)}),))))[0]["value"]
    assert re.fullmatch(r"-?\d+(\.\d{1,6})?", text) and text != "-0" and float(text) == pytest.approx(value, abs=5.1e-7)


def test_latex_has_measured_rows_then_a_rule_then_published_ones():
    text = tables.latex(tab())
    body = re.search(r"\\toprule\n(.*)    \\bottomrule", text, re.S)[1]
    head, measured, published = body.split("    \\midrule\n")
    assert [len(part.splitlines()) for part in (head, measured, published)] == [1, 3, 2]
    lines = body.replace("    \\midrule\n", "").splitlines()
    assert all(line.endswith(r" \\") and len(re.findall(r"(?<!\\)&", line)) == 3 + len(COLUMNS) + 2 for line in lines)
    assert re.search(r"\\begin\{tabular\}\{rlllrrrrll\}", text) and r"MiniLM\_L6" in measured
    assert r"SBERT\textsuperscript{3} & bert-base & sup & 70.97 &  & 74.86, printed 74.89 & " in published
    assert r" & NLI & SBERT, table 1 \\" in published
    caption = next(line for line in text.splitlines() if "\\caption" in line)
    assert "STS, Spearman, all. Cosine; nothing is trained." in caption and rf"\textsuperscript{{3}} {DISAGREES}" in caption
    assert "\\midrule" not in tables.latex(tab(published=())).split("\\midrule", 1)[1]
    plain = re.sub(r"\\[{}]", "", text)  # braces are balanced whatever the names
    assert plain.count("{") == plain.count("}") and "<script>" not in plain and "100\\%" in plain


@settings(max_examples=40)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="±–-"), max_size=40))  # which are signs of TeX's
def test_no_character_is_markup_in_latex(text):
    back = {r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
            r"\textgreater{}": ">", r"\textbar{}": "|"}
    written = escaped(text)
    for command in back:
        written = written.replace(command, "")
    assert not re.search(r"(?<!\\)[&%$#_{}]|[~^<>|]|\\(?![&%$#_{}])", written)
    pieces = re.findall("|".join([*map(re.escape, back), r"\\[&%$#_{}]", "."]), escaped(text), re.S)
    assert "".join(back.get(piece, piece[-1]) for piece in pieces) == printable(text)  # a control character as its number


def test_the_short_table_is_by_what_rows_were_trained_on():
    """No flag is no proof: a row of which nothing is stated stands under unknown texts; the best of ten seeds nowhere."""
    text = tables.short_table(board(tab(id="x", aggregation="mean"), tab()))
    assert text.startswith(f"STS, Spearman, all: the best {tables.README_ROWS} backbones of each kind, of 2 ranked rows")
    (lines,) = rendered(text).tables
    assert lines[:2] == [["Trained on", "Method", "Backbone", "Avg", "95 % interval", "Rank", "Flags"],
                         ["unknown texts", ONE_LINE, "MiniLM_L6", "78.87", "78.1-79.6", "1-2", "best-of-n-like"]]
    plain = replace(MEASURED[1], setting="unsup", seeds=1)
    rows = [replace(plain, id=f"{i}", method=f"m{i}", backbone=f"b{i}") for i in range(12)]
    rows += [replace(plain, id="sts", flags=("sts", "nli")), replace(plain, id="no", exposure={"Avg": Exposure("no", "")}),
             replace(plain, id="nli", method="nli", setting="sup", flags=("nli",), exposure={"Avg": Exposure("yes", "")})]
    rows.insert(11, replace(plain, id="again", method="again", backbone="b11"))  # a worse row of the best one's backbone
    rows.insert(13, replace(plain, id="copy", method="copy", backbone="b9", flags=("near-copy",)))
    text = tables.short_table(board(tab(measured=tuple(reversed(rows)))))
    (lines,) = rendered(text).tables
    assert [line[0] for line in lines[1:]] == ["test sentences", "no test sentences", "STS labels",
                                               *["unknown texts"] * tables.README_ROWS]
    assert "of 17 ranked rows" in text and [line[2] for line in lines[4:]] == ["b11", "b10", "b9"]
    # It has no flags where no row has one, and never shows a sample.
    (lines,) = rendered(tables.short_table(board(tab(measured=(replace(MEASURED[1], seeds=1),))))).tables
    assert lines[0][-1] == "Rank"
    for nothing in (board(tab(sample=True)), board(tab(measured=())), board(tab(group="mteb")), Board((), {})):
        assert tables.short_table(nothing) == "Nothing has been measured yet.\n"


def test_tiers_have_a_column_where_rows_have_some():
    tiered = tab(measured=tuple(replace(row, rank=row.rank and replace(row.rank, tier=tier))
                                for tier, row in enumerate(MEASURED, 1)))
    lines = rendered(tables.markdown(tiered)).tables[0]
    assert [line[:2] for line in lines] == [["Rank", "Tier"], ["1 (1-2) a", "1"], ["2 (2) ab2", "2"], ["best of 10", ""]]
    assert tables.TIERS in tables.markdown(tiered) and tables.SUBJECT in tables.markdown(tiered)
    assert "Tier" not in tables.markdown(tab()) and tables.SUBJECT not in tables.markdown(tab())
    tex = tables.latex(tiered)
    assert "{rrlll" in tex and "{rlll" in tables.latex(tab()) and "Tier: the best row" in tex
    tiers = {(line["id"], line["tier"]) for line in csv_lines(board(tiered))}
    assert tiers >= {("one", "1"), ("two", "2"), ("three", ""), ("sbert:1:1", "")}


def prompted(chance=0.254):
    rows = tuple(
        replace(MEASURED[0], id=name, method=name, setting=setting, flags=(), cells={"Avg": Cell(*cell)}, rank=rank,
                prompts=prompts)
        for name, setting, cell, rank, prompts in (
            ("one", "unsup", (78.9, 78.0, 79.6), Rank(1, 1, 2, "a", prompts=(1, 3), chance=chance),
             PromptSpread(15, 70.1234, 1.26, 66.0, 72.5)),
            ("two", "unsup", (70.0, 69.2, 71.0), Rank(2, 1, 2, "a", prompts=(2, 2), chance=0.0), None),
            ("three", None, (61.0,), None, PromptSpread(1, -0.5, None, -0.5, -0.5))))
    return tab(columns=("Avg",), measured=rows, published=(replace(PUBLISHED[1], marks=()),))


def test_prompts_have_two_columns_and_a_sentence():
    measured, published = rendered(tables.markdown(prompted())).tables
    assert measured[0] == ["Rank", "Method", "Backbone", "Setting", "Avg", "Over prompts", "Rank over prompts", "Flags"]
    assert [line[5] for line in measured[1:]] == ["70.12 ± 1.26 (66.00 to 72.50; 15)", "", "-0.50 (-0.50 to -0.50; 1)"]
    assert [line[6] for line in measured[1:]] == ["1-3, first in 25 %", "2, first in 0 %", ""]
    assert "Over prompts" not in published[0] and tables.markdown(prompted()).count("over the draws and over items") == 1
    text = tables.latex(prompted())
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert r"\begin{tabular}{rlllrrrll}" in text and len(lines) == 5 and {line.count("&") for line in lines} == {8}
    assert r"1-3, first in 25 \%" in text and "over the draws and over items" in text
    # What is neither never nor always is not shown as either.
    for chance, shown in ((0.001, "<1 %"), (0.999, ">99 %"), (1.0, "100 %"), (0.5, "50 %")):
        assert rendered(tables.markdown(prompted(chance))).tables[0][1][6] == f"1-3, first in {shown}"
