"""The board's commands and its functions, which do the same: add, build, submit, placement, index, serve."""

import inspect
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from board_runs import checkout, read_once, runs  # noqa: F401  fixtures
from clirun import cli, place  # noqa: F401  fixtures

import stsbench
from stsbench import leaderboard
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.result import Result
from stsbench.leaderboard.command import leaderboard as commands
from stsbench.leaderboard.records.paths import write_index
from stsbench.leaderboard.submission import Submission, next_steps

NEW = {"method": "my method", "backbone": "none", "setting": "unsup", "flag": "nli"}
DESCRIPTION = ("--method", "my method", "--backbone", "none", "--setting", "unsup", "--flag", "nli")
WORDS = ("--entry", "mine", *DESCRIPTION)


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    """A repository with a board of two entries."""
    home = tmp_path_factory.mktemp("checkout")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("words", "noisy"):
            leaderboard.add(runs[name], name, board=home / "leaderboard", method=name, backbone="none", setting="unsup")
    for command in (("init", "-q", "-b", "main"), ("add", "-A"),
                    ("-c", "user.name=tester", "-c", "user.email=t@example.org", "commit", "-qm", "board")):
        subprocess.run(["git", *command], cwd=home, check=True)
    return home


@pytest.fixture(autouse=True)
def _silent(request, capsys):
    """A function prints nothing."""
    yield
    if "cli" not in request.fixturenames:
        assert capsys.readouterr() == ("", "")


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_options_and_defaults_are_the_commands():
    declared = {**commands.commands, "import_mteb": commands.commands["import"].commands["mteb"]}
    for name, renamed in {
        "build": {"only_check": "check", "every": "all"}, "index": {}, "add": {"slug": "entry"},
        "submit": {"slug": "entry", "commit": "open"}, "placement": {}, "serve": {"folder": "board"}, "init": {},
        "import_mteb": {},
    }.items():
        options = {renamed.get(option.name, option.name): option for option in declared[name].params}
        parameters = inspect.signature(getattr(leaderboard, name)).parameters
        assert options.keys() == parameters.keys()
        for key, parameter in parameters.items():
            default = () if options[key].multiple else options[key].to_info_dict()["default"]
            assert parameter.default == (inspect.Parameter.empty if options[key].required else default), (name, key)


def test_the_names_are_completed_and_the_door_is_light(checkout):
    assert {"build", "add", "submit", "placement", "load"} <= set(dir(leaderboard))
    assert stsbench.leaderboard is leaderboard and "leaderboard" in dir(stsbench)
    assert all(getattr(leaderboard, name).__doc__ for name in leaderboard.__all__)
    code = "import sys, stsbench; stsbench.leaderboard.__all__; sys.exit(bool({'numpy', 'pydantic'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(callable(getattr(leaderboard, name)) for name in leaderboard.__all__)  # modules of such names are loaded
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        leaderboard.biuld  # noqa: B018
    with pytest.raises(StsbenchError):
        leaderboard.build(check=True, output="page")
    with pytest.raises(StsbenchError, match="neither a run folder nor a result"):
        leaderboard.add(3, "new", **NEW)
    with pytest.raises(TypeError, match="unexpected keyword argument 'methd'"):
        leaderboard.add("x", "new", methd="x")


def test_a_build_says_what_it_wrote(checkout):
    built = leaderboard.build("leaderboard", output=Path("other"), all=True)
    assert {str(path) for path in built.written} == {f"other/{name}" for name in files("other")}


def test_an_addition_is_the_command_s(runs, checkout, cli, tmp_path):
    shutil.copytree(checkout, tmp_path / "second")
    code, out, err = cli("leaderboard", "add", runs["letters"], *WORDS, "--best-of", "3", "--note", "a note")
    assert code == 0 and "note: " in err
    stated = {**NEW, "best_of": 3, "note": "a note"}
    with pytest.warns(StsbenchWarning, match="sample data") as heard:
        added = leaderboard.add(runs["letters"], "mine", board=tmp_path / "second/leaderboard", **stated)
    assert {warning.filename for warning in heard} == {__file__}
    assert files(tmp_path / "second/leaderboard") == files("leaderboard")
    assert [f"note: {line}" for line in added.warnings] == [line for line in err.splitlines() if line.startswith("note: ")]
    assert sum(1 for _ in added.written) == int(out.rpartition(": ")[2].split()[0])
    with pytest.warns(StsbenchWarning):
        again = leaderboard.add(Result(runs["letters"]), "mine")
    assert again.written == () and len(again.present) == len(added.written)
    code, out, err = cli("leaderboard", "add", runs["letters"], "--entry", "mine")
    assert (code, out) == (0, "") and f"already there: {len(added.written)} records" in err


# A submission.


def test_a_run_is_shown_and_nothing_is_written(runs, checkout, cli):
    code, out, err = cli("leaderboard", "submit", runs["letters"], *WORDS)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("would rank ") and " of 3 under sts:all (Spearman, all" in lines[0]
    assert any(line.startswith("to be committed: ") for line in lines) and "  leaderboard/measured/mine/entry.yaml" in lines
    assert lines[lines.index("next:") + 1 :] == [
        "  git switch -c entry-mine",
        f"  stsbench leaderboard add {runs['letters']} --entry mine --method 'my method' --backbone none "
        "--setting unsup --flag nli",
        "  git add leaderboard/measured/mine", "  git commit -m 'Add mine to the board'",
        "  git push -u origin entry-mine", "  gh pr create --head entry-mine --fill",
    ]
    with pytest.warns(StsbenchWarning):
        submission = leaderboard.submit(runs["letters"], "mine", **NEW)
    assert f"{submission}\n" == out and repr(submission).startswith("<Submission of mine: ") and len(repr(submission)) < 100
    files = ("leaderboard/measured/mine/a", "leaderboard/shared/new")  # beside the entries
    assert next_steps(Path("leaderboard"), Submission("mine", files, 1, (), (), ""), [])[2] == (
        "git add leaderboard/measured/mine leaderboard/shared")
    for arguments, words in {(runs["words"], *WORDS): "leaderboard/measured/words/",
                             (runs["letters"], "--entry", "mine"): "is a new entry",
                             (runs["noisy"], "--entry", "noisy"): "nothing to submit: leaderboard/measured/noisy",
                             }.items():  # in the board's own paths
        code, out, err = cli("leaderboard", "submit", *arguments, "--open")
        assert (code, out, err.count("\n")) == (1, "", 1) and words in err and "/tmp" not in err.split("holds")[0]
    assert git("status", "--porcelain") == "" and git("branch", "--format=%(refname:short)") == "main"


def test_open_commits_the_record_and_only_that_on_a_branch(runs, checkout, cli):
    (checkout / "half done.txt").write_text("mine")
    code, out, err = cli("leaderboard", "submit", runs["letters"], *WORDS, "--open")
    assert code == 0, err
    shown = [line.strip() for line in out.splitlines() if line.startswith("  leaderboard/")]
    assert git("diff", "--name-only", "--diff-filter=A", "main", "entry-mine").splitlines() == sorted(shown)
    assert git("diff", "--name-only", "--diff-filter=a", "main", "entry-mine") == ""
    assert git("status", "--porcelain") == '?? "half done.txt"' and git("branch", "--show-current") == "main"
    assert git("log", "-1", "--format=%s", "entry-mine") == "Add mine to the board: 9 records"
    assert out.splitlines()[-2:] == ["  git push -u origin entry-mine", "  gh pr create --head entry-mine --fill"]
    # The reviewer's side: the branch says where the entry would rank.
    git("switch", "-q", "entry-mine")
    code, out, _ = cli("leaderboard", "placement", "--since", "main")
    assert code == 0 and out.startswith(f"### mine (new, {len(shown)} files)\n\n**Your entry would rank ")
    placement = leaderboard.placement("main")
    assert str(placement) == placement._repr_markdown_() == out
    frame = placement.to_pandas()
    (row,) = [row for row in placement.board.tabs[0].measured if row.entry == "mine"]
    assert (frame.entry == "mine").all() and frame.value[0] == row.cells["Avg"].value
    assert (frame["first"][0], frame["last"][0]) == (row.rank.first, row.rank.last)


def test_a_board_whose_runs_lie_elsewhere_says_so(runs, checkout, cli, tmp_path):
    for file in (checkout / "leaderboard").rglob("*.parquet"):
        target = tmp_path / "elsewhere" / file.relative_to(checkout / "leaderboard")
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)
    write_index(checkout / "leaderboard", str(tmp_path / "elsewhere"))
    code, out, err = cli("leaderboard", "submit", runs["letters"], *WORDS)
    assert (code, out, err.count("\n")) == (1, "", 1) and "the runs of leaderboard lie elsewhere" in err, err
