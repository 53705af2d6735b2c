"""The shorter page is the same document to a reader of HTML."""

from __future__ import annotations

from typing import Any

import html5lib
import pytest
from board_example import HOSTILE, board

from stsbench.leaderboard.page.compact import compact
from stsbench.leaderboard.page.page import render


def document(html: str) -> list[tuple[Any, ...]]:
    """Every element in order: depth, name, attributes, its own text and the text behind it, as a browser shows spaces."""
    found = []

    def walk(element: Any, depth: int) -> None:
        texts = [" ".join((text or "").split()) for text in (element.text, element.tail)]
        found.append((depth, str(element.tag), sorted(element.attrib.items()), *texts))
        for child in element:
            walk(child, depth + 1)

    walk(html5lib.parse(html, namespaceHTMLElements=False), 0)
    return found


def test_a_parser_of_html5_reads_the_same_document() -> None:
    html = str(render(board()))
    short = compact(html)
    assert HOSTILE.split("<")[0] in short and len(short) < 0.95 * len(html)
    assert document(short) == document(html) and compact(short) == short


@pytest.mark.parametrize("kept", [
    "<script>a\n\n</td>\n<td>b</script>", "<style>a {\n\n}</style>", "<pre>a\n\n  b</td></pre>",
])
def test_style_script_and_preformatted_text_stay_to_the_byte(kept: str) -> None:
    assert compact(f"<p>x\n\n\n{kept}\n\n<p>y") == f"<p>x\n{kept}\n<p>y"


def test_words_of_a_sentence_do_not_run_together() -> None:
    assert compact("<td>one\n  two\n<small>three</small>\n</td>\n<td>") == "<td>one\ntwo\n<small>three</small><td>"


def test_only_values_that_need_no_quotes_lose_them() -> None:
    assert compact('<td class="lead" data-v="1.5"><a href="#a/b" title="x=1" id="">"b"="c"</a>') == (
        '<td class=lead data-v=1.5><a href="#a/b" title="x=1" id="">"b"="c"</a>')
    assert compact('<p a="b>c" d="e">f="g"') == '<p a="b>c" d="e">f="g"'  # what holds a tag's end is left alone
