"""Numbers in sentences, and foreign text in cells."""

import csv
import io

import pytest
from source_facts import facts, tree

from stsbench.display.markup import comment, escaped, plain_markdown
from stsbench.display.table import Table, csv_table, html_lines
from stsbench.wording import counted, csv_cell, sized


def test_one_is_singular():
    assert [counted(number, "text") for number in (0, 1, 2, 12345)] == ["0 texts", "1 text", "2 texts", "12,345 texts"]


def test_sizes_have_two_digits_or_three():
    sizes = {0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 9_949: "9.9 kB", 9_951: "10 kB", 999_499: "999 kB",
             999_500: "1.0 MB", 17_400_000: "17 MB", 1_850_000_000: "1.9 GB", 5 * 10**15: "5,000 TB"}
    assert {count: sized(count) for count in sizes} == sizes


HOSTILE = "a|b <img src=x> \x1b[31m \u202e\\input{x} $x$ & c"


def test_foreign_text_is_text_in_every_form():
    """No terminal, page or paper obeys what a name holds; a comment has one line."""
    table = Table.from_rows(HOSTILE, [HOSTILE], [[HOSTILE]], notes=[HOSTILE, f"    {HOSTILE}"])
    forms = [table.html(), html_lines([HOSTILE]), plain_markdown(HOSTILE), escaped(HOSTILE), table.latex().split("%")[0],
             comment(f"a\n{HOSTILE}"), table.text(), table.text(40), table.csv(), table.markdown()]
    assert not any("\x1b" in form or "\u202e" in form for form in forms)
    assert not any("<img" in form for form in forms[:3]) and not any("\\input" in form for form in forms[3:5])
    assert "\n" not in forms[5] and "a\\|b" in forms[2] and forms[9].count("<img") == 1  # in a block of code


@pytest.mark.parametrize(("text", "cell"), [
    ("=cmd|A1", "'=cmd|A1"), ("+1", "'+1"), ("@SUM(1)", "'@SUM(1)"), ("-A1", "'-A1"), ("a;=B1", "a;'=B1"),
    ("\t=B1", "\t'=B1"), ("\r=B1", "\\r=B1"), ("a\n=B1", "a\n'=B1"), ("\uff1dB1", "'\uff1dB1"),
    ("\x1b[31mred", "\\x1b[31mred"), ("\u202eevil", "\\u202eevil"),
    ("-0.5", "-0.5"), ("-1e-09", "-1e-09"), ("-0.5+B1", "'-0.5+B1"), ("-\u0661", "'-\u0661"), ("a - b", "a - b"),
    ("x=1", "x=1"),
])
def test_a_cell_of_csv_runs_nothing(text, cell):
    assert csv_cell(text) == cell
    written = csv_table(["a", "b"], [{"a": text, "b": -0.5}])
    assert list(csv.DictReader(io.StringIO(written))) == [{"a": cell, "b": "-0.5"}]


def test_csv_is_written_in_one_place():
    """Whoever writes it elsewhere writes cells that a spreadsheet runs."""
    writers = {"writer", "DictWriter", "to_csv", "write_csv", "savetxt"}
    assert [file for file, text in tree().items() if writers & facts(text).members] == ["stsbench/display/table.py"]
