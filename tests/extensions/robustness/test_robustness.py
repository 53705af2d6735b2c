"""`robustness`: against scikit-learn and loops; a user's paraphrases and scored pairs, whose rows may repeat."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from clirun import cli, fails, place  # noqa: F401 - fixtures
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from stsbench import evaluate, load_encoder
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import plan
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import load_records, read_observations
from stsbench.evaluation.schema import ITEM
from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.plan_file import made_plan
from stsbench.extensions.jobs.state import is_done
from stsbench.extensions.robustness.rules import RULES, edited
from stsbench.leaderboard.records.admission import expected
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


def test_the_scores_are_those_of_loops_and_of_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pairs(80)
    write_pairs(tmp_path, data)
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


def test_the_draws_redraw_a_pair_with_all_its_edits(tmp_path, monkeypatch):
    """Every draw against the scores of the redrawn pairs, each one computed from scratch."""
    monkeypatch.chdir(tmp_path)
    data = pairs(40, seed=1)
    write_pairs(tmp_path, data)
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


def test_what_is_fitted_is_fitted_on_the_set_alone(tmp_path, monkeypatch):
    """The plain score is the one of `sts`, though edited texts hold other words; all are encoded beforehand."""
    monkeypatch.chdir(tmp_path)
    result = evaluate("lexical:tfidf", output="run", protocol="robustness,sts", tasks=["STS-B"], sample=True, resamples=0)
    scores = {row.protocol: row.value for row in result.rows if row.metric == "spearman" and row.subset is None
              and row.aggregation in (None, "all")}
    assert scores["robustness"] == scores["sts"]


def test_paraphrases_of_one_s_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    text = [f"{WHO[a]} {WHAT[b]}" for a, b in zip(rng.integers(6, size=50), rng.integers(6, size=50), strict=True)]
    kept = [one.replace("is", "was") + " today" if i % 3 else f"today {one} it is said" for i, one in enumerate(text)]
    changed = [f"{one} not" if i % 2 else "no " + " ".join(one.split()[2:]) for i, one in enumerate(text)]
    lines = [f"{a}\t{b}\t{c}\t{('x', 'y')[i % 2]}\n" for i, (a, b, c) in enumerate(zip(text, kept, changed, strict=True))]
    (tmp_path / "q.tsv").write_text("".join(["text\tkept\tchanged\tsubset\n", *lines]))
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


def test_every_setting_changes_what_it_should(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path, pairs(60))

    def scores(**settings):
        output = f"run-{len(list(tmp_path.iterdir()))}"
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


def test_the_command_line(cli, place):
    words = ("eval", "--model", "lexical:token-set", "--sample", "--resamples", "50", "--protocol")
    code, out, err = cli(*words, "robustness", "--output", "one")
    assert code == 0 and "STS-B, typo" in out and "STS-B: edited of " in err, err
    assert cli("compare", "one", "one")[0] == 0


def test_all_does_not_run_it():
    parts, left_out = plan(["all"], None, {})
    assert "robustness" not in {part.protocol.name for part in parts} and not any("robustness" in name for name in left_out)
    (part,), _ = plan(["robustness"], None, {"robustness": {"source": "sts14/test"}})
    assert part.tasks == {"STS14": "sts14/test"}


def test_observations_that_contradict_each_other_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path, pairs(30))
    evaluate("lexical:token-set", output="run", protocol="robustness:pairs:p.tsv", resamples=0)
    ((_, record),) = load_records(Path("run"))
    observations = read_observations("run", record)
    (part,), _ = plan(["robustness:pairs:p.tsv"], None, {})
    assert part.protocol.contradiction(observations, record) == ""
    for key, fault in (("near", "similarities of them"), ("moved", "pairs of them")):
        kept = observations.arrays[key]
        observations.arrays[key] = kept[:-1]
        assert fault in part.protocol.contradiction(observations, record)
        observations.arrays[key] = kept
    del observations.arrays["moved"]
    assert "lack moved" in part.protocol.contradiction(observations, record)


def test_a_board_takes_own_paraphrases_and_edits_by_all_rules(cli, tmp_path, monkeypatch):
    """Paraphrases have no similarity of the two sentences of a pair, which other records of the protocol have. What is said
    of the edits are numbers and rules, in lines that no board takes for a text."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{one} {what}\t{what} {one} now\tno {one}\n" for one in WHO for what in WHAT]
    (tmp_path / "q.tsv").write_text("".join(["text\tkept\tchanged\n", *rows]))
    write_pairs(tmp_path, [(f"{one} {i}", f"{other} {i}", gold) for i in range(4) for one, other, gold in pairs(300, i)])
    evaluate("lexical:token-set", output="run", protocol=["robustness:q.tsv", "robustness:pairs:p.tsv"], resamples=100)
    about = ["--entry", "words", "--method", "words", "--backbone", "none", "--setting", "unsup"]
    for words in (["init", "board"], ["add", "run", "--board", "board", *about], ["build", "--board", "board"]):
        code, out, err = cli("leaderboard", *words)
        assert code == 0, out + err
    assert "q.tsv" in (tmp_path / "board/site/leaderboard.md").read_text()
    by_rule, of_own = json.loads((tmp_path / "board/site/entries/words.json").read_text())["parts"]
    shown = {(metric, rule): cell[0] for metric, rule, cell in by_rule["scores"]}
    assert shown["drop", "typo"] == pytest.approx(shown["plain", "typo"] - shown["perturbed", "typo"], abs=2e-4)
    assert shown["auc by part", "negation"] > 0 and ("drop", "negation") not in shown
    assert {metric for metric, _, _ in of_own["scores"]} == {"similarity"}


MODEL, N, TIMES = "lexical:token-set", 24, 6
WORDS = ("cat", "dog", "horse", "bird", "fish")
PAIRS = [(f"a {WORDS[i % 5]} number {i} sits", f"the {WORDS[i % 3]} of {i % 7} runs", i % 4) for i in range(N)]
OWN = {
    "robustness:": ("text\tkept\tchanged", [f"{one}\t{two}\tnot {one}" for one, two, _ in PAIRS]),
    "robustness:pairs:": ("sentence1\tsentence2\tscore", [f"{one}\t{two}\t{score}" for one, two, score in PAIRS]),
}
WRONG = {  # setting: values that cannot be used
    "similarity": ("cosin", None), "resamples": ("x", -1), "seed": (1.5, True), "edit_seed": (2**32, [1], None),
    "rules": ([], {}, None, "typos", ["typo", "typo"]), "source": ("stsb", None), "scored": (False, None),
    "share": ("x", 0, -0.5, math.nan, math.inf, True, None, 10**400, 1.5),
}


@pytest.fixture(params=OWN)
def own(request, tmp_path, monkeypatch):
    """The protocol before the file's name; once.tsv, and six.tsv with every row so often."""
    monkeypatch.chdir(tmp_path)
    header, rows = OWN[request.param]
    for name, times in (("once.tsv", 1), ("six.tsv", TIMES)):
        Path(name).write_text("\n".join([header, *rows * times]) + "\n")
    return request.param


def test_every_setting_is_checked():
    kind = load_protocol("robustness")
    assert {*WRONG} >= {*kind({}).settings, *(key for form in kind.variants for key in kind.variant(form))}
    for key, value in ((key, value) for key, values in WRONG.items() for value in values):
        with pytest.raises(StsbenchError) as caught:
            kind({key: value})
        line = str(caught.value)
        assert re.match(rf"robustness: {key}(\.\w+)? must be ", line) and "\n" not in line and len(line) < 250, line


def test_rows_that_repeat_change_no_score_and_no_count(own):
    once, six = (evaluate(MODEL, protocol=f"{own}{name}.tsv", output=name, resamples=20) for name in ("once", "six"))
    plain, again = ({(row.subset, row.metric): row for row in run.rows} for run in (once, six))
    assert plain.keys() == again.keys()
    for key, row in plain.items():
        assert again[key].n == row.n and again[key].value == pytest.approx(row.value, abs=1e-9)
    [record] = six.records
    assert record.counts["items"] == N and record.data.n == N * TIMES
    assert record.data.warnings[0].startswith(f"{N * TIMES} rows of six.tsv are {N} different items")
    [(path, stored)] = load_records(six.folder)
    assert rescored(path, stored)[1] == record.scores
    assert ITEM not in read_observations(once.folder, once.records[0]).arrays


def test_an_evaluation_is_done_until_the_file_changes(own):
    plan = made_plan({"output": "out", "eval": {"own": {"model": MODEL, "protocols": [f"{own}once.tsv"]}}}, "plan.yaml")
    [job], out, path = expand(plan, "plan.yaml"), Path("out"), Path("once.tsv")
    evaluate(MODEL, protocol=f"{own}once.tsv", output=job.folder(out), sample=True)
    assert is_done(job, out)
    path.write_text(path.read_text().replace("number 3", "number three"))
    assert not is_done(job, out)


def test_what_the_catalogs_set_decides_is_known_to_the_board():
    assert all(len(sha) == 64 for sha in expected()["robustness"]["stsb/test"].values())
    assert "gold" in expected()["robustness"]["stsb/test"]
