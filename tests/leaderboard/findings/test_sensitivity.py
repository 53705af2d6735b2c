"""Protocol sensitivity: arithmetic against scipy and a plain loop, the picture's labels and the page's words."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from scipy.stats import kendalltau

from stsbench.leaderboard.findings import picture
from stsbench.leaderboard.findings.pages import SWAPS, agreement_section, sensitivity_page
from stsbench.leaderboard.findings.sensitivity import agreement, sensitivity
from stsbench.leaderboard.ranks.board import Cell, Row, Tab
from stsbench.metrics.ranks import Significance

TASKS = ("STS12", "STS13", "STS-B")
HOSTILE = "<b onload=\"x\">&'|`\nrow"
METHODS = ("mean", "cls", HOSTILE, "tf-idf", "token-set")
# Invented: a line a setting, five rows of the three tasks and their mean.
SCORES = {
    ("spearman", "all"): ((72, 80, 81), (66, 76, 80), (60, 70, 68), (59, 69.5, 69), (45, 50, 52)),
    ("spearman", "mean"): ((70, 79, 81), (66, 60, 80), (59, 70, 68), (60, 69, 69), (47, 55, 52)),
    ("spearman", "wmean"): ((71, 81, 81), (66, 65, 80), (60, 66, 68), (61, 69, 69), (52, 57, 52)),
    ("pearson", "all"): ((80, 79, 83), (67, 75, 79), (63, 70, 68), (62, 68, 70), (46, 50, 55)),
    ("pearson", "mean"): ((71, 78, 83), (65, 64, 79), (60, 67, 68), (59, 66, 70), (48, 55, 55)),
    ("pearson", "wmean"): ((72, 79, 83), (66, 67, 79), (61, 66, 68), (62, 66.5, 70), (53, 57, 55))}
NAMES = [f"{how} {metric.capitalize()}" for metric, how in SCORES]
STS = {"a": 78.0, "b": 75.5, "c": 70.2, "d": 66.6, "e": 60.1}
TRANSFER = {"a": 80.0, "b": 83.5, "c": 79.1, "d": 84.2, "e": 82.0}
RETRIEVAL = {"a": 81.4, "b": 81.4, "c": 79.9, "d": 80.9, "e": 76.6}


def tab(metric, how, scores, **changes):
    rows = []
    for i, (method, values) in enumerate(zip(METHODS, scores, strict=True)):
        cells = {task: Cell(float(value)) for task, value in zip(TASKS, values, strict=True)}
        cells |= {"Avg": Cell(round(sum(values) / 3, 2)), "SICK-R-MTEB": Cell(50.0 + i)}
        rows.append(Row(f"entry-{i}", "measured", method, "MiniLM" if i < 3 else "none", "unsup", cells))
    return Tab(**{
        "id": f"sts-{metric}-{how}", "group": "sts", "title": f"{metric}, {how}", "about": "Invented.", "metric": metric,
        "aggregation": how, "columns": (*TASKS, "Avg", "SICK-R-MTEB"), "lead": "Avg", "digits": 2, "lower_is_better": False,
        "measured": tuple(sorted(rows, key=lambda row: -row.cells["Avg"].value)), "published": (),
        "settings": {"similarity": "cosine"}, "data": {task: f"digest of {task}" for task in TASKS}, **changes})


def six(**changes):
    return [tab(metric, how, scores, **changes) for (metric, how), scores in SCORES.items()]


def averages(*columns, name="r{}"):
    """Tabs of so many settings with rows of an average alone: a list of values a tab, or one for all six."""
    tabs = six()[: len(columns)] if len(columns) > 1 else six()
    return [replace(tab, columns=("Avg",), measured=tuple(
        Row(f"r{i}", "measured", name.format(i), "b", None, {"Avg": Cell(value)})
        for i, value in enumerate(columns[min(at, len(columns) - 1)]))) for at, tab in enumerate(tabs)]


@pytest.fixture(scope="module")
def result():
    return sensitivity(six())


def column(name, task=None):
    """Row -> its score of a task, or its average, under a setting."""
    how, metric = name.split()
    return {method: values[TASKS.index(task)] if task else round(sum(values) / 3, 2)
            for method, values in zip(METHODS, SCORES[metric.lower(), how], strict=True)}


def naive_swaps(one, other):
    return {(a, b) for a in one for b in one if one[a] > one[b] and other[a] < other[b]}


def naive_swapped(task=None):
    return {frozenset(pair) for a, b in combinations(NAMES, 2) for pair in naive_swaps(column(a, task), column(b, task))}


def test_averages_places_and_tau_are_those_of_a_loop(result):
    assert sensitivity(six()[::-1]).settings == tuple(NAMES) == result.settings  # as papers name them
    assert result.rows == METHODS and {key[0] for key in result.scores} == set(TASKS)  # not what stands behind the average
    for name in NAMES:
        values = column(name)
        assert {row: result.average[name, row] for row in METHODS} == values
        assert {row: result.position[name, row] for row in METHODS} == {
            row: sorted(values.values(), reverse=True).index(value) + 1 for row, value in values.items()}
        for other in NAMES:
            tau = kendalltau([*values.values()], [*column(other).values()])[0]
            assert result.tau[name, other] == pytest.approx(tau, abs=1e-6)
    # Ties share a place, and one score for all has no tau.
    two = [[60.0, 50.0, 60.0, 70.0], [50.01, 50.0, 70.0, 70.0]]
    actual = sensitivity(averages(*two))
    assert [[actual.position[name, f"r{i}"] for i in range(4)] for name in actual.settings] == [[2, 4, 2, 1], [3, 4, 1, 1]]
    assert actual.tau["all Spearman", "mean Spearman"] == pytest.approx(kendalltau(*two)[0], abs=1e-6)
    assert ("all Spearman", "mean Spearman") not in sensitivity(averages(two[0], [50.0] * 4)).tau


def changed(index, change):
    """The six tabs; in that of `index`, `change` says what becomes of a row: another row, or None."""
    tabs = six()
    tabs[index] = replace(tabs[index], measured=tuple(filter(None, map(change, tabs[index].measured))))
    return tabs


def test_only_rows_of_every_setting_that_may_be_ranked_are_compared(result):
    assert set(sensitivity(changed(4, lambda row: None if row.id == "entry-1" else row)).rows) == set(METHODS) - {"cls"}
    for why in ({"unranked": "not ranked: no draws"}, {"best_of": 10}):
        tabs = changed(2, lambda row, why=why: replace(row, **why) if row.id == "entry-0" else row)
        assert set(sensitivity(tabs).rows) == set(METHODS) - {"mean"}
    one_row = [replace(tab, measured=tab.measured[:1]) for tab in six()]
    for tabs in ([], six()[:1], six(sample=True), six(group="regression"), six(lead="STS12"), one_row):
        assert sensitivity(tabs) is None
    # Settings on other data or terms are never mixed in.
    for change in ({"settings": {"similarity": "dot"}}, {"data": {"STS12": "another digest"}}):
        tabs = six()
        tabs[1] = replace(tabs[1], **change)
        assert sensitivity(tabs).settings == tuple(name for name in NAMES if name != "mean Spearman")
        assert sensitivity(tabs[:2]) is None
    tabs = six()
    tabs[0] = replace(tabs[0], data={**tabs[0].data, "SICK-R-MTEB": "only here"})  # behind the average
    assert sensitivity([*(replace(tab, measured=(), published=tab.measured, data={}) for tab in six()), *tabs]) == result


def test_rows_of_one_name_are_distinguished_by_backbone_then_by_id():
    for rows, names in (
        ([("x", "b1"), ("y", "b1")], ("x", "y")), ([("x", "b1"), ("x", "b2"), ("y", "b1")], ("x (b1)", "x (b2)", "y")),
        ([("x", "b1"), ("x", "b1")], ("x (b1, 0)", "x (b1, 1)")), ([("x (b1)", "b3"), ("x", "b1"), ("x", "b2")], None)):
        measured = tuple(Row(str(i), "measured", *row, None, {"Avg": Cell(50.0 - i)}) for i, row in enumerate(rows))
        actual = sensitivity(six(measured=measured, columns=("Avg",))).rows
        assert actual == names if names else len(set(actual)) == len(rows)


def test_what_is_significant_is_tested_for_all_settings_together():
    tabs, nothing = six(), np.zeros((5, 5), dtype=bool)
    sizes = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    tests = {tab.id: (tuple(f"entry-{i}" for i in range(5)),  # of themselves, the others have a lower bar
                      Significance(nothing, nothing, sizes, np.full(100, 2.5 if tab is tabs[0] else 1.5))) for tab in tabs}
    significant = sensitivity(tabs, tests).significant
    for setting in NAMES:
        together = {frozenset(key[1:]) for key, differs in significant.items() if key[0] == setting and differs}
        assert together == {frozenset((METHODS[i], METHODS[j])) for i, j in ((0, 3), (0, 4), (1, 4))}
    assert len(significant) == 6 * 10 and not sensitivity(six()).significant


def one_column(group, scores):
    rows = tuple(Row(name, "measured", name, "MiniLM", "sup", {"Avg": Cell(score)}) for name, score in scores.items())
    return tab("m", None, SCORES["spearman", "all"], id=group, group=group, title="Title", columns=("Avg",), measured=rows)


def three():
    return [one_column("retrieval", RETRIEVAL), one_column("sts", STS), one_column("transfer", TRANSFER)]


def test_protocols_agree_by_scipys_tau_over_rows_that_have_all_of_them():
    agreed = agreement(three())
    assert [tab.group for tab in agreed.tabs] == ["sts", "transfer", "retrieval"]  # whatever the board's order
    columns = [[*scores.values()] for scores in (STS, TRANSFER, RETRIEVAL)]
    expected = [[kendalltau(one, other)[0] for other in columns] for one in columns]
    assert [list(line) for line in agreed.tau] == [pytest.approx(line, abs=1e-6) for line in expected]
    retrieval, sts, _ = three()
    sts = replace(sts, measured=tuple(replace(row, best_of=10) if row.id == "e" else row for row in sts.measured))
    fewer = one_column("transfer", {name: score for name, score in TRANSFER.items() if name != "c"})
    assert set(agreement([retrieval, sts, fewer]).names) == {"a", "b", "d"}
    # A protocol's first usable tab is taken.
    turned = one_column("sts", dict(zip(STS, reversed(STS.values()), strict=True)))
    for change in ({"sample": True}, {"known": False}, {"lower_is_better": True}, {"measured": ()}):
        assert agreement([replace(turned, title="Other", **change), *three()]) == agreed
    # Too little has no agreement, and one score for all no tau.
    for tabs in ([], three()[:1], [one_column(group, {"a": 1.0, "b": 2.0}) for group in ("sts", "transfer")]):
        assert agreement(tabs) is None and agreement_section(tabs) == []
    agreed = agreement([one_column("sts", STS), one_column("retrieval", dict.fromkeys(STS, 50.0))])
    assert agreed.tau[0] == (1.0, None)
    assert "| retrieval: Avg, Title |  |  |" in agreement_section(agreed.tabs)[-1]


def drawn(result):
    root = ET.fromstring(picture.picture(result))
    for element in root.iter():
        element.tag = element.tag.rsplit("}", 1)[-1]
    return root


def test_the_picture_is_xml_with_a_title_a_description_and_a_line_a_row(result):
    root = drawn(result)
    ids = {element.get("id"): element for element in root.iter() if element.get("id")}
    title, description = (ids[name] for name in root.get("aria-labelledby").split())
    assert (title.tag, description.tag, root.get("role")) == ("title", "desc", "img")
    assert all(f"{name}: 1 mean" in description.text for name in NAMES)
    assert {group.find("title").text for group in root.findall("g")} == set(METHODS)
    assert not any(element.get("onload") or element.tag == "b" for element in root.iter())
    (style,) = root.iter("style")  # every colour has another one in the dark
    assert all(f'[stroke="{line.get("stroke")}"]' in style.text for line in root.iter("polyline"))
    many = sensitivity(averages([50.0 + i for i in range(40)]))
    strokes = {group.find("title").text: group.find("polyline").get("stroke") for group in drawn(many).findall("g")}
    colours = [*picture.COLOURS]
    assert [strokes[row] for row in many.rows] == colours + [picture.MUTED] * 32  # the first have some, on top of the others
    assert list(strokes.values())[-8:] == colours
    unfit = changed(0, lambda row: replace(row, method=f"{row.method}\x00\x08"))  # which XML cannot hold
    assert "\ufffd" in ET.tostring(drawn(sensitivity(unfit)), "unicode")
    # A line goes through its averages, and lines cross where rows swap.
    heights = {}
    for group in root.findall("g"):
        points = [tuple(map(float, point.split(","))) for point in group.find("polyline").get("points").split()]
        heights[group.find("title").text] = [y for _, y in points]
    scale = {(round(result.average[name, row], 2), heights[row][i]) for i, name in enumerate(NAMES) for row in METHODS}
    (low, bottom), (high, top) = min(scale), max(scale)
    for value, y in scale:
        assert y == pytest.approx(bottom + (value - low) / (high - low) * (top - bottom), abs=0.02)
    for i, j in combinations(range(6), 2):
        values = [{row: -heights[row][k] for row in METHODS} for k in (i, j)]
        assert naive_swaps(column(NAMES[i]), column(NAMES[j])) == naive_swaps(*values)


@settings(max_examples=12)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=2, max_size=30), st.integers(1, 60))
def test_labels_and_places_never_overlap_and_stay_inside(scores, length):
    columns = [[round(values[at], 2) for values in scores] for at in (0, 1)]
    root = drawn(sensitivity(averages(*columns, name="{} " + "long name " * (length // 10) + "x" * (length % 10))))
    for kind, line in (("name", picture.LINE), ("place", picture.PLACE_LINE)):
        places = {}
        for text in root.iter("text"):
            if text.get("class") == kind:
                assert not text.text or len(text.text) <= picture.CHARACTERS
                places.setdefault(text.get("x"), []).append(float(text.get("y")))
        assert len(places) == (1 if kind == "name" else 2)
        for ys in map(sorted, places.values()):
            assert all(b - a >= line - 0.011 for a, b in pairwise(ys))  # two decimals
            assert ys[0] > line / 2 and ys[-1] < float(root.get("viewBox").split()[3]) - 30


def test_ticks_are_round_inside_and_few_and_long_names_take_two_lines():
    for low, high in ((50, 80), (0, 0.3), (0, 3), (77.95, 78.06), (-20, 90), (54.1, 54.4)):
        got = picture.ticks(low, high)
        assert 3 <= len(got) <= 8 and all(low - 1e-9 <= tick <= high + 1e-9 for tick in got)
        steps = {round(b - a, 6) for a, b in pairwise(got)}
        assert len(steps) == 1 and f"{steps.pop():e}"[0] in "125"
    for text in ("tf-idf", "first_last:embeddings\npooling", "mean pooling\n(all-MiniLM-L6-v2)"):
        assert picture.wrapped(text.replace("\n", " ")) == text.split("\n")
    long = picture.wrapped("a very long method name of a very long backbone, cls")
    assert len(long) == 2 and long[1].endswith("cls") and "…" in long[1] and max(map(len, long)) <= picture.CHARACTERS


def test_the_page_has_tau_the_swaps_and_how_far_a_row_moves(result):
    text = sensitivity_page(six(), result)
    assert text.startswith("# Protocol sensitivity\n") and "protocol-sensitivity.svg" in text and text.count("\n## ") == 3
    taus = next(line for line in text.splitlines() if line.startswith("| mean Spearman")).strip("| ").split(" | ")
    assert taus == ["mean Spearman", *(f"{result.tau['mean Spearman', name]:.2f}" for name in NAMES)]
    swapped = naive_swapped()
    assert f"By average, {len(swapped)} of 10 pairs of rows stand in opposite order" in text and "All of them:" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| &lt;b onload") and "| tf-idf |" in line)
    assert line.endswith("row | tf-idf | 0.33, all Pearson | 1.66, wmean Spearman |")
    values = {row: [(result.average[name, row], name) for name in NAMES] for row in METHODS}
    row = max(values, key=lambda row: max(values[row])[0] - min(values[row])[0])
    (low, lowest), (high, highest) = min(values[row]), max(values[row])
    assert f"one and the same row, {row}, goes from {low:.2f} under {lowest} to {high:.2f} under {highest}." in text
    assert "The largest of them: cls has 76.00 on STS13 under all Spearman, 60.00 under mean Spearman." in text
    for task in TASKS:
        changes = [max(abs(column(a, task)[row] - column(b, task)[row])
                       for a in NAMES for b in NAMES for row in METHODS if a.split()[word] == b.split()[word])
                   for word in (1, 0)]
        assert f"| {task} | {len(naive_swapped(task))} | {changes[0]:.2f} | {changes[1]:.2f} |" in text
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<b" not in html and "&lt;b onload=&quot;x&quot;&gt;&amp;'|` row" in html
    text = sensitivity_page((), sensitivity([replace(tab, measured=six()[0].measured) for tab in six()]))
    assert "no two rows stand in opposite order under any two" in text and "ahead" not in text
    assert "significant" not in sensitivity_page((), result).split("## Rows that swap")[1]


def test_the_page_stays_below_800_words_and_shows_the_swaps_that_tell_most():
    rng = np.random.default_rng(0)
    columns = [np.round(np.linspace(80, 50, 40) + rng.normal(0, 4, 40), 2).tolist() for _ in NAMES]
    big = sensitivity(averages(*columns, name="A method with a rather long name, {} + 100 steps"))
    text, leads = sensitivity_page((), big), {}
    assert len(text.split()) <= 800
    of_settings = [{row: big.average[name, row] for row in big.rows} for name in NAMES]
    for pair in {frozenset(pair) for two in combinations(of_settings, 2) for pair in naive_swaps(*two)}:
        a, b = sorted(pair)
        gaps = [big.average[name, a] - big.average[name, b] for name in NAMES]
        leads[pair] = round(min(max(gaps), -min(gaps)), 6)

    def shown(page):
        section = page.split("## Rows that swap\n")[1].split("## ")[0]
        names = [re.findall(r"A method with a rather long name, \d+ \+ 100 steps", line) for line in section.splitlines()]
        return [frozenset(line) for line in names if line]

    assert [leads[pair] for pair in shown(text)] == sorted(leads.values(), reverse=True)[:SWAPS]
    # Whatever is significant both ways round stands first, whatever its size.
    smallest = min(leads, key=lambda pair: (leads[pair], sorted(pair)))
    verdicts = {(name, *pair): set(pair) == smallest for name in NAMES for pair in map(sorted, leads)}
    first = sensitivity_page((), replace(big, significant=verdicts))
    assert f"1 differ significantly either way round, 0 in one order only, {len(leads) - 1} in neither" in first
    assert shown(first)[0] == smallest and "| 6 of 6 |" in first and "| 0 of 6 |" in first
