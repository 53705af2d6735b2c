"""The page as text: everything escaped, nothing asked for, the same bytes every time, colours that can be read."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from board_example import HOSTILE, QUOTES, board
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from stsbench.errors import StsbenchError
from stsbench.leaderboard.page.page import TEMPLATES, columns, raw, render, safe_link
from stsbench.leaderboard.ranks.board import FLAGS, Board, Cell, Row, Tab

VOID = {"meta", "link", "input", "br", "img", "wbr"}


class Page(HTMLParser):
    """Every start tag with its attributes, every attribute of text, and the text of each element kind."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"<{tag}> names an attribute twice"
        self.tags.append((tag, dict(attrs)))
        self.text.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.text[tag][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def html() -> str:
    return render(board())


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_every_element_is_closed_and_every_id_is_unique(page: Page) -> None:
    assert page.open == []
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for attrs in page.all("a") if (attrs["href"] or "").startswith("#")} <= set(ids)


def test_names_that_look_like_markup_are_text(html: str, page: Page) -> None:
    assert len(page.all("script")) == 1 and HOSTILE not in html
    for name in (HOSTILE, f"{QUOTES} †"):  # a published row's id stands behind its method
        assert any(text == name or text.startswith(f"{name} ") for text in page.text["th"])
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on") or name == "style"]


@settings(deadline=None, max_examples=50)
@given(name=st.text(min_size=1), about=st.text(), flag=st.text(min_size=1), mark=st.text())
@example(name="</th><img src=x onerror=alert(1)>", about="</style>", flag='" onclick="x', mark="<!--")
def test_no_text_adds_an_element_or_an_attribute(name: str, about: str, flag: str, mark: str) -> None:
    def shape(name: str, about: str, flag: str, mark: str) -> list[tuple[str, list[str]]]:
        row = Row("x", "published", name, name, None, {"A": Cell(1.0)}, flags=(flag,), marks=(mark,), source=name)
        tab = Tab("one", "sts", name, about, name, None, ("A",), "A", 2, False, (), (row,), settings={name: about or 1})
        return [(tag, sorted(attrs)) for tag, attrs in Page(render(Board((tab,), {}, None))).tags]

    assert shape(name, about, flag, mark) == shape("plain", "plain", "plain", "plain")


def test_nothing_is_asked_for(page: Page) -> None:
    assert not [attrs for _, attrs in page.tags if "src" in attrs or "srcset" in attrs]
    assert [attrs["href"] for attrs in page.all("link")] == ["data:,"]
    style, script = ((TEMPLATES / name).read_text("utf-8") for name in ("style.css", "board.js"))
    assert "url(" not in style and "@import" not in style
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|fetch|XMLHttp|Function\(", script)
    assert "</" not in style + script  # neither may end the element it stands in


def test_policy_allows_this_style_and_this_script_only(html: str, page: Page) -> None:
    policy = next(attrs["content"] for attrs in page.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy")
    found = dict(part.strip().split(" ", 1) for part in (policy or "").split(";"))
    assert found["default-src"] == "'none'" and "unsafe" not in (policy or "")
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        text = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()
        assert len(text) == 1 and found[rule] == f"'sha256-{digest}'"


def test_dangerous_links_are_dropped_and_others_kept(page: Page) -> None:
    links = {attrs["href"] for attrs in page.all("a")}
    assert "https://example.org/paper?a=1&b=2" in links
    assert {urlsplit(link or "").scheme for link in links} == {"https", ""}


@given(st.one_of(st.text(), st.from_regex(r"\A\s*[a-zA-Z\t\n]*:.*", fullmatch=True)))
@example("javascript:alert(1)")
@example("java\nscript:alert(1)")
@example("\x01javascript:alert(1)")
@example("data:text/html,x")
@example("JAVASCRIPT&colon;alert(1)")
def test_a_link_that_passes_is_http_or_relative(link: str) -> None:
    if kept := safe_link(link):
        # A browser drops control characters and white space before it looks for the scheme.
        scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):", re.sub(r"[\x00-\x20]", "", kept))
        assert scheme is None or scheme[1].lower() in {"http", "https"}


def test_links_that_are_kept_whole() -> None:
    for link in ("https://arxiv.org/abs/2104.08821", "HTTP://example.org:8080/a?b=c#d", "tables/sts.csv", "../a", "#sts"):
        assert safe_link(link) == link


def test_same_board_same_bytes_whatever_the_order_of_its_mappings() -> None:
    one, other = board(), board()
    turned = tuple(
        dataclasses.replace(tab, settings=dict(reversed(list(tab.settings.items()))),
                            data=dict(reversed(list(tab.data.items()))),
                            measured=tuple(_turned(row) for row in tab.measured))
        for tab in other.tabs
    )  # fmt: skip
    other = Board(turned, dict(reversed(list(other.entries.items()))), other.sensitivity)
    assert one == other and render(one) == render(other)


def _turned(row: Row) -> Row:
    cells, subsets = (dict(reversed(list(each.items()))) for each in (row.cells, row.subsets))
    return dataclasses.replace(row, cells=cells, subsets=subsets)


def test_provenance_stands_once_however_many_rows_it_stands_behind(html: str) -> None:
    for i in range(6):
        assert html.count(f"<code>{i:064x}</code>") >= 1
        assert html.count(f"models/example {i}&#39;") == (2 if i == 0 else 1)  # entry 0 has two runs


def test_sixty_measured_and_250_published_rows_stay_below_a_megabyte() -> None:
    large = render(board(60, 250, 60))
    assert large.count('class="rank"') > 310 and len(large.encode()) < 1_000_000


def test_published_rows_have_no_rank_and_best_of_n_says_so(html: str) -> None:
    tab = board().tabs[0]
    panel = html[html.index(f'id="{tab.id}"') : html.index(f'id="{board().tabs[1].id}"')]
    measured, published = panel.split('<tbody class="published">')
    assert measured.count('<td class="rank" data-v=""><small>not ranked') == 1 and "its text was changed" in measured
    assert len(re.findall('<td class="rank" data-v="[0-9]+"><b>', measured)) == len(tab.measured) - 2
    assert re.findall(r'<td class="rank"[^>]*>[^<]', published) == ['<td class="rank" data-v="">b']
    assert "best of 10" in measured and "best of 10" in published
    assert "Never ranked: papers give no digest of their data, and few say which text they measured." in published


def of_tab(html: str, name: str) -> str:
    """The part of the page that shows the tab."""
    found = re.search(rf'<section class="panel" id="{name}">.*?</section>', html, re.DOTALL)
    assert found
    return found[0]


def test_a_tab_of_published_rows_alone_has_no_ranks(html: str) -> None:
    tab = board().tabs[-1]
    text = of_tab(html, tab.id)
    assert not tab.measured and "Rank" not in text and 'class="rank"' not in text
    heads = Page(text).text["th"][:6]
    assert heads == ["Method", "Backbone", *tab.columns, "Setting", "Flags"]
    widths = [int(each["colspan"] or 0) for _, each in Page(text).tags if "colspan" in each]
    assert set(widths) == {len(heads)}
    best = dataclasses.replace(tab, published=(dataclasses.replace(tab.published[0], best_of=3, flags=("best-of-n",)),))
    assert "the best of 3 seeds" in render(Board((best,), {}, None))


def test_an_average_stands_first_and_no_other_lead_does(html: str) -> None:
    sts, cost = board().tabs[0], board().tabs[-1]
    assert columns(sts) == ["Avg", *sts.columns[:-1]] and columns(cost) == ["added", "minutes"]
    text = of_tab(html, cost.id)
    heads = [attrs["class"] for attrs in Page(text).all("th") if attrs.get("scope") == "col"]
    assert heads == ["method", "backbone", "num", "num lead", "setting", "flags"]
    assert text.count('<td class="lead">') == len(cost.published)
    for row in cost.published:
        added, minutes = (f"{row.cells[name].value:.2f}" for name in cost.columns)
        assert f'<td>{added}</td>\n<td class="lead">{minutes}</td>' in text


def test_nothing_is_said_of_ranks_over_what_nobody_would_rank(html: str) -> None:
    assert "Never ranked" not in of_tab(html, "cost-minutes") and "Never ranked" in of_tab(html, "transfer-sgd")


def test_a_caption_names_a_direction_only_where_lower_is_better() -> None:
    tab = next(tab for tab in board().tabs if tab.id == "geometry-stsb")
    bare = tuple(dataclasses.replace(row, rank=None, unranked="not ranked: two sides of one thing") for row in tab.measured)
    unranked = dataclasses.replace(tab, lower_is_better=False, measured=bare)
    for each, said in ((tab, True), (unranked, False)):
        text = render(Board((each,), board().entries, None))
        caption = Page(of_tab(text, tab.id)).text["caption"][0]
        assert ("lower is better" in caption) == said and "higher" not in caption
        assert ("share a letter" in of_tab(text, tab.id)) == said


def test_a_published_row_links_its_paper_by_its_id(html: str) -> None:
    tab = board().tabs[0]
    text = of_tab(html, tab.id)
    linked = {text: attrs["href"] for text, attrs in zip(Page(text).text["a"], Page(text).all("a"), strict=True)}
    assert len({row.link for row in tab.published}) == 2
    for row in tab.published:
        assert linked.get(row.id, "") == row.link


def test_a_card_that_may_not_be_linked_is_text() -> None:
    tab = board().tabs[0]
    for card, linked in (("https://example.org/card", True), ("models/example", True), ("javascript:alert(3)", False)):
        row = dataclasses.replace(tab.measured[0], card=card)
        page = Page(render(Board((dataclasses.replace(tab, measured=(row,), published=()),), board().entries, None)))
        assert (card in {attrs["href"] for attrs in page.all("a")}) == linked
        assert any(f"model card: {card}" in text for text in page.text["dd"]) != linked


def test_numbers_have_the_digits_of_their_tab(html: str) -> None:
    tab = next(tab for tab in board().tabs if tab.id == "geometry-stsb")
    for row in tab.measured:
        for cell in row.cells.values():
            assert f'data-v="{cell.value!r}">{cell.value:.3f}' in html
    assert "lower is better" in html and "-3." in html


@given(st.floats(-1000, 1000), st.integers(0, 4))
def test_what_is_sorted_by_is_the_number_itself(value: float, digits: int) -> None:
    assert float(raw(value, digits) or f"{value:.{digits}f}") == value


def test_marks_flags_and_missing_cells_are_shown(html: str, page: Page) -> None:
    tab = board().tabs[0]
    odd = [row for row in tab.published if row.average_printed is not None]
    assert len(odd) == 4
    for row in odd:
        assert f"the paper prints {row.average_printed:.2f}" in html
    for label, sentence in FLAGS.values():
        assert label in html and sentence in html
    assert all(attrs["aria-label"] for attrs in page.all("span") if attrs.get("class") == "mark")
    lines = re.sub(r'<tr class="more">.*?</div></details></td></tr>', "", html, flags=re.DOTALL)
    rows = [(each, row) for each in board().tabs for row in (*each.measured, *each.published)]
    missing = [column for each, row in rows for column in each.columns if column not in row.cells]
    assert len(missing) > 20 and lines.count("<td></td>") == len(missing)


def test_sample_tabs_are_labelled_on_the_tab_and_above_the_table(html: str) -> None:
    assert html.count("Sample data.") == 1
    assert '<span class="chip warn">sample</span>' not in html  # a group of one tab has no second row of tabs
    twice = next(tab for tab in board().tabs if tab.sample)
    again = Board((twice, dataclasses.replace(twice, id="other", sample=False)), board().entries, None)
    said = [text for text in Page(render(again)).text["a"] if text.startswith("Pearson")]
    assert render(again).count('<span class="chip warn">sample</span>') == 1
    assert said == ["Pearson sample", "Pearson, sample"]  # once each: where there is a sign, the title leaves it out


def test_tables_are_marked_up_for_screen_readers(page: Page) -> None:
    assert len(page.all("caption")) == len(page.all("table"))
    assert {attrs.get("scope") for attrs in page.all("th")} == {"col", "row", "rowgroup"}
    regions = [attrs for attrs in page.all("div") if "scroll" in (attrs.get("class") or "")]
    assert len(regions) == len(page.all("table"))
    assert all(each["tabindex"] == "0" and each["role"] == "region" and each["aria-label"] for each in regions)


def test_the_picture_is_put_in_as_markup_only_when_it_says_so() -> None:
    shapes = '<svg viewBox="0 0 1 1"><path d="M0 0" stroke="var(--line-1, #000)"/></svg>'
    assert shapes in render(board(), Markup(shapes)) and shapes not in render(board(), shapes)  # type: ignore[arg-type]
    for bad in ("<svg><style>a{}</style></svg>", '<svg style="x"/>', '<svg onload="x"/>', "<svg><script/></svg>"):
        with pytest.raises(StsbenchError, match="picture"):
            render(board(), Markup(bad))


def test_sensitivity_says_which_pairs_swap_and_what_noise_says() -> None:
    text = re.sub(r"\s+", " ", " ".join(Page(render(board())).text["li"]))
    assert f"MiniLM, cls stands above {HOSTILE} under all Spearman and below it under mean Spearman" in text
    assert "significantly different under all Spearman only" in text
    assert "On STS13, MiniLM, mean stands above tf-idf under all Spearman and below it under mean Spearman" in text


def test_no_sensitivity_and_no_rows_still_make_a_page() -> None:
    assert 'href="#sensitivity"' not in render(Board(board().tabs, board().entries, None))
    assert "No results yet." in render(Board((), {}, None))


def test_faults_are_named() -> None:
    tab = board().tabs[0]
    row = dataclasses.replace(tab.published[0], cells={"STS12": Cell(float("nan"))})
    for bad, words in (
        ((tab, tab), "taken"), ((dataclasses.replace(tab, id="a b"),), "unfit"),
        ((dataclasses.replace(tab, lead="X"),), "lead 'X'"),
        ((dataclasses.replace(tab, published=(row,)),), f"row '{row.id}', STS12: not a finite number"),
    ):  # fmt: skip
        with pytest.raises(StsbenchError, match=re.escape(words)):
            render(Board(bad, board().entries, None))
    with pytest.raises(StsbenchError, match="no entry 'entry-"):
        render(Board(board().tabs, {}, None))
