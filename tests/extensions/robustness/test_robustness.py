"""`robustness`: against scikit-learn and loops; a user's paraphrases and scored pairs, whose rows may repeat. Edits by
rule: by hand what each one makes of a sentence and what it leaves alone; the same seed, the same texts."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401 - fixtures
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from stsbench import evaluate, load_encoder
from stsbench.evaluation.plan import plan
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import load_records, read_observations
from stsbench.extensions.robustness.rules import RULES, RuleName, apply_rule, edited
from stsbench.extensions.robustness.words import CALENDAR, NAMES
from stsbench.metrics.bootstrap import resample_counts

WHO = ["A man", "The woman", "A big dog", "Two boys", "An old horse", "Mary"]
WHAT = ["is eating a red apple", "is chasing a cat", "was running before noon", "is not sleeping", "can swim in Paris",
        "sees 12 birds"]


def pairs(n, seed=0):
    rng = np.random.default_rng(seed)
    sides = [[f"{WHO[a]} {WHAT[b]}." for a, b in zip(rng.integers(6, size=2 * n), rng.integers(6, size=2 * n), strict=True)]
             for _ in range(2)]
    sides = list(zip(*list({frozenset(pair): pair for pair in zip(*sides, strict=True)}.values())[:n], strict=True))
    gold = [sum(word in b.split() for word in a.split()) / 2 for a, b in zip(*sides, strict=True)]
    return [*zip(*sides, np.minimum(gold, 5) + rng.integers(3, size=n) / 4, strict=True)]


def write_pairs(folder, rows):
    (folder / "p.tsv").write_text("".join(["sentence1\tsentence2\tscore\n", *(f"{a}\t{b}\t{c}\n" for a, b, c in rows)]))


def cosines(one, other):
    vectors = np.asarray(load_encoder("lexical:token-set").encode([*one, *other]).todense(), dtype=np.float64)
    first, second = vectors[: len(one)], vectors[len(one) :]
    return np.array([float(a @ b / np.sqrt((a @ a) * (b @ b))) if a.any() and b.any() else 0.0
                     for a, b in zip(first, second, strict=True)])


def by_key(result):
    return {(row.subset, row.metric): row for row in result.rows}


def naive(data, chosen, seed=0):
    """(rule or None, metric) -> the score of the pairs at `chosen`, each as often as it stands there, from scratch."""
    first, second, gold = map(np.array, zip(*data, strict=True))
    plain = cosines(first, second)
    scores, near = {(None, "spearman"): 100 * spearmanr(plain[chosen], gold[chosen])[0]}, {}
    for rule, kind in RULES.items():
        edits = [edited(text, rule, seed) for text in first]
        if not (at := [i for i in chosen if edits[i] is not None]):
            continue
        texts = [edits[i] for i in at]
        near[rule] = cosines(first[at], texts)
        scores[rule, "similarity"] = near[rule].mean()
        if kind.keeps:
            before, after = (100 * spearmanr(each, gold[at])[0] for each in (plain[at], cosines(texts, second[at])))
            scores |= {(rule, "plain"): before, (rule, "perturbed"): after, (rule, "drop"): before - after}

    def auc(rules):
        label = np.concatenate([np.full(len(near[rule]), RULES[rule].keeps) for rule in rules])
        return 100 * roc_auc_score(label, np.concatenate([near[rule] for rule in rules]).round(6))

    scores[None, "auc"] = auc(list(near))
    for rule in near:
        scores[rule, "auc by part"] = auc([rule, *(each for each in near if RULES[each].keeps != RULES[rule].keeps)])
    return scores


def test_the_scores_are_those_of_loops_and_of_scikit_learn(place):
    data = pairs(80)
    write_pairs(place, data)
    result = evaluate("lexical:token-set", output="run", protocol="robustness:pairs:p.tsv", resamples=100,
                      settings={"robustness.edit_seed": 5})
    rows, expected = by_key(result), naive(data, np.arange(80), 5)
    assert {key: row.value for key, row in rows.items()} == pytest.approx(expected, abs=1e-8) and len(rows) > 30
    for rule in (rule for rule, metric in expected if metric == "drop"):
        many = sum(edited(first, rule, 5) is not None for first, *_ in data)
        assert rows[rule, "drop"].n == rows[rule, "similarity"].n == many
    row = rows["typo", "drop"]
    assert row.low <= row.value <= row.high
    ((path, record),) = load_records(Path("run"))
    assert record.protocol.label == "robustness:p.tsv" and rescored(path, record)[1] == record.scores


def test_the_draws_redraw_a_pair_with_all_its_edits(place):
    """Every draw against the scores of the redrawn pairs, each computed from scratch; arrays that contradict are seen."""
    data = pairs(40, seed=1)
    write_pairs(place, data)
    evaluate("lexical:token-set", output="run", protocol="robustness:pairs:p.tsv", resamples=0)
    ((_, record),) = load_records(Path("run"))
    observations = read_observations("run", record)
    (part,), _ = plan(["robustness:pairs:p.tsv"], None, {"robustness": {"resamples": 0}})
    drawn = part.protocol.draws(observations, record.data.id, 4, 3)
    for b, counts in enumerate(resample_counts(40, 4, (3, *record.data.id.encode())).astype(int)):
        of_draw = {(subset, metric): draws[b] for (subset, _, metric), draws in drawn.items()}
        assert of_draw == pytest.approx(naive(data, np.repeat(np.arange(40), counts)), abs=1e-8)
    assert part.protocol.draws(observations, record.data.id, 0, 3) == {}
    assert part.protocol.contradiction(observations, record) == ""
    for key, fault in (("near", "similarities of them"), ("moved", "pairs of them")):
        kept = observations.arrays[key]
        observations.arrays[key] = kept[:-1]
        assert fault in part.protocol.contradiction(observations, record)
        observations.arrays[key] = kept
    del observations.arrays["moved"]
    assert "lack moved" in part.protocol.contradiction(observations, record)


def test_what_is_fitted_is_fitted_on_the_set_alone(place):
    """The plain score is the one of `sts`, though edited texts hold other words; all are encoded beforehand."""
    result = evaluate("lexical:tfidf", output="run", protocol="robustness,sts", tasks=["STS-B"], sample=True, resamples=0)
    scores = {row.protocol: row.value for row in result.rows if row.metric == "spearman" and row.subset is None
              and row.aggregation in (None, "all")}
    assert scores["robustness"] == scores["sts"]


def test_paraphrases_of_one_s_own(place):
    rng = np.random.default_rng(0)
    text = [f"{WHO[a]} {WHAT[b]}" for a, b in zip(rng.integers(6, size=50), rng.integers(6, size=50), strict=True)]
    kept = [one.replace("is", "was") + " today" if i % 3 else f"today {one} it is said" for i, one in enumerate(text)]
    changed = [f"{one} not" if i % 2 else "no " + " ".join(one.split()[2:]) for i, one in enumerate(text)]
    lines = [f"{a}\t{b}\t{c}\t{('x', 'y')[i % 2]}\n" for i, (a, b, c) in enumerate(zip(text, kept, changed, strict=True))]
    (place / "q.tsv").write_text("".join(["text\tkept\tchanged\tsubset\n", *lines]))
    result = evaluate("lexical:token-set", output="run", protocol="robustness:q.tsv", resamples=100)
    rows = by_key(result)
    near, far = cosines(text, kept), cosines(text, changed)
    for subset, metric, at in ((None, "auc", slice(None)), ("x", "auc by part", slice(0, None, 2)),
                               ("y", "auc by part", slice(1, None, 2))):
        n, items = len(near[at]), len({*zip(text[at], kept[at], changed[at], strict=True)})
        want = 100 * roc_auc_score([1] * n + [0] * n, np.concatenate([near[at], far[at]]).round(6))
        row = rows[subset, metric]
        assert row.value == pytest.approx(want, abs=1e-8) and row.n == items and row.low <= row.value <= row.high
    assert rows["kept", "similarity"].value == pytest.approx(near.mean(), abs=1e-8)
    assert rows["changed", "similarity"].value == pytest.approx(far.mean(), abs=1e-8)
    assert {metric for _, metric in rows} == {"auc", "auc by part", "similarity"}
    ((path, record),) = load_records(Path("run"))
    assert rescored(path, record)[1] == record.scores and "rules" not in record.protocol.settings


def test_every_setting_changes_what_it_should(place):
    write_pairs(place, pairs(30))

    def scores(**settings):
        chosen = {f"robustness.{key}": value for key, value in settings.items()}
        result = evaluate("lexical:token-set", protocol="robustness:pairs:p.tsv", resamples=0, settings=chosen)
        return {key: (row.value, row.n) for key, row in by_key(result).items()}

    plain = scores()
    one = scores(rules=["typo"], edit_seed=1)
    assert not any("auc" in metric for _, metric in one)  # nothing changes the meaning
    assert one["typo", "drop"] != plain["typo", "drop"] and one[None, "spearman"] == plain[None, "spearman"]
    few = scores(rules=["typo", "negation"], share=0.5)
    assert {subset for subset, _ in few} == {None, "typo", "negation"} and few[None, "spearman"] == plain[None, "spearman"]
    assert few["typo", "drop"][1] == round(plain["typo", "drop"][1] / 2)
    assert scores(similarity="dot")[None, "spearman"] != plain[None, "spearman"]
    (part,), _ = plan(["robustness"], None, {"robustness": {"source": "sts14/test"}})
    assert part.tasks == {"STS14": "sts14/test"}


def test_a_board_takes_own_paraphrases_and_edits_by_all_rules(cli, place):
    """Paraphrases have no similarity of the two sentences of a pair, which other records of the protocol have. What is said
    of the edits are numbers and rules, in lines that no board takes for a text."""
    rows = [f"{one} {what}\t{what} {one} now\tno {one}\n" for one in WHO for what in WHAT]
    (place / "q.tsv").write_text("".join(["text\tkept\tchanged\n", *rows]))
    write_pairs(place, [(f"{one} {i}", f"{other} {i}", gold) for i in range(2) for one, other, gold in pairs(40, i)])
    evaluate("lexical:token-set", output="run", protocol=["robustness:q.tsv", "robustness:pairs:p.tsv"], resamples=20)
    about = ["--entry", "words", "--method", "words", "--backbone", "none", "--setting", "unsup"]
    for words in (["init", "board"], ["add", "run", "--board", "board", *about], ["build", "--board", "board"]):
        code, out, err = cli("leaderboard", *words)
        assert code == 0, out + err
    assert "q.tsv" in (place / "board/site/leaderboard.md").read_text()
    by_rule, of_own = json.loads((place / "board/site/entries/words.json").read_text())["parts"]
    shown = {(metric, rule): cell[0] for metric, rule, cell in by_rule["scores"]}
    assert shown["drop", "typo"] == pytest.approx(shown["plain", "typo"] - shown["perturbed", "typo"], abs=2e-4)
    assert shown["auc by part", "negation"] > 0 and ("drop", "negation") not in shown
    assert {metric for metric, _, _ in of_own["scores"]} == {"similarity"}


def test_rows_that_repeat_change_no_score_and_no_count(place):
    runs = []
    for name, times in (("once", 1), ("three", 3)):
        write_pairs(place, pairs(16) * times)
        runs.append(evaluate("lexical:token-set", protocol="robustness:pairs:p.tsv", output=name, resamples=20))
    plain, again = map(by_key, runs)
    assert plain.keys() == again.keys()
    for key, row in plain.items():
        assert again[key].n == row.n and again[key].value == pytest.approx(row.value, abs=1e-9)
    [(path, stored)] = load_records(runs[1].folder)
    assert rescored(path, stored)[1] == runs[1].records[0].scores
    assert stored.counts["items"] == 16 and stored.data.n == 48


SEEDS = range(30)
TENS = ("twenty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
COLOURS = ("blue", "green", "yellow", "purple", "pink")
CITIES = [city for city in NAMES["Paris"] if city != "Paris"]
CASES = {  # rule -> text -> everything that it may become
    "negation": {
        "A dog is running.": {"A dog is not running."}, "Dogs can swim": {"Dogs can not swim"},
        "He has eaten and has walked": {"He has eaten and has not walked"},  # eaten is not known to be a participle
        "The man who is old was there.": {"The man who is old was not there."},
        "It is not raining.": {"It is raining."}, "Don't run!": {"Do run!"}, "You don 't have to .": {"You do have to ."},
        "He can't and won't.": {"He can and won't.", "He can't and will."},
        "Nobody is here.": set(), "A can of beer": set(), "Is it?": set(), "He has a dog": set(), "He runs.": set(),
        "not only": set(), "": set()},
    "entity": {
        "A man hugs a woman.": set(), "It rains.": set(), "A boy": {"A girl"},
        "A man and the man's son": {"A woman and the woman's son"}},
    "name": {"She saw Paris": {f"She saw {city}" for city in CITIES},
             "syria 's war": {f"{edit_of.lower()} 's war" for edit_of in NAMES["Syria"] if edit_of != "Syria"},
             "South China Sea": set(), "New Mexico": set()},
    "number": {"3 dogs": {f"{digit} dogs" for digit in "2456789"},
               "In 2004": {f"In 200{digit}" for digit in "2356789"},
               "0.5 percent": {f"{digit}.5 percent" for digit in "23456789"},
               "Thirty men": {f"{ten.capitalize()} men" for ten in TENS}, "B52": set(), "9/11": set(), "10:30": set()},
    "word-order": {
        "A boy is chasing the dog.": {"The dog is chasing a boy."},
        "A dog sits behind a cat": {"A cat sits behind a dog"},
        "An egg lies near a dog": {"A dog lies near an egg"},
        "John met Mary": set(), "A dog and a cat sleep.": set(), "A dog sees a dog.": set(), "It rains.": set(),
        "From Paris to London": {"From London to Paris"}, "up from 5 to 7": {"up from 7 to 5"}},
    "quantifier": {"At least ten men left.": {"At most ten men left."}, "all men": {"some men", "no men"},
                   "a few men": {"many men"}, "not at all": set()},
    "time": {"He left before noon.": {"He left after noon."}, "last week": {"next week"},
             "on Monday": {f"on {day[0]}" for day in CALENDAR if day[0].endswith("day") and day[0] != "Monday"},
             "May I go": set(), "it may rain": set(), "after all": set()},
    "antonym": {"A big dog": {"A small dog"}, "a black and white cat": set(), "An old man's hat": {"A young man's hat"},
                "in front of it": {"behind it"}, "a hot dog": set(), "a red hat": {f"a {colour} hat" for colour in COLOURS}},
    "case": {"a dog": {"A DOG", "A Dog"}, "A DOG": {"a dog"}, "12": set()},
    "punctuation": {"Rain.": {"Rain", "Rain ."}, "rain .": {"rain.", "rain", "rain  ."}, "Rain": {"Rain."}, "?": set(),
                    "No rain": {"No rain.", "No  rain"}, "Rain?": {"Rain ?"}},
    "number-word": {"Two dogs": {"2 dogs"}, "12 dogs": {"twelve dogs"}, "13 dogs": set(), "$5": set(), "$ 5": set(),
                    "5 %": set(), "twenty five": set(), "two million": set(), "at 10 : 15": set(), "B-52, 7up": set()},
    "contraction": {"It is raining.": {"It's raining."}, "it 's": set(), "I'm here": {"I am here"},
                    "I am here": {"I'm here"},
                    "They can't swim.": {"They cannot swim."}, "They cannot": {"They can't"}, "What it is.": set(),
                    "We have a dog": set(), "you don 't": {"you do not"}, "Isn't it": set()},
    "typo": {"a dog ran": set(), "Paris LONDON 12345": set()}}


def outcomes(rule, text):
    return {new for seed in SEEDS if (new := edited(text, rule, seed)) is not None}


def test_what_a_rule_makes_of_a_sentence_and_which_keep_the_meaning():
    for rule, texts in CASES.items():
        for text, want in texts.items():
            made = outcomes(rule, text)
            assert made <= want and bool(want) == bool(made), (rule, text, made)
    assert all(new.startswith("china and") for new in outcomes("name", "china and France"))
    keeping = [rule.name for rule in RULES.values() if rule.keeps]
    assert tuple(RULES) == get_args(RuleName)
    assert keeping == ["typo", "case", "punctuation", "number-word", "contraction"]


def test_a_typo_is_one_slip_in_one_word_whose_first_letter_stays():
    text = "A gardener waters flowers."
    for new in (news := outcomes("typo", text)):
        (at,) = [i for i, pair in enumerate(zip(text.split(), new.split(), strict=True)) if pair[0] != pair[1]]
        old, slip = text.split()[at].strip("."), new.split()[at].strip(".")
        assert old in ("gardener", "waters", "flowers") and slip[0] == old[0] and abs(len(slip) - len(old)) < 2
        start = next(i for i, (a, b) in enumerate(zip(old, slip + "  ", strict=False)) if a != b)
        swapped = sorted(old) == sorted(slip) and old[start + 2 :] == slip[start + 2 :]
        assert swapped or old[start + 1 :] in (slip[start:], slip[start + 1 :]) or old[start:] == slip[start + 1 :]
    assert len(news) > 20


SOME = (
    "A", "a", "the", "man", "dog", "Paris", "syria", "is", "not", "can't", "don", "'t", "'s", "two", "12", "2004", "all",
    "some", "before", "Monday", "may", "big", "red", ",", ".", "?", "and", "I", "am", "it", "cannot", "’", "“", "5%", "$",
    "ß", "İ", "中文")
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(SOME), max_size=10).map(" ".join))


@settings(max_examples=50, deadline=None)
@given(TEXTS, st.sampled_from(list(RULES)), st.integers(0, 2**32 - 1))
def test_an_edit_is_another_text_and_always_the_same(text, rule, seed):
    new = edited(text, rule, seed)
    assert new != text and new == edited(text, rule, seed)
    if new is not None and rule in ("case", "punctuation"):
        plain, other = ([letter for letter in one.lower() if letter.isalnum()] for one in (text, new))
        assert plain == other


def test_seed_and_share():
    texts = (*(f"The gardener {word} a big tree" for word in ("waters", "plants", "paints", "climbs")), "Rain")
    whole = apply_rule(texts, "typo", 0, 1.0)
    assert [text is None for text in whole] == [False] * 4 + [True]
    assert apply_rule(texts, "typo", 0, 1.0) == whole != apply_rule(texts, "typo", 1, 1.0)
    assert apply_rule(texts[::-1], "typo", 0, 1.0) == whole[::-1]  # wherever a text stands
    half = apply_rule(texts, "typo", 0, 0.5)
    assert sum(text is not None for text in half) == 2 and all(text in (None, whole[i]) for i, text in enumerate(half))
    assert sum(text is not None for text in apply_rule(texts, "typo", 0, 0.01)) == 1
    assert apply_rule(("Rain",), "antonym", 0, 0.5) == (None,)
