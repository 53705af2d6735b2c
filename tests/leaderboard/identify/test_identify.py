"""`identify`: the setting that made the numbers is found, and nothing is ranked that cannot be checked."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from board_runs import read_once  # noqa: F401  fixture
from clirun import refuses
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from synthetic_sts import B2, observations, runs, said, write_run  # noqa: F401 - fixtures

from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.plan import find_protocol
from stsbench.leaderboard.identify import search as identify
from stsbench.leaderboard.identify.numbers import ORDER, Number, Numbers, read_numbers, resolved
from stsbench.leaderboard.identify.observed import empty, known_tasks, observed
from stsbench.leaderboard.identify.report import heading
from stsbench.leaderboard.identify.search import Candidate, CandidateScore, candidates, merged, search

SCORES = st.decimals(min_value=-100, max_value=100, places=2).map(str)
ROWS = st.sampled_from([5, 7, 8]).flatmap(lambda n: st.lists(SCORES, min_size=n, max_size=n))
PROTOCOLS = ["sts", "regression", "transfer:fast", "transfer:exact", "retrieval", "retrieval:keep", "geometry"]
FEW_STEPS = {
    "regression.max_epoch": 4, "regression.round_epochs": 4, "regression.entailment_max_epoch": 4,
    "transfer.max_epoch": 2, "transfer.k": 3, "transfer.grid": [0.1], "transfer.grid_kfold": [0.1]}
PRESETS = {  # protocols/presets, by hand
    ("all", "Spearman"): {"diffcse", "hill2016", "is-bert", "sbert", "simcse"}, ("all", "Pearson"): {"hill2016"},
    ("wmean", "Spearman"): {"bert-flow", "whitening"}, ("mean", "Pearson"): {"wieting2020"}}
TRAINED = {("mean", "Spearman"): {"declutr"}, ("mean", "Pearson"): {"infersent", "senteval"}}


@cache
def vector(word):
    return np.random.default_rng(list(word.encode())).normal(0, 1, 12)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """What one encoder, the sums of a vector a word, observed on the sample under many protocols."""
    def words(texts):
        return np.array([sum(map(vector, text.split())) for text in texts], dtype=np.float32)

    folder = tmp_path_factory.mktemp("sample") / "run"
    tasks = {task for name in PROTOCOLS for task in find_protocol(name, {}).tasks()}  # MTEB's SICK-R among them
    result = evaluate(words, output=folder, sample=True, protocols=PROTOCOLS, tasks=sorted(tasks), settings=FEW_STEPS,
                      resamples=0, no_cache=True)
    return observed([result.folder], lambda match: None)


def test_every_setting_finds_itself(sample):
    """Every complete setting of some tasks, printed with two decimals, must come first."""
    for tasks, count in (
        # STS-B by cosine or trained, SICK-R by cosine, cosine on all its pairs, or trained
        ([*ORDER, "Avg"], 6 * 2 * 3), ([*ORDER[:5]], 6), (["STS-B"], 6 * 2 + 2 + 2 * 4 + 5), (["SICK-E"], 2),
        (["MR", "MRPC"], 2 * 4), (["STS-B/0-1"], 1), (["STS13", "SICK-E"], 6 * 2)):
        complete = [each for each in candidates(sample, tasks) if not each.missing]
        assert len(complete) == count, tasks
        for each in complete:
            values = {task: each.points(task, False, 0.0) for task in tasks}
            written = {task: f"{value:.2f}" for task, value in values.items()}
            if all(abs(value) <= 1 for value in values.values()):  # read x 100, but for what is no percentage
                plain = any(cell.form.protocol.metric(cell.metrics[0]).scale == 1 for cell in each.cells.values())
                written = {task: f"{value if plain else value / 100:.6f}" for task, value in values.items()}
            result = search(Numbers({task: Number.parse(text, task) for task, text in written.items()}), sample)
            first = [setting for match in result.matches if match.rank == 1 for setting in match.settings]
            own = [all(choice in choices for (_, choice), (_, choices) in zip(each.slots, setting, strict=True))
                   for setting in first if len(setting) == len(each.slots)]
            assert any(own), (each.slots, first)
            assert result.verdict == "reproduced"


def chosen(candidate):
    """Its choices, without encoder and text version."""
    return [choice for _, choice in candidate.slots[2:]]


def given(text, seen):
    return search(resolved(read_numbers(text), known_tasks(seen)), seen)


def test_a_setting_that_lacks_a_task_is_never_ranked(runs, tmp_path):
    row = B2["sbert"]
    made = {task: seen for task, seen in observations(row["all"], row["wmean"]).items() if task != "STS13"}
    seen = observed([write_run(tmp_path / "run", made)], lambda match: None)
    result = given(said(row["all"]), seen)
    assert (result.matches, result.verdict) == ((), "nothing checked")
    assert {missing for _, missing in result.unchecked if "STS-B of regression" not in missing} >= {("STS13",)}
    assert all("STS13" in missing for _, missing in result.unchecked)
    less = given("STS12=70.97,STS14=73.19,STS-B=76.98", seen)
    assert less.matches[0].reproduced and all(len(match.differences) == 3 for match in less.matches)


def test_settings_within_rounding_of_each_other_are_all_first_and_what_is_beyond_any_percentage_is_a_rank(sample):
    [value] = [each.points("STS-B", False, 0) for each in candidates(sample, ["STS-B"])
               if chosen(each) == ["sts", "all", "Spearman", "cosine"]]
    result = search(Numbers({"STS-B": Number(round(value / 10) * 10, -1)}), sample)  # known to the tens only
    tied = [match for match in result.matches if match.rank == 1]
    assert len(tied) > 1 and all(match.reproduced for match in tied) and len(result.rivals) == len(tied) - 1
    assert all(match.rank > len(tied) for match in result.matches[len(tied) :])
    # A number beyond any percentage: only an effective rank may be, which is compared with nothing else.
    [rank] = [each for each in candidates(sample, ["STS-B"]) if ("metric", "effective rank") in each.slots]
    value = rank.points("STS-B", False, 0)
    result = search(Numbers({"STS-B": Number(value + 100.5, 1)}), sample)
    assert [match.differences["STS-B"] for match in result.matches] == [pytest.approx(-100.5)] and not result.unchecked
    refuses(StsbenchError, r"STS12=100\.01 is impossible", given, "STS-B=50,STS12=100.01", sample)
    assert given("STS12=100,STS13=-100.00", sample).matches


def test_half_a_unit_of_the_last_digit_is_the_threshold(runs):
    seen = observed([runs["sbert"]], lambda match: None)
    [value] = [each.points("STS12", False, 0) for each in candidates(seen, ["STS12"])
               if chosen(each) == ["sts", "all", "Spearman"]]
    for digits in (0, 1, 2, 4):
        unit = 10.0**-digits
        for away, reproduced in ((0.49, True), (0.51, False)):
            result = search(Numbers({"STS12": Number(value + away * unit, digits)}), seen)
            match = min(result.matches, key=lambda match: match.mean)
            assert match.reproduced is reproduced and result.verdict == ("reproduced" if reproduced else "nearest")
    # What is not printed is said.
    row = B2["sbert"]["all"]
    result = given(said(row).replace(said(row[3:4]), "-"), seen)
    assert result.matches[0].reproduced and set(result.matches[0].differences) == set(ORDER) - {"STS15"}
    assert "Not printed, so left out of the comparison: STS15." in heading(result, seen)
    named = read_numbers("sts12 = 70.97 STS12/part 9=3 STS-B=-")
    assert named == Numbers({"sts12": Number(70.97, 2), "STS12/part 9": Number(3.0, 0)}, ("STS-B",))
    assert not any("Not printed" in match for match in heading(given(said(row), seen), seen))


def test_what_reproduces_the_numbers_stands_before_what_is_nearer_on_average(monkeypatch):
    form = empty("sts")

    def made(name, *values):
        cells = [CandidateScore(value, form, "some/test", "all", ("spearman",)) for value in values]
        return Candidate((("protocol", name),), dict(zip("ab", cells, strict=True)), (), ())

    two = [made("nearer", 50.0, 60.006), made("rounded", 50.004, 60.004)]
    monkeypatch.setattr(identify, "candidates", lambda seen, tasks: two)
    result = search(Numbers({"a": Number(50.0, 2), "b": Number(60.0, 2)}), [])
    assert [match.settings[0][0][1] for match in result.matches] == [("rounded",), ("nearer",)]
    assert [(match.rank, match.exact, match.reproduced) for match in result.matches] == [(1, 2, True), (2, 1, False)]
    assert result.matches[1].mean < result.matches[0].mean


def test_presets_are_named_with_exactly_their_own_setting_and_averages_may_be_of_rounded_scores(sample):
    """The sample's regression was trained with other settings than any paper's; that of no paper is on MTEB's SICK-R."""
    seen = set()
    for each in candidates(sample, ORDER):
        _, how, metric, stsb, sick = chosen(each)
        plain = stsb == "cosine" and sick.startswith("cosine on") and "MTEB" not in sick
        assert set(each.papers()) == (PRESETS.get((how, metric), set()) if plain else set()), chosen(each)
        seen.add(plain)
        head = empty("regression")
        ids = {"STS-B": "stsb/splits", "SICK-R": "sick-r/splits"}
        own = {task: CandidateScore(0, head, id, None, (metric.lower(),)) for task, id in ids.items()}
        assert set(replace(each, cells={**each.cells, **own}).papers()) == TRAINED.get((how, metric), set())
    assert seen == {True, False}
    # An average may be of full scores or of scores with two decimals.
    one = next(each for each in candidates(sample, ["Avg"]) if chosen(each)[:4] == ["sts", "all", "Spearman", "cosine"])
    values = [one.cells[task].value for task in ORDER]
    transfer = given("MR=50.00,Avg=60.00", sample)
    assert {len(match.differences) for match in transfer.matches} == {2}  # an average of all seven
    full, printed = sum(values) / 7, round(sum(round(value, 2) for value in values) / 7, 2)
    assert full != printed
    assert [one.points("Avg", False, near) for near in (full, printed)] == [full, printed]


def test_a_run_is_searched_in_full_and_once(tmp_path):
    """A run of the preset simcse holds `all` and Spearman only; its observations hold more."""
    row = B2["sbert"]
    made = observations(row["all"], row["wmean"])
    run = write_run(tmp_path / "run", made, {"resamples": 0, "aggregations": ["all"], "metrics": ["spearman"]})
    seen = observed([run, run], lambda match: None)  # two presets of one encoder are one setting
    result = given(said(row["wmean"]), seen)
    assert len(seen) == 1 and result.matches[0].reproduced and len(result.matches) == 6
    one = write_run(tmp_path / "a" / "run", {"STS-B": made["STS-B"]})
    gold = {**made["STS-B"].arrays, "gold": made["STS-B"].arrays["gold"][::-1]}
    two = write_run(tmp_path / "b" / "run", {"STS-B": replace(made["STS-B"], arrays=gold)})
    refuses(StsbenchError, "different data", observed, [one, two], lambda match: None)


def test_merging_settings_is_exact():
    """What is merged expands to what was given, and nothing else; full products become one."""
    generator = np.random.default_rng(5)
    every = [(("a", x), ("b", y), ("c", z)) for x in "123" for y in "45" for z in "678"]
    assert len(merged(every)) == 1
    for _ in range(50):
        chosen = [every[i] for i in generator.permutation(len(every))[: generator.integers(1, len(every))]]
        back = [(("a", x), ("b", y), ("c", z))
                for setting in merged(chosen) for x in setting[0][1] for y in setting[1][1] for z in setting[2][1]]
        assert len(back) == len(set(back)) and set(back) == set(chosen)


def test_numbers_of_a_file_or_in_order_keep_their_digits(tmp_path):
    for name, content in (
        ("n.json", '{"STS12": 72.40, "STS-B": "82.03"}'), ("n.csv", "task,score\nSTS12,72.40\n\nSTS-B,82.03\n"),
        ("n.csv", "STS12,72.40\r\nSTS-B, 82.03\r\n"), ("n.yaml", "STS12: 72.40\nSTS-B: 82.03\n")):
        (tmp_path / name).write_bytes(content.encode())
        assert read_numbers(str(tmp_path / name)).items == {"STS12": Number(72.4, 2), "STS-B": Number(82.03, 2)}
    assert read_numbers("1.5,2,3,4,5,6,7,8.25").items == {
        **{name: Number(float(at), 0) for at, name in enumerate(ORDER, 1)}, "STS12": Number(1.5, 1), "Avg": Number(8.25, 2)}
    assert list(read_numbers("1,2,3,4,5").items) == list(ORDER[:5])
    assert read_numbers("1 & 2 & 3 & 4 & 5 & 6 & 7 &") == read_numbers("1 & 2 & 3 & 4 & 5 & 6 & 7")  # ends in a separator
    for text in ("72.,37.,80.,60.,75.,59.,85.,39.", "72 37 80 60 75 59 85 39", "100,99,98,97,96,95,94,97"):
        assert [number.digits for number in read_numbers(text).items.values()] == [0] * 8
    for name, content in (  # beyond the limits, refused at once
        ("n.json", '{"STS12": ' + "[" * 200_000 + "]" * 200_000 + "}"), ("n.yaml", "a0: &a0 [x, x]\n" + "".join(
            f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30)))):
        (tmp_path / name).write_text(content, "utf-8")
        refuses(StsbenchError, "", read_numbers, str(tmp_path / name))


@settings(max_examples=30)
@drawn(ROWS, st.data())
def test_any_separator_gives_the_numbers_and_a_cell_that_is_not_printed_moves_no_other(row, data):
    """Whatever stands for it, and wherever; with a separator that is not white space also nothing at all."""
    separator = data.draw(st.sampled_from([",", ", ", " & ", "&", " | ", "\t", " ", "  ", "\n"]))
    gone = data.draw(st.sets(st.integers(0, len(row) - 1), max_size=len(row) - 1))
    dash = st.sampled_from(["-", "--", "\u2013", "\u2014"])
    nothing = st.one_of(dash, st.just("")) if separator.strip(" \n") else dash
    cells = [data.draw(dash if at == 0 else nothing) if at in gone else text for at, text in enumerate(row)]
    end = data.draw(st.sampled_from(["", " \\\\", "\\\\ ", "\n"])) if cells[-1] else ""
    result, names = read_numbers(separator.join(cells) + end), (*ORDER, "Avg")
    assert result.items == {names[at]: Number(float(text), 2) for at, text in enumerate(row) if at not in gone}
    trailing = {len(row) - 1} if not cells[-1] and len(row) == 8 else set()  # a separator at the end of seven numbers
    assert result.absent == tuple(names[at] for at in sorted(gone - trailing))


@settings(max_examples=25)
@drawn(ROWS, st.sampled_from([",", ", ", " ", ";", "; ", " & ", "|", "\t"]))
def test_decimal_commas_are_never_read_as_whole_numbers(row, separator):
    with pytest.raises(StsbenchError, match=r"with decimal commas: write 72\.37"):
        read_numbers(separator.join(text.replace(".", ",") for text in row))
