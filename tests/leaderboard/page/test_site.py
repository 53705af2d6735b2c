"""The site's files: what they hold, what they refuse, the same bytes every time, and no name in them that is markup."""

import csv
import gzip
import io
import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from board_example import HOSTILE, TASKS, board, synthetic
from clirun import refuses
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from stsbench.errors import StsbenchError
from stsbench.leaderboard.page.site import PAGE, ROWS, pair_files, pair_shards, safe_link, site, whole_halves
from stsbench.leaderboard.page.tables import csv_table
from stsbench.leaderboard.ranks.board import FLAGS, Board, Cell, PairTests, Row, Tab
from stsbench.leaderboard.records.paths import BUNDLE

BOARD = board()
FIRST = BOARD.tabs[0]
small = cache(synthetic)
AVERAGED = replace(FIRST, averaged=TASKS)
MANY = synthetic(ROWS + 6, published=1)


@pytest.fixture(scope="module")
def files():
    return site(BOARD)


def read(files, name):
    return json.loads(files[f"{name}.json"])


def changed(*tabs):
    return site(Board(tabs, BOARD.entries))


def test_the_index_names_every_file_and_a_script_registers_each(files):
    index = read(files, "index")
    shards = {tab["file"] for tab in index["tabs"]} | {entry["file"] for entry in index["entries"].values()}
    pairs = {name for tab in index["tabs"] for name in read(files, tab["file"][:-5]).get("pairs", ())}
    names = shards | pairs | {"index.json"}
    assert files.keys() == {*PAGE, *names, *(re.sub(r"json$", "js", name) for name in names)}
    assert [tab["id"] for tab in index["tabs"]] == [tab.id for tab in BOARD.tabs]
    assert index["schema_version"] == 1 and index["cell"] == ["value", "low", "high", "sd", "n"]
    by_id = {tab["id"]: [column["name"] for column in tab["columns"]] for tab in index["tabs"]}
    assert by_id[FIRST.id] == ["Avg", *FIRST.columns[:-1]]  # an average stands first, and no other lead does
    assert by_id["cost-minutes"] == ["added", "minutes"]
    for name in (name[:-5] for name in names):
        script, start = files[f"{name}.js"], f"stsbench({json.dumps(name)},"
        assert script.startswith(start) and script.endswith(");\n") and "<" not in script  # which could end its element
        assert json.loads(script[len(start) : -3]) == read(files, name)
    assert any(HOSTILE in text for name, text in files.items() if name.endswith(".json"))
    for link in ("https://arxiv.org/abs/2104.08821", "HTTP://example.org:8080/a?b=c#d", "tables/sts.csv", "../a", "#sts"):
        assert safe_link(link) == link  # kept whole
    data = "".join(text for name, text in files.items() if name not in PAGE)
    assert "javascript:" not in data and "https://example.org/paper?a=1&b=2" in data


def test_scores_and_ranks_are_the_boards_and_what_is_unranked_says_why(files):
    for tab in BOARD.tabs:
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
    shard = read(files, f"tabs/{FIRST.id}")
    assert all("rank" not in row for row in shard["published"])
    assert [row["id"] for row in shard["measured"]] == [row.id for row in FIRST.measured]
    reasons = {(row.get("unranked"), row.get("best_of")) for row in shard["measured"] if "rank" not in row}
    assert reasons == {("not ranked: its text was changed", None), (None, 10)}
    ranks = [row["rank"] for row in shard["measured"] if "rank" in row]
    assert ranks[0] == {"place": 1, "first": 1, "last": 2, "ties": "b", "tier": 1}  # no marginal interval in this board
    alone = replace(FIRST.measured[0], rank=replace(FIRST.measured[0].rank, alone=(1, 4)))
    (row,) = read(changed(replace(FIRST, measured=(alone,))), f"tabs/{FIRST.id}")["measured"]
    assert row["rank"]["alone"] == [1, 4]


def test_metrics_that_name_no_winner_are_sorted_and_say_so():
    """As the board gathers geometry: neither end is better, no rank."""
    tab = next(tab for tab in BOARD.tabs if tab.id == "geometry-stsb")
    rows = tuple(replace(row, rank=None, unranked="not ranked") for row in reversed(tab.measured))
    files = changed(replace(tab, measured=rows, lower_is_better=False, better=dict.fromkeys(tab.columns, "neither")))
    values = [row["scores"]["alignment"][0] for row in read(files, f"tabs/{tab.id}")["measured"]]
    assert values == sorted(values)
    columns = read(files, "index")["tabs"][0]["columns"]
    assert columns == [{"name": name, "better": "neither", "lower_is_better": False} for name in ("alignment", "uniformity")]


def test_parts_stand_once_with_their_noise(files):
    entry = read(files, "entries/entry-00")
    assert len(entry["runs"]) == 2 and entry["name"] == "example 0"
    tabs = {tab.id for tab in BOARD.tabs if any(row.entry == "entry-00" and row.subsets for row in tab.measured)}
    assert {name for part in entry["parts"] for name in part["tabs"]} == tabs
    task, part, (value, low, high, sd, n) = entry["parts"][0]["scores"][0]
    assert (task, part, low, high, sd, n) == ("STS12", "headlines-a", 50.0, 60.5, None, 750) and value > 40
    assert len(read(site(small(4)), "entries/entry-0001")["parts"]) == 6  # other numbers in each tab
    twice = read(changed(FIRST, replace(FIRST, id="twin")), "entries/entry-03")["parts"]
    assert [part["tabs"] for part in twice] == [[FIRST.id, "twin"]] * len(twice) and twice


def test_flags_settings_dates_and_forms_come_with_their_words_and_sizes_are_those_of_the_records():
    index = read(site(small(4)), "index")
    assert index["updated"] == "2026-11-21T10:00:00+00:00" and read(site(Board((), {})), "index")["updated"] is None
    assert index["flags"] == {key: {"label": FLAGS[key][0], "about": FLAGS[key][1]} for key in ("nli", "dev-selected")}
    assert index["groups"] == [{"id": "sts", "title": "STS"}]
    assert set(index["settings"]) == {"unsup", "semi", "sup", "unknown"}
    forms = {"Spearman, all": "", "Spearman, all, raw text": "raw text", "STS-B": "",
             "Accuracy, transfer:sklearn": "transfer:sklearn"}
    tabs = read(changed(*(replace(FIRST, id=f"t{i}", title=title) for i, title in enumerate(forms))), "index")["tabs"]
    assert [tab["form"] for tab in tabs] == [*forms.values()]
    # Sizes, years and times are those of records and papers.
    board = small(4)
    sizes = {"parameters": 9, "bytes_a_vector": 4.0}
    timed = {**sizes, "machine": "Some CPU, 2 cores", "run_on": "cpu, 2 threads", "memory_mb": 500.0}
    entries = dict(board.entries)
    for name, speeds in {"entry-0000": [612.3456], "entry-0001": [90.0, 110.0], "entry-0003": [100.0, 100.0]}.items():
        runs = tuple({**run, "costs": {**timed, "sentences_per_second": speed}}
                     for run, speed in zip(entries[name].runs, speeds, strict=True))
        entries[name] = replace(entries[name], runs=runs)
    entries["entry-0003"].runs[1]["costs"]["machine"] = "Other CPU, 64 cores"
    shard = read(site(replace(board, entries=entries)), "tabs/sts-spearman-all")
    shown = {row["id"]: {name: row[name] for name in (*timed, "sentences_per_second") if name in row}
             for row in shard["measured"]}
    assert shown == {"entry-0000": {**timed, "sentences_per_second": 612.0}, "entry-0002": {}, "entry-0003": sizes,
                     "entry-0001": {**timed, "sentences_per_second": 100.0}}  # the median of two
    (row,) = [row for row in shard["measured"] if row["id"] == "entry-0001"]
    assert (row["width"], row["year"]) == (768, 2021)  # of its arXiv number
    assert [row["year"] for row in shard["published"][:2]] == [2010, 2011]


def test_same_board_same_bytes_whatever_the_order_of_its_mappings(files):
    def turned(mapping):
        return dict(reversed(mapping.items()))

    tabs = tuple(replace(tab, settings=turned(tab.settings), data=turned(tab.data), measured=tuple(
        replace(row, cells=turned(row.cells), subsets=turned(row.subsets)) for row in tab.measured)) for tab in BOARD.tabs)
    other = Board(tabs, turned(BOARD.entries))
    assert other == BOARD and site(other) == files


@settings(max_examples=15)
@given(name=st.text(min_size=1), about=st.text(), mark=st.text())
@example(name="</script><img src=x onerror=alert(1)>", about="\u2028\u2029", mark="]]>")
def test_no_text_changes_the_page_or_leaves_its_string(name, about, mark):
    row = Row("x", "published", name, name, None, {"A": Cell(1.0)}, marks=(mark,), source=name)
    tab = Tab("one", "sts", name, about, name, None, ("A",), "A", 2, False, (), (row,), settings={name: about or 1})
    files = site(Board((tab,), {}))
    assert all(files[page] == (BUNDLE / page).read_text("utf-8") for page in PAGE)
    assert read(files, "tabs/one")["published"][0]["method"] == name
    assert not re.search("[<\u2028\u2029]", files["tabs/one.js"])


@settings(max_examples=30)
@given(st.one_of(st.text(), st.from_regex(r"\A\s*[a-zA-Z\t\n]*:.*", fullmatch=True)))
@example("javascript:alert(1)")
@example("java\nscript:alert(1)")
@example("\x01javascript:alert(1)")
@example("data:text/html,x")
@example("JAVASCRIPT&colon;alert(1)")
def test_a_link_that_passes_is_http_or_relative(link):
    if kept := safe_link(link):  # a browser drops control characters and white space before it looks for the scheme
        scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):", re.sub(r"[\x00-\x20]", "", kept))
        assert scheme is None or scheme[1].lower() in {"http", "https"}


def test_tabs_and_entries_that_no_file_can_hold_are_named():
    published = replace(FIRST.published[0], cells={"STS12": Cell(float("nan"))})
    for tabs, words in (
        ([FIRST, replace(FIRST, id=FIRST.id.upper())], "taken"), ([replace(FIRST, id="../a")], "unfit"),
        ([replace(FIRST, lead="X")], "lead 'X'"),
        ([replace(FIRST, published=(published,))], f"row '{published.id}', STS12: not a finite number")):
        refuses(StsbenchError, re.escape(words), changed, *tabs)
    refuses(StsbenchError, "no entry 'entry-", site, Board(BOARD.tabs, {}))
    unfit = Board((), {"../x": BOARD.entries["entry-00"]})
    refuses(StsbenchError, r"entry '\.\./x': its name is taken or unfit", site, unfit)


def of_tasks(row):
    return [row.cells[task].value for task in TASKS]


def test_the_interval_over_tasks_is_students_and_neighbours_are_the_rows_above_and_below(files):
    for row in AVERAGED.measured:
        over = AVERAGED.over_tasks(row)
        assert (over.low, over.high) == pytest.approx(stats.ttest_1samp(of_tasks(row), 0).confidence_interval())
        assert FIRST.over_tasks(row) is None
    first = AVERAGED.measured[0]
    part = replace(first, cells={name: cell for name, cell in first.cells.items() if name != "STS13"})
    assert {AVERAGED.over_tasks(row) for row in (*AVERAGED.published, part)} == {None}
    ranked = [row for row in AVERAGED.measured if row.rank]
    assert [other.id for other, _ in AVERAGED.neighbours(ranked[3])] == [ranked[2].id, ranked[4].id]
    assert [other.id for other, _ in AVERAGED.neighbours(ranked[0])] == [ranked[1].id]
    assert AVERAGED.neighbours(next(row for row in AVERAGED.measured if not row.rank)) == []
    gaps = np.subtract(of_tasks(ranked[3]), of_tasks(ranked[2]))
    scale = gaps.std(ddof=1) * (2 / 7) ** 0.5
    assert AVERAGED.neighbours(ranked[3])[0][1] == pytest.approx(stats.t.cdf(abs(gaps.mean()) / scale, 6))
    assert replace(AVERAGED, measured=(ranked[0], replace(ranked[0], id="twin"))).neighbours(ranked[0]) == []
    # Entries' files and the CSV hold them.
    made = Board((AVERAGED, *BOARD.tabs[1:]), BOARD.entries)
    shards = site(made)
    assert shards[f"tabs/{FIRST.id}.json"] == files[f"tabs/{FIRST.id}.json"]  # the first table does not grow
    for entry in BOARD.entries:  # this example's entries have several rows in a tab: a line each
        lines = read(shards, f"entries/{entry}")["over_tasks"]
        for line, row in zip(lines, [row for row in AVERAGED.measured if row.entry == entry], strict=True):
            over = AVERAGED.over_tasks(row)
            assert [line[key] for key in ("tab", "n", "low", "high", "sd")] == [
                FIRST.id, 7, round(over.low, 2), round(over.high, 2), round(over.sd, 2)]
            assert [(other["id"], other["same_order"], "overstated" in other) for other in line.get("neighbours", [])] == [
                (other.id, round(share, 4), share >= 0.7 and abs(row.cells["Avg"].value - other.cells["Avg"].value) < 1)
                for other, share in AVERAGED.neighbours(row)]
    table = [line for line in csv.DictReader(io.StringIO(csv_table(made))) if line["tab"] == FIRST.id]
    for row in AVERAGED.measured:
        cells, over = {line["column"]: line for line in table if line["id"] == row.id}, AVERAGED.over_tasks(row)
        bounds = [float(cells["Avg"][key]) for key in ("over_tasks_low", "over_tasks_high", "low")]
        assert bounds == pytest.approx([over.low, over.high, row.cells["Avg"].low], abs=1e-6)
        assert {cells[task]["over_tasks_low"] for task in TASKS} == {""}
    assert {line["over_tasks_high"] for line in table if line["kind"] == "published"} == {""}


def test_each_pair_stands_once_in_the_line_of_its_lower_row():
    tab = MANY.tabs[0]
    shuffled = np.random.default_rng(0).permutation(len(tab.pairs.rows))  # the tests need not stand in the tab's order
    pairs = PairTests(tuple(tab.pairs.rows[i] for i in shuffled), tab.pairs.different[np.ix_(shuffled, shuffled)],
                      tab.pairs.halves[np.ix_(shuffled, shuffled)])
    best = replace(tab.measured[-1], id="best-of", rank=None, best_of=5)  # which is not tested, and has no line
    shards = pair_shards(replace(tab, pairs=pairs, measured=(*tab.measured, best)))
    assert list(shards) == pair_files(tab) == [f"pairs/{tab.id}.0", f"pairs/{tab.id}.1"]
    lines = [line for shard in shards.values() for line in shard["rows"]]
    assert [shard["first"] for shard in shards.values()] == [0, ROWS]
    assert [line["id"] for line in lines] == [row.id for row in tab.measured]
    place = {row: at for at, row in enumerate(tab.pairs.rows)}
    for at, line in enumerate(lines):
        assert len(line["different"]) == len(line["half"]) == at
        for above, (different, half) in enumerate(zip(line["different"], line["half"], strict=True)):
            pair = place[line["id"]], place[tab.measured[above].id]
            assert (different == "1") == tab.pairs.different[pair]
            assert half == pytest.approx(100 * tab.pairs.halves[pair], abs=1.001)
    assert pair_shards(replace(tab, pairs=None)) == {} == pair_shards(small(1).tabs[0])
    none = PairTests(pairs.rows[:3], np.zeros((3, 3), dtype=bool), np.full((3, 3), np.nan))  # a pair without an interval
    (shard,) = pair_shards(replace(tab, pairs=none)).values()
    assert [line["half"] for line in shard["rows"]] == [[], [None], [None, None]]


@given(st.floats(-100, 100), st.floats(-3, 3), st.floats(0, 4))
@example(70.0, 1.006, 1.0055)  # 1.01, the nearest, would hold 0
def test_rounding_a_half_width_turns_no_verdict(value, gap, half):
    values = np.array([value, value - gap])
    gap = values[0] - values[1]
    kept = int(whole_halves(values, np.full((2, 2), half), 2)[0, 1])
    shown = abs(round(round(values[0], 4) - round(values[1], 4), 4))
    assert kept >= 0
    if abs(gap) > half:  # differs by itself: the interval on the page leaves 0 out, or has no width
        assert kept == 0 or shown > kept * 0.01 - 1e-12
    else:
        assert shown <= kept * 0.01 + 1e-12
    assert abs(kept - half / 0.01) <= 1.03  # a unit, and what a score is rounded by


def test_many_rows_stay_within_the_aims_of_the_page():
    """Of a thousand rows, of which these are a quarter: 200 kB to begin with, 100 kB of pairs at a time."""
    whole = synthetic(250, most=1)
    files = site(whole)
    core = ("index.html", "board.css", "board.js", "index.js", f"tabs/{whole.tabs[0].id}.js")
    assert sum(len(gzip.compress(files[name].encode(), 9)) for name in core) < 90_000
    sizes = [len(gzip.compress(files[f"{name}.json"].encode(), 9)) for name in pair_files(whole.tabs[0])]
    assert len(sizes) == 4 and max(sizes) < 25_000
