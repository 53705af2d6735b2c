"""`robustness`: against scikit-learn and loops; a user's paraphrases and scored pairs, whose rows may repeat."""

import json
from pathlib import Path

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401 - fixtures
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from stsbench import evaluate, load_encoder
from stsbench.evaluation.plan import plan
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import load_records, read_observations
from stsbench.extensions.robustness.rules import RULES, edited
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


def test_the_scores_are_those_of_loops_and_of_scikit_learn(place):
    data = pairs(80)
    write_pairs(place, data)
    result = evaluate("lexical:token-set", output="run", protocol="robustness:pairs:p.tsv", resamples=100,
                      settings={"robustness.edit_seed": 5})
    rows = by_key(result)
    first, second, gold = zip(*data, strict=True)
    plain, near = cosines(first, second), {}
    assert rows[None, "spearman"].value == pytest.approx(100 * spearmanr(plain, gold)[0], abs=1e-8)
    for rule in RULES:
        at = [i for i in range(80) if edited(first[i], rule, 5) is not None]
        texts = [edited(first[i], rule, 5) for i in at]
        if not at:
            assert not any(subset == rule for subset, _ in rows)
            continue
        near[rule] = cosines([first[i] for i in at], texts)
        row = rows[rule, "similarity"]
        assert row.n == len(at) and row.value == pytest.approx(near[rule].mean(), abs=1e-8)
        if not RULES[rule].keeps:
            assert (rule, "drop") not in rows
            continue
        before = 100 * spearmanr(plain[at], np.array(gold)[at])[0]
        after = 100 * spearmanr(cosines(texts, [second[i] for i in at]), np.array(gold)[at])[0]
        assert rows[rule, "plain"].value == pytest.approx(before, abs=1e-8)
        assert rows[rule, "perturbed"].value == pytest.approx(after, abs=1e-8)
        assert rows[rule, "drop"].value == pytest.approx(before - after, abs=1e-8) and rows[rule, "drop"].n == len(at)
    assert len(near) >= 10

    def auc(rules):
        label = np.concatenate([np.full(len(near[rule]), RULES[rule].keeps) for rule in rules])
        return 100 * roc_auc_score(label, np.concatenate([near[rule] for rule in rules]).round(6))

    assert rows[None, "auc"].value == pytest.approx(auc(list(near)), abs=1e-8)
    for rule in near:
        others = [other for other in near if RULES[other].keeps != RULES[rule].keeps]
        assert rows[rule, "auc by part"].value == pytest.approx(auc([rule, *others]), abs=1e-8)
    (row,) = [row for row in result.rows if row.metric == "drop" and row.subset == "typo"]
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
    drawn = part.protocol.draws(observations, record.data.id, 8, 3)
    counts = resample_counts(40, 8, (3, *record.data.id.encode())).astype(int)
    first, second, gold = zip(*data, strict=True)
    texts = {rule: [edited(text, rule, 0) for text in first] for rule in RULES}
    plain, gold = cosines(first, second), np.array(gold)
    for b in range(8):
        chosen = np.repeat(np.arange(40), counts[b])
        at = [i for i in chosen if texts["typo"][i] is not None]
        moved = cosines([texts["typo"][i] for i in at], [second[i] for i in at])
        drop = 100 * (spearmanr(plain[at], gold[at])[0] - spearmanr(moved, gold[at])[0])
        assert drawn["typo", None, "drop"][b] == pytest.approx(drop, abs=1e-8)
        near, label = [], []
        for rule in RULES:
            its = [i for i in chosen if texts[rule][i] is not None]
            near += [*cosines([first[i] for i in its], [texts[rule][i] for i in its]).round(6)] if its else []
            label += [RULES[rule].keeps] * len(its)
        assert drawn[None, None, "auc"][b] == pytest.approx(100 * roc_auc_score(label, near), abs=1e-8)
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
        output = f"run-{len(list(place.iterdir()))}"
        chosen = {f"robustness.{key}": value for key, value in settings.items()}
        result = evaluate("lexical:token-set", output=output, protocol="robustness:pairs:p.tsv", resamples=0,
                          settings=chosen)
        return {key: (row.value, row.n) for key, row in by_key(result).items()}

    plain = scores()
    assert plain == scores(edit_seed=0) != scores(edit_seed=1)
    half = scores(share=0.5)
    assert half["typo", "drop"][1] == round(plain["typo", "drop"][1] / 2)
    assert half[None, "spearman"] == plain[None, "spearman"]
    few = scores(rules=["typo", "negation"])
    assert {subset for subset, _ in few} == {None, "typo", "negation"} and few["typo", "drop"] == plain["typo", "drop"]
    assert not any("auc" in metric for _, metric in scores(rules=["typo"]))  # nothing changes the meaning
    assert scores(similarity="dot") != plain


def test_another_set_is_edited_where_that_is_asked_for():
    (part,), _ = plan(["robustness"], None, {"robustness": {"source": "sts14/test"}})
    assert part.tasks == {"STS14": "sts14/test"}


def test_a_board_takes_own_paraphrases_and_edits_by_all_rules(cli, place):
    """Paraphrases have no similarity of the two sentences of a pair, which other records of the protocol have. What is said
    of the edits are numbers and rules, in lines that no board takes for a text."""
    rows = [f"{one} {what}\t{what} {one} now\tno {one}\n" for one in WHO for what in WHAT]
    (place / "q.tsv").write_text("".join(["text\tkept\tchanged\n", *rows]))
    write_pairs(place, [(f"{one} {i}", f"{other} {i}", gold) for i in range(2) for one, other, gold in pairs(40, i)])
    evaluate("lexical:token-set", output="run", protocol=["robustness:q.tsv", "robustness:pairs:p.tsv"], resamples=100)
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


OWN = {
    "robustness:": ("text\tkept\tchanged", [f"{one}\t{two}\tnot {one}" for one, two, _ in pairs(24)]),
    "robustness:pairs:": ("sentence1\tsentence2\tscore", [f"{one}\t{two}\t{score}" for one, two, score in pairs(24)]),
}


@pytest.mark.parametrize("form", OWN)
def test_rows_that_repeat_change_no_score_and_no_count(form):
    header, rows = OWN[form]
    runs = []
    for name, times in (("once", 1), ("six", 6)):
        Path(f"{name}.tsv").write_text("\n".join([header, *rows * times]) + "\n")
        runs.append(evaluate("lexical:token-set", protocol=f"{form}{name}.tsv", output=name, resamples=20))
    plain, again = map(by_key, runs)
    assert plain.keys() == again.keys()
    for key, row in plain.items():
        assert again[key].n == row.n and again[key].value == pytest.approx(row.value, abs=1e-9)
    [(path, stored)] = load_records(runs[1].folder)
    assert rescored(path, stored)[1] == runs[1].records[0].scores
    assert stored.counts["items"] == 24 and stored.data.n == 144
