"""Figures at second hand: read whole or refused, set side by side, and in no table of the board."""

from pathlib import Path

import pytest
from shipped_recipes import one_line

from stsbench.leaderboard.board_files import outputs
from stsbench.leaderboard.page.second_hand_page import second_hand_page
from stsbench.leaderboard.publications.load import load_publications
from stsbench.leaderboard.publications.second_hand import COLUMNS, SecondHand, conflicts, load_second_hand
from stsbench.leaderboard.ranks.gather import gather

BOARD = Path(__file__).resolve().parents[3] / "leaderboard"
ROW = ["Fish", "BERT-base", "spearman/all", "a/b@c:README.md", "not said", *["70.00"] * 7, "70.00", ""]
PAPER = """
paper: {id: fish, title: Fish, authors: A et al., year: 2022, url: https://a.b/c}
tables:
  - table: "1"
    protocol: sts
    metric: spearman
    aggregation: all
    split: test
    columns: [STS12, STS13, STS14, STS15, STS16, STS-B, SICK-R]
    average: Avg
    rows:
      - {row: 1, method: Fish, backbone: BERT-base, setting: unsup, scores: [71, 71, 71, 71, 71, 71, 71], average: 71}
      - {row: 2, method: Fish (reproduced), backbone: BERT-base, setting: unsup,
         scores: [70, 70, 70, 70, 70, 70, 70], average: 70}
      - {row: 3, method: Fish, backbone: BERT-large, setting: unsup, scores: [75, 75, 75, 75, 75, 75, 75], average: 75}
"""


def board(place, *rows, explained=None):
    (place / "second_hand").mkdir(exist_ok=True)
    lines = ["\t".join(COLUMNS), *("\t".join(row) for row in rows)]
    (place / "second_hand" / "rows.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    if explained is not None:
        (place / "second_hand" / "explained.yaml").write_text(explained, "utf-8")
    (place / "published").mkdir(exist_ok=True)
    (place / "published" / "fish.yaml").write_text(PAPER, "utf-8")
    return place


def changed(**values):
    return [values.get(name, value) for name, value in zip(COLUMNS, ROW, strict=True)]


def test_sources_that_differ_stand_side_by_side(tmp_path):
    explained = "explained: [{method: FISH, backbone: BERT-base, explanation: another pooler}]\n"
    large = changed(backbone="BERT-large", **dict.fromkeys(COLUMNS[5:13], "75.00"))
    loaded = load_second_hand(board(tmp_path, ROW, large, changed(method="Lonely"), explained=explained))
    (one,) = conflicts(loaded, load_publications(tmp_path / "published"))
    assert [(row.source, row.measured_by, row.average) for row in one.rows] == [
        ("fish:1:1", "its authors", 71), ("fish:1:2", "re-run by the paper that prints it", 70)]
    assert one.also == ((), ("a/b@c:README.md",))  # the list prints what the re-run gave
    assert (one.low, one.high, one.explanation) == (70, 71, "another pooler")
    page = second_hand_page(loaded, load_publications(tmp_path / "published"))
    assert "| Fish | BERT-base | another pooler | 3 | 70.00 | 71.00 |" in page
    assert "| Lonely | a/b@c<!-- -->:README.md" in page or "| Lonely | a/b@" in page


def test_a_row_that_prints_only_its_mean_agrees_with_one_that_prints_all(tmp_path):
    short = changed(**dict.fromkeys(COLUMNS[5:12], ""), Avg="71.00")
    loaded = load_second_hand(board(tmp_path, short, changed(method="Fish unsup", STS12="71.00", Avg="70.14")))
    (one,) = conflicts(loaded, load_publications(tmp_path / "published"))
    assert [row.average for row in one.rows] == [71, 70, 70.14] and one.also[0] == ("a/b@c:README.md",)
    assert one.explanation is None and "| nobody has said |" in second_hand_page(loaded, load_publications(
        tmp_path / "published"))


@pytest.mark.parametrize(("row", "message"), [
    (changed(Avg="70.50"), "row 2: prints the mean 70.5, and its columns give 70.00: say so in the note"),
    (changed(measured_by="somebody"), "row 2: measured_by must be its authors or not said"),
    (changed(protocol="pearson/all"), "row 2: protocol must be spearman/all"),
    (changed(source=""), "row 2: source is empty"),
    (changed(STS12="7o"), "row 2: could not convert"),
    (changed(STS12="700", Avg="160"), "row 2: a score is not between"),
    (ROW[:-1], "row 2: 13 columns instead of 14"),
])
def test_a_mistake_is_one_line_that_names_the_row(tmp_path, row, message):
    one_line(lambda: load_second_hand(board(tmp_path, row)), message)
    fine = changed(Avg="70.50", note="printed Avg 70.50, mean of the cells 70.00")
    assert load_second_hand(board(tmp_path, fine)).rows[0].average == 70.5


def test_a_mistake_in_what_explains_them_names_its_number(tmp_path):
    one_line(lambda: load_second_hand(board(tmp_path, ROW, explained="explained: [{method: Fish}]\n")), "explained 1: ")
    one_line(lambda: load_second_hand(board(tmp_path, ROW, explained="others: []\n")), "needs 'explained' and")
    assert load_second_hand(tmp_path / "nowhere") == SecondHand()


def test_the_rows_of_the_board():
    loaded = load_second_hand(BOARD)
    assert len(loaded.rows) == 141
    sources = {row.source.partition("@")[0] for row in loaded.rows}
    assert sources == {"Doragd/Awesome-Sentence-Embedding", "Anonymous999-xxx/CACSE", "tianyuzong/TNCSE", "tianyuzong/JTCSE"}
    assert {row.measured_by for row in loaded.rows if row.source.startswith("Doragd")} == {"not said"}
    several = conflicts(loaded, load_publications())
    assert len(several) >= 10 and all(conflict.explanation is None or conflict.high >= conflict.low for conflict in several)
    known = {conflict.rows[0].baseline for conflict in several}
    for one in loaded.explained:  # nothing is explained that is no longer there
        assert (one.method.casefold().replace(" ", "").replace("-", ""), one.backbone.casefold()) in known, one.method
    (sncse,) = loaded.reproductions
    assert len(sncse.sources) == 3 and sncse.scores == {"STS17 en-en": 53.11, "STS22": 23.6, "retrieval": 4.95}
    page = (BOARD.parent / "docs" / "findings" / "second-hand.md").read_text("utf-8")
    assert page == second_hand_page(loaded, load_publications())
    assert "| SNCSE | 53.11 | 23.60 | 4.95 |" in page


def test_none_of_them_is_in_a_table_of_the_board(tmp_path):
    (tmp_path / "measured").mkdir()
    without = outputs(gather(board(tmp_path, ROW)))
    (tmp_path / "second_hand" / "rows.tsv").unlink()
    assert outputs(gather(tmp_path)) == without
