"""mteb's result files as rows: read from a file, a folder, a server; refused with a line; shown with the published rows. And
all of them as one table."""

import gzip
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import board_example
import pytest
from answers import answering
from clirun import cli, place, refuses  # noqa: F401  fixtures

from stsbench import leaderboard
from stsbench.data.fetch import download as download_module
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.leaderboard.imports import mteb
from stsbench.leaderboard.imports.mteb import SCHEMA, import_results, import_table
from stsbench.leaderboard.imports.section import load_imported, with_imported
from stsbench.leaderboard.mteb.results import TABLE, load_published
from stsbench.leaderboard.page.tables import csv_table, markdown_tables
from stsbench.leaderboard.ranks.board import FLAGS
from stsbench.leaderboard.records.paths import SHIPPED

MODEL, REVISION = "example/encoder", "0123456789abcdef0123456789abcdef01234567"
DATA = "b0fddb56ed78048fa8b90373c8a3cfc37b684831"
PUBLISHED = Path(__file__).resolve().parents[4] / "shared/published/mteb_sts.tsv.gz"
PINNED = {"STS12": "a0d554a64d88156834ff5ae9920b964011b16384", "SICK-R": "20a6d6f312dd54037fe07a32d58e5e168867909d"}


def result(task, spearman=0.5, split="test", subset="default", data=None, **more):
    """A result as mteb 2 writes it."""
    scores = {"cosine_spearman": spearman, "cosine_pearson": 0.25, "main_score": spearman, "hf_subset": subset,
              "languages": ["eng-Latn"], "mteb_version": "2.26.24"}
    return {"dataset_revision": data or PINNED.get(task, DATA), "task_name": task, "mteb_version": "2.26.24",
            "scores": {split: [scores]}, "evaluation_time": 1.5, "kg_co2_emissions": None, **more}


def put(folder, task, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{task}.json").write_text(json.dumps(content))


def write(folder, *tasks, **more):
    for task in tasks:
        put(folder, task, result(task, **more))


@pytest.fixture
def cache(tmp_path):
    """A folder as mteb's ResultCache lays it out, with one model in one revision."""
    folder = tmp_path / "cache/results/example__encoder" / REVISION
    write(folder, "STS12", "STSBenchmark", "SICK-R", "Banking77Classification")
    return tmp_path / "cache"


def test_a_folder_of_mtebs_cache_is_read_from_any_of_its_levels(cache, tmp_path):
    for number, below in enumerate(("", "results", "results/example__encoder", f"results/example__encoder/{REVISION}")):
        (path,) = import_results(tmp_path / str(number), str(cache / below)).written
        (imported,) = load_imported(tmp_path / f"{number}/imported")
        assert path.name == "example__encoder.yaml" and (imported.model, imported.revision) == (MODEL, REVISION)
        assert [each.task for each in imported.tasks] == ["STS12", "STSBenchmark", "SICK-R"]
        scores = {(each.cosine_spearman, each.cosine_pearson, each.dataset_revision) for each in imported.tasks}
        assert scores == {(0.5, 0.25, revision) for revision in (DATA, *PINNED.values())}
    # A single file is of the model that is named beside it.
    write(tmp_path / "loose", "STS12")
    import_results(tmp_path / "one", str(tmp_path / "loose"), name="some/body")
    assert load_imported(tmp_path / "one/imported")[0].model == "some/body"
    (tmp_path / "loose/model_meta.json").write_text(json.dumps({"name": "from/meta", "revision": "abc"}))
    import_results(tmp_path / "two", str(tmp_path / "loose"))
    (imported,) = load_imported(tmp_path / "two/imported")
    assert (imported.model, imported.revision) == ("from/meta", "abc")


def test_what_is_there_stays_and_of_several_revisions_one_is_chosen(cache, tmp_path):
    board, model = tmp_path / "board", cache / "results/example__encoder"
    (path,) = import_results(board, str(cache)).written
    good = path.read_text()
    assert import_results(board, str(cache)).present == (path,)
    write(model / REVISION, "STS12", spearman=0.75)
    refuses(StsbenchError, "holds other results of this model: delete it", import_results, board, str(cache))
    assert path.read_text() == good
    for damage, words in {
        good.replace("0.25", "25"): "tasks.0.cosine_pearson", good.replace("STSBenchmark", "STS12"): "stands in it twice",
        good.replace(MODEL, "other/name"): "should be other__name.yaml", "": "tool"}.items():
        path.write_text(damage)
        refuses(StsbenchError, f"{path.name}.*{words}", load_imported, board / "imported")
    write(model / "main", "STS13", spearman=0.75)
    words = f"several revisions of {MODEL}: choose one with --revision .*{REVISION}, main"
    refuses(StsbenchError, words, import_results, tmp_path / "other", str(cache))
    import_results(tmp_path / "other", str(cache), revision="main")
    assert [task.task for task in load_imported(tmp_path / "other/imported")[0].tasks] == ["STS13"]


def test_what_is_not_a_result_on_mtebs_data_is_refused(tmp_path):
    for change, says in (
        ({"spearman": 50.0}, "STS12.json: cosine_spearman: Input should be less than or equal to 1"),
        ({"spearman": float("nan")}, "STS12.json: cosine_spearman: Input should be a finite number"),
        ({"spearman": "0.5"}, "STS12.json: cosine_spearman: Input should be a valid number"),
        ({"task_name": "Banking77Classification"}, "STS12.json is of Banking77Classification"),
        ({"scores": None}, "STS12.json is not a result file of mteb 1.11 or later: scores"),
        ({"subset": "es"}, "nothing to import: STS12.json left out: it has no scores of the test split"),
        ({"data": "stsbench sts12/test senteval 0123"}, "nothing to import: .*names no revision of MTEB's data")):
        put(tmp_path / "example__encoder" / REVISION, "STS12", result(**{"task": "STS12", **change}))
        refuses(StsbenchError, says, import_results, tmp_path / "board", str(tmp_path / "example__encoder"))
        assert not (tmp_path / "board").exists()


def test_a_models_results_are_downloaded(cache, tmp_path, monkeypatch):
    """From the results repository on this machine: GitHub's listing of a model's folder, and its files."""
    model = cache / "results/example__encoder"
    listing = [{"name": each.name, "type": "dir"} for each in model.iterdir()] + [{"name": "README.md", "type": "file"}]
    (cache / "api").mkdir()
    (cache / "api/example__encoder").write_text(json.dumps(listing))

    def answer(path):
        file = cache / path[1:]
        return file.read_bytes() if file.is_file() else None

    monkeypatch.setattr(download_module.time, "sleep", lambda seconds: None)
    with answering(answer) as address:
        monkeypatch.setattr(mteb, "LISTING", f"{address}/api")
        monkeypatch.setattr(mteb, "FILES", f"{address}/results")
        (path,) = import_results(tmp_path / "board", MODEL).written
        (imported,) = load_imported(path.parent)
        assert imported.revision == REVISION and len(imported.tasks) == 3
        assert imported.source == "https://github.com/embeddings-benchmark/results/tree/main/results/example__encoder"
        for arguments, says in (["no/body"], "has no model no/body"), ([MODEL, None, "x"], f"no revision x .*{REVISION}"):
            refuses(StsbenchError, says, import_results, tmp_path / "board", *arguments)
    monkeypatch.setattr(mteb, "LISTING", "http://127.0.0.1:9")  # nobody listens
    refuses(StsbenchError, "cannot download", import_results, tmp_path / "other", MODEL)
    assert not (tmp_path / "other").exists()


def test_rows_stand_beside_the_published_ones_and_have_no_rank(cache, tmp_path):
    import_results(tmp_path, str(cache))
    board = board_example.board(measured=4, published=3)
    made = replace(board, tabs=tuple(with_imported(board.tabs, load_imported(tmp_path / "imported"))))
    rows = {tab.id: row for tab in made.tabs for row in tab.published if row.id == f"mteb:{MODEL}"}
    assert set(rows) == {"sts-spearman-all", "sts-pearson-all"}
    for name, score in {"sts-spearman-all": 50.0, "sts-pearson-all": 25.0}.items():
        row = rows[name]
        assert {column: cell.value for column, cell in row.cells.items()} == dict.fromkeys(
            ("STS12", "STS-B", "SICK-R-MTEB"), score)  # never SICK-R, and so no Avg
        assert row.flags == ("imported",) and row.rank is None
        assert "not checked" in row.marks[0] and "raw text" in row.marks[1]
        assert "SICK-R-MTEB" in next(tab for tab in made.tabs if tab.id == name).columns
    assert FLAGS["imported"][0] == "imported, not checked"
    assert f"mteb:{MODEL}" in csv_table(made) and MODEL in markdown_tables(made)
    # Rows prefer mteb's text, and other revisions of the data are marked.
    plain = board.tabs[0]
    raw = replace(plain, id="sts-spearman-all-raw-text", published=())
    tabs = with_imported([plain, raw], load_imported(tmp_path / "imported"))
    assert tabs[0] == plain and [len(row.marks) for row in tabs[1].published] == [1]
    write(tmp_path / "example__encoder" / REVISION, "STS12", "STSBenchmark", data="0" * 40)
    import_results(tmp_path / "old", str(tmp_path / "example__encoder"))
    (made,) = with_imported([plain], load_imported(tmp_path / "old/imported"))
    (row,) = [row for row in made.published if row.id == f"mteb:{MODEL}"]
    assert row.marks[-1].startswith("STS12, STS-B: of another revision of the data")


def test_the_command_says_what_it_did(cache, cli):
    write(cache / "results/example__encoder" / REVISION, "STS13", data="main")
    code, out, err = cli("leaderboard", "import", "mteb", cache, "--board", "board")
    assert (code, out) == (0, "board/imported/example__encoder.yaml\n") and "STS13.json left out" in err
    assert "already there" in cli("leaderboard", "import", "mteb", cache, "--board", "board")[2]
    with pytest.warns(StsbenchWarning, match=r"STS13.json left out"):
        leaderboard.import_mteb(cache, board="two")


# The table behind "MTEB, as published": the same from a clone and from a table made of one, in either layout of mteb.


@pytest.fixture
def clone(tmp_path):
    """A clone with a new file, one of several subsets, one of mteb before 1.11, and what does not belong."""
    root = tmp_path / "clone"
    model = root / "results/jinaai__jina-embeddings-v3" / REVISION
    entry = {"hf_subset": "default", "cosine_spearman": 0.123456789012345678, "main_score": 0.5, "mteb_version": "2.1"}
    new = {"dataset_revision": DATA, "mteb_version": "2.2", "scores": {"test": [entry], "dev": [entry]}}
    put(model, "STS12", new)
    put(model, "Banking77Classification", new)
    pairs = [{"hf_subset": name, "main_score": value} for name, value in (("en-en", 0.8), ("ar-ar", None))]
    put(model, "STS17", {"dataset_revision": DATA, "mteb_version": "2.2", "scores": {"test": pairs}})
    old = {"mteb_version": "1.0", "mteb_dataset_revision": None}
    put(model.with_name("external"), "STSBenchmark", {**old, "test": {"cos_sim": {"spearman": 0.7}, "evaluation_time": 3}})
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b.org", "commit", "-qm", "a"]):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    return root


def test_a_clone_gives_scores_as_printed_with_its_commit(clone, tmp_path):
    made = import_table(tmp_path / "board", clone)
    assert [path.name for path in made.written] == [TABLE, "source.yaml", "training.yaml", "models.yaml"]
    published = load_published(tmp_path / "board")
    assert [(score.task, score.subset, score.value, score.mteb_version, score.revision) for score in published.scores] == [
        ("STS12", "default", "0.12345678901234568", "2.1", REVISION), ("STS17", "en-en", "0.8", "2.2", REVISION),
        ("STSBenchmark", "default", "0.7", "1.0", "external")]
    head = subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert published.source.commit == head.strip() and published.source.licence == "CC0-1.0"
    # What mteb's registry knows of the model.
    committed, name = load_published(SHIPPED), "jinaai/jina-embeddings-v3"
    assert published.facts == {name: committed.facts[name]} and published.training == {name: committed.training[name]}
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
                            REVISION, "--date", "2026-08-20")
    assert status == 0 and TABLE in output
    (score,) = load_published(tmp_path / "board").scores
    assert (score.model, score.value) == ("a/b", "0.5")
    put(clone / "results/jinaai__jina-embeddings-v3" / REVISION, "STS13", ["no result"])
    (tmp_path / "empty").mkdir()
    for source, words in ((clone, "STS13.json is not a result file of mteb"), (tmp_path / "empty", "no results|not a git")):
        refuses(StsbenchError, words, import_table, tmp_path / "other", source)
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(not PUBLISHED.is_file(), reason="../shared/published is not beside the checkout")
def test_the_committed_table_is_what_the_published_one_holds():
    """By a plain look at its lines: all scores of the board's, under the name that comes first, and no other."""
    published, printed = load_published(SHIPPED), {}
    with gzip.open(PUBLISHED, "rt", encoding="utf-8") as stream:
        for line in stream:
            model, revision, task, split, subset, metric, value, *_ = line.rstrip("\n").split("\t")
            if split == "test" and (metric == "cosine_spearman" or (metric == "main_score" and (
                model, revision, task, subset) not in printed)):
                printed[model, revision, task, subset] = value
    held = {(score.model, score.revision, score.task, score.subset): score.value for score in published.scores}
    assert len(held) == len(published.scores) > 7000 and held.items() <= printed.items()
    tasks = {(task, subset) for _, _, task, subset in held}
    assert {key for key in printed if key[2:] in tasks} == held.keys()
