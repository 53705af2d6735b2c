"""Building a board: the same bytes, whole files, and a check that names what is out of date or edited; and its functions,
which do what the commands do."""

import contextlib
import inspect
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from board_runs import NEW, WORDS, checkout, entry, own_runs, read_once, runs  # noqa: F401 - fixtures
from clirun import cli, contents, refuses  # noqa: F401 - fixtures
from light_process import barred

import stsbench
import stsbench.leaderboard.board_files as build_module
import stsbench.leaderboard.command as command_module
from stsbench import leaderboard
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.result import Result
from stsbench.leaderboard.board_files import BEGIN, END, build, tracked_files
from stsbench.leaderboard.command import leaderboard as commands
from stsbench.leaderboard.ranks.board import Board
from stsbench.leaderboard.records.add import add

SITE = "leaderboard/site/index.html"
ROWS = "leaderboard/site/tabs/sts-spearman-all-data-not-the-catalog-s.json"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def repository(own_runs, tmp_path_factory):
    """A checkout of sorts: a board of three entries with a README and docs beside it, built."""
    home = tmp_path_factory.mktemp("checkout")
    board = home / "leaderboard"
    added = add(board, [own_runs["letters"]], "letters", entry("letters"))
    assert any("not the catalog's data" in line for line in added.warnings)
    add(board, [own_runs["noisy"], own_runs["noisy-2"]], "noisy", entry(HOSTILE))
    add(board, [own_runs["words"]], "words", entry("words | of `all` kinds"))
    (home / "docs" / "findings").mkdir(parents=True)
    (home / "README.md").write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nEnd.\n")
    build(board)
    return home


def kept(home):
    """The files with a row's name that stand in git: the README, and what extensions write below docs/."""
    return ["README.md", *(name for name, content in contents(home).items()
                           if name.startswith("docs/") and b"letters" in content)]


def test_everything_is_built_and_names_are_text(repository):
    built = contents(repository)
    readme = built["README.md"].decode()
    assert readme.startswith("# Title") and readme.endswith("End.\n") and "old" not in readme and "letters" in readme
    names = ("index.html", "board.js", "board.css", "index.json", "leaderboard.md", "leaderboard.csv", "leaderboard.tex")
    assert {f"leaderboard/site/{name}" for name in names} <= built.keys()
    for name in (SITE, ROWS.replace(".json", ".js"), *kept(repository), "leaderboard/site/leaderboard.md"):
        assert HOSTILE not in built[name].decode()


def test_what_makes_a_board_needs_no_heavy_package_and_a_second_build_changes_no_byte(checkout, own_runs, tmp_path):
    """Also with another order of hashes."""
    for extension in ("identify", "imports", "local_page"):
        pytest.importorskip(f"stsbench.leaderboard.{extension}")
    result = {"task_name": "STS12", "dataset_revision": "a0d554a64d88156834ff5ae9920b964011b16384", "mteb_version": "2.1",
              "scores": {"test": [{"hf_subset": "default", "cosine_spearman": 0.5, "cosine_pearson": 0.5}]}}
    (tmp_path / "STS12.json").write_text(json.dumps(result))
    before = contents(checkout)
    shutil.rmtree(checkout / "leaderboard/site")
    commands = (
        ("leaderboard", "build"), ("identify", "STS-B=50.00", "--model", str(own_runs["letters"])),
        ("leaderboard", "import", "mteb", str(tmp_path / "STS12.json"), "--name", "a/b", "--board", str(tmp_path / "other")),
        ("leaderboard", "serve", "leaderboard/site", "--port", "0"))
    environment = {name: value for name, value in os.environ.items() if name != "STSBENCH_DATA"} | {"PYTHONHASHSEED": "7"}
    process = subprocess.Popen(barred(*commands), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = next((line for line in process.stderr if line.startswith("http://127.0.0.1:")), "")
        with urllib.request.urlopen(said.split()[0], timeout=10) as answer:
            assert answer.read() == Path(SITE).read_bytes()
    finally:
        process.terminate()
    assert "a__b.yaml" in process.communicate(timeout=10)[0].splitlines()[-1]
    assert contents(checkout) == before  # the site, too, which was not there


def test_what_is_out_of_date_is_named_by_a_check_and_written_by_a_build(checkout, cli, tmp_path, monkeypatch):
    names, in_git = [ROWS, "leaderboard/site/leaderboard.csv", "README.md"], kept(checkout)
    right = {name: (checkout / name).read_text() for name in {*names, *in_git}}
    for name, text in right.items():
        (checkout / name).write_text(text.replace("letters", "lettres"))
    edited = contents(checkout)
    code, _, err = cli("leaderboard", "build", "--check")
    assert code == 1 and all(name in err for name in in_git) and "stsbench leaderboard build" in err
    assert contents(checkout) == edited  # a check writes nothing
    for name in in_git[1:]:
        (checkout / name).write_text(right[name])
    before = contents(checkout)
    with monkeypatch.context() as patch:
        patch.setattr(command_module, "FEW", 3)
        code, out, err = cli("leaderboard", "build", "--all", "--output", tmp_path / "else")
    assert code == 0 and err.count("\n") == 1 and "README.md is out of date" in err and contents(checkout) == before
    # Many files of a folder are one line.
    tabs = list((tmp_path / "else/tabs").iterdir())
    assert f"{tmp_path / 'else/tabs'}: {len(tabs)} files\n" in out and len(tabs) > 3
    shown = [line for line in out.splitlines() if not line.endswith(" files")]
    assert all(Path(line).is_file() for line in shown) and len(shown) < len(contents(tmp_path / "else")) - len(tabs)
    assert cli("leaderboard", "build")[:2] == (0, "".join(f"{name}\n" for name in names))
    assert cli("leaderboard", "build", "--check")[:2] == (0, "up to date\n")
    assert contents(tmp_path / "else") == contents(checkout / "leaderboard/site")
    # A second board leaves the README to the first.
    (checkout / "mine").mkdir()
    assert Path("README.md") in tracked_files(Path("leaderboard"), Board((), {}))
    assert tracked_files(Path("mine"), Board((), {})) == {}


def test_a_build_that_is_killed_leaves_every_file_old_or_new(checkout, monkeypatch):
    """SIGKILL in the middle of its fourth file: each output is the old one or the new one, byte for byte."""
    old = {name: content for name, content in contents(checkout).items() if name.startswith("leaderboard/site/")}
    new = {name: content.replace(b"letters", b"characters") for name, content in old.items()}
    changed = [name for name in old if old[name] != new[name]]
    assert len(changed) > 5
    atomic_write, begun = build_module.atomic_write, itertools.count(1)

    @contextlib.contextmanager
    def deadly_write(path, mode):
        with atomic_write(path, mode) as stream:
            if next(begun) == 4:
                stream.write(b"half")
                stream.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            yield stream

    monkeypatch.setattr(build_module, "gather", lambda *_: None)
    monkeypatch.setattr(build_module, "outputs", lambda _: {})
    monkeypatch.setattr(build_module, "tracked_files", lambda *_: {Path(name): content for name, content in new.items()})
    monkeypatch.setattr(build_module, "atomic_write", deadly_write)
    process = multiprocessing.get_context("fork").Process(target=build, args=(Path("leaderboard"),))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL and list(checkout.rglob(".*.tmp"))
    actual = contents(checkout)
    assert all(actual[name] in (old[name], new[name]) for name in new)
    assert sum(actual[name] == new[name] for name in changed) == 3


def test_a_function_takes_the_options_of_its_command_with_their_defaults():
    """Some under another name."""
    for extension in ("imports", "local_page", "submissions"):
        pytest.importorskip(f"stsbench.leaderboard.{extension}")
    for function, renamed in {
        leaderboard.build: {"only_check": "check", "every": "all"}, leaderboard.index: {}, leaderboard.init: {},
        leaderboard.add: {"slug": "entry"}, leaderboard.submit: {"slug": "entry", "commit": "open"},
        leaderboard.placement: {}, leaderboard.serve: {"folder": "board"}, leaderboard.import_mteb: {}}.items():
        name = function.__name__
        command = commands.commands["import"].commands["mteb"] if name == "import_mteb" else commands.commands[name]
        options = {renamed.get(option.name, option.name): option for option in command.params}
        parameters = inspect.signature(function).parameters
        assert options.keys() == parameters.keys()
        for key, parameter in parameters.items():
            default = () if options[key].multiple else options[key].to_info_dict()["default"]
            assert parameter.default == (inspect.Parameter.empty if options[key].required else default), (name, key)


def test_the_names_are_completed_and_the_door_is_light(checkout):
    assert {"build", "add", "load"} <= set(dir(leaderboard))
    assert stsbench.leaderboard is leaderboard and "leaderboard" in dir(stsbench)
    assert all(getattr(leaderboard, name).__doc__ for name in leaderboard.__all__)
    code = "import sys, stsbench; stsbench.leaderboard.__all__; sys.exit(bool({'numpy', 'pydantic'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(callable(getattr(leaderboard, name)) for name in leaderboard.__all__)  # modules of such names are loaded
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        leaderboard.biuld  # noqa: B018
    refuses(StsbenchError, "", leaderboard.build, check=True, output="page")
    refuses(StsbenchError, "neither a run folder nor a result", leaderboard.add, 3, "new", **NEW)
    with pytest.raises(TypeError, match="unexpected keyword argument 'methd'"):
        leaderboard.add("x", "new", methd="x")


def test_an_addition_is_the_command_s(runs, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for board in ("leaderboard", "second/leaderboard"):
        Path(board, "measured").mkdir(parents=True)
    code, out, err = cli("leaderboard", "add", runs["letters"], *WORDS, "--best-of", "3", "--note", "a note")
    assert code == 0 and "note: " in err
    stated = {**NEW, "best_of": 3, "note": "a note"}
    with pytest.warns(StsbenchWarning, match="sample data") as heard:
        added = leaderboard.add(runs["letters"], "mine", board="second/leaderboard", **stated)
    assert {warning.filename for warning in heard} == {__file__}
    assert contents("second/leaderboard") == contents("leaderboard")
    assert [f"note: {line}" for line in added.warnings] == [line for line in err.splitlines() if line.startswith("note: ")]
    assert sum(1 for _ in added.written) == int(out.rpartition(": ")[2].split()[0])
    with pytest.warns(StsbenchWarning):
        again = leaderboard.add(Result(runs["letters"]), "mine")
    assert again.written == () and len(again.present) == len(added.written)
    code, out, err = cli("leaderboard", "add", runs["letters"], "--entry", "mine")
    assert (code, out) == (0, "") and f"already there: {len(added.written)} records" in err
