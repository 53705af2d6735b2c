"""The page of MTEB's published results in a browser, and the files behind it."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from site_pages import (  # noqa: F401  a fixture
    browser,
    by_script,
    clean,
    column,
    comes_to,
    css,
    fragment,
    go,
    ranking,
    requests,
    said,
    write_site,
)
from synthetic_board import synthetic

from stsbench.leaderboard.mteb.results import ITEMS, load_published
from stsbench.leaderboard.mteb.section import published_page, rank_moves
from stsbench.leaderboard.mteb.standings import AsPublished, MeasuredHere, as_published
from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.ranks.board import Board

BOARD = Path(__file__).resolve().parents[3] / "leaderboard"
TAB, MODEL, ENTRY = "mteb-as-published", "sentence-transformers/all-MiniLM-L6-v2", "entry-0003"


@pytest.fixture(scope="module")
def published() -> AsPublished:
    here = MeasuredHere(ENTRY, MODEL, dict.fromkeys(ITEMS, 78.5))
    return as_published(load_published(BOARD), measured_here=[here])


@pytest.fixture(scope="module")
def whole(published: AsPublished) -> Board:
    return dataclasses.replace(synthetic(9, 3), sections={"mteb": published})


def loaded(browser: Any) -> set[str]:
    """The names of the files that were asked for since the last call."""
    return {url.rpartition("/")[2] for url in requests(browser)}


def test_the_file_holds_every_row_and_the_index_what_is_shown_before(whole: Board, published: AsPublished) -> None:
    files = site(whole)
    data, index = json.loads(files[f"published/{TAB}.json"]), json.loads(files["index.json"])
    assert len(data["rows"]) == 207 and data["ranked"] == 206 and [task["items"] for task in data["tasks"]][-1] == 9927
    for row, known in zip(data["rows"], published.rows, strict=True):
        assert row["model"] == known.model and row["mean"] == round(sum(known.scores.values()) / 7, 4)
        assert row["scores"] == [round(score, 4) for score in known.scores.values()]
    (odd,) = [row for row in data["rows"] if "rank" not in row]
    assert odd["unranked"] and odd["scores"][5] == 0.9762  # as printed
    shown = index["as_published"]
    assert (shown["first"], shown["ranked"]) == (4, 206) and TAB not in {tab["id"] for tab in index["tabs"]}
    assert shown["measured_here"] == {ENTRY: {"model": MODEL, "published": 78.9365, "measured": 78.5}}
    assert "as_published" not in json.loads(site(synthetic(3, 2))["index.json"])
    assert len(gzip.compress(files[f"published/{TAB}.js"].encode(), 9)) < 25_000


def test_a_reader_looks_up_a_model(browser: Any, whole: Board, published: AsPublished, tmp_path: Path) -> None:
    url = write_site(whole, tmp_path)
    go(browser, url, TAB)
    comes_to(lambda: len(ranking(browser)), 20)
    assert f"{TAB}.js" in loaded(browser)
    answer = said(browser, ".answer")
    first = "Qwen/Qwen3-Embedding-4B, Qwen/Qwen3-Embedding-8B, Lajavaness/"
    assert answer.startswith(f"4 of 206 models cannot be excluded as the best: {first}") and "95 %" in answer
    for fold in css(browser, ".answer summary, .filter-box summary"):
        by_script(fold)
    assert "nobody here checked these scores; 111 rows are copied from model cards" in said(browser, ".answer")
    # As on every table: a bold interval of ranks is of all rows at once, a filled dot could be the best.
    by_script(css(browser, "button.more:not([hidden])")[0])
    comes_to(lambda: len(ranking(browser)), 207)
    places = {row.model: at for row, at in zip(published.rows, published.standings, strict=True)}
    drawn = browser.execute_script("""return [...document.querySelectorAll('.lines.measured .line')].map((line) => [
        '.open', '.place', '.between b', '.between small'].map((part) => line.querySelector(part)?.textContent ?? ''))""")
    assert {model for model, *_ in drawn} == set(places)
    for model, *texts in drawn:
        if at := places[model]:
            assert texts == [str(at.position), interval(*at.jointly), f"alone {interval(at.first, at.last)}"]
    able = [line.text for line in css(browser, ".lines.measured .able .open")]
    assert sorted(able) == sorted(row.model for row in published.tier(1))
    # A search narrows the rows, and stays in the address; the scores of the tasks are columns.
    matching = sorted(row.model for row in published.rows
                      if all(word in row.model.lower() for word in ("minilm-l6", "sentence")))
    css(browser, "#filters [type=search]")[0].send_keys("minilm-l6 sentence")
    comes_to(lambda: sorted(ranking(browser)), matching)
    assert "q=minilm-l6+sentence" in fragment(browser)
    by_script(css(browser, "#tab-view-scores")[0])
    comes_to(lambda: sorted(column(browser, "method")), matching)
    row = next(row for row in published.rows if row.model == matching[0])
    shown = column(browser, "STSBenchmark")[column(browser, "method").index(matching[0])]
    assert shown == f"{row.scores['STSBenchmark']:.2f}"
    by_script(css(browser, "[role=tab][id=tab-group-sts]")[0])
    comes_to(lambda: len(css(browser, ".lines.measured .line, .scores")) > 0, True)
    assert fragment(browser).startswith("sts-spearman-all")  # the search was of the other rows
    assert css(browser, "#filters [type=search]")[0].get_attribute("value") == ""
    # A model is looked up both ways.
    go(browser, url, f"{TAB}?open={MODEL}")
    comes_to(lambda: said(browser, "#drawer-title"), MODEL)
    assert "As published 78.94; measured here 78.50." in said(browser, "#drawer") and "tier " in said(browser, "#drawer")
    by_script(next(link for link in css(browser, "#drawer dd a") if link.text.endswith(ENTRY)))
    comes_to(lambda: fragment(browser), f"sts-spearman-all?open={ENTRY}")
    comes_to(lambda: said(browser, "#drawer-title") != MODEL and MODEL in said(browser, "#drawer"), True)
    by_script(next(link for link in css(browser, "#drawer dd a") if link.text == MODEL))
    comes_to(lambda: said(browser, "#drawer-title"), MODEL)
    by_script(css(browser, "#drawer .close")[0])
    comes_to(lambda: fragment(browser), TAB)
    # Two models are tested over tasks.
    go(browser, url, f"{TAB}?compare={published.rows[0].model}&compare={published.rows[1].model}")
    comes_to(lambda: "another draw of seven such tasks" in said(browser, "#drawer .verdict"), True)
    # A language is a table of its own, and few pairs rank nothing.
    go(browser, url, f"{TAB}?x=STS17%2Fen-de")  # as links of before have it
    language = next(one for one in published.languages if (one.task, one.name) == ("STS17", "en-de"))
    many = f"{language.first} of {language.ranked} models"
    comes_to(lambda: said(browser, ".answer .lead"), f"{many} could be first in STS17, en-de.")
    browser.execute_script("""
        const list = document.querySelector('.switches select');
        list.value = 'STS22.v2/fr-pl'; list.dispatchEvent(new Event('change'));""")
    comes_to(lambda: said(browser, ".answer .lead"), "STS22.v2, fr-pl: no ranks.")
    assert "8 pairs rank nothing" in said(browser, ".answer") and fragment(browser) == f"{TAB}?set=STS22.v2%2Ffr-pl"
    assert {cell.text for cell in css(browser, ".lines.measured .between")[:5]} == {"not ranked"}
    go(browser, url, f"{TAB}?set=STS17%2Fxx")
    assert said(browser, "#panel .banner").startswith("This link names a table that is not on this board: STS17/xx")
    clean(browser, url)


def test_the_first_screen_names_the_best_of_both_and_never_in_one_order(
    browser: Any, whole: Board, published: AsPublished, tmp_path: Path
) -> None:
    url = write_site(whole, tmp_path)
    go(browser, url)
    comes_to(lambda: len(css(browser, ".choose .encoders")), 2)
    ours, theirs = (cells(browser, at) for at in (0, 1))
    tab = whole.tabs[0]
    assert ours[0] == [row.method for row in tab.measured if row.rank and row.rank.first == 1]
    assert theirs[0] == [row.model for row in published.tier(1)] and len(theirs[1]) == 11
    assert not {row.model for row in published.rows} & {name for group in ours for name in group}
    text = said(browser, ".panels")
    assert f"{tab.measured[0].method}: Avg {tab.measured[0].cells['Avg'].value:.2f} (" in text
    assert f"{published.rows[0].model}: Mean {published.rows[0].mean:.2f}, the best of 206." in text
    # A limit leaves out what does not meet it; the best, and what ties with it, is of the rest.
    wide = sorted(entry.runs[0]["width"] for entry in whole.entries.values())[0]
    go(browser, url, f"which?dims={wide}")
    comes_to(lambda: len(css(browser, ".choose .encoders")) > 0, True)
    assert {name for group in cells(browser, 0) for name in group} == {
        row.method for row in tab.measured if row.rank and whole.entries[row.entry].runs[0]["width"] <= wide}
    # A language that only MTEB knows of: nothing is answered from English.
    go(browser, url, "which?language=German")
    comes_to(lambda: "nothing in German yet" in said(browser, ".panels"), True)
    german = next(one for one in published.languages if (one.task, one.name) == ("STS22.v2", "de"))
    assert german.rows[0].model in said(browser, ".panels") and "language=German" in fragment(browser)
    # Two that may be equal: one click away, and tested.
    go(browser, url)
    by_script(css(browser, ".panels .answer button")[0])
    comes_to(lambda: len(css(browser, "#drawer .verdict .sure")), 1)
    assert fragment(browser).startswith("which?compare=")
    clean(browser, url)


def cells(browser: Any, at: int) -> list[list[str]]:
    """The names in the groups of a table of the first screen."""
    return list(browser.execute_script("""
        return [...document.querySelectorAll('.encoders')[arguments[0]].querySelectorAll('tbody')].map(
            (group) => [...group.querySelectorAll('.open')].map((each) => each.textContent))""", at))


def interval(low: int, high: int) -> str:
    return f"{low}–{high}" if low != high else str(low)


def test_the_findings_say_what_the_board_holds(published: AsPublished) -> None:
    page = published_page(published)
    names = ["Qwen/Qwen3-Embedding-4B", "Qwen/Qwen3-Embedding-8B", "Lajavaness/bilingual-embedding-large",
             "Cohere/Cohere-embed-english-v3.0"]
    assert f"**4 cannot be excluded as the best: {', '.join(names)}.** In a test of two alone, 1 of the other 3" in page
    assert "(not Gameselo/STS-multilingual-mpnet-base-v2: a score was divided by 100 twice" in page
    assert "202 of 205 pairs of neighbours cannot be separated at 5 %" in page and "176 of 180" in page
    assert f"{MODEL} 78.94 as published, 78.50 measured here (`{ENTRY}`)" in page and "| mixed folders | 19 |" in page
    assert (BOARD.parent / "docs/findings/mteb-as-published.md").read_text("utf-8").startswith(page[:200])


def test_who_was_trained_on_kin_of_the_tasks_is_said_and_others_are_ranked_alone(published: AsPublished) -> None:
    """Unknown is neither: it is not among those that are ranked alone, and no row is called so for want of a record."""
    trained = [published.trained(row.model) for row in published.rows]
    assert {word: trained.count(word) for word in ("yes", "no", "unknown")} == {"yes": 31, "no": 135, "unknown": 41}
    assert trained[:20].count("yes") == 7 and published.training["jinaai/jina-embeddings-v3"] == ["STS12"]
    for word, standing in zip(trained, published.declared, strict=True):
        assert (standing is not None) <= (word == "no")
    alone = [row.mean for row, standing in zip(published.rows, published.declared, strict=True) if standing]
    places = [standing.position for standing in published.declared if standing]
    assert places == [1 + sum(other > mean for other in alone) for mean in alone]
    page = published_page(published)
    assert "31 models were trained on sets that hold pairs of these tasks" in page and "of 41 nothing is known" in page


# As their makers state them: the models' cards, and the announcement of jina-embeddings-v3.
@pytest.mark.parametrize(("model", "facts"), [
    ("jinaai/jina-embeddings-v3", {"licence": "CC-BY-NC-4.0", "released": "2024-09", "width": 1024, "max_tokens": 8192}),
    ("Qwen/Qwen3-Embedding-0.6B", {"licence": "Apache-2.0", "released": "2025-06", "width": 1024, "max_tokens": 32768}),
    (MODEL, {"licence": "Apache-2.0", "width": 384, "max_tokens": 256, "languages": ["en"], "languages_n": 1, "open": True}),
    ("intfloat/multilingual-e5-small", {"licence": "MIT", "width": 384, "max_tokens": 512, "languages_n": 93}),
])
def test_a_row_has_what_a_choice_needs(whole: Board, model: str, facts: dict[str, Any]) -> None:
    rows = {row["model"]: row for row in json.loads(site(whole)[f"published/{TAB}.json"])["rows"]}
    published = rows.get(model) or load_published(BOARD).facts[model]
    assert {name: published[name] for name in facts} == facts


def test_where_the_first_rows_stand_without_kin(published: AsPublished) -> None:
    header, *rows = [line.split(",") for line in rank_moves(published).splitlines()]
    assert len(rows) == 20 and header[2:4] == ["trained_on_kin", "place"]
    ranks = {row[0]: row[2:4] + row[6:7] + row[9:10] for row in rows}
    assert ranks["Lajavaness/bilingual-embedding-large"] == ["yes", "4", "", ""]
    assert ranks["Haon-Chen/speed-embedding-7b-instruct"] == ["unknown", "8", "5", ""]
    assert ranks["google/text-embedding-005"] == ["no", "12", "8", "6"]
    for row, standing in zip(published.rows, published.without, strict=True):
        assert (standing is None) == bool(row.unranked or published.trained(row.model) == "yes")
