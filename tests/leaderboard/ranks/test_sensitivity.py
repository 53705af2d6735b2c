"""Protocol sensitivity: arithmetic against scipy and a naive loop, the picture's labels and the page's words."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from scipy.stats import kendalltau

from stsbench.leaderboard.page.findings import SWAPS, sensitivity_page
from stsbench.leaderboard.page.picture import (
    CHARACTERS,
    COLOURS,
    LINE,
    PLACE_LINE,
    TEXT,
    picture,
    spread_out,
    ticks,
    wrapped,
)
from stsbench.leaderboard.ranks.board import Board, Cell, Row, Tab
from stsbench.leaderboard.ranks.sensitivity import sensitivity
from stsbench.metrics.ranks import Significance

QUICK = settings(deadline=None, derandomize=True)  # the first example also pays for imports
TASKS = ("STS12", "STS13", "STS-B")
COLUMNS = (*TASKS, "Avg", "SICK-R-MTEB")
HOSTILE = "<b onload=\"x\">&'|`\nrow"
METHODS = ("mean", "cls", HOSTILE, "tf-idf", "token-set")
# Invented: a line a setting, five rows of the three tasks and their mean.
SCORES = {
    ("spearman", "all"): ((72, 80, 81), (66, 76, 80), (60, 70, 68), (59, 69.5, 69), (45, 50, 52)),
    ("spearman", "mean"): ((70, 79, 81), (66, 60, 80), (59, 70, 68), (60, 69, 69), (47, 55, 52)),
    ("spearman", "wmean"): ((71, 81, 81), (66, 65, 80), (60, 66, 68), (61, 69, 69), (52, 57, 52)),
    ("pearson", "all"): ((80, 79, 83), (67, 75, 79), (63, 70, 68), (62, 68, 70), (46, 50, 55)),
    ("pearson", "mean"): ((71, 78, 83), (65, 64, 79), (60, 67, 68), (59, 66, 70), (48, 55, 55)),
    ("pearson", "wmean"): ((72, 79, 83), (66, 67, 79), (61, 66, 68), (62, 66.5, 70), (53, 57, 55)),
}
NAMES = [f"{how} {metric.capitalize()}" for metric, how in SCORES]


def tab(metric, how, scores, **other):
    rows = []
    for i, (method, each) in enumerate(zip(METHODS, scores, strict=True)):
        cells = {task: Cell(float(value)) for task, value in zip(TASKS, each, strict=True)}
        cells |= {"Avg": Cell(round(sum(each) / 3, 2)), "SICK-R-MTEB": Cell(50.0 + i)}
        rows.append(Row(f"entry-{i}", "measured", method, "MiniLM" if i < 3 else "none", "unsup", cells))
    given = {
        "id": f"sts-{metric}-{how}", "group": "sts", "title": f"{metric}, {how}", "about": "Invented.", "metric": metric,
        "aggregation": how, "columns": COLUMNS, "lead": "Avg", "digits": 2, "lower_is_better": False,
        "measured": tuple(sorted(rows, key=lambda row: -row.cells["Avg"].value)), "published": (),
        "settings": {"similarity": "cosine"}, "data": {task: f"digest of {task}" for task in TASKS}, **other,
    }
    return Tab(**given)


def six():
    return [tab(metric, how, scores) for (metric, how), scores in SCORES.items()]


@pytest.fixture(scope="module")
def found():
    return sensitivity(six())


def column(name, task=None):
    """Name -> value of the made-up scores under a setting."""
    scores = SCORES[{f"{how} {metric.capitalize()}": (metric, how) for metric, how in SCORES}[name]]
    if task:
        return dict(zip(METHODS, (each[TASKS.index(task)] for each in scores), strict=True))
    return dict(zip(METHODS, (round(sum(each) / 3, 2) for each in scores), strict=True))


def naive_swaps(one, other):
    return {(a, b) for a in one for b in one if one[a] > one[b] and other[a] < other[b]}


def test_settings_stand_in_the_order_papers_name_them_whatever_the_tabs_order():
    assert sensitivity(six()[::-1]).settings == tuple(NAMES) == sensitivity(six()).settings


def test_averages_and_places(found):
    assert found.rows == ("mean", "cls", HOSTILE, "tf-idf", "token-set")
    for name in NAMES:
        values = column(name)
        assert {row: found.average[name, row] for row in found.rows} == values
        assert {row: found.position[name, row] for row in found.rows} == {
            row: sorted(values.values(), reverse=True).index(value) + 1 for row, value in values.items()
        }


def test_tau_is_scipys(found):
    for a in NAMES:
        for b in NAMES:
            values = column(a), column(b)
            want = kendalltau([values[0][row] for row in METHODS], [values[1][row] for row in METHODS])[0]
            assert found.tau[a, b] == pytest.approx(want, abs=1e-6)
    assert found.tau["all Spearman", "mean Spearman"] < 1


def test_swaps_are_those_of_a_naive_loop_for_the_average_and_for_each_task(found):
    pairs = [(a, b) for i, a in enumerate(NAMES) for b in NAMES[i + 1 :]]
    assert set(found.swaps) == set(pairs) and set(found.task_swaps) == {(task, *pair) for task in TASKS for pair in pairs}
    for a, b in pairs:
        assert set(found.swaps[a, b]) == naive_swaps(column(a), column(b))
        for task in TASKS:
            assert set(found.task_swaps[task, a, b]) == naive_swaps(column(a, task), column(b, task))
    assert found.swaps["all Spearman", "mean Spearman"] == ((HOSTILE, "tf-idf"),)
    assert found.task_swaps["STS13", "all Spearman", "mean Spearman"] == (("cls", HOSTILE), ("cls", "tf-idf"))


def test_what_stands_behind_the_average_is_no_task_of_it(found):
    assert {key[0] for key in found.scores} == set(TASKS)


@QUICK
@given(st.lists(st.lists(st.sampled_from([50.0, 50.01, 60.0, 70.0]), min_size=2, max_size=5), min_size=2, max_size=2))
def test_ties_are_no_swaps_and_share_a_place(two):
    n = min(map(len, two))
    tabs = []
    for how, values in zip(("all", "mean"), two, strict=True):
        rows = [Row(f"r{i}", "measured", f"r{i}", "b", None, {"Avg": Cell(value)}) for i, value in enumerate(values[:n])]
        tabs.append(replace(six()[0], aggregation=how, columns=("Avg",), measured=tuple(rows), data={}))
    got = sensitivity(tabs)
    values = [{f"r{i}": each[i] for i in range(n)} for each in two]
    assert set(got.swaps["all Spearman", "mean Spearman"]) == naive_swaps(*values)
    for name, each in zip(got.settings, values, strict=True):
        assert all(got.position[name, row] == 1 + sum(other > each[row] for other in each.values()) for row in got.rows)
    every_row_ties = any(len(set(each.values())) == 1 for each in values)
    assert (("all Spearman", "mean Spearman") in got.tau) is not every_row_ties


def without(tabs, index, id):
    tabs[index] = replace(tabs[index], measured=tuple(row for row in tabs[index].measured if row.id != id))
    return tabs


def test_only_rows_of_every_setting_are_compared():
    assert set(sensitivity(without(six(), 4, "entry-1")).rows) == set(METHODS) - {"cls"}


@pytest.mark.parametrize("change", [{"unranked": "not ranked: no draws"}, {"best_of": 10}])
def test_rows_that_are_never_ranked_are_left_out(change):
    tabs = six()
    rows = tuple(replace(row, **change) if row.id == "entry-0" else row for row in tabs[2].measured)
    tabs[2] = replace(tabs[2], measured=rows)
    assert set(sensitivity(tabs).rows) == set(METHODS) - {"mean"}


def test_too_little_to_compare_is_none():
    assert sensitivity([]) is None and sensitivity(six()[:1]) is None
    assert sensitivity([replace(each, sample=True) for each in six()]) is None
    assert sensitivity([replace(each, group="regression") for each in six()]) is None
    assert sensitivity([replace(each, measured=each.measured[:1]) for each in six()]) is None
    assert sensitivity([replace(each, lead="STS12") for each in six()]) is None


@pytest.mark.parametrize("change", [{"settings": {"similarity": "dot"}}, {"data": {"STS12": "another digest"}}])
def test_settings_on_other_data_or_terms_are_never_mixed_in(change):
    tabs = six()
    tabs[1] = replace(tabs[1], **change)
    assert sensitivity(tabs).settings == tuple(name for name in NAMES if name != "mean Spearman")
    assert sensitivity([tabs[0], tabs[1]]) is None


def test_other_digests_behind_the_average_and_tabs_of_published_rows_change_nothing(found):
    tabs = six()
    tabs[0] = replace(tabs[0], data={**tabs[0].data, "SICK-R-MTEB": "only here"})
    published = [replace(each, settings={}, data={}, measured=(), published=each.measured) for each in six()]
    assert sensitivity([*published, *tabs]) == found


def test_rows_of_one_name_are_distinguished_by_backbone_then_by_id():
    def names(*rows):
        rows = tuple(Row(id, "measured", method, backbone, None, {"Avg": Cell(50.0 - i)})
                     for i, (id, method, backbone) in enumerate(rows))
        return sensitivity([replace(each, measured=rows, columns=("Avg",)) for each in six()]).rows

    assert names(("a", "x", "b1"), ("b", "y", "b1")) == ("x", "y")
    assert names(("a", "x", "b1"), ("b", "x", "b2"), ("c", "y", "b1")) == ("x (b1)", "x (b2)", "y")
    assert names(("a", "x", "b1"), ("b", "x", "b1")) == ("x (b1, a)", "x (b1, b)")
    assert len(set(names(("a", "x (b1)", "b3"), ("b", "x", "b1"), ("c", "x", "b2")))) == 3


def test_what_is_significant_is_tested_for_all_settings_together():
    tabs = six()
    ids = tuple(f"entry-{i}" for i in range(5))
    sizes = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))

    def tested(largest):
        nothing = np.zeros((5, 5), dtype=bool)
        return ids, Significance(nothing, nothing, sizes, np.full(100, largest))

    tests = {each.id: tested(2.5 if each is tabs[0] else 1.5) for each in tabs}  # of itself, the others have a lower bar
    told = sensitivity(tabs, tests).significant
    names = {row.id: row.method for row in tabs[0].measured}
    for setting in NAMES:
        together = {frozenset(key[1:]) for key, differs in told.items() if key[0] == setting and differs}
        assert together == {frozenset((names[ids[i]], names[ids[j]])) for i, j in ((0, 3), (0, 4), (1, 4))}
    assert len(told) == 6 * 10 and not sensitivity(six()).significant


# The picture.


def drawn(text):
    """The picture's elements, without their namespace."""
    root = ET.fromstring(text)
    for element in root.iter():
        element.tag = element.tag.rsplit("}", 1)[-1]
    return root


def test_the_picture_is_xml_with_a_title_a_description_and_a_line_a_row(found):
    text = picture(found)
    root = drawn(text)
    assert root.tag == "svg" and root.get("role") == "img" and "xmlns" in text
    ids = {element.get("id"): element for element in root.iter() if element.get("id")}
    title, description = (ids[name] for name in root.get("aria-labelledby").split())
    assert title.tag == "title" and description.tag == "desc"
    assert all(f"{name}: 1 mean" in description.text for name in NAMES)
    assert len(root.findall(".//polyline")) == 5 and len(root.findall(".//circle")) == 30
    assert {group.find("title").text for group in root.findall("g")} == set(METHODS)
    assert "onload" in text and not any(element.get("onload") or element.tag == "b" for element in root.iter())


def test_a_line_goes_through_its_averages_and_lines_cross_where_rows_swap(found):
    root = drawn(picture(found))
    heights = {}
    for group in root.findall("g"):
        points = [tuple(map(float, point.split(","))) for point in group.find("polyline").get("points").split()]
        heights[group.find("title").text] = [y for _, y in points]
    scale = {(round(found.average[name, row], 2), heights[row][i]) for i, name in enumerate(NAMES) for row in found.rows}
    (low, bottom), (high, top) = min(scale), max(scale)
    for value, y in scale:
        assert y == pytest.approx(bottom + (value - low) / (high - low) * (top - bottom), abs=0.02)
    for i, a in enumerate(NAMES):
        for j in range(i + 1, 6):
            values = [{row: -heights[row][k] for row in found.rows} for k in (i, j)]
            assert set(found.swaps[a, NAMES[j]]) == naive_swaps(*values)


def test_the_picture_is_the_same_each_time_and_has_short_numbers(found):
    assert picture(found) == picture(sensitivity(six()))
    keys = ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "points", "viewBox")
    numbers = [number for element in drawn(picture(found)).iter() for key in keys
               for number in re.split("[ ,]", element.get(key, "")) if number]
    assert len(numbers) > 200 and all(re.fullmatch(r"\d+(\.\d{1,2})?", number) for number in numbers)


def test_lines_differ_by_more_than_colour():
    tabs = []
    for each in six():
        rows = [Row(f"r{i}", "measured", f"r{i}", "b", None, {"Avg": Cell(50.0 + i)}) for i in range(40)]
        tabs.append(replace(each, columns=("Avg",), measured=tuple(rows)))
    lines = drawn(picture(sensitivity(tabs))).findall(".//polyline")
    assert len({(line.get("stroke"), line.get("stroke-dasharray")) for line in lines}) == 40
    assert len({line.get("stroke-dasharray") for line in lines}) == 5
    assert {line.get("stroke") for line in lines} == set(COLOURS)


def test_a_dark_page_has_a_dark_picture(found):
    """Every colour that is drawn has another one in the dark, but for what follows the text's."""
    root = drawn(picture(found))
    (style,) = root.iter("style")
    assert "prefers-color-scheme: dark" in style.text
    for element in root.iter():
        for what in ("fill", "stroke"):
            if (colour := element.get(what, "none")) not in ("none", "currentColor", TEXT):
                assert f'[{what}="{colour}"]' in style.text


@settings(QUICK, max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=2, max_size=30), st.integers(1, 60))
def test_labels_and_places_never_overlap_and_stay_inside(scores, length):
    tabs = []
    for how, at in (("all", 0), ("mean", 1)):
        rows = [Row(f"r{i}", "measured", f"{i} " + "long name " * (length // 10) + "x" * (length % 10), "b", None,
                    {"Avg": Cell(round(each[at], 2))}) for i, each in enumerate(scores)]
        tabs.append(replace(six()[0], aggregation=how, columns=("Avg",), measured=tuple(rows)))
    root = drawn(picture(sensitivity(tabs)))
    height = float(root.get("viewBox").split()[3])
    for kind, line in (("name", LINE), ("place", PLACE_LINE)):
        columns = {}
        for text in root.iter("text"):
            if text.get("class") == kind:
                assert not text.text or len(text.text) <= CHARACTERS
                columns.setdefault(text.get("x"), []).append(float(text.get("y")))
        assert len(columns) == (1 if kind == "name" else 2)
        for ys in columns.values():
            ys.sort()
            assert all(b - a >= line - 0.011 for a, b in pairwise(ys))  # two decimals
            assert ys[0] > line / 2 and ys[-1] < height - 30


@QUICK
@given(st.lists(st.tuples(st.floats(-500, 500), st.floats(1, 40)), max_size=12))
def test_pushing_apart_moves_as_little_as_can_be(items):
    wanted, heights = [each[0] for each in items], [each[1] for each in items]
    got = spread_out(wanted, heights, -1e6, 1e6)
    order = sorted(range(len(items)), key=lambda i: wanted[i])
    for i, j in pairwise(order):
        assert got[j] - got[i] >= (heights[i] + heights[j]) / 2 - 1e-6
    # Labels that touch move as one: the sum of their moves is zero (least squares); one that touches none has not moved.
    block = []
    for k, i in enumerate(order):
        block.append(got[i] - wanted[i])
        after = order[k + 1] if k + 1 < len(order) else None
        if after is None or got[after] - got[i] > (heights[i] + heights[after]) / 2 + 1e-6:
            assert sum(block) == pytest.approx(0, abs=1e-4)
            block = []


def test_labels_are_kept_inside_where_they_fit():
    assert spread_out([0.0, 0.0], [10, 10], 5, 100) == [10, 20] and spread_out([99.0, 99.0], [10, 10], 5, 100) == [85, 95]


@pytest.mark.parametrize(("low", "high"), [(50, 80), (0, 0.3), (0, 3), (77.95, 78.06), (-20, 90), (54.1, 54.4)])
def test_ticks_are_round_inside_and_few(low, high):
    got = ticks(low, high)
    assert 3 <= len(got) <= 8 and all(low - 1e-9 <= tick <= high + 1e-9 for tick in got)
    steps = {round(b - a, 6) for a, b in pairwise(got)}
    assert len(steps) == 1 and f"{steps.pop():e}"[0] in "125"


def test_long_names_take_two_lines_and_lose_their_middle():
    assert wrapped("tf-idf") == ["tf-idf"]
    assert wrapped("first_last:embeddings pooling") == ["first_last:embeddings", "pooling"]
    assert wrapped("mean pooling (all-MiniLM-L6-v2)") == ["mean pooling", "(all-MiniLM-L6-v2)"]
    long = wrapped("a very long method name of a very long backbone, cls")
    assert len(long) == 2 and long[1].endswith("cls") and "…" in long[1] and max(map(len, long)) <= CHARACTERS


def test_characters_that_xml_cannot_hold_are_replaced():
    tabs = six()
    rows = [replace(row, method=f"{row.method}\x00\x08") for row in tabs[0].measured]
    tabs[0] = replace(tabs[0], measured=tuple(rows))
    assert "\ufffd" in ET.tostring(drawn(picture(sensitivity(tabs))), "unicode")


# The page.


def html(text):
    return MarkdownIt("commonmark").enable("table").render(text)


def test_the_page_has_tau_and_the_swaps(found):
    text = sensitivity_page(Board(tuple(six()), {}, found))
    assert text.startswith("# Protocol sensitivity\n") and "protocol-sensitivity.svg" in text
    assert "`stsbench leaderboard build`" in text and text.count("\n## ") == 3
    taus = next(line for line in text.splitlines() if line.startswith("| mean Spearman")).strip("| ").split(" | ")
    assert taus == ["mean Spearman", *(f"{found.tau['mean Spearman', name]:.2f}" for name in NAMES)]
    swapped = {frozenset(pair) for pairs in found.swaps.values() for pair in pairs}
    assert f"By average, {len(swapped)} of 10 pairs of rows stand in opposite order" in text and "All of them:" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| &lt;b onload") and "| tf-idf |" in line)
    assert line.endswith("row | tf-idf | 0.33, all Pearson | 1.66, wmean Spearman |")
    assert "board-api" not in text


def test_the_page_says_how_far_a_row_moves(found):
    text = sensitivity_page(Board((), {}, found))
    values = {row: [(found.average[name, row], name) for name in NAMES] for row in METHODS}
    row = max(values, key=lambda row: max(values[row])[0] - min(values[row])[0])
    (low, lowest), (high, highest) = min(values[row]), max(values[row])
    assert f"one and the same row, {row}, goes from {low:.2f} under {lowest} to {high:.2f} under {highest}." in text
    assert "The largest of them: cls has 76.00 on STS13 under all Spearman, 60.00 under mean Spearman." in text
    for task in TASKS:
        pairs = {frozenset(pair) for key, swapped in found.task_swaps.items() if key[0] == task for pair in swapped}
        changes = {word: max(abs(column(a, task)[row] - column(b, task)[row])
                             for a in NAMES for b in NAMES for row in METHODS if a.split()[word] == b.split()[word])
                   for word in (0, 1)}
        assert f"| {task} | {len(pairs)} | {changes[1]:.2f} | {changes[0]:.2f} |" in text


def test_the_page_stays_below_800_words_and_shows_the_swaps_that_tell_most():
    rng = np.random.default_rng(0)
    tabs = []
    for metric, how in SCORES:
        rows = []
        for i, level in enumerate(np.linspace(80, 50, 300)):
            cells = {task: Cell(round(level + rng.normal(0, 4), 2)) for task in COLUMNS}
            name = f"A method with a rather long name, {i} + 100 steps"
            rows.append(Row(f"entry-{i}", "measured", name, "B", "unsup", cells))
        tabs.append(replace(tab(metric, how, SCORES[metric, how]), measured=tuple(rows)))
    big = sensitivity(tabs)
    text = sensitivity_page(Board((), {}, big))
    assert len(text.split()) <= 800 and text == sensitivity_page(Board((), {}, big))
    leads = {}
    for pairs in big.swaps.values():
        for pair in map(frozenset, pairs):
            a, b = sorted(pair)
            gaps = [big.average[name, a] - big.average[name, b] for name in NAMES]
            leads[pair] = round(min(max(gaps), -min(gaps)), 6)
    assert f"By average, {len(leads)} of 44850 pairs of rows" in text
    assert f"The {SWAPS} with the largest smaller lead" in text

    def shown(page):
        section = page.split("## Rows that swap\n")[1].split("## ")[0]
        names = [re.findall(r"A method with a rather long name, \d+ \+ 100 steps", line) for line in section.splitlines()]
        return [frozenset(each) for each in names if each]

    assert [leads[pair] for pair in shown(text)] == sorted(leads.values(), reverse=True)[:SWAPS]
    # Whatever is significant both ways round stands first, whatever its size.
    smallest = min(leads, key=lambda pair: (leads[pair], sorted(pair)))
    told = {(name, *pair): set(pair) == smallest for name in NAMES for pair in map(sorted, leads)}
    first = sensitivity_page(Board((), {}, replace(big, significant=told)))
    assert f"1 differ significantly either way round, 0 in one order only, {len(leads) - 1} in neither" in first
    assert shown(first)[0] == smallest and "| 6 of 6 |" in first and "| 0 of 6 |" in first


def test_names_on_the_page_show_as_text(found):
    shown = html(sensitivity_page(Board((), {}, found)))
    assert "<b" not in shown and "&lt;b onload=&quot;x&quot;&gt;&amp;'|` row" in shown


def test_the_page_says_what_is_noise(found):
    pair = next(iter(found.swaps["all Spearman", "mean Spearman"]))

    def page(verdicts):
        told = {(name, *pair): verdict for name, verdict in zip(NAMES, verdicts, strict=True)}
        return sensitivity_page(Board((), {}, replace(found, significant=told)))

    assert "0 differ significantly either way round, 0 in one order only, 1 in neither" in page([False] * 6)
    assert "significant under" not in page([False] * 6)
    assert "1 differ significantly either way round" in page([True] * 6) and "| 6 of 6 |" in page([True] * 6)
    assert "| 2 of 6 |" in page([True, True] + [False] * 4)
    assert "significant" not in sensitivity_page(Board((), {}, found)).split("## Rows that swap")[1]


def test_the_page_says_that_nothing_swaps():
    tabs = [replace(each, measured=six()[0].measured) for each in six()]
    text = sensitivity_page(Board((), {}, sensitivity(tabs)))
    assert "no two rows stand in opposite order under any two" in text and "ahead" not in text


def test_a_board_without_anything_to_compare_says_so():
    text = sensitivity_page(Board((), {}, None))
    assert "nothing to compare" in text and ".svg" not in text
