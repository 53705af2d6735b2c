"""Building a board: the same bytes, whole files, and a check that names what is out of date or edited."""

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from board_runs import REVISION, Letters, checkout, own_runs, read_once, runs  # noqa: F401  fixtures
from clirun import cli, place  # noqa: F401  fixtures
from run_edits import edit, rows_of

import stsbench.leaderboard.board_files as build_module
import stsbench.leaderboard.command as command_module
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.run_file import RUN
from stsbench.leaderboard.board_files import BEGIN, END, build
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry

SITE = "leaderboard/site/index.html"
ROWS = "leaderboard/site/tabs/sts-spearman-all-data-not-the-catalog-s.json"
KEPT = (  # in git
    "README.md", "docs/leaderboard.svg", "docs/findings/protocol-sensitivity.md", "docs/findings/protocol-sensitivity.svg"
)
HOSTILE = "<script>alert(1)</script>"
# What a machine that only checks a board need not have; an import of any of them fails.
HEAVY = ("torch", "transformers", "mteb", "sklearn", "matplotlib", "sentence_transformers", "datasets", "huggingface_hub")
BARRED = f"""
import sys
class Barred:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ImportError(f"{{name}} is barred")
sys.meta_path.insert(0, Barred())
sys.argv = ["stsbench", *sys.argv[1:]]
from stsbench.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def made(own_runs, tmp_path_factory):
    """A checkout of sorts: a board of three entries with a README and docs beside it, built."""
    home = tmp_path_factory.mktemp("checkout")
    board = home / "leaderboard"
    entry = Entry(method="letters", backbone="none", setting="unsup")
    add(board, [own_runs["letters"]], "letters", entry)
    add(board, [own_runs["noisy"], own_runs["noisy-2"]], "noisy", entry.model_copy(update={"method": HOSTILE}))
    add(board, [own_runs["words"]], "words", entry.model_copy(update={"method": "words | of `all` kinds"}))
    (home / "docs" / "findings").mkdir(parents=True)
    (home / "README.md").write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nEnd.\n")
    build(board)
    return home


def barred(*arguments, **more):
    """The command line in a process of its own, without the heavy packages, with another order of hashes each time."""
    environment = {**os.environ, "PYTHONHASHSEED": str(random.Random(repr(more)).randrange(9999)), **more}
    environment.pop("STSBENCH_DATA", None)
    command = [sys.executable, "-c", BARRED, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_of_letters(board):
    (file,) = (board / "measured/letters").glob(f"*/{RUN}")
    return file


def test_everything_is_there(made):
    found = files(made)
    names = ("leaderboard.md", "leaderboard.csv", "leaderboard.tex")
    assert {SITE, *(f"leaderboard/site/{name}" for name in names), *KEPT} <= found.keys()
    pages = ("board.js", "board.css", "index.json", "index.js")
    assert {f"leaderboard/site/{name}" for name in pages} <= found.keys()
    readme = found["README.md"].decode()
    assert readme.startswith("# Title") and readme.endswith("End.\n") and "old" not in readme and "letters" in readme
    rows = ROWS.replace(".json", ".js")
    for name in (SITE, rows, "docs/findings/protocol-sensitivity.svg", "README.md", "leaderboard/site/leaderboard.md"):
        assert HOSTILE not in found[name].decode()


def test_a_check_passes_without_heavy_packages_and_a_second_build_changes_no_byte(checkout):
    checked = barred("leaderboard", "build", "--check", seed="1")
    assert (checked.returncode, checked.stdout) == (0, "up to date\n"), checked.stderr
    before = files(checkout)
    shutil.rmtree(checkout / "leaderboard/site")
    (checkout / "docs/findings/protocol-sensitivity.svg").unlink()
    assert barred("leaderboard", "build", seed="2").returncode == 0
    assert files(checkout) == before


@pytest.mark.parametrize("field", ["value", "low", "high"])
def test_an_edited_score_fails_the_check_and_names_the_record(checkout, cli, field):
    run = run_of_letters(checkout / "leaderboard")
    (name,) = (row.name for row in rows_of(run) if row.name.startswith("sts.stsb-test."))
    path = edit(run, lambda row: row.record["scores"][0].update({field: row.record["scores"][0][field] + 0.01}), name)
    code, out, err = cli("leaderboard", "build", "--check")
    assert code == 1 and out == "" and path.name in err and err.count("\n") == 1


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_file_that_is_out_of_date_is_named(checkout, cli, name):
    path = checkout / name
    path.write_text(path.read_text().replace("letters", "lettres"))
    code, _, err = cli("leaderboard", "build", "--check")
    assert code == 1 and name in err and "stsbench leaderboard build" in err
    assert path.read_text().count("lettres")  # a check writes nothing


def test_a_check_needs_no_site_and_writes_none(checkout, cli):
    shutil.rmtree(checkout / "leaderboard/site")
    assert cli("leaderboard", "build", "--check")[:2] == (0, "up to date\n")
    assert not (checkout / "leaderboard/site").exists()
    assert cli("leaderboard", "build", "--check", "--output", "elsewhere")[0] == 2


def test_a_build_writes_what_is_out_of_date(checkout, cli):
    names = [ROWS, "leaderboard/site/leaderboard.csv", "README.md"]
    for name in names:
        (checkout / name).write_text((checkout / name).read_text().replace("letters", "lettres"))
    assert cli("leaderboard", "build")[:2] == (0, "".join(f"{name}\n" for name in names))
    assert cli("leaderboard", "build", "--check")[:2] == (0, "up to date\n")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda board: (board / "measured/letters/entry.yaml").unlink(), "entry.yaml"),
        (lambda board: (board / "measured/stray.txt").write_text("x"), "stray.txt is not an entry"),
        (lambda board: (board / "measured/empty").mkdir(), "entry.yaml"),
        (lambda board: min((board / "observations").iterdir()).unlink(), "is missing"),
        (lambda board: run_of_letters(board).unlink(), "letters has no runs"),
        (lambda board: run_of_letters(board).rename(run_of_letters(board).with_name("renamed.parquet")),
         "is not a run folder: it holds no run.parquet"),
        (lambda board: run_of_letters(board).write_bytes(run_of_letters(board).read_bytes()[:-20]), "not a valid run file"),
        (lambda board: run_of_letters(board).write_text("{"), "is not a valid run file"),
        (lambda board: edit(run_of_letters(board), lambda row: row.texts.update(data="{")), "is not a valid record"),
        (lambda board: edit(run_of_letters(board), lambda row: row.observed.arrays.popitem()), "sha256 differs"),
        (lambda board: shutil.rmtree(board / "measured"), "is not a board"),
    ],
)
def test_what_is_damaged_is_named(checkout, cli, damage, says):
    damage(checkout / "leaderboard")
    code, _, err = cli("leaderboard", "build", "--check")
    assert code == 1 and says in err and err.count("\n") == 1


def test_output_goes_elsewhere_and_leaves_the_board_alone(checkout, cli, tmp_path):
    before = files(checkout)
    code, out, err = cli("leaderboard", "build", "--output", tmp_path / "else")
    assert code == 0 and err == "" and "index.html" in out and files(checkout) == before
    site = files(checkout / "leaderboard/site")
    assert files(tmp_path / "else") == site


def test_many_files_of_a_folder_are_one_line(checkout, cli, tmp_path, monkeypatch):
    monkeypatch.setattr(command_module, "FEW", 3)
    code, out, _ = cli("leaderboard", "build", "--output", tmp_path / "else")
    tabs = list((tmp_path / "else/tabs").iterdir())
    assert code == 0 and f"{tmp_path / 'else/tabs'}: {len(tabs)} files\n" in out and len(tabs) > 3
    written = [path for path in (tmp_path / "else").rglob("*") if path.is_file()]
    shown = [line for line in out.splitlines() if not line.endswith(" files")]
    assert all(Path(line) in written for line in shown) and len(shown) < len(written) - len(tabs)


def test_output_elsewhere_says_which_kept_file_is_out_of_date(checkout, cli, tmp_path):
    (checkout / "README.md").write_text((checkout / "README.md").read_text().replace("letters", "lettres"))
    before = files(checkout)
    code, _, err = cli("leaderboard", "build", "--output", tmp_path / "else")
    assert code == 0 and err.count("\n") == 1 and "README.md is out of date" in err and files(checkout) == before


def test_a_second_board_leaves_the_readme_to_the_first(checkout, cli):
    shutil.copytree(checkout / "leaderboard", checkout / "mine")
    before = files(checkout)
    (checkout / "mine/measured/letters/entry.yaml").write_text("method: mine\nbackbone: none\nsetting: sup\n")
    assert cli("leaderboard", "build", "--board", "mine")[0] == 0
    after = files(checkout)
    assert all(name.startswith("mine/") for name in after if before.get(name) != after[name])
    assert "mine/site/index.html" in after


def test_a_build_that_is_killed_leaves_every_file_old_or_new(checkout, monkeypatch, tmp_path):
    """SIGKILL at moments over the whole build: each output is the old one or the new one, byte for byte."""
    board = checkout / "leaderboard"
    old = files(checkout)
    (board / "measured/letters/entry.yaml").write_text("method: characters\nbackbone: none\nsetting: unsup\n")
    shutil.copytree(checkout, tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    written = build(Path("leaderboard")).written
    new = {str(path): path.read_bytes() for path in written}
    monkeypatch.chdir(checkout)
    # Renamed at once, the outputs would hardly be hit between two of them: write slowly.
    real = build_module.atomic_write

    @contextlib.contextmanager
    def slow(path, mode):
        with real(path, mode) as stream:
            class Slow:
                def write(self, content):
                    for i in range(0, len(content), 1 + len(content) // 5):
                        stream.write(content[i : i + 1 + len(content) // 5])
                        stream.flush()
                        time.sleep(0.01)

            yield Slow()

    monkeypatch.setattr(build_module, "gather", lambda *_: None)
    monkeypatch.setattr(build_module, "outputs", lambda _: {})
    monkeypatch.setattr(build_module, "kept", lambda *_: {Path(name): content for name, content in new.items()})
    monkeypatch.setattr(build_module, "atomic_write", slow)
    context = multiprocessing.get_context("fork")
    seen = set()
    for after in (0.0, 0.05, 0.1, 0.2, 0.3):
        process = context.Process(target=build, args=(Path("leaderboard"),))
        process.start()
        deadline = time.monotonic() + 60
        while not list(checkout.rglob(".*.tmp")) and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)  # until it writes
        time.sleep(after)
        process.kill()
        process.join(60)
        found = files(checkout)
        for name, content in new.items():
            assert found[name] in (old[name], content), name
        seen.add(sum(found[name] == content for name, content in new.items()))
        for path in checkout.rglob(".*.tmp"):
            path.unlink()
        for name, content in old.items():
            if name in new:
                (checkout / name).write_bytes(content)
    assert len(seen) > 1  # it was killed at different stages


def test_serving_is_for_this_machine_only(checkout):
    process = subprocess.Popen(
        [sys.executable, "-c", BARRED, "leaderboard", "serve", "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    try:
        address = process.stderr.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.read() == (checkout / SITE).read_bytes()
        for path in ("../measured/letters/entry.yaml", "%2e%2e/measured/letters/entry.yaml", "nothing"):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(address + path, timeout=10)
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


def test_serving_what_is_not_built_says_so(checkout, cli):
    shutil.rmtree(checkout / "leaderboard/site")
    code, _, err = cli("leaderboard", "serve", "--port", "0")
    assert code == 1 and "leaderboard build" in err


def test_adding_from_the_command_line(runs, checkout, cli, monkeypatch, tmp_path):
    monkeypatch.setattr("stsbench.evaluation.provenance.git_revision", lambda: REVISION)
    run = evaluate(Letters(9, 1), output=tmp_path / "third", sample=True, tasks=["STS12", "STS-B"]).folder
    code, out, err = cli("leaderboard", "add", run, "--entry", "third", "--method", "third", "--backbone", "none",
                         "--setting", "semi", "--flag", "nli", "--best-of", "3", "--note", "a note")
    (file,) = Path("leaderboard/measured/third").glob(f"*/{RUN}")
    assert code == 0 and out == f"{file}: 2 records\n" and "sample data" in err
    code, out, err = cli("leaderboard", "add", run, "--entry", "third")
    assert (code, out) == (0, "") and "already there: 2 records" in err
    assert cli("leaderboard", "build")[0] == 0
    shards = (checkout / "leaderboard/site/tabs").glob("sts-spearman-all-*.json")
    rows = [row for path in shards for row in json.loads(path.read_text())["measured"]]
    assert [row["best_of"] for row in rows if row["id"] == "third"] == [3]
    shutil.rmtree(checkout / "leaderboard/measured/third")
    assert cli("leaderboard", "build")[0] == 0
    assert not list((checkout / "leaderboard/site/entries").glob("third.*"))
    code, _, err = cli("leaderboard", "add", runs["noisy"], "--entry", "twin", "--method", "twin", "--backbone", "none",
                       "--setting", "unsup")
    assert code == 1 and "holds this encoder already: add the records to the entry noisy" in err
    for arguments, code in {(): 2, (str(runs["noisy"]),): 2, ("nowhere", "--entry", "x"): 2,
                            (str(checkout), "--entry", "x"): 1}.items():
        assert cli("leaderboard", "add", *arguments)[0] == code
