"""`leaderboard submit` and `leaderboard placement`: what a run adds is shown, or committed beside the working tree."""

import subprocess

import pytest
from board_prompts import Prompted, prompted
from board_runs import checkout, copied, own_runs, read_once, runs  # noqa: F401  fixtures
from clirun import cli, place  # noqa: F401  fixtures
from run_edits import rows_of, write_rows

from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry
from stsbench.leaderboard.records.paths import write_index

NEW = ("--entry", "mine", "--method", "my method", "--backbone", "none", "--setting", "unsup", "--flag", "nli")


@pytest.fixture(scope="module")
def made(own_runs, tmp_path_factory):
    home = tmp_path_factory.mktemp("repository")
    add(home / "leaderboard", [own_runs["words"]], "words", Entry(method="words", backbone="none", setting="unsup"))
    add(home / "leaderboard", [own_runs["noisy"]], "noisy", Entry(method="noisy", backbone="none", setting="unsup"))
    for command in (("init", "-q", "-b", "main"), ("add", "-A"),
                    ("-c", "user.name=tester", "-c", "user.email=t@example.org", "commit", "-qm", "board")):
        subprocess.run(["git", *command], cwd=home, check=True)
    return home


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_a_run_is_shown_and_nothing_is_written(own_runs, checkout, cli):
    code, out, err = cli("leaderboard", "submit", own_runs["letters"], *NEW)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("would rank ") and " of 3 under sts:all (Spearman, all" in lines[0]
    assert any(line.startswith("to be committed: ") for line in lines) and "  leaderboard/measured/mine/entry.yaml" in lines
    assert lines[lines.index("next:") + 1 :] == [
        "  git switch -c entry-mine",
        f"  stsbench leaderboard add {own_runs['letters']} --entry mine --method 'my method' --backbone none "
        "--setting unsup --flag nli",
        "  git add leaderboard/measured/mine", "  git commit -m 'Add mine to the board'",
        "  git push -u origin entry-mine", "  gh pr create --head entry-mine --fill",
    ]
    assert git("status", "--porcelain") == "" and git("branch", "--format=%(refname:short)") == "main"


def test_prompts_are_submitted_to_the_row_of_their_encoder(checkout, cli, tmp_path):
    prompted(tmp_path / "worded", Prompted(1, 0.5), tasks="STS-B", resamples=50)
    default = Entry(method="right", backbone="none", setting="unsup")
    add(checkout / "leaderboard", [tmp_path / "worded/00-default"], "right", default)
    code, out, err = cli("leaderboard", "submit", tmp_path / "worded", "--entry", "right-prompts", "--prompt-of", "right")
    assert code == 0, err
    assert out.startswith("the row of right would rank 1 of 1 under sts:all (Spearman, all, sample; STS-B ")
    assert f"  stsbench leaderboard add {tmp_path / 'worded'} --entry right-prompts --prompt-of right" in out.splitlines()
    assert not (checkout / "leaderboard/measured/right-prompts").exists()


def test_open_commits_the_record_and_only_that_on_a_branch(own_runs, checkout, cli):
    (checkout / "half done.txt").write_text("mine")
    code, out, err = cli("leaderboard", "submit", own_runs["letters"], *NEW, "--open")
    assert code == 0, err
    shown = [line.strip() for line in out.splitlines() if line.startswith("  leaderboard/")]
    assert git("diff", "--name-only", "--diff-filter=A", "main", "entry-mine").splitlines() == sorted(shown)
    assert git("diff", "--name-only", "--diff-filter=a", "main", "entry-mine") == ""
    assert git("status", "--porcelain") == '?? "half done.txt"' and git("branch", "--show-current") == "main"
    assert out.splitlines()[-2:] == ["  git push -u origin entry-mine", "  gh pr create --head entry-mine --fill"]
    # The reviewer's side: the branch says where the entry would rank.
    git("switch", "-q", "entry-mine")
    code, said, _ = cli("leaderboard", "placement", "--since", "main")
    assert code == 0 and said.startswith(f"### mine (new, {len(shown)} files)\n\n**Your entry would rank ")
    assert cli("leaderboard", "placement", "--since", "HEAD")[1] == "No measured entry is new or changed.\n"


def test_another_seed_joins_its_entry(own_runs, checkout, cli):
    code, out, _ = cli("leaderboard", "submit", own_runs["noisy-2"], "--entry", "noisy", "--open")
    assert code == 0 and "entry.yaml" not in out
    code, _, err = cli("leaderboard", "submit", own_runs["noisy"], "--entry", "noisy")
    assert code == 1 and "nothing to submit: leaderboard/measured/noisy holds all of these records" in err


def test_further_records_change_the_file_of_their_run(own_runs, checkout, cli, tmp_path):
    rows = rows_of(own_runs["letters"])
    first = write_rows(tmp_path / "first", rows[:3]).parent
    assert cli("leaderboard", "add", first, *NEW)[0] == 0
    git("add", "-A")
    git("commit", "-qm", "three records")
    (file,) = (checkout / "leaderboard/measured/mine").glob("*/run.parquet")
    before = file.read_bytes()
    code, out, err = cli("leaderboard", "submit", own_runs["letters"], "--entry", "mine", "--open")
    assert code == 0, err
    path = file.relative_to(checkout).as_posix()
    assert [line.strip() for line in out.splitlines() if line.startswith("  leaderboard/measured/")] == [path]
    assert git("diff", "--name-only", "--diff-filter=M", "main", "entry-mine").splitlines() == [path]
    assert file.read_bytes() == before and git("status", "--porcelain") == ""
    assert git("log", "-1", "--format=%s", "entry-mine") == f"Add mine to the board: {len(rows) - 3} records"
    git("switch", "-q", "entry-mine")
    assert [row.name for row in rows_of(file)] == [row.name for row in rows]
    code, said, _ = cli("leaderboard", "placement", "--since", "main")
    assert code == 0 and said.startswith("### mine (on the board already; 1 file changed)\n")


def test_a_file_is_no_run(own_runs, checkout, cli):
    code, out, err = cli("leaderboard", "submit", own_runs["letters"] / "scores.csv", *NEW)
    assert (code, out, err.count("\n")) == (1, "", 1) and "scores.csv is a file: name the run folder" in err


def test_a_board_whose_runs_lie_elsewhere_says_so(own_runs, checkout, cli, tmp_path):
    for file in (checkout / "leaderboard").rglob("*.parquet"):
        target = tmp_path / "elsewhere" / file.relative_to(checkout / "leaderboard")
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)
    write_index(checkout / "leaderboard", str(tmp_path / "elsewhere"))
    for arguments in ((own_runs["letters"], *NEW), (own_runs["noisy-2"], "--entry", "noisy")):
        code, out, err = cli("leaderboard", "submit", *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1) and "the runs of leaderboard lie elsewhere" in err, err


def test_what_add_refuses_is_refused_in_the_board_s_own_paths(own_runs, checkout, cli):
    for arguments, says in {
        (own_runs["words"], *NEW): "leaderboard/measured/words/", (own_runs["letters"], "--entry", "mine"): "is a new entry",
    }.items():
        code, out, err = cli("leaderboard", "submit", *arguments, "--open")
        assert (code, out, err.count("\n")) == (1, "", 1) and says in err and "/tmp" not in err.split("holds")[0]
    assert git("branch", "--format=%(refname:short)") == "main" and git("status", "--porcelain") == ""


def test_a_folder_that_is_no_board_is_refused(own_runs, checkout, cli):
    code, out, err = cli("leaderboard", "submit", own_runs["letters"], *NEW, "--board", "leaderbord")
    assert (code, out, err.count("\n")) == (1, "", 1) and "leaderbord is not a board" in err


def test_what_add_writes_beside_the_entries_is_listed_and_committed_but_not_written(own_runs, checkout, cli, monkeypatch):
    shared = checkout / "leaderboard/shared"
    shared.mkdir()
    (shared / "old").write_text("old")
    git("add", "-A")
    git("commit", "-qm", "something that several entries share")

    def add_and_share(board, *arguments):
        (board / "shared/new").write_text((board / "shared/old").read_text() + ", new")
        return add(board, *arguments)

    monkeypatch.setattr("stsbench.leaderboard.submission.add", add_and_share)
    code, out, err = cli("leaderboard", "submit", own_runs["letters"], *NEW)
    assert code == 0, err
    assert "  leaderboard/shared/new\n" in out and "  git add leaderboard/measured/mine leaderboard/shared\n" in out
    assert [path.name for path in shared.iterdir()] == ["old"]
    assert cli("leaderboard", "submit", own_runs["letters"], *NEW, "--open")[0] == 0
    assert git("show", "entry-mine:leaderboard/shared/new") == "old, new"
    assert [path.name for path in shared.iterdir()] == ["old"] and git("status", "--porcelain") == ""
