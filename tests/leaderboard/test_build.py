"""Building a board: the same bytes, whole files, and a check that names what is out of date or edited."""

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from barred import barred
from board_runs import checkout, own_runs, read_once  # noqa: F401  fixtures
from clirun import cli, place  # noqa: F401  fixtures

import stsbench.leaderboard.board_files as build_module
import stsbench.leaderboard.command as command_module
from stsbench.leaderboard.board_files import BEGIN, END, build, tracked_files
from stsbench.leaderboard.ranks.board import Board
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry

SITE = "leaderboard/site/index.html"
ROWS = "leaderboard/site/tabs/sts-spearman-all-data-not-the-catalog-s.json"
KEPT = ("README.md",)  # in git
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def repository(own_runs, tmp_path_factory):
    """A checkout of sorts: a board of three entries with a README and docs beside it, built."""
    home = tmp_path_factory.mktemp("checkout")
    board = home / "leaderboard"
    entry = Entry(method="letters", backbone="none", setting="unsup")
    added = add(board, [own_runs["letters"]], "letters", entry)
    assert any("not the catalog's data" in line for line in added.warnings)
    add(board, [own_runs["noisy"], own_runs["noisy-2"]], "noisy", entry.model_copy(update={"method": HOSTILE}))
    add(board, [own_runs["words"]], "words", entry.model_copy(update={"method": "words | of `all` kinds"}))
    (home / "docs" / "findings").mkdir(parents=True)
    (home / "README.md").write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nEnd.\n")
    build(board)
    return home


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_everything_is_built_and_names_are_text(repository):
    built = files(repository)
    readme = built["README.md"].decode()
    assert readme.startswith("# Title") and readme.endswith("End.\n") and "old" not in readme and "letters" in readme
    names = ("index.html", "board.js", "board.css", "index.json", "leaderboard.md", "leaderboard.csv", "leaderboard.tex")
    assert {*(f"leaderboard/site/{name}" for name in names), *KEPT} <= built.keys()
    for name in (SITE, ROWS.replace(".json", ".js"), KEPT[-1], "README.md", "leaderboard/site/leaderboard.md"):
        assert HOSTILE not in built[name].decode()


def test_a_build_needs_no_heavy_package_and_a_second_one_changes_no_byte(checkout):
    """Also with another order of hashes."""
    before = files(checkout)
    shutil.rmtree(checkout / "leaderboard/site")
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    environment.pop("STSBENCH_DATA", None)
    subprocess.run(barred(("leaderboard", "build")), env=environment, check=True, capture_output=True)
    assert files(checkout) == before  # the site, too, which was not there


def test_what_is_out_of_date_is_named_by_a_check_and_written_by_a_build(checkout, cli, tmp_path, monkeypatch):
    names = [ROWS, "leaderboard/site/leaderboard.csv", "README.md"]
    right = {name: (checkout / name).read_text() for name in (*names[:2], *KEPT)}
    for name, text in right.items():
        (checkout / name).write_text(text.replace("letters", "lettres"))
    edited = files(checkout)
    code, _, err = cli("leaderboard", "build", "--check")
    assert code == 1 and all(name in err for name in KEPT) and "stsbench leaderboard build" in err
    assert files(checkout) == edited  # a check writes nothing
    for name in KEPT[1:]:
        (checkout / name).write_text(right[name])
    before = files(checkout)
    with monkeypatch.context() as patch:
        patch.setattr(command_module, "FEW", 3)
        code, out, err = cli("leaderboard", "build", "--output", tmp_path / "else")
    assert code == 0 and err.count("\n") == 1 and "README.md is out of date" in err and files(checkout) == before
    # Many files of a folder are one line.
    tabs = list((tmp_path / "else/tabs").iterdir())
    assert f"{tmp_path / 'else/tabs'}: {len(tabs)} files\n" in out and len(tabs) > 3
    shown = [line for line in out.splitlines() if not line.endswith(" files")]
    assert all(Path(line).is_file() for line in shown) and len(shown) < len(files(tmp_path / "else")) - len(tabs)
    assert cli("leaderboard", "build")[:2] == (0, "".join(f"{name}\n" for name in names))
    assert cli("leaderboard", "build", "--check")[:2] == (0, "up to date\n")
    assert files(tmp_path / "else") == files(checkout / "leaderboard/site")


def test_a_second_board_leaves_the_readme_to_the_first(checkout):
    (checkout / "mine").mkdir()
    assert Path("README.md") in tracked_files(Path("leaderboard"), Board((), {}))
    assert tracked_files(Path("mine"), Board((), {})) == {}


def test_a_build_that_is_killed_leaves_every_file_old_or_new(checkout, monkeypatch):
    """SIGKILL at moments over the whole build: each output is the old one or the new one, byte for byte."""
    old = {name: content for name, content in files(checkout).items() if name.startswith("leaderboard/site/")}
    new = {name: content.replace(b"letters", b"characters") for name, content in old.items()}
    assert sum(old[name] != new[name] for name in old) > 5
    atomic_write = build_module.atomic_write

    @contextlib.contextmanager
    def slow_write(path, mode):
        """Renamed at once, the outputs would hardly be hit between two of them."""
        with atomic_write(path, mode) as stream:
            class Slow:
                def write(self, content):
                    for i in range(0, len(content), 1 + len(content) // 5):
                        stream.write(content[i : i + 1 + len(content) // 5])
                        stream.flush()
                        time.sleep(0.01)

            yield Slow()

    monkeypatch.setattr(build_module, "gather", lambda *_: None)
    monkeypatch.setattr(build_module, "outputs", lambda _: {})
    monkeypatch.setattr(build_module, "tracked_files", lambda *_: {Path(name): content for name, content in new.items()})
    monkeypatch.setattr(build_module, "atomic_write", slow_write)
    stages = set()
    for after in (0.0, 0.15):
        process = multiprocessing.get_context("fork").Process(target=build, args=(Path("leaderboard"),))
        process.start()
        deadline = time.monotonic() + 60
        while not list(checkout.rglob(".*.tmp")) and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)  # until it writes
        time.sleep(after)
        process.kill()
        process.join(60)
        actual = files(checkout)
        assert all(actual[name] in (old[name], new[name]) for name in new)
        stages.add(sum(actual[name] == content for name, content in new.items()))
        for path in checkout.rglob(".*.tmp"):
            path.unlink()
        for name, content in old.items():
            (checkout / name).write_bytes(content)
    assert len(stages) > 1  # it was killed at different stages
