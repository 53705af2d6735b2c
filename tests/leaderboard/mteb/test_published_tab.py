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
    comes_to,
    css,
    fragment,
    go,
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


def lines(browser: Any) -> list[str]:
    script = "return [...document.querySelectorAll('.published-lines .name .open')].map(each => each.textContent)"
    return list(browser.execute_script(script))


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
    go(browser, url, width=390)  # the first screen of a phone
    assert said(browser, ".which").startswith("Which model? 4 of 206 published models cannot be excluded")
    assert f"{TAB}.js" not in loaded(browser)  # read only when it is looked at
    by_script(css(browser, ".which a")[0])
    comes_to(lambda: len(lines(browser)), 30)
    assert fragment(browser) == TAB and f"{TAB}.js" in loaded(browser)
    answer = said(browser, ".answer")
    first = "Qwen/Qwen3-Embedding-4B, Qwen/Qwen3-Embedding-8B, Lajavaness/"
    assert answer.startswith(f"4 of 206 models cannot be excluded as the best: {first}") and "95 %" in answer
    assert "nobody here checked these scores; 111 rows are copied from model cards" in answer
    assert browser.execute_script("return document.querySelector('.answer').getBoundingClientRect().bottom") < 844
    for fold in css(browser, ".answer summary"):
        by_script(fold)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert not css(browser, "#filters")[0].is_displayed() and css(browser, ".as-published input")[0].is_displayed()
    # Rows stand by tier, and a bar is the interval of the rank.
    go(browser, url, TAB)
    by_script(css(browser, ".as-published .more")[0])
    comes_to(lambda: len(lines(browser)), 207)
    tiers = sorted({at.tier for at in published.standings if at})
    expected = [row.model for tier in tiers for row in published.tier(tier)]
    assert lines(browser)[:206] == expected and lines(browser)[206].startswith("Gameselo/")
    heads = [head.text.partition(" (")[0] for head in css(browser, ".as-published h3")]
    assert heads == [*(f"Tier {tier}" for tier in tiers), "Not ranked"]
    shares = browser.execute_script("""
        const ranked = document.querySelectorAll('.published-lines .line:not(.unranked)');
        return [...ranked].map(line => {
        const [track, bar, dot] = ['.track', '.bar', '.dot'].map(each => line.querySelector(each).getBoundingClientRect());
        const share = (x) => (x - track.left) / track.width;
        return [share(bar.left), share(bar.right), share((dot.left + dot.right) / 2)]; })""")
    places = {row.model: at for row, at in zip(published.rows, published.standings, strict=True)}
    for model, drawn in zip(expected, shares, strict=True):
        at = places[model]
        assert drawn == pytest.approx([(at.first - 1) / 206, at.last / 206, (at.position - 0.5) / 206], abs=0.005)
    # A search narrows the rows, and stays in the address.
    matching = sorted(row.model for row in published.rows
                      if all(word in row.model.lower() for word in ("minilm-l6", "sentence")))
    css(browser, ".as-published input")[0].send_keys("minilm-l6 sentence")
    comes_to(lambda: sorted(lines(browser)), matching)
    assert "q=minilm-l6+sentence" in fragment(browser) and said(browser, ".count").endswith("of 207 models")
    by_script(css(browser, "[role=tab][id=tab-group-sts]")[0])
    comes_to(lambda: len(css(browser, ".lines.measured .line")) > 0, True)
    assert fragment(browser) == "sts-spearman-all"  # the search was of these rows
    assert css(browser, "#filters [type=search]")[0].get_attribute("value") == ""
    browser.back()
    comes_to(lambda: sorted(lines(browser)), matching)
    # A model is looked up both ways.
    go(browser, url, f"{TAB}?open={MODEL}")
    comes_to(lambda: said(browser, "#drawer-title"), MODEL)
    assert "As published 78.94; measured here 78.50." in said(browser, "#drawer") and "tier " in said(browser, "#drawer")
    by_script(css(browser, "#drawer .both a")[0])
    comes_to(lambda: fragment(browser), f"sts-spearman-all?open={ENTRY}")
    comes_to(lambda: "As published 78.94; measured here 78.50" in said(browser, "#drawer"), True)
    by_script(next(link for link in css(browser, "#drawer dd a") if link.text == MODEL))
    comes_to(lambda: said(browser, "#drawer-title"), MODEL)
    by_script(css(browser, "#drawer .close")[0])
    comes_to(lambda: fragment(browser), TAB)
    # A language is a table of its own, and few pairs rank nothing.
    go(browser, url, f"{TAB}?x=STS17%2Fen-de")
    language = next(one for one in published.languages if (one.task, one.name) == ("STS17", "en-de"))
    many = f"{language.first} of {language.ranked} models"
    comes_to(lambda: said(browser, ".answer .lead"), f"{many} could be first in STS17, en-de.")
    browser.execute_script("""
        const list = document.querySelector('.as-published select');
        list.value = 'STS22.v2/fr-pl'; list.dispatchEvent(new Event('change'));""")
    comes_to(lambda: said(browser, ".answer .lead"), "STS22.v2, fr-pl: no ranks.")
    assert "8 pairs rank nothing" in said(browser, ".answer") and fragment(browser) == f"{TAB}?x=STS22.v2%2Ffr-pl"
    assert {cell.text for cell in css(browser, ".as-published .between")[:5]} == {"not ranked"}
    assert not css(browser, ".as-published .bar")
    clean(browser, url)


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
