"""The board's text tables: what csv, a Markdown parser and a reader of LaTeX get back is what the rows hold."""

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from stsbench.display.markup import escaped, plain_markdown
from stsbench.leaderboard.page.tables import (
    CSV_COLUMNS,
    README_ROWS,
    SAMPLE,
    SUBJECT,
    TIERS,
    csv_table,
    latex,
    latex_tables,
    markdown,
    markdown_tables,
    short_table,
)
from stsbench.leaderboard.ranks.board import Board, Cell, Rank, Row, Tab
from stsbench.wording import printable, visible

QUICK = settings(deadline=None, derandomize=True)  # the first example also pays for imports
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
        best_of=10, unranked=UNRANKED),
)
PUBLISHED = (
    Row("sbert:1:1", "published", "SBERT", "bert-base", "sup", {"STS12": Cell(70.97), "Avg": Cell(74.86)}, flags=("nli",),
        average_printed=74.89, marks=(DISAGREES,), source="SBERT, table 1",
        link="https://example.org/a?b=1&c=(2)"),
    Row("other:2:3", "published", "Other", "bert-base", None, {"Avg": Cell(74.0, sd=0.5)}, marks=(DISAGREES,),
        source="Other", link="javascript:alert(1)"),
)


def tab(**other):
    given = {
        "id": "sts-spearman-all", "group": "sts", "title": "Spearman, all", "about": "Cosine; nothing is trained.",
        "metric": "spearman", "aggregation": "all", "columns": COLUMNS, "lead": "Avg", "digits": 2, "lower_is_better": False,
        "measured": MEASURED, "published": PUBLISHED, **other,
    }
    return Tab(**given)


def board(*tabs):
    return Board(tabs or (tab(),), {}, None)


class _Tables(HTMLParser):
    """The tables of rendered Markdown as lists of cells' text; every tag that was met."""

    def __init__(self):
        super().__init__()
        self.tables, self.tags, self.inside = [], set(), False

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.inside = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.tables[-1][-1][-1] += data


def rendered(text):
    parser = _Tables()
    parser.feed(MarkdownIt("commonmark").enable("table").render(text))
    return parser


def test_markdown_shows_the_rows_as_a_parser_reads_them():
    page = rendered(markdown(tab()))
    measured, published = page.tables
    assert measured[0] == ["Rank", "Method", "Backbone", "Setting", *COLUMNS, "Flags"]
    assert measured[1] == ["1 (1-2) a", ONE_LINE, "MiniLM_L6", "unsup", "72.37", "77.10", "78.87 (78.1-79.6)", "0.00",
                           "NLI, best-of-n-like"]
    assert measured[2] == ["2 (2) ab2", "cls1", "MiniLM", "semi", "60.00 ± 0.46", "", "70.00 ± 0.31 (-3.2 to 1.0)", "",
                           "5 seeds"]
    assert measured[3] == ["best of 10", "tenth2", "MiniLM", "", "61.00", "", "71.00", "", "best of 10"]
    assert published[0] == ["Method", "Backbone", "Setting", *COLUMNS, "Flags", "Source"]
    assert published[1] == ["SBERT3", "bert-base", "sup", "70.97", "", "74.86, printed 74.89", "", "NLI",
                            "SBERT, table 1"]
    assert published[2] == ["Other3", "bert-base", "", "", "", "74.00 ± 0.5", "", "", "Other"]
    assert page.tags == {"p", "strong", "table", "thead", "tbody", "tr", "th", "td", "sup", "a"}
    assert "[SBERT, table 1](<https://example.org/a?b=1&c=(2)>)" in markdown(tab())


def test_why_published_rows_are_not_ranked_is_said_but_over_costs():
    why = "never ranked: papers give no digest of their data, and few say which text they measured:"
    assert f"Published, as the papers print it; {why}" in markdown(tab())
    costs = markdown(tab(group="cost"))
    assert "Published, as the papers print it:" in costs and "ranked:" not in costs.replace(UNRANKED, "")


def test_no_direction_is_named_where_nothing_is_ranked():
    rows = tuple(replace(row, rank=None, best_of=None, unranked="not ranked: two sides of one thing") for row in MEASURED)
    for write in (markdown, latex):
        text = write(tab(measured=rows)).lower()
        assert "is better" not in text and "higher" not in text and "lower" not in text


def test_footnotes_hold_the_marks_each_sentence_once():
    notes = [line for line in markdown(tab()).splitlines() if line.startswith("<sup>")]
    assert notes == ["<sup>1</sup> 3 texts were cut", f"<sup>2</sup> {UNRANKED}", f"<sup>3</sup> {DISAGREES}"]


def test_published_rows_can_be_left_out_and_take_their_footnotes_with_them():
    text = markdown(tab(), published=False)
    assert len(rendered(text).tables) == 1 and "74.8" not in text and "SBERT" not in text


def test_three_digits_where_the_tab_has_them():
    text = markdown(tab(digits=3, measured=(replace(MEASURED[0], cells={"Avg": Cell(0.21449, 0.2, 0.2301)}),)))
    assert "0.214 (0.20-0.23)" in text
    text = markdown(tab(digits=0, measured=(replace(MEASURED[0], cells={"Avg": Cell(214.49, 200.2, 230.1)}),)))
    assert "214 (200-230)" in text
    tiny = tab(digits=9, measured=(replace(MEASURED[0], cells={"Avg": Cell(3.25e-9)}),))
    assert next(csv.DictReader(io.StringIO(csv_table(board(tiny)))))["value"] == "0.00000000325"


@pytest.mark.parametrize("write", [markdown, latex, lambda tab: csv_table(board(tab))])
def test_sample_tabs_say_so(write):
    assert SAMPLE in write(tab(sample=True)) and SAMPLE not in write(tab())


def test_all_tabs_stand_below_their_groups():
    text = markdown_tables(board(tab(), tab(id="other", group="transfer", title="accuracy"), tab(id="third", title="mean")))
    heads = [line for line in text.splitlines() if line.startswith(("#", "**"))]
    assert heads == ["# Leaderboard", "## STS", "**Spearman, all**", "**mean**", "## Transfer", "**accuracy**"]
    assert len(rendered(text).tables) == 6
    tex = latex_tables(board(tab(), tab(id="third")))
    assert tex.count("\\begin{table*}") == tex.count("\\end{table*}") == 2 and tex.count("usepackage") == 1


@QUICK
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn"]), max_size=30))
def test_any_name_is_text_in_a_markdown_cell(name):
    page = rendered(f"| a | b |\n| --- | --- |\n| x{plain_markdown(name)} | end |\n")
    assert page.tables[0][1] == ["x" + visible(" ".join(name.split()), "\u200c\u200d"), "end"]
    assert page.tags == {"table", "thead", "tbody", "tr", "th", "td"}


@pytest.mark.parametrize("name", ["__init__", "_a_", "a*b*c", "[x](y)", "![x](y)", "a\\|b", "&lt;", "~~x~~", "<b>", "``"])
def test_markup_in_a_name_is_no_markup(name):
    page = rendered(f"| a | b |\n| --- | --- |\n| {plain_markdown(name)} | end |\n")
    assert page.tables[0][1] == [name, "end"] and page.tags == {"table", "thead", "tbody", "tr", "th", "td"}


def test_names_with_underscores_stay_readable():
    assert plain_markdown("first_last:embeddings") == "first_last:embeddings"


def test_csv_reads_back_as_every_score_of_every_row():
    both = board(tab(), tab(id="sample", sample=True, published=()))
    lines = list(csv.DictReader(io.StringIO(csv_table(both), newline="")))
    assert tuple(lines[0]) == CSV_COLUMNS and len(lines) == (4 + 2 + 2 + 2 + 1) + (4 + 2 + 2)
    found = {(line["tab"], line["id"], line["column"]): line for line in lines}
    for name, rows in (("sts-spearman-all", (*MEASURED, *PUBLISHED)), ("sample", MEASURED)):
        for row in rows:
            for column, cell in row.cells.items():
                line = found[name, row.id, column]
                assert float(line["value"]) == round(cell.value, 6) and line["kind"] == row.kind
                for key in ("low", "high", "sd"):
                    want = getattr(cell, key)
                    assert line[key] == "" if want is None else float(line[key]) == round(want, 6)
                assert line["n"] == ("" if cell.n is None else str(cell.n))
                assert line["method"] == " ".join(row.method.split()) and line["setting"] == (row.setting or "")
                ranks = [line[key] for key in ("place", "first", "last", "ties", "tier")]
                rank = row.rank
                assert ranks == ([str(rank.position), str(rank.first), str(rank.last), rank.ties, ""] if rank else [""] * 5)
    assert found["sts-spearman-all", "one", "STS12"]["flags"] == "nli best-of-n-like"
    assert found["sts-spearman-all", "three", "Avg"]["best_of"] == "10"
    assert found["sts-spearman-all", "three", "Avg"]["notes"] == UNRANKED
    assert found["sts-spearman-all", "two", "Avg"]["seeds"] == "5"
    assert found["sample", "two", "Avg"]["notes"] == f"{SAMPLE}; 3 texts were cut"


def test_csv_keeps_both_averages_where_a_paper_disagrees_with_itself():
    lines = list(csv.DictReader(io.StringIO(csv_table(board()))))
    mine = {line["column"]: line for line in lines if line["id"] == "sbert:1:1"}
    assert (mine["Avg"]["value"], mine["Avg"]["printed"], mine["STS12"]["printed"]) == ("74.86", "74.89", "")
    assert mine["Avg"]["notes"] == DISAGREES and {line["printed"] for line in lines if line["kind"] == "measured"} == {""}


@QUICK
@given(st.floats(-1e5, 1e5))
def test_csv_numbers_are_plain(value):
    row = replace(MEASURED[0], cells={"Avg": Cell(value)})
    text = next(csv.DictReader(io.StringIO(csv_table(board(tab(measured=(row,)))))))["value"]
    assert re.fullmatch(r"-?\d+(\.\d{1,6})?", text) and text != "-0" and float(text) == pytest.approx(value, abs=5.1e-7)


def test_latex_has_measured_rows_then_a_rule_then_published_ones():
    text = latex(tab())
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
    assert "\\midrule" not in latex(tab(published=())).split("\\midrule", 1)[1]


@QUICK
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


def test_latex_braces_are_balanced_whatever_the_names():
    text = re.sub(r"\\[{}]", "", latex(tab()))
    assert text.count("{") == text.count("}") and "<script>" not in text and "100\\%" in text


def test_the_short_table_names_the_protocol_and_shows_the_average():
    text = short_table(board(tab(id="x", aggregation="mean"), tab()))
    assert text.startswith("STS, Spearman, all: Cosine; nothing is trained.")
    (lines,) = rendered(text).tables
    assert lines[0] == ["Trained with", "Method", "Backbone", "Avg", "95 % interval", "Rank", "Flags"]
    assert lines[1] == ["NLI labels", ONE_LINE, "MiniLM_L6", "78.87", "78.1-79.6", "1-2", "best-of-n-like"]
    assert [line[0] for line in lines[1:]] == ["NLI labels", "other labels"]  # the best of ten seeds is not ranked
    assert "Of the 3 rows measured here, 2 are ranked" in text and "SBERT" not in text


def test_the_short_table_compares_what_can_be_compared():
    """Rows that saw STS labels or sentences of the tests lead nothing."""
    plain = replace(MEASURED[1], setting="unsup", seeds=1)
    rows = [replace(plain, id=f"{i}", method=f"m{i}") for i in range(12)]
    rows += [replace(plain, id="sts", flags=("sts", "nli")), replace(plain, id="seen", flags=("transductive",)),
             replace(plain, id="nli", method="nli", setting="sup", flags=("nli",))]
    text = short_table(board(tab(measured=tuple(reversed(rows)))))
    (lines,) = rendered(text).tables
    assert [line[0] for line in lines[1:]] == ["no labels"] * README_ROWS + ["NLI labels"]
    assert "Of the 15 rows measured here, 13 are ranked" in text


def test_the_short_table_has_no_flags_where_no_row_has_one_and_never_shows_a_sample():
    row = replace(MEASURED[1], seeds=1)
    (lines,) = rendered(short_table(board(tab(measured=(row,))))).tables
    assert lines[0][-1] == "Rank"
    for nothing in (board(tab(sample=True)), board(tab(measured=())), board(tab(group="mteb")), Board((), {}, None)):
        assert short_table(nothing) == "Nothing has been measured yet.\n"


def test_tiers_have_a_column_where_rows_have_some():
    one, two, three = MEASURED
    first, second = (replace(row, rank=replace(row.rank, tier=tier)) for row, tier in ((one, 1), (two, 2)))
    tiered = tab(measured=(first, second, three))
    lines = rendered(markdown(tiered)).tables[0]
    assert [line[:2] for line in lines] == [["Rank", "Tier"], ["1 (1-2) a", "1"], ["2 (2) ab2", "2"], ["best of 10", ""]]
    assert TIERS in markdown(tiered) and SUBJECT in markdown(tiered)
    assert "Tier" not in markdown(tab()) and SUBJECT not in markdown(tab())
    assert "{rrlll" in latex(tiered) and "{rlll" in latex(tab()) and "Tier: the best row" in latex(tiered)
    tiers = {(line["id"], line["tier"]) for line in csv.DictReader(io.StringIO(csv_table(board(tiered))))}
    assert tiers >= {("one", "1"), ("two", "2"), ("three", ""), ("sbert:1:1", "")}
