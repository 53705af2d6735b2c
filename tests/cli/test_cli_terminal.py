"""The commands on a terminal: whole numbers on a narrow one, messages above the bar and not in its line."""

import io
import re
import sys
from functools import partial
from threading import Thread

import pyte
import pytest
import tiny_models
from clirun import MODULE
from rich.console import Console
from rich.live import Live
from terminal import screen
from text_tables import by_row, parts

from stsbench.cli.output import messages

EVAL = ["eval", "--model", "python:mine_cli:hashed", "--sample", "--output", "run"]
SCORE = re.compile(r"-?\d+\.\d{2}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("terminal")
    (path / "mine_cli.py").write_text(MODULE, "utf-8")
    return path


@pytest.fixture(scope="module")
def wide(folder):
    code, lines = screen([*EVAL, "--protocol", "sts"], 200, folder)
    assert code == 0
    return lines


@pytest.mark.parametrize("columns", [60, 120])
def test_a_narrow_terminal_gets_every_number_whole_in_several_parts(folder, wide, columns):
    code, lines = screen(["score", "run"], columns, folder)
    rows = by_row(lines)
    assert code == 0 and len(rows) == 10 and {name: sorted(cells) for name, cells in rows.items()} == {
        name: sorted(cells) for name, cells in by_row(wide).items()}
    for name, (n, lead, *others) in list(rows.items())[1:]:  # n, two correlations in three aggregations, an interval
        assert name and n.isdecimal() and re.fullmatch(rf"{SCORE.pattern} \[{SCORE.pattern}, {SCORE.pattern}\]", lead)
        assert len(others) == 5 and all(SCORE.fullmatch(cell) for cell in others)
    assert max(map(len, lines)) <= columns and not any("…" in line for line in lines)
    assert (len(parts(lines)) == 1) == (columns == 120) and min(len(part[0]) for part in parts(lines)) > 2
    assert len(parts(wide)) == 1


def test_what_is_equal_for_want_of_subsets_is_shown_once(folder):  # and of a file of one's own not said
    pairs = [f"{score}\ta {word} boat\tthe {other}" for score, word, other in zip("01234", "pqrst", "pqxyz", strict=True)]
    (folder / "pairs.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *pairs]) + "\n", "utf-8")
    words = ["eval", "--model", "lexical:token-set", "--no-cache", "--protocol", "sts:pairs.tsv"]
    code, lines = screen(words, 60, folder)
    _, cells = by_row(lines).values()
    assert code == 0 and sum(bool(SCORE.match(cell)) for cell in cells) == 2  # one Spearman, one Pearson
    assert "are equal" not in " ".join(" ".join(lines).split())


def test_messages_stand_in_lines_of_their_own(wide):
    done = next(line for line in wide if "done in" in line)
    assert done.startswith("done in ") and any(line.startswith("run: ") for line in wide)
    assert any(re.match(r"[\d,]+ distinct texts encoded", line) for line in wide)
    assert not any("encoding" in line and "━" in line for line in wide)  # the bar is gone


def test_a_training_says_its_lines_above_the_bar(tmp_path):
    words = ["train", "simcse", "--backbone", tiny_models.build(tmp_path / "tiny"), "--sample", "--max-steps", "2",
             "--set", "training.batch_size=4", "--output", "run"]
    code, lines = screen(words, 160, tmp_path)
    assert code == 0
    bar = [line for line in lines if "━" in line and "2/2" in line]
    assert len(bar) == 1 and bar[0].startswith("main")
    assert not any("━" in line and word in line for line in lines for word in ("warning", "dev ", "run:", "measur"))


def test_a_message_leaves_no_bar_behind_while_another_thread_draws(monkeypatch, request):
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)  # seconds: a thread stops amid its work, as on a busy machine
    written, drawn = io.StringIO(), pyte.Screen(60, 1000)
    with Live("bar", console=Console(file=written, force_terminal=True, width=60, height=400), auto_refresh=False) as live:
        monkeypatch.setattr(messages, "_BAR", live)
        drawing = Thread(target=lambda: [live.update("bar\nof two" if i % 2 else "bar", refresh=True) for i in range(900)])
        drawing.start()
        for i in range(900):
            messages.tell(f"line {i}")
        drawing.join()
    pyte.Stream(drawn).feed(written.getvalue().replace("\n", "\r\n"))
    assert [line.rstrip() for line in drawn.display[:902]] == [*(f"line {i}" for i in range(900)), "bar", "of two"]


@pytest.mark.parametrize("columns", [40, 80])
def test_messages_are_broken_between_words_and_commands_stay_whole(columns, monkeypatch):
    texts = [
        "encoder minilm, pooler mean, max length 256, 384 dimensions, normalised, run by our own forward pass",
        "the 7 tasks measured are kept: stsbench score runs/20261125-1200-minilm; --protocol and --tasks measure others",
        "give your copy, or fetch it by `stsbench data fetch wiki1m_for_simcse.txt --data-dir there` (it is not here yet)",
        "write --set 'data.columns={anchor: question, positive: answer}' for the roles of a file's own columns, all of them",
    ]
    monkeypatch.setattr(messages, "_width", lambda: columns)
    for text in texts:
        lines = messages.at_words(text).split("\n")
        assert " ".join(lines) == text and len(lines) > 1
        assert all(len(line) <= columns or re.match(r"stsbench|`|--set|runs/", line) for line in lines)
    whole = ["stsbench score runs/20261125-1200-minilm;", "`stsbench data fetch wiki1m_for_simcse.txt --data-dir there`",
             "--set 'data.columns={anchor: question, positive: answer}'"]
    for text, command in zip(texts[1:], whole, strict=True):
        assert any(command in line for line in messages.at_words(text).split("\n"))
