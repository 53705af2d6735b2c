"""A board whose runs lie elsewhere: git keeps their digests, and what differs from these is refused."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from answers import COMMIT, answering
from board_runs import checkout, read_once, runs  # noqa: F401  fixtures
from clirun import cli, place  # noqa: F401  fixtures
from gathered import LETTERS

from stsbench.errors import StsbenchError
from stsbench.leaderboard.board_files import outputs
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.paths import INDEX, read_index, records_folder, write_index


@pytest.fixture(scope="module")
def repository(runs, tmp_path_factory):
    """A board with its runs inside, and the same with them outside."""
    home = tmp_path_factory.mktemp("boards")
    other = LETTERS.model_copy(update={"method": "noisy letters"})
    for board, outside in (("whole", None), ("board", home / "outside")):
        add(home / board, [runs["letters"]], "letters", LETTERS, outside)
        add(home / board, [runs["noisy"], runs["noisy-2"]], "noisy", other, outside)
    return home


def shown(board, records=None):
    """What a board shows, its own name left out."""
    made = outputs(gather(Path(board), records))
    return {name: content.replace(f"{board}/measured/", "measured/") if isinstance(content, str) else content
            for name, content in made.items()}


def test_a_board_shows_the_same_wherever_its_runs_lie(checkout):
    inside, outside = shown("whole"), shown("board", "outside")
    assert inside == outside and not list(Path("board").rglob("*.parquet"))
    assert {path.name for path in Path("board").iterdir()} == {"measured", INDEX}
    # The index is what sha256sum reads.
    files = read_index(Path("board")).files
    assert sorted(files) == sorted(path.relative_to("outside").as_posix() for path in Path("outside").rglob("*.parquet"))
    done = subprocess.run(["sha256sum", "-c", Path("board", INDEX).resolve()], cwd="outside", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(": OK") == len(files)


DAMAGE = (
    (lambda run: run.write_bytes(run.read_bytes() + b"0"), "is not the file that board/records.sha256 lists"),
    (lambda run: run.unlink(), "is missing: board/records.sha256 lists it"),
    (lambda run: shutil.copytree(run.parent, run.parent.with_name("0" * 12)),
     "is not in board/records.sha256: `stsbench leaderboard index --records outside` puts it there"),
)


def test_what_differs_from_the_index_is_refused(checkout):
    run = sorted(Path("outside/measured/noisy").glob("*/run.parquet"))[0]
    content = run.read_bytes()
    for change, message in DAMAGE:
        change(run)
        with pytest.raises(StsbenchError, match=message):
            gather(Path("board"), "outside")
        run.write_bytes(content)
    shutil.rmtree(run.parent.with_name("0" * 12))
    for line, message in (("abc  measured/a/b/run.parquet", "1 is not a sha256, two blanks and the path of a run"),
                          (f"{'0' * 64}  ../../etc/passwd", "records.sha256:1 is not"),
                          (f"{'0' * 64}  measured/../../run.parquet", r"measured/\.\./\.\./run\.parquet is missing")):
        Path("board", INDEX).write_text(line + "\n")
        with pytest.raises(StsbenchError, match=message):
            records_folder(Path("board"), "outside")


def test_runs_of_no_entry_and_runs_inside_are_refused(checkout):
    with pytest.raises(StsbenchError, match="--records nowhere: there is no such"):
        gather(Path("board"), "nowhere")
    shutil.copytree("whole/measured/noisy", "board/measured/noisy", dirs_exist_ok=True)
    with pytest.raises(StsbenchError, match=r"board/measured/noisy/\w{12} is a run: those of this board lie in outside"):
        gather(Path("board"), "outside")
    shutil.rmtree("board/measured/noisy")
    with pytest.raises(StsbenchError, match=r"board/measured/noisy/entry\.yaml is missing, of which there are runs"):
        gather(Path("board"), "outside")


def test_an_addition_keeps_the_index_right(checkout, runs, cli):
    before = read_index(Path("board")).files
    where = ("--board", "board", "--records", "outside")
    code, out, err = cli("leaderboard", "add", runs["words"], *where, "--entry", "words", "--method", "words",
                         "--backbone", "none", "--setting", "unsup")
    assert code == 0, err
    assert out.startswith("outside/measured/words/") and out.endswith("run.parquet: 9 records\n"), out
    assert "words/entry.yaml may say what no option does: licence, released, languages, hub, starts_from, " in err
    assert before.items() < read_index(Path("board")).files.items()
    assert "words" in gather(Path("board"), "outside").entries
    written = Path("board", INDEX).read_bytes()
    code, out, _ = cli("leaderboard", "index", *where)
    assert (code, out) == (0, f"board/{INDEX}: {len(read_index(Path('board')).files)} files\n")
    assert Path("board", INDEX).read_bytes() == written


def test_runs_of_a_data_set_of_the_hub(checkout, monkeypatch):
    """The client's own code against a server on this machine: what it fetches is pinned, kept, and checked."""
    from huggingface_hub import constants

    files = {path.relative_to("outside").as_posix(): path.read_bytes() for path in Path("outside").rglob("*.parquet")}
    files["README.md"] = b"# Runs"
    asked = []

    def answer(path):
        asked.append(path)
        name = path.partition("?")[0].removeprefix("/api").removeprefix("/datasets/me/runs/")
        listed = {"id": "me/runs", "sha": COMMIT, "siblings": [{"rfilename": each} for each in files]}
        sizes = [{"type": "file", "path": each, "size": len(files[each]), "oid": "0" * 40} for each in files]
        for kind, told in (("revision/", listed), ("tree/", sizes)):
            if name.startswith(kind):
                return json.dumps(told).encode()
        return files.get(name.removeprefix(f"resolve/{COMMIT}/"))

    with answering(answer) as address:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE
        monkeypatch.setattr(constants, "ENDPOINT", address)
        # made of the address at the client's import
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + template[template.index("/{repo_id}"):])
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(checkout / "cache"))
        monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(checkout / "cache"))
        index = write_index(Path("board"), "hf:me/runs")
        assert index.source == f"hf:me/runs@{COMMIT}" and read_index(Path("board")) == index
        assert len(index.files) == len(files) - 1 and not any("README" in path for path in asked)
        asked.clear()
        assert gather(Path("board"), "hf:me/runs").entries.keys() == {"letters", "noisy"}
        # What is there is not fetched again, and of the commit that the index names, whatever is newest by now.
        assert not any("/resolve/" in path or "/main" in path for path in asked)
    records_folder(Path("board"), "hf:me/runs")  # nor is anybody asked about a commit that is there
    with pytest.raises(StsbenchError, match="hf:me/others"):
        records_folder(Path("board"), "hf:me/others")


def test_the_names_of_the_hub_are_those_of_the_index(checkout):
    Path("board", INDEX).write_text("# hf:me/runs@abc\n" + Path("board", INDEX).read_text())
    with pytest.raises(StsbenchError, match="say where, --records hf:me/runs@abc"):
        gather(Path("board"))
    write_index(Path("board"), "outside")
    assert read_index(Path("board")).source == "hf:me/runs"  # a folder is of no commit
