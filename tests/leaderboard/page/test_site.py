"""The site's files: what they hold, what they refuse, the same bytes every time, and no name in them that is markup."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from board_example import HOSTILE, board
from hypothesis import example, given, settings
from hypothesis import strategies as st
from synthetic_board import synthetic

from stsbench.errors import StsbenchError
from stsbench.leaderboard.page.site import PAGE, safe_link, site
from stsbench.leaderboard.ranks.board import FLAGS, Board, Cell, Row, Tab
from stsbench.leaderboard.records.paths import BUNDLE


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return site(board())


def read(files: dict[str, str], name: str) -> dict[str, object]:
    return json.loads(files[f"{name}.json"])


def test_the_index_names_every_file(files: dict[str, str]) -> None:
    index = read(files, "index")
    shards = {tab["file"] for tab in index["tabs"]} | {entry["file"] for entry in index["entries"].values()}
    pairs = {name for tab in index["tabs"] for name in read(files, tab["file"][:-5]).get("pairs", ())}
    names = shards | pairs | {"index.json"}
    assert files.keys() == {*PAGE, *names, *(re.sub(r"json$", "js", name) for name in names)}
    assert [tab["id"] for tab in index["tabs"]] == [tab.id for tab in board().tabs]
    assert index["schema_version"] == 1 and index["cell"] == ["value", "low", "high", "sd", "n"]


def test_a_script_registers_what_its_json_holds_and_cannot_end_its_element(files: dict[str, str]) -> None:
    for name in (name[:-5] for name in files if name.endswith(".json")):
        script = files[f"{name}.js"]
        start = f"stsbench({json.dumps(name)},"
        assert script.startswith(start) and script.endswith(");\n") and "<" not in script
        assert json.loads(script[len(start) : -3]) == read(files, name)
    assert any(HOSTILE in text for name, text in files.items() if name.endswith(".json"))


def test_scores_are_the_boards(files: dict[str, str]) -> None:
    for tab in board().tabs:
        shard = read(files, f"tabs/{tab.id}")
        for kind in ("measured", "published"):
            rows = {row["id"]: row for row in shard[kind]}
            assert len(rows) == len(getattr(tab, kind))
            for row in getattr(tab, kind):
                for column, cell in row.cells.items():
                    value, *noise = rows[row.id]["scores"][column]
                    assert value == pytest.approx(cell.value, abs=0.5 * 10 ** -(tab.digits + 2) + 1e-12)
                    kept = [cell.low, cell.high, cell.sd, cell.n]
                    shown = [*noise, *[None] * (4 - len(noise))]
                    assert shown == pytest.approx(kept, abs=0.5 * 10**-tab.digits + 1e-12), (tab.id, row.id, column)


def test_published_rows_have_no_rank_and_what_is_unranked_says_why(files: dict[str, str]) -> None:
    tab = board().tabs[0]
    shard = read(files, f"tabs/{tab.id}")
    assert all("rank" not in row for row in shard["published"])
    assert [row["id"] for row in shard["measured"]] == [row.id for row in tab.measured]
    odd = [row for row in shard["measured"] if "rank" not in row]
    assert {(row.get("unranked"), row.get("best_of")) for row in odd} == {
        ("not ranked: its text was changed", None),
        (None, 10),
    }
    ranks = [row["rank"] for row in shard["measured"] if "rank" in row]
    assert ranks[0] == {"place": 1, "first": 1, "last": 2, "ties": "b", "tier": 1}  # no marginal interval in this board
    alone = dataclasses.replace(tab.measured[0], rank=dataclasses.replace(tab.measured[0].rank, alone=(1, 4)))
    one = site(Board((dataclasses.replace(tab, measured=(alone,)),), board().entries, None))
    assert read(one, f"tabs/{tab.id}")["measured"][0]["rank"]["alone"] == [1, 4]


def test_metrics_that_name_no_winner_are_sorted_and_say_so() -> None:
    tab = next(tab for tab in board().tabs if tab.id == "geometry-stsb")
    # As the board gathers geometry: neither end is better, no rank.
    rows = tuple(dataclasses.replace(row, rank=None, unranked="not ranked") for row in reversed(tab.measured))
    plain = dict.fromkeys(tab.columns, "neither")
    changed = dataclasses.replace(tab, measured=rows, lower_is_better=False, better=plain)
    files = site(Board((changed,), board().entries, None))
    values = [row["scores"]["alignment"][0] for row in read(files, f"tabs/{tab.id}")["measured"]]
    assert values == sorted(values)
    columns = read(files, "index")["tabs"][0]["columns"]
    assert columns == [{"name": name, "better": "neither", "lower_is_better": False} for name in ("alignment", "uniformity")]


def test_an_average_stands_first_and_no_other_lead_does(files: dict[str, str]) -> None:
    by_id = {tab["id"]: [column["name"] for column in tab["columns"]] for tab in read(files, "index")["tabs"]}
    sts, cost = board().tabs[0], board().tabs[-1]
    assert by_id[sts.id] == ["Avg", *sts.columns[:-1]] and by_id[cost.id] == ["added", "minutes"]


def test_parts_stand_once_with_their_noise(files: dict[str, str]) -> None:
    entry = read(files, "entries/entry-00")
    assert len(entry["runs"]) == 2 and entry["name"] == "example 0"
    tabs = [name for part in entry["parts"] for name in part["tabs"]]
    assert set(tabs) == {
        tab.id for tab in board().tabs if any(row.entry == "entry-00" and row.subsets for row in tab.measured)
    }
    task, part, (value, low, high, sd, n) = entry["parts"][0]["scores"][0]
    assert (task, part, low, high, sd, n) == ("STS12", "headlines-a", 50.0, 60.5, None, 750) and value > 40
    files = site(synthetic(4))
    assert len(read(files, "entries/entry-0001")["parts"]) == 6  # other numbers in each tab
    shared = board().tabs[0]
    twin = dataclasses.replace(shared, id="twin")
    twice = read(site(Board((shared, twin), board().entries, None)), "entries/entry-03")["parts"]
    assert [part["tabs"] for part in twice] == [[shared.id, "twin"]] * len(twice) and twice


def test_flags_settings_and_dates_come_with_their_words() -> None:
    index = read(site(synthetic(4)), "index")
    assert index["updated"] == "2026-11-21T10:00:00+00:00"
    assert index["flags"] == {key: {"label": FLAGS[key][0], "about": FLAGS[key][1]} for key in ("nli", "dev-selected")}
    assert index["groups"] == [{"id": "sts", "title": "STS"}] and set(index["settings"]) == {"unsup", "semi", "sup"}
    assert read(site(Board((), {}, None)), "index")["updated"] is None


def test_sizes_and_years_are_those_of_records_and_papers() -> None:
    rows = read(site(synthetic(8)), "tabs/sts-spearman-all")
    measured = {row["id"]: row for row in rows["measured"]}
    assert measured["entry-0001"]["width"] == 768 and measured["entry-0001"]["year"] == 2021  # of its arXiv number
    assert "parameters" not in measured["entry-0001"] and "sentences_per_second" not in measured["entry-0001"]
    assert [row["year"] for row in rows["published"][:2]] == [2010, 2011]


def test_times_are_shown_where_all_runs_are_of_one_machine() -> None:
    small = synthetic(4)
    sizes = {"parameters": 9, "bytes_a_vector": 4.0}
    timed = {**sizes, "machine": "Some CPU, 2 cores", "run_on": "cpu, 2 threads", "memory_mb": 500.0}
    speeds = {"entry-0000": [612.3456], "entry-0001": [90.0, 110.0], "entry-0003": [100.0, 100.0]}
    entries = dict(small.entries)
    for name, of_runs in speeds.items():
        pairs = zip(entries[name].runs, of_runs, strict=True)
        timed_runs = tuple({**run, "costs": {**timed, "sentences_per_second": speed}} for run, speed in pairs)
        entries[name] = dataclasses.replace(entries[name], runs=timed_runs)
    moved = entries["entry-0003"]
    other = {**moved.runs[1], "costs": {**moved.runs[1]["costs"], "machine": "Other CPU, 64 cores"}}
    entries["entry-0003"] = dataclasses.replace(moved, runs=(moved.runs[0], other))
    rows = read(site(dataclasses.replace(small, entries=entries)), "tabs/sts-spearman-all")["measured"]
    names = ("parameters", "bytes_a_vector", "sentences_per_second", "memory_mb", "machine", "run_on")
    shown = {row["id"]: {name: row[name] for name in names if name in row} for row in rows}
    assert shown["entry-0000"] == {**timed, "sentences_per_second": 612.0}
    assert shown["entry-0001"]["sentences_per_second"] == 100.0  # the median of two
    assert shown["entry-0002"] == {}
    assert shown["entry-0003"] == sizes


def test_forms_of_a_title() -> None:
    titles = {
        "Spearman, all": "",
        "Spearman, all, raw text": "raw text",
        "Accuracy, transfer:sklearn": "transfer:sklearn",
        "STS-B": "",
    }
    tab = board().tabs[0]
    tabs = tuple(dataclasses.replace(tab, id=f"t{i}", title=title) for i, title in enumerate(titles))
    assert [each["form"] for each in read(site(Board(tabs, board().entries, None)), "index")["tabs"]] == list(
        titles.values()
    )


def test_same_board_same_bytes_whatever_the_order_of_its_mappings() -> None:
    one, other = board(), board()
    turned = tuple(
        dataclasses.replace(tab, settings=dict(reversed(list(tab.settings.items()))),
                            data=dict(reversed(list(tab.data.items()))),
                            measured=tuple(_turned(row) for row in tab.measured))
        for tab in other.tabs
    )
    other = Board(turned, dict(reversed(list(other.entries.items()))), other.sensitivity)
    assert one == other and site(one) == site(other)


def _turned(row: Row) -> Row:
    cells, subsets = (dict(reversed(list(each.items()))) for each in (row.cells, row.subsets))
    return dataclasses.replace(row, cells=cells, subsets=subsets)


@settings(deadline=None, max_examples=50)
@given(name=st.text(min_size=1), about=st.text(), mark=st.text())
@example(name="</script><img src=x onerror=alert(1)>", about="\u2028\u2029", mark="]]>")
def test_no_text_changes_the_page_or_leaves_its_string(name: str, about: str, mark: str) -> None:
    row = Row("x", "published", name, name, None, {"A": Cell(1.0)}, marks=(mark,), source=name)
    tab = Tab("one", "sts", name, about, name, None, ("A",), "A", 2, False, (), (row,), settings={name: about or 1})
    files = site(Board((tab,), {}, None))
    assert all(files[each] == (BUNDLE / each).read_text("utf-8") for each in PAGE)
    assert read(files, "tabs/one")["published"][0]["method"] == name
    assert not re.search("[<\u2028\u2029]", files["tabs/one.js"])


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
    text = "".join(site(board()).values())
    assert "javascript:" not in text.replace(site(board())["board.js"], "") and "https://example.org/paper?a=1&b=2" in text


def test_faults_are_named() -> None:
    tab = board().tabs[0]
    row = dataclasses.replace(tab.published[0], cells={"STS12": Cell(float("nan"))})
    for bad, words in (
        ((tab, tab), "taken"), ((dataclasses.replace(tab, id="a b"),), "unfit"),
        ((dataclasses.replace(tab, id="../a"),), "unfit"),
        ((tab, dataclasses.replace(tab, id=tab.id.upper())), "taken"), ((dataclasses.replace(tab, lead="X"),), "lead 'X'"),
        ((dataclasses.replace(tab, published=(row,)),), f"row '{row.id}', STS12: not a finite number"),
    ):
        with pytest.raises(StsbenchError, match=re.escape(words)):
            site(Board(bad, board().entries, None))
    with pytest.raises(StsbenchError, match="no entry 'entry-"):
        site(Board(board().tabs, {}, None))
    with pytest.raises(StsbenchError, match=r"entry '\.\./x': its name is taken or unfit"):
        site(Board((), {"../x": next(iter(board().entries.values()))}, None))


def test_a_thousand_rows_stay_within_the_aims_of_the_page() -> None:
    import gzip

    files = site(synthetic(1000))
    core = ("index.html", "board.css", "board.js", "index.js", "tabs/sts-spearman-all.js")
    assert sum(len(gzip.compress(files[name].encode(), 9)) for name in core) < 300_000
