"""What a build writes below docs/, and what lies there of the board in this repository."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from board_runs import own_runs, read_once  # noqa: F401  fixtures

from stsbench.errors import StsbenchError
from stsbench.evaluation.run_file import RUN, load_records
from stsbench.leaderboard.board_files import BEGIN, END, build, check
from stsbench.leaderboard.findings.pages import FACTS, QUESTIONS
from stsbench.leaderboard.findings.picture import COLOURS, DARK_COLOURS
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry
from stsbench.protocols.sts import AVERAGED

BOARD = Path(__file__).resolve().parents[3] / "leaderboard"
HOSTILE = "<script>alert(1)</script>"


def records_of(name):
    return [record for run in (BOARD / "measured" / name).glob(f"*/{RUN}") for _, record in load_records(run)]


def test_a_build_writes_the_pages_and_a_check_names_them(own_runs, tmp_path):
    board, docs = tmp_path / "leaderboard", tmp_path / "docs"
    (tmp_path / "README.md").write_text(f"{BEGIN}\n{END}\n")
    for name, method in (("letters", "letters"), ("noisy", HOSTILE)):
        add(board, [own_runs[name]], name, Entry(method=method, backbone="none", setting="unsup"))
    build(board)
    files = [docs / "leaderboard.svg", *(docs / f"findings/protocol-sensitivity.{suffix}" for suffix in ("md", "svg"))]
    for file in files:
        text = file.read_text()
        assert HOSTILE not in text and "letters" in text
        file.write_text(text.replace("letters", "lettres"))
    with pytest.raises(StsbenchError) as error:
        check(board)
    assert all(file.name in str(error.value) for file in files)


def test_the_pictures_have_the_page_s_colours():
    css = (BOARD / "web/src/style/colours.css").read_text("utf-8")
    lines = re.findall(r"--line-\d: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", css)
    assert [*zip(*lines, strict=True)] == [COLOURS, DARK_COLOURS]


def test_the_findings_show_the_committed_records():
    """An entry's mean over runs, a run's mean over rounded tasks; and each question of the table of encoders has answers."""
    text = (BOARD.parent / "docs/findings/methods-on-minilm.md").read_text("utf-8")
    for entry, method in (("minilm-mean", "all-MiniLM-L6-v2, mean"), ("minilm-mlm32-simcse", "SimCSE, 100 steps")):
        values = [round(row.value, 2) for record in records_of(entry) for row in record.scores if row.task in AVERAGED
                  and (record.protocol.label, row.metric, row.aggregation, row.subset) == ("sts", "spearman", "all", None)]
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {method} |")]
        assert float(line.split("|")[3].partition("±")[0]) == pytest.approx(np.mean(values), abs=0.0101)
    with (BOARD.parent / "docs/findings/which-encoder.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for name in [*(name for _, _, name in QUESTIONS), *FACTS, "mteb_mean_of_7"]:
        assert sum(bool(row[name]) for row in rows) > 1, name
