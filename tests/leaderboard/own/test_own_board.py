"""`stsbench board`: several models on one's own data, in a table and on a page."""

import re
from pathlib import Path

import numpy as np
import pytest
from board_runs import read_once  # noqa: F401
from clirun import cli, place, refuses  # noqa: F401

from stsbench import leaderboard
from stsbench.comparison.compare import compare
from stsbench.errors import StsbenchError
from stsbench.leaderboard.own.models import named_data

MODELS = ("lexical:tfidf", "lexical:token-set", "lexical:char-ngrams")


@pytest.fixture
def pairs(place):
    rng = np.random.default_rng(0)
    words = np.array(["boat", "lake", "otter", "bank", "river", "harbour", "sail", "wave"])
    lines = ["sentence1,sentence2,score"]
    for _ in range(60):
        first, second = rng.choice(words, 4), rng.choice(words, 4)
        lines.append(f"{' '.join(first)},{' '.join(second)},{len({*first} & {*second}) + rng.normal(0, 0.3):.2f}")
    Path("own.csv").write_text("\n".join(lines) + "\n")
    return Path("own.csv")


def test_models_become_a_table_a_choice_and_a_page(pairs, cli):
    code, out, _ = cli("board", *MODELS[:2], "--data", "own.csv", "--title", "Boats", "--no-cost")
    *_, answer, page = out.splitlines()
    assert code == 0 and page == "page: board/site/index.html"
    assert re.match("These|lexical:", answer) and all(model in out for model in MODELS[:2])
    assert {name.rpartition("-")[0] for name in leaderboard.load("board").entries} == {"lexical-tfidf", "lexical-token-set"}
    assert "Boats" in Path("board/site/index.json").read_text()


def test_a_run_that_is_there_is_not_measured_again_and_scores_are_those_of_compare(pairs):
    lines = []
    leaderboard.measure_models(MODELS[:2], pairs, cost=False, log=lines.append)
    (run,) = Path("board/runs").glob("lexical-tfidf-*/run.parquet")
    record = run.read_bytes()
    made = leaderboard.measure_models(MODELS, "sts:own.csv", cost=False, log=lines.append)
    assert [line.rpartition(" ")[2] for line in lines] == ["measuring"] * 2 + ["already"] * 2 + ["measuring"]
    assert run.read_bytes() == record and len(made.results) == 3
    chosen = {row["encoder"]: row["score"] for row in made.choice.to_arrow().to_pylist()}
    row = compare(*made.results[:2], resamples=100).tables[0].rows[0]
    assert [chosen[model] for model in MODELS[:2]] == [row.a, row.b]
    assert made.page.is_file()
    again = leaderboard.measure_models(MODELS[1], pairs, cost=False)  # beside those that the board has
    assert {result.folder for result in again.results} == {result.folder for result in made.results}
    assert again.results[0].records[0].encoder == made.results[1].records[0].encoder and len(again.choice.to_arrow()) == 3
    pairs.write_text("sentence1,sentence2,label\n" + "".join(f"a b{i},a {i % 2 or 'b'}{i},{i % 2}\n" for i in range(12)))
    for protocol in ("sts", "pairs"):  # a run of one is none of the other
        (result,) = leaderboard.measure_models(MODELS[1], f"{protocol}:own.csv", cost=False).results
        assert result.records[0].protocol.name == protocol
    words = "data must be a file or a folder, .* not a list"
    refuses(StsbenchError, words, leaderboard.measure_models, MODELS, [("a", "b", 1)])


def test_data_are_named_by_their_columns_or_their_protocol(pairs):
    assert named_data("own.csv") == "sts:own.csv" and named_data("pairs:other.csv") == "pairs:other.csv"
    pairs.rename("my own.csv")
    assert named_data("my own.csv") == "sts:my own.csv"
    Path("folder").mkdir()
    assert named_data("folder") == "retrieval:folder"


def test_a_board_is_ranked_by_what_a_run_says_first(place):
    """recall@1 can be no more than 50 where two texts are relevant."""
    Path("docs").mkdir()
    for name, rows in {"queries": "q1\toak elm\nq2\tfig yew\n", "relevance": "q1\td1\nq1\td2\nq2\td3\nq2\td5\n",
                       "corpus": "d1\toak\nd2\telm\nd3\tfig\nd4\tyew\nd5\tash\n"}.items():
        Path(f"docs/{name}.tsv").write_text(rows)
    made = leaderboard.measure_models(MODELS[:2], "docs", cost=False)
    (tab,) = leaderboard.load("board").tabs
    assert tab.lead == made.results[0].rows[0].metric == "ndcg@10"


def test_a_board_of_nothing_is_not_left_behind(place):
    Path("odd.csv").write_text("q,p,same\na cat,the cat,1\na dog,rain,0\n")
    for model, data, line in (("lexical:tfidf", "pairs:odd.csv", "of these"), ("no-such", "pairs:odd.csv", "no-such")):
        refuses(StsbenchError, line, leaderboard.measure_models, [model], data, cost=False, offline=True)
    assert not Path("board").exists()
    Path("letters.csv").write_text("sentence1,sentence2,label\na,b,1\nc,d,0\n")
    for _ in "ab":  # what failed is tried again
        refuses(StsbenchError, "empty vocabulary", leaderboard.measure_models, ["lexical:tfidf"], "letters.csv", cost=False)
    columns = {"sentence1": "q", "sentence2": "p", "label": "same"}
    assert leaderboard.measure_models(["lexical:tfidf"], "pairs:odd.csv", columns=columns, cost=False).page.is_file()


def test_other_data_of_the_same_name_and_other_models_at_the_same_place_are_measured(pairs, monkeypatch):
    first = leaderboard.measure_models(["lexical:token-set"], pairs, cost=False).results[0]
    pairs.write_text("\n".join(pairs.read_text().splitlines()[:40]) + "\n")
    second = leaderboard.measure_models(["lexical:token-set"], pairs, cost=False).results[0]
    assert (first.records[0].data.n, second.records[0].data.n) == (60, 39) and first.folder != second.folder
    assert len(leaderboard.load("board").entries) == 1
    np.savez("m.npz", texts=(texts := np.unique([line.split(",")[:2] for line in pairs.read_text().splitlines()[1:]])),
             vectors=np.random.default_rng(0).normal(size=(len(texts), 3)))
    third = leaderboard.measure_models(["vectors:m.npz"], pairs, cost=False).results[0]
    np.savez("m.npz", texts=texts, vectors=np.random.default_rng(1).normal(size=(len(texts), 3)))
    fourth = leaderboard.measure_models(["vectors:m.npz"], pairs, cost=False).results[0]
    assert third.rows[0].value != fourth.rows[0].value
