"""`sts:FILE`, `pairs:FILE`, `triplets:FILE` and `transfer:FILE`: against scipy and scikit-learn, in every format."""

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from clirun import place, refuses  # noqa: F401 - a fixture
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics.pairwise import paired_cosine_distances

from stsbench import evaluate, load_encoder
from stsbench.data.own.sets import read_labelled_pairs, read_scored_pairs, read_triplets
from stsbench.display.table import Estimate
from stsbench.errors import DataError
from stsbench.evaluation.plan import declared_metric
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import load_records, read_observations

WORDS = ["red", "green", "blue", "cat", "dog", "bird", "runs", "sleeps", "eats", "here", "there", "now"]


def texts(n, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 5)) for _ in range(n)]


PAIRS = [{"sentence1": a, "sentence2": " ".join([*a.split()[:3], "now"]) if i % 3 == 0 else b, "label": int(i % 3 == 0),
          "subset": ("one", "two")[i % 2]} for i, (a, b) in enumerate(zip(texts(40, 0), texts(40, 1), strict=True))]
TRIPLETS = [{"anchor": a, "positive": b, "negative": c}
            for a, b, c in zip(texts(30, 2), texts(30, 3), texts(30, 4), strict=True)]
SCORED = [{**row, "label": i % 6 - 0.5} for i, row in enumerate(PAIRS)]


def write(rows):
    lines = [list(rows[0]), *(map(str, row.values()) for row in rows)]
    Path("a.csv").write_text("".join(",".join(f'"{cell}"' for cell in line) + "\r\n" for line in lines), newline="")


def cosines(one, other):
    encoder = load_encoder("lexical:token-set")
    first, second = (np.asarray(encoder.encode(side).todense()) for side in (one, other))
    return 1 - paired_cosine_distances(first, second)


def test_pairs_have_the_scores_of_scikit_learn():
    write(PAIRS)
    result = evaluate("lexical:token-set", output="run", protocol="pairs:a.csv", resamples=100)
    similarity = cosines([row["sentence1"] for row in PAIRS], [row["sentence2"] for row in PAIRS])
    label = np.array([row["label"] for row in PAIRS])
    for subset, at in ((None, slice(None)), ("one", slice(0, None, 2)), ("two", slice(1, None, 2))):
        rows = {row.metric: row for row in result.rows if row.subset == subset}
        assert rows["ap"].value == pytest.approx(100 * average_precision_score(label[at], similarity[at].round(6)))
        assert rows["auc"].value == pytest.approx(100 * roc_auc_score(label[at], similarity[at].round(6)))
        assert {row.n for row in rows.values()} == {len(label[at])}
        assert all(row.low <= row.value <= row.high for row in rows.values() if row.low is not None)
        best = similarity[at] >= rows["accuracy-threshold"].value
        assert rows["accuracy"].value == pytest.approx(100 * np.mean(best == label[at]))
    rows = {row.metric: row for row in result.rows if row.subset is None}
    for metric in ("ap", "f1-threshold", "accuracy-threshold"):  # of thresholds every interval is shown
        row = rows[metric]
        assert f"{Estimate(row.value, row.low, row.high):.{declared_metric(row).digits}f}" in str(result)
    assert f"[{rows['f1'].low:.2f}, {rows['f1'].high:.2f}]" not in str(result)
    ((path, record),) = load_records(Path("run"))
    assert record.protocol.label == "pairs:a.csv" and rescored(path, record)[1] == record.scores


def test_an_accuracy_below_the_most_frequent_class_is_said():
    rows = [f"{word} {number},{'rare' if number % 3 == 0 and word == 'cat' else 'usual'}\n"
            for number in range(24) for word in ("cat", "dog")]
    Path("a.csv").write_text("text,label\n" + "".join(rows))
    settings = {"transfer.k": 3, "transfer.max_epoch": 1, "transfer.epoch_size": 1}
    result = evaluate("lexical:token-set", output="run", protocol="transfer:a.csv", settings=settings)
    accuracy = result["a.csv"]
    [note] = read_observations("run", result.records[0]).names["notes"]
    assert accuracy < 100 * 40 / 48 and "below 83.33, the share of the most frequent class" in note


def test_columns_by_name_and_by_position(tmp_path):
    (tmp_path / "a.csv").write_text("id,q1,q2,same\n1,a,b,yes\n2,c,d,no\n")
    (tmp_path / "b.tsv").write_text("1\ta\tb\tyes\n2\tc\td\tno\n")
    named = read_labelled_pairs(tmp_path / "a.csv", "sentence1=q1, sentence2=q2, label=same")
    placed = read_labelled_pairs(tmp_path / "b.tsv", "sentence1=2,sentence2=3,label=4")
    assert named.id == placed.id and named.gold.tolist() == [1, 0] and not named.warnings
    (tmp_path / "c.csv").write_text("left,right,score\na,b,1.5\nc,d,2\n")
    assert read_scored_pairs(tmp_path / "c.csv", "sentence1=left,sentence2=right").gold.tolist() == [1.5, 2]


@pytest.mark.parametrize(("labels", "positive", "gold"), [
    (["1", "0"], "", [1, 0]), (["0.0", "1.0"], "", [0, 1]), (["True", "False"], "", [1, 0]), (["no", "Yes"], "", [0, 1]),
    (["dup", "non"], "non", [0, 1]), (["2", "4"], "4", [0, 1])])
def test_what_the_labels_mean(tmp_path, labels, positive, gold):
    (tmp_path / "a.csv").write_text("".join(["text1,text2,label\n", *(f"a,b{i},{x}\n" for i, x in enumerate(labels))]))
    assert read_labelled_pairs(tmp_path / "a.csv", positive=positive).gold.tolist() == gold


def test_a_label_that_is_a_number_may_mean_a_match():
    Path("a.csv").write_text("text1,text2,label\na,b,1\na,a,2\n")
    result = evaluate("lexical:token-set", output="run", protocol="pairs:a.csv", settings={"pairs.positive": 1})
    assert [row.value for row in result.rows if row.metric == "auc"] == [0]  # the pair of the label 2 is the nearer one


@pytest.mark.parametrize(("what", "values", "said"), [
    ("pairs", "01", "does the other label mean a match?"), ("sts", "13", "are the scores distances?")])
def test_labels_and_scores_the_other_way_round_are_noticed(what, values, said):
    for name, (like, unlike) in {"right": values[::-1], "reversed": values}.items():
        rows = [f"a{i} b,a{i} b,{like}\na{i} b,c{i} {'d ' * (i % 3)}b,{unlike}\n" for i in range(12)]
        Path(f"{name}.csv").write_text("".join(["text1,text2,label\n", *rows]))
        result = evaluate("lexical:token-set", output=name, protocol=f"{what}:{name}.csv", resamples=0)
        notes = read_observations(result.folder, result.records[0]).names.get("notes", [])
        assert any(said in note for note in notes) == (name == "reversed"), (name, notes)


def test_scored_pairs_have_the_scores_of_scipy(place):
    write(SCORED)
    result = evaluate("lexical:token-set", output="run", protocols=["sts:a.csv"], resamples=20)
    cosine, gold = (cosines(*([row[side] for row in SCORED] for side in ("sentence1", "sentence2"))),
                    np.array([row["label"] for row in SCORED]))
    for metric, of in {"spearman": spearmanr, "pearson": pearsonr}.items():
        parts = [100 * of(cosine.round(6)[at::2], gold[at::2]).statistic for at in (0, 1)]
        want = {"all": 100 * of(cosine.round(6), gold).statistic, "mean": np.mean(parts), "wmean": np.mean(parts)}
        rows = {row.aggregation: row for row in result.rows if row.subset is None and row.metric == metric}
        assert {how: row.value for how, row in rows.items()} == pytest.approx(want)
        assert {row.task for row in rows.values()} == {"a.csv"} and rows["all"].n == len(SCORED)
    ((path, record),) = load_records(Path("run"))
    assert record.protocol.label == "sts:a.csv" and record.data.text_version == "own"
    assert str(place) not in record.model_dump_json() and rescored(path, record)[1] == record.scores


VARIANTS = {
    "a.csv": "sentence1;sentence2;score\na;b;1\nc, d;e;2\n",
    "b.csv": "sentence1\tsentence2\tscore\na\tb\t1\nc, d\te\t2\n",
    "c.tsv": "sentence1,sentence2,score\na,b,1\n\"c, d\",e,2\n",
    "d.csv": "a,b,1\n\"c, d\",e,2\n", "e.tsv": "a\tb\t1\nc, d\te\t2\n",
    "f.csv": "label,text1,text2\n1,a,b\n2,\"c, d\",e\n",
    "g.csv": "Sent_1|Sent_2|Similarity\na|b|1\nc, d|e|2\n",
    "h.jsonl": '{"sentence_A": "a", "sentence_B": "b", "relatedness_score": 1}\n'
               '{"sentence_A": "c, d", "sentence_B": "e", "relatedness_score": 2}'}


def test_usual_delimiters_names_and_formats_hold_one_set():
    """Equal pairs are one set by id and digest, whatever file holds them; what was not as expected is in a warning."""
    import datasets
    import pyarrow as pa
    from pyarrow import parquet
    columns = {"sentence1": ["a", "c, d"], "sentence2": ["b", "e"], "score": [1.0, 2.0]}
    parquet.write_table(pa.table(columns), "i.parquet")
    parquet.write_table(pa.table({**columns, "score": [Decimal("1.00"), Decimal("2.00")]}), "j.parquet")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns).save_to_disk("saved")
    for name, text in VARIANTS.items():
        Path(name).write_text(text, "utf-8", newline="")
    sets = {name: read_scored_pairs(Path(name)) for name in (*VARIANTS, "i.parquet", "j.parquet", "saved")}
    assert {tuple(each.rows()) for each in sets.values()} == {(("all", "a", "b", 1.0), ("all", "c, d", "e", 2.0))}
    assert len({(each.id, each.digest) for each in sets.values()}) == 1
    assert {name for name, each in sets.items() if not each.warnings} == {"i.parquet", "j.parquet", "saved"}
    assert sets["a.csv"].warnings == ("a.csv: its columns are separated by semicolons",)
    datasets.DatasetDict({"test": datasets.Dataset.from_dict(columns)}).save_to_disk("splits")
    refuses(DataError, "holds several splits: name the one to measure", read_scored_pairs, Path("splits"))

    assert read_scored_pairs(Path("splits/test")).id == sets["saved"].id


def test_few_pairs_are_said_to_show_little():
    """Over two pairs a correlation is 1 or -1; over fewer than ten its interval is nearly everything."""
    rows = ["sentence1,sentence2,score,subset", "a b,a,1,x", "b,c,2,x", "c,c d,3.5,x", "d,d,4,y", "a,b c,2,y", "a c,c,3,y"]
    Path("few.csv").write_text("\n".join(rows))
    result = evaluate("lexical:token-set", output="run", protocols=["sts:few.csv"], resamples=0)
    said = " ".join(read_observations(result.folder, result.records[0]).names["notes"])
    assert "3 pairs in x, 3 pairs in y: a correlation over fewer than 10 says next to nothing" in said
    Path("two.csv").write_text("\n".join([*rows, "e,f,1,rest", "g,h i,2,rest"]))
    [reason] = evaluate("lexical:token-set", output="no", protocols=["sts:two.csv"], resamples=0).failures.values()
    assert "subset rest: a correlation needs at least three pairs" in reason


@pytest.mark.parametrize("names", [("negative", "negative2", "Negative 3"), ("wrong", "worse", "worst")])
def test_of_several_negatives_the_nearest_decides(names, place):
    rows = [{"anchor": row["anchor"], "positive": row["positive"], **dict(zip(names, others, strict=False))}
            for row, *others in zip(TRIPLETS, texts(30, 6), texts(30, 7), texts(30, 8), strict=True)]
    Path("choices.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"anchor": "anchor", "positive": "positive", "negative": list(names)} if "wrong" in names else None
    result = evaluate("lexical:char-ngrams", triplets="choices.jsonl", columns=columns, resamples=0)
    vectors = load_encoder("lexical:char-ngrams").encode
    right = 0
    for row in rows:
        anchor, *others = vectors([row["anchor"], row["positive"], *(row[name] for name in names)]).toarray()
        cosines = [1 - paired_cosine_distances(anchor[None], other[None])[0] for other in others]
        right += cosines[0] > max(cosines[1:])
    assert result["choices.jsonl"] == pytest.approx(100 * right / 30) and 0 < right < 30
    alone = read_triplets(Path("choices.jsonl"), f"negative={names[0]}" if "wrong" in names else "")
    assert len(alone.further[0]) == (0 if "wrong" in names else len(names) - 1)


def test_a_row_may_have_fewer_negatives_and_none_may_be_the_positive(place):
    Path("few.csv").write_text("anchor,positive,negative_1,negative_2\na,b,c,d\na,b,c,\n")
    assert read_triplets(Path("few.csv")).further == (("d",), ())
    Path("same.csv").write_text("anchor,positive,negative_1,negative_2\na,b,c,b\n")
    refuses(DataError, "are one text", read_triplets, Path("same.csv"))


def test_a_condition_is_part_of_both_texts(tmp_path):
    rows = [{**row, "condition": ("colour", "{text} of it")[i % 2]} for i, row in enumerate(SCORED)]
    joined = [{**row, **{name: f"({row[name]}) by {row['condition']}" for name in ("sentence1", "sentence2")}}
              for row in rows]
    for name, lines in (("under", rows), ("joined", joined)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    data = read_scored_pairs(tmp_path / "under.jsonl", condition="({text}) by {condition}")
    alone, with_both = read_scored_pairs(tmp_path / "under.jsonl"), read_scored_pairs(tmp_path / "joined.jsonl")
    assert data.digest == with_both.digest != alone.digest and not any("condition" in line for line in data.warnings)
    assert any("its column condition is not read: --set 'sts.condition=" in line for line in alone.warnings)
    refuses(DataError, r"has no \{text\}", read_scored_pairs, tmp_path / "under.jsonl", condition="{condition}")
