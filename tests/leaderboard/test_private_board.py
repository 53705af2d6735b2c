"""A board of one's own: made by `init`, a table for each file, rules that only its board.yaml relaxes."""

import json
import shutil

import pytest
from click.testing import CliRunner

from stsbench import leaderboard
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.leaderboard.command import leaderboard as commands
from stsbench.leaderboard.records.board_settings import read_settings
from stsbench.leaderboard.records.paths import SHIPPED

REVISION = "0123456789abcdef0123456789abcdef01234567"
WORDS = ("parcel", "invoice", "account", "password", "printer", "contract")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two encoders on two files of pairs and one of scores, measured by a checkout with uncommitted changes."""
    folder = tmp_path_factory.mktemp("runs")
    for name, last in (("tickets", "lost"), ("faq", "late")):
        lines = [f"my {word} is {last},the {word} is {kind},{label}" for word in WORDS
                 for kind, label in ((last, 1), ("blue", 0))]
        (folder / f"{name}.csv").write_text("\n".join(["text1,text2,label", *lines]) + "\n")
    scores = [f"my {word} is lost,the {word} is {'lost' if i % 2 else 'blue'},{i % 4}" for i, word in enumerate(WORDS)]
    (folder / "scored.csv").write_text("\n".join(["sentence1,sentence2,score", *scores]) + "\n")
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("stsbench.evaluation.provenance.git_revision", lambda: REVISION + "+changes")
        for name in ("tfidf", "token-set"):
            result = evaluate(f"lexical:{name}", output=folder / name,
                              protocols=["pairs:tickets.csv", "pairs:faq.csv", "sts:scored.csv"])
            assert not result.failures
            made[name] = result.folder
    return made


def filled(board, runs, **settings):
    leaderboard.init(board, title="Tickets & <b>more</b>")
    if settings:
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
        (board / "board.yaml").write_text(text)
    for name, run in runs.items():
        leaderboard.add(run, name, board=board, method=name, backbone="words", setting="unsup")
    return board


@pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
def test_each_file_has_a_table_and_the_page_the_boards_name(runs, tmp_path):
    board = filled(tmp_path / "board", runs)
    leaderboard.build(board)
    index = json.loads((board / "site/index.json").read_text())
    assert index["name"] == "Tickets & <b>more</b>" and all(not tab["published"] for tab in index["tabs"])
    shown = {(tab["group"], tab["title"], tab["user_set"], tab["form"]): tab for tab in index["tabs"]}
    # no table of means over subsets: a file without any has one correlation
    assert list(shown) == [
        ("sts", "scored.csv, Spearman", "scored.csv", "scored.csv"),
        ("sts", "scored.csv, Pearson", "scored.csv", "scored.csv"),
        ("pairs", "faq.csv", "faq.csv", "faq.csv"), ("pairs", "tickets.csv", "tickets.csv", "tickets.csv"),
    ]
    pairs = shown["pairs", "faq.csv", "faq.csv", "faq.csv"]
    assert pairs["measured"] == 2 and pairs["digits"] == 2 and pairs["id"] == "pairs-faq-csv"
    assert {column["name"]: column.get("digits") for column in pairs["columns"]} == {
        "ap": None, "auc": None, "f1": None, "accuracy": None, "f1-threshold": 4, "accuracy-threshold": 4,
    }
    page = (board / "site/index.html").read_text()
    assert "<h1>Tickets &amp; &lt;b&gt;more&lt;/b&gt;</h1>" in page and "<b>more" not in page
    assert "<title>Tickets &amp;" in page and (board / "site/leaderboard.md").read_text().startswith("# Tickets")
    (row, *_) = json.loads((board / "site" / pairs["file"]).read_text())["measured"]
    assert "measured by a checkout with uncommitted changes: nobody can repeat it" in row["marks"]
    entry = json.loads((board / "site/entries/tfidf.json").read_text())
    assert entry["runs"][0]["records"].startswith("3 in board/measured/tfidf/")


@pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
def test_only_a_board_that_says_so_takes_what_uncommitted_code_measured(runs, tmp_path):
    with pytest.raises(StsbenchError, match="uncommitted changes or new files"):
        filled(tmp_path / "strict", runs, uncommitted=False)
    public = tmp_path / "public"
    (public / "measured").mkdir(parents=True)
    with pytest.raises(StsbenchError, match="uncommitted changes or new files"):
        leaderboard.add(runs["tfidf"], "tfidf", board=public, method="tf-idf", backbone="words", setting="unsup")
    board = filled(tmp_path / "board", runs)
    assert len(leaderboard.load(board).entries) == 2  # scored, and kept in the cache
    shutil.copytree(board / "measured", public / "measured", dirs_exist_ok=True)
    shutil.copytree(board / "observations", public / "observations")
    for read in (leaderboard.load, leaderboard.build):
        with pytest.raises(StsbenchError, match="uncommitted changes or new files"):
            read(public)


@pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
def test_the_papers_rows_come_by_a_setting(runs, tmp_path):
    board = leaderboard.load(filled(tmp_path / "board", runs, published=True))
    assert any(tab.published for tab in board.tabs) and board.name == "Leaderboard"


def test_a_public_board_takes_no_settings(tmp_path):
    leaderboard.init(tmp_path / "board")
    (tmp_path / "board/published").mkdir()
    with pytest.raises(StsbenchError, match=r"board\.yaml: a board with published rows of its own is public"):
        leaderboard.load(tmp_path / "board")
    assert not (SHIPPED / "board.yaml").exists() and read_settings(SHIPPED) is None


@pytest.mark.parametrize(("text", "says"), [
    ("titel: x", "board.yaml: titel: Extra inputs are not permitted"), ("uncommitted: 1", "board.yaml: uncommitted: "),
    ("title: ''", "board.yaml: title: "),
    ('title: "a\\u202eb"', "a character that is not seen"), ("- x", "board.yaml: file: "),
])
def test_a_wrong_setting_is_named(text, says, tmp_path):
    leaderboard.init(tmp_path / "board")
    (tmp_path / "board/board.yaml").write_text(text)
    with pytest.raises(StsbenchError) as error:
        leaderboard.load(tmp_path / "board")
    assert says in str(error.value) and "\n" not in str(error.value)


def test_nothing_is_made_where_something_is(tmp_path):
    leaderboard.init(tmp_path / "board")
    with pytest.raises(StsbenchError, match=r"board\.yaml is there already"):
        leaderboard.init(tmp_path / "board")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").touch()
    with pytest.raises(StsbenchError, match="full is not empty"):
        leaderboard.init(tmp_path / "full")
    with pytest.raises(StsbenchError, match=r"notes\.txt is not a folder"):
        leaderboard.init(tmp_path / "full/notes.txt")
    with pytest.raises(StsbenchError, match="--title: "):
        leaderboard.init(tmp_path / "new", title="a\u202eb")
    assert not (tmp_path / "new").exists()


def test_the_command_says_what_comes_next(tmp_path):
    board = tmp_path / "a b"
    result = CliRunner().invoke(commands, ["init", str(board), "--title", "Tickets"])
    assert result.exit_code == 0 and f"{board}/board.yaml" in result.output
    assert f"leaderboard build --board '{board}'" in result.output and leaderboard.load(board).name == "Tickets"
