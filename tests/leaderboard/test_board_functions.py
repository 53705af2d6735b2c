"""The board's commands and its functions, which do the same: add, build, index."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from board_runs import NEW, WORDS, check_signature, checkout, read_once, repository, runs, silent  # noqa: F401  fixtures
from clirun import cli, place  # noqa: F401  fixtures

import stsbench
from stsbench import leaderboard
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.result import Result
from stsbench.leaderboard.command import leaderboard as commands

pytestmark = pytest.mark.usefixtures("silent")


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def test_options_and_defaults_are_the_commands():
    for name, renamed in {"build": {"only_check": "check", "every": "all"}, "index": {}, "add": {"slug": "entry"},
                          "init": {}}.items():
        check_signature(commands.commands[name], getattr(leaderboard, name), renamed)


def test_the_names_are_completed_and_the_door_is_light(checkout):
    assert {"build", "add", "load"} <= set(dir(leaderboard))
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
