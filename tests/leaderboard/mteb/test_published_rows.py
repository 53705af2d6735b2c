"""The committed table of MTEB's results: how many rows it gives, what is flagged on them, and that nothing is repaired."""

from dataclasses import replace
from pathlib import Path

import pytest

from stsbench.errors import StsbenchError
from stsbench.leaderboard.mteb.results import (
    FOLDER,
    ITEMS,
    SOURCE,
    TABLE,
    TWIN,
    Score,
    load_published,
    read_table,
    table_bytes,
)
from stsbench.leaderboard.mteb.rows import FLAGS, NO_MODELS, is_commit, seven_task_rows

BOARD = Path(__file__).resolve().parents[3] / "leaderboard"
COMMIT, DATA = "a" * 40, "d" * 40


@pytest.fixture(scope="module")
def published():
    return load_published(BOARD)


@pytest.fixture(scope="module")
def rows(published):
    return {row.model: row for row in seven_task_rows(published.scores)}


def test_the_models_with_seven_tasks_are_those_that_were_counted_by_hand(rows):
    assert len(rows) == 207
    mixed = [row for row in rows.values() if "mixed" in row.flags]
    assert len(mixed) == 19 and all(len(set(row.folders.values())) == 2 for row in mixed)
    assert all(len(set(row.folders.values())) == 1 for row in rows.values() if row not in mixed)
    assert not set(NO_MODELS) & set(rows) and sum(not is_commit(row.folders["STS12"]) for row in rows.values()) == 114


def test_a_naive_count_of_the_table_agrees(published):
    folders = {}
    for score in published.scores:
        if score.task in ITEMS:
            folders.setdefault(score.model, {}).setdefault(score.revision, set()).add(score.task)
    whole = [model for model, of in folders.items() if any(len(tasks) == 7 for tasks in of.values())]
    union = [model for model, of in folders.items() if len(set().union(*of.values())) == 7]
    assert (len(whole), len(union)) == (188, 207)


def test_the_named_doubts_stand_on_their_rows_and_the_scores_stay_as_printed(rows):
    broken = rows["Gameselo/STS-multilingual-mpnet-base-v2"]
    assert broken.scores["STSBenchmark"] == pytest.approx(0.9762486) and round(broken.mean, 2) == 83.16
    assert {"divided", "mixed", "disagrees"} <= set(broken.flags) and broken.unranked.startswith("a score was divided")
    assert [row.model for row in rows.values() if row.unranked] == [broken.model]
    jina = dict(rows["jinaai/jina-embeddings-v2-base-en"].doubts)
    assert jina["disagrees"].startswith("STSBenchmark 84.84, and 12.86 as English of") and jina["card"] == "all seven tasks"
    (qwen,) = rows["Qwen/Qwen3-Embedding-0.6B"].doubts
    assert qwen[0] == "disagrees" and "91.13, and 65.18" in qwen[1]
    assert dict(rows["openai/text-embedding-3-large"].doubts)["data"] == "all seven tasks: none named"
    assert "data" in rows["sentence-transformers/gtr-t5-base"].flags
    card = dict(rows["BAAI/bge-base-en-v1.5"].doubts)
    assert card["card"] == "STS16" and card["mixed"].endswith("STS16 from external")
    assert "no-commit" in rows["google/text-embedding-004"].flags
    counts = {key: sum(key in row.flags for row in rows.values()) for key in FLAGS}
    assert counts == {"mixed": 19, "card": 111, "no-commit": 21, "divided": 1, "disagrees": 25, "data": 11, "twice": 0}


def model(name="a/b", revision=COMMIT, value="0.5", tasks=tuple(ITEMS), data=DATA):
    return [Score(name, revision, task, "default", value, "1.0", data) for task in tasks]


def test_one_folder_with_all_tasks_is_taken_before_a_mixture_and_a_commit_before_a_model_card():
    other = model(value="0.9", revision="1", tasks=("STS12",))
    (row,) = seven_task_rows([*model(value="0.7", revision="external"), *model(), *other])
    assert set(row.folders.values()) == {COMMIT} and row.mean == pytest.approx(50) and row.flags == ()
    parts = [*model(tasks=tuple(ITEMS)[:6]), *model(value="0.7", revision="external", tasks=tuple(ITEMS)[4:])]
    (row,) = seven_task_rows(parts)
    assert row.folders["SICK-R"] == "external" and row.folders["STSBenchmark"] == COMMIT  # never a mean over folders
    assert row.flags == ("mixed", "card") and row.mean == pytest.approx((6 * 50 + 70) / 7)
    assert seven_task_rows(model(tasks=tuple(ITEMS)[:6])) == () and seven_task_rows(model("baseline/Human")) == ()


def test_each_doubt_is_flagged_for_what_it_is():
    one = model()
    assert seven_task_rows(one)[0].doubts == ()
    low = [replace(one[0], value="0.005"), *one[1:]]
    assert dict(seven_task_rows(low)[0].doubts) == {"divided": "STS12 is printed as 0.005"}
    poor = [replace(score, value="0.005") for score in one]  # a poor model is no fault
    assert seven_task_rows(poor)[0].doubts == ()
    again = [*one, replace(one[2], value="0.51")]
    assert seven_task_rows(again)[0].doubts == (("twice", "STS14: 0.5 and 0.51"),)
    twin = Score("a/b", "x", *TWIN, "0.515")
    assert "disagrees" in seven_task_rows([*one, twin])[0].flags
    assert seven_task_rows([*one, replace(twin, value="0.509")])[0].flags == ()
    strange = [*model("c/d"), *model("e/f"), *[replace(score, dataset_revision="") for score in one]]
    assert {row.model: row.flags for row in seven_task_rows(strange)} == {"a/b": ("data",), "c/d": (), "e/f": ()}


def test_the_table_is_the_same_bytes_and_what_does_not_fit_is_refused(published, tmp_path):
    assert (BOARD / FOLDER / TABLE).read_bytes() == table_bytes(published.scores)
    path = tmp_path / TABLE
    path.write_bytes(table_bytes([Score("a/b", "1", "STS12", "default", "85.2")]))
    with pytest.raises(StsbenchError, match=r"line 2: '85.2' is not a correlation"):
        read_table(path)
    path.write_bytes(b"no gzip")
    with pytest.raises(StsbenchError, match=TABLE):
        read_table(path)
    folder = tmp_path / "board" / FOLDER
    folder.mkdir(parents=True)
    (folder / TABLE).write_bytes(table_bytes(model()))
    (folder / SOURCE).write_text((BOARD / FOLDER / SOURCE).read_text())
    with pytest.raises(StsbenchError, match=r"has 7 scores, and source\.yaml says 7408"):
        load_published(tmp_path / "board")
    assert load_published(tmp_path) is None
