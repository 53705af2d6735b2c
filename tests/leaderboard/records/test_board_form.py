"""The form in which a board keeps a run: the same scores in fewer bytes, what the data decide once for all encoders; and
where the runs lie elsewhere their digests, from which nothing may differ."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from answers import COMMIT, answering
from board_runs import LETTERS, checkout, entry, load_entries, read_once, runs  # noqa: F401 - fixtures
from clirun import cli, refuses  # noqa: F401 - fixtures

from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import kinds
from stsbench.evaluation.records import record_name
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.run_file import RUN, load_records, read_observations, read_own_observations
from stsbench.leaderboard.board_files import outputs
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.paths import INDEX, read_index, records_folder, write_index


@pytest.fixture(scope="module")
def repository(runs, tmp_path_factory):
    """A board of one entry, the same with another one, and this with its runs outside."""
    home = tmp_path_factory.mktemp("boards")
    add(home / "first", [runs["letters"]], "letters", LETTERS)
    shutil.copytree(home / "first", home / "whole")
    add(home / "whole", [runs["noisy"], runs["noisy-2"]], "noisy", entry("noisy letters"))
    add(home / "board", [runs["letters"]], "letters", LETTERS, home / "outside")
    noisy = home / "whole/measured/noisy"
    shutil.copytree(noisy, home / "outside/measured/noisy", ignore=shutil.ignore_patterns("entry.yaml"))
    (home / "board/measured/noisy").mkdir()
    shutil.copy(noisy / "entry.yaml", home / "board/measured/noisy")
    write_index(home / "board", str(home / "outside"))
    return home


def run_of(board, name):
    (file,) = (board / "measured" / name).glob(f"*/{RUN}")
    return file.parent


def pairs(run, folder):
    """(record of a run, record of a board's run) of one name."""
    kept = {record_name(record): record for _, record in load_records(folder)}
    return [(record, kept[record_name(record)]) for _, record in load_records(run)]


def test_records_are_the_same_and_arrays_but_for_rounding(runs, repository):
    folder = run_of(repository / "first", "letters")
    kept_as = pairs(runs["letters"], folder)
    assert [kept for _, kept in kept_as] == [record for _, record in load_records(folder)]
    assert any(kept.observations.shared for _, kept in kept_as)
    assert (folder / RUN).stat().st_size < 0.8 * (runs["letters"] / RUN).stat().st_size
    for record, kept in kept_as:
        assert kept.model_dump(exclude={"observations"}) == record.model_dump(exclude={"observations"})
        assert record.observations.shared is None
        was, now = read_observations(runs["letters"], record), read_observations(folder, kept)
        assert now.names == was.names and now.arrays.keys() == was.arrays.keys()
        for key, array in was.arrays.items():
            assert now.arrays[key].dtype == array.dtype
            tolerance = 1e-6 if kinds()[record.protocol.name].arrays[key].rounded else 0
            np.testing.assert_allclose(now.arrays[key], array, rtol=tolerance, atol=0)
    assert [row.value for row in score_again(folder).rows] == pytest.approx(
        [row.value for row in score_again(runs["letters"]).rows], abs=1e-6)
    # What the data decide is kept once.
    before, after = ({path.name: path.read_bytes() for path in (repository / name / "observations").iterdir()}
                     for name in ("first", "whole"))
    assert after == before
    shared = 0
    for record, kept in kept_as:
        whole, arrays = read_observations(folder, kept).arrays, kinds()[record.protocol.name].arrays
        decided = {key for key, array in arrays.items() if array.shared and (key in whole or not array.optional)}
        assert not decided & read_own_observations(folder, kept).arrays.keys() and decided <= whole.keys()
        shared += bool(decided)
    assert len(after) == shared


def test_scores_that_rounding_would_move_keep_their_arrays(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.leaderboard.records.add.MOVED", -1.0)
    add(tmp_path, [runs["letters"]], "letters", LETTERS)
    folder = run_of(tmp_path, "letters")
    for record, kept in pairs(runs["letters"], folder):
        now = read_observations(folder, kept)
        for key, array in read_observations(runs["letters"], record).arrays.items():
            np.testing.assert_array_equal(now.arrays[key], array)


def test_a_damaged_shared_file_is_named_and_not_overwritten(checkout, runs):
    made = checkout / "first"
    shared, other = sorted((made / "observations").iterdir())[:2]
    content = shared.read_bytes()
    shared.write_bytes(other.read_bytes())
    words = rf"observations/{shared.name} does not hold what its record names"
    refuses(StsbenchError, words, load_entries, made / "measured")
    shared.write_bytes(content[: len(content) // 2])
    refuses(StsbenchError, rf"observations/{shared.name} is not a valid", load_entries, made / "measured")
    # Another content under its name is not overwritten.
    shared.write_bytes(other.read_bytes())
    addition = [runs["noisy"]], "noisy", entry("noisy")
    refuses(StsbenchError, words, add, made, *addition)
    shutil.rmtree(made / "measured")  # now it belongs to no record
    refuses(StsbenchError, rf"{shared.name} does not hold .*nothing is overwritten: remove that file", add, made, *addition)
    assert shared.read_bytes() == other.read_bytes() and not list(made.rglob(RUN))


def test_a_board_shows_the_same_wherever_its_runs_lie(checkout):
    def shown(board, records=None):
        """Without its own name."""
        return {name: content.replace(f"{board}/measured/", "measured/") if isinstance(content, str) else content
                for name, content in outputs(gather(Path(board), records)).items()}

    inside, outside = shown("whole"), shown("board", "outside")
    assert inside == outside and not list(Path("board").rglob("*.parquet"))
    assert {path.name for path in Path("board").iterdir()} == {"measured", INDEX}
    # The index is what sha256sum reads.
    files = read_index(Path("board")).files
    assert sorted(files) == sorted(path.relative_to("outside").as_posix() for path in Path("outside").rglob("*.parquet"))
    done = subprocess.run(["sha256sum", "-c", Path("board", INDEX).resolve()], cwd="outside", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(": OK") == len(files)
    # The names of the Hub are those of the index.
    Path("board", INDEX).write_text("# hf:me/runs@abc\n" + Path("board", INDEX).read_text())
    refuses(StsbenchError, "say where, --records hf:me/runs@abc", gather, Path("board"))
    write_index(Path("board"), "outside")
    assert read_index(Path("board")).source == "hf:me/runs"  # a folder is of no commit


def test_what_differs_from_the_index_and_runs_of_no_entry_are_refused(checkout):
    run = sorted(Path("outside/measured/noisy").glob("*/run.parquet"))[0]
    content = run.read_bytes()
    for change, message in (
        (lambda: run.write_bytes(run.read_bytes() + b"0"), "is not the file that board/records.sha256 lists"),
        (run.unlink, "is missing: board/records.sha256 lists it"),
        (lambda: shutil.copytree(run.parent, run.parent.with_name("0" * 12)),
         "is not in board/records.sha256: `stsbench leaderboard index --records outside` puts it there")):
        change()
        refuses(StsbenchError, message, gather, Path("board"), "outside")
        run.write_bytes(content)
    shutil.rmtree(run.parent.with_name("0" * 12))
    # Runs of no entry, and runs inside.
    refuses(StsbenchError, "--records nowhere: there is no such", gather, Path("board"), "nowhere")
    shutil.copytree("whole/measured/noisy", "board/measured/noisy", dirs_exist_ok=True)
    words = r"board/measured/noisy/\w{12} is a run: those of this board lie in outside"
    refuses(StsbenchError, words, gather, Path("board"), "outside")
    shutil.rmtree("board/measured/noisy")
    words = r"board/measured/noisy/entry\.yaml is missing, of which there are runs"
    refuses(StsbenchError, words, gather, Path("board"), "outside")
    for line, message in (("abc  measured/a/b/run.parquet", "1 is not a sha256, two blanks and the path of a run"),
                          (f"{'0' * 64}  ../../etc/passwd", "records.sha256:1 is not"),
                          (f"{'0' * 64}  measured/../../run.parquet", r"measured/\.\./\.\./run\.parquet is missing")):
        Path("board", INDEX).write_text(line + "\n")
        refuses(StsbenchError, message, records_folder, Path("board"), "outside")


def test_an_addition_keeps_the_index_right(checkout, runs, cli):
    before = read_index(Path("board")).files
    where = ("--board", "board", "--records", "outside")
    code, out, err = cli("leaderboard", "add", runs["words"], *where, "--entry", "words", "--method", "words",
                         "--backbone", "none", "--setting", "unsup")
    assert code == 0 and out.startswith("outside/measured/words/") and out.endswith("run.parquet: 9 records\n"), (out, err)
    assert "words/entry.yaml may say what no option does: licence, released, languages, hub, starts_from, " in err
    assert before.items() < read_index(Path("board")).files.items()
    assert "words" in gather(Path("board"), "outside").entries
    written = Path("board", INDEX).read_bytes()
    assert cli("leaderboard", "index", *where)[:2] == (0, f"board/{INDEX}: {len(read_index(Path('board')).files)} files\n")
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
    refuses(StsbenchError, "hf:me/others", records_folder, Path("board"), "hf:me/others")
