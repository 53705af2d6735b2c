"""`stsbench board`: several models on one's own data, in a table and on a page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401

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


def test_three_models_become_a_table_a_choice_and_a_page(pairs, cli):
    code, out, _ = cli("board", *MODELS, "--data", "own.csv", "--title", "Boats", "--no-cost")
    *_, answer, page = out.splitlines()
    assert code == 0 and page == "page: board/site/index.html"
    assert re.match("These|lexical:", answer) and all(model in out for model in MODELS)
    board = leaderboard.load("board")
    assert set(board.entries) == {"lexical-tfidf", "lexical-token-set", "lexical-char-ngrams"}
    assert "Boats" in Path("board/site/index.json").read_text()


def test_a_run_that_is_there_is_not_measured_again_and_scores_are_those_of_compare(pairs):
    lines = []
    leaderboard.measure_models(MODELS[:2], pairs, cost=False, log=lines.append)
    record = Path("board/runs/lexical-tfidf/run.parquet").read_bytes()
    made = leaderboard.measure_models(MODELS, "sts:own.csv", cost=False, log=lines.append)
    assert [line.rpartition(" ")[2] for line in lines] == ["measuring"] * 2 + ["already"] * 2 + ["measuring"]
    assert Path("board/runs/lexical-tfidf/run.parquet").read_bytes() == record and len(made.results) == 3
    chosen = {row["encoder"]: row["score"] for row in made.choice.to_arrow().to_pylist()}
    row = compare(*made.results[:2]).tables[0].rows[0]
    assert [chosen[model] for model in MODELS[:2]] == [row.a, row.b]
    assert made.page.is_file()


def test_data_are_named_by_their_columns_or_their_protocol(pairs):
    assert named_data("own.csv") == "sts:own.csv" and named_data("pairs:other.csv") == "pairs:other.csv"
    Path("folder").mkdir()
    assert named_data("folder") == "retrieval:folder"
    Path("odd.csv").write_text("q,p\na,b\n")
    for name in ("odd.csv", "none.csv"):
        with pytest.raises(StsbenchError, match=f"^--data {name}: "):
            named_data(name)
