"""The table behind "MTEB, as published": the same from a clone and from a table made of one, in either layout of mteb."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from clirun import cli, place  # noqa: F401  fixtures

from stsbench.errors import StsbenchError
from stsbench.leaderboard.imports.mteb import SCHEMA, import_table
from stsbench.leaderboard.mteb.results import FOLDER, TABLE, load_published

COMMIT, DATA = "0123456789abcdef0123456789abcdef01234567", "d" * 40
PUBLISHED = Path(__file__).resolve().parents[4] / "shared/published/mteb_sts.tsv.gz"


def write(folder, task, result):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{task}.json").write_text(json.dumps(result))


@pytest.fixture
def clone(tmp_path):
    """A clone with a new file, one of several subsets, one of mteb before 1.11, and what does not belong."""
    root = tmp_path / "clone"
    model = root / "results/org__model" / COMMIT
    entry = {"hf_subset": "default", "cosine_spearman": 0.123456789012345678, "main_score": 0.5, "mteb_version": "2.1"}
    new = {"dataset_revision": DATA, "mteb_version": "2.2", "scores": {"test": [entry], "dev": [entry]}}
    write(model, "STS12", new)
    write(model, "Banking77Classification", new)
    pairs = [{"hf_subset": name, "main_score": value} for name, value in (("en-en", 0.8), ("ar-ar", None))]
    write(model, "STS17", {"dataset_revision": DATA, "mteb_version": "2.2", "scores": {"test": pairs}})
    test = {"cos_sim": {"spearman": 0.7}, "evaluation_time": 3}
    old = {"mteb_version": "1.0", "mteb_dataset_revision": None, "test": test}
    write(root / "results/org__model/external", "STSBenchmark", old)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b.org", "commit", "-qm", "a"]):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    return root


def test_a_clone_gives_scores_as_printed_with_its_commit(clone, tmp_path):
    made = import_table(tmp_path / "board", clone)
    assert [path.name for path in made.written] == [TABLE, "source.yaml", "training.yaml", "models.yaml"]
    published = load_published(tmp_path / "board")
    assert [(score.task, score.subset, score.value, score.mteb_version, score.revision) for score in published.scores] == [
        ("STS12", "default", "0.12345678901234568", "2.1", COMMIT), ("STS17", "en-en", "0.8", "2.2", COMMIT),
        ("STSBenchmark", "default", "0.7", "1.0", "external"),
    ]
    head = subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert published.source.commit == head.strip() and published.source.licence == "CC0-1.0"
    again = import_table(tmp_path / "board", clone)
    assert again.written == () and len(again.present) == 4


def test_a_table_needs_its_commit_and_is_renewed(cli, place, clone, tmp_path):
    path = tmp_path / "table.tsv.gz"
    rows = [SCHEMA, ("a/b", "1", "STS12", "test", "default", "cosine_spearman", "0.5", "1.0", DATA),
            ("a/b", "1", "STS12", "test", "default", "cosine_pearson", "0.6", "1.0", DATA),
            ("a/b", "1", "STS12", "dev", "default", "cosine_spearman", "0.7", "1.0", DATA)]
    path.write_bytes(gzip.compress("".join("\t".join(row) + "\n" for row in rows).encode()))
    import_table(tmp_path / "board", clone)
    status, output, _ = cli("leaderboard", "import", "mteb", path, "--board", tmp_path / "board", "--all-models", "--commit",
                            COMMIT, "--date", "2026-08-20")
    assert status == 0 and TABLE in output
    (score,) = load_published(tmp_path / "board").scores
    assert (score.model, score.value) == ("a/b", "0.5")
    write(clone / "results/org__model" / COMMIT, "STS13", ["no result"])
    (tmp_path / "empty").mkdir()
    for source, words in ((clone, "STS13.json is not a result file of mteb"), (tmp_path / "empty", "no results|not a git")):
        with pytest.raises(StsbenchError, match=words):
            import_table(tmp_path / "other", source)
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(not PUBLISHED.is_file(), reason="../shared/published is not beside the checkout")
def test_the_committed_table_is_what_the_published_one_gives(tmp_path):
    board = Path(__file__).resolve().parents[3] / "leaderboard"
    source = load_published(board).source
    import_table(tmp_path, PUBLISHED, source.commit, source.date)
    for path in (tmp_path / FOLDER).iterdir():
        assert path.read_bytes() == (board / FOLDER / path.name).read_bytes()
