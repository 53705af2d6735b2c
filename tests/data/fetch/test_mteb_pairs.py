"""Sets that mteb defines, read from small copies of their repositories: the pairs, and mteb's own scores on the copies; and
fetched whole from a server on this machine."""

import json
import zlib

import numpy as np
import pytest
from answers import answering
from click.testing import CliRunner
from clirun import refuses
from hubserver import data_nowhere

pytest.importorskip("mteb")
from mteb_folders import ITEMS, PAIRS, write

from stsbench import evaluate, load_encoder, to_mteb
from stsbench.cli.main import cli
from stsbench.data.fetch.download import fetch_repository
from stsbench.data.fetch.install import install_bundle, write_bundle
from stsbench.data.fetch.mteb import load_pairs, pinned_revision, undisturbed
from stsbench.data.sets.catalog import BY_ID, LANGUAGES, NAMES, copied_files, set_language
from stsbench.errors import DataError, MissingDataError, StsbenchError
from stsbench.evaluation.plan import plan
from stsbench.evaluation.rescore import score_again
from stsbench.files import data_root
from stsbench.protocols.sts import AVERAGED

SOME = ["STS17", "JSTS"]
FIVE = ["ATEC", "BQ", "LCQMC", "PAWSX", "STS-B-zh"]


def letters(texts):
    """Counts of letters, hashed into 96 columns, and a little of the text's length."""
    vectors = np.zeros((len(texts), 97), dtype=np.float32)
    for row, text in enumerate(texts):
        for letter in text:
            vectors[row, zlib.crc32(letter.encode()) % 96] += 1
        vectors[row, 96] = len(text) / 7
    return vectors


MODEL = {"model": letters, "no_cache": True}


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """A data folder with copies, and what mteb.evaluate says of its tasks on them: main score, and scores by subset."""
    root = tmp_path_factory.mktemp("data")
    expected = {}
    with undisturbed() as mteb:
        encoder = to_mteb(load_encoder(letters))
        for item in (ITEMS[name] for name in [*SOME, *FIVE]):
            done = mteb.evaluate(encoder, write(root, item), cache=None, co2_tracker=False, show_progress_bar=False)
            assert not done.exceptions
            (result,) = done.task_results
            assert list(result.scores) == [item.split]
            expected[item.task] = result.get_score(), {one["hf_subset"]: one for one in result.scores[item.split]}
    return root, expected


@pytest.fixture(scope="module")
def measured(copies, tmp_path_factory):
    return evaluate(**MODEL, protocol="sts", tasks=SOME, data_dir=copies[0], resamples=60,
                    output=tmp_path_factory.mktemp("runs") / "run")


def test_scores_are_mteb_s_without_an_average_and_the_record_says_what_was_read(copies, measured):
    for task in SOME:
        main, of_subsets = copies[1][task]
        rows = {(row.subset, row.aggregation, row.metric): row for row in measured.rows if row.task == task}
        assert rows[None, "mean", "spearman"].value == pytest.approx(100 * main, abs=1e-2)  # 1e-4 of 1
        several = len(of_subsets) > 1
        for name, scores in of_subsets.items():
            for metric in ("spearman", "pearson"):
                row = rows[(name, None, metric) if several else (None, "all", metric)]
                assert row.value == pytest.approx(100 * scores[f"cosine_{metric}"], abs=1e-2)
                assert row.n == PAIRS and row.low < row.high
        assert {"all", "mean", "wmean"} == {how for _, how, _ in rows if how}
    assert not [row for row in measured.rows if row.task.startswith("Avg")]
    assert score_again(measured.folder).rows == measured.rows
    (record,) = [record for record in measured.records if record.data.task == "STS17"]
    assert (record.data.id, record.data.text_version, record.data.known) == ("sts17/test", "own", False)
    assert record.data.subsets == dict.fromkeys(copies[1]["STS17"][1], PAIRS)
    assert record.data.warnings[0] == "STS17 ko-ko holds 14 pairs, mteb's statistics say 2846"


def test_the_chinese_preset_averages_its_five_sets(copies):
    rows = {row.task: row for row in evaluate(**MODEL, protocol="zh", data_dir=copies[0], resamples=60).rows}
    assert list(rows) == [*FIVE, "Avg", "Avg-full"]
    assert {(row.protocol, row.metric, row.aggregation) for row in rows.values()} == {("zh", "spearman", "all")}
    assert [rows[task].value for task in FIVE] == pytest.approx([100 * copies[1][task][0] for task in FIVE], abs=1e-2)
    assert rows["Avg-full"].value == pytest.approx(np.mean([rows[task].value for task in FIVE]), abs=1e-2)
    assert rows["Avg"].value == pytest.approx(rows["Avg-full"].value, abs=0.01) and rows["Avg"].low < rows["Avg"].high


def test_ids_names_and_languages_are_mteb_s_and_they_are_measured_only_where_named():
    for protocol, tasks, expected in (("sts", None, AVERAGED), ("zh", None, FIVE), ("sts:mean", ["sts17", "JSTS"], None)):
        (part,), _ = plan([protocol], tasks, {})
        assert list(part.tasks) == list(expected or ("STS17", "JSTS"))
        assert protocol != "zh" or part.protocol.averaged == tuple(FIVE)
    refuses(StsbenchError, r"average", plan, ["sts"], None, {"sts": {"average": ["STS12"]}})
    compared = 0
    with undisturbed() as mteb:
        from mteb.languages import ISO_TO_LANGUAGE

        for item in LANGUAGES:
            task = mteb.get_task(item.name)
            assert task.metadata.type == "STS" and task.metadata.dataset["revision"]
            assert task.metadata.dataset["path"] == item.repository
            assert item.split == ("test" if "test" in task.eval_splits else task.eval_splits[0])
            statistics = task.metadata.descriptive_stats[item.split]
            assert (statistics["num_samples"], len(task.hf_subsets)) == (item.pairs, item.subsets)
            spoken = task.metadata.eval_langs
            for subset, scripts in (spoken if isinstance(spoken, dict) else {None: spoken}).items():
                stated = {ISO_TO_LANGUAGE[script.partition("-")[0]].partition(" (")[0] for script in scripts}
                stated = {{"Mandarin Chinese": "Chinese", "Modern Greek": "Greek"}.get(name, name) for name in stated}
                assert set_language(item.id, subset) == " and ".join(sorted(stated)), (item.task, subset)
                compared += 1
    assert compared == 11 + 18 + 12 + 10 + 9 and len(set(NAMES.values())) == len(NAMES) - 1  # en, eng
    assert set_language("stsb/test") == set_language("own:0123") == set_language("sts17/test", "xx-yy") == ""
    assert len(BY_ID) == len(LANGUAGES)


def test_faults_of_a_copy(tmp_path):
    """Of KorSTS with its rows changed, and of STS17 without some of its subsets."""
    write(tmp_path, ITEMS["KorSTS"])
    file = tmp_path / "dkoterwa/kor-sts/test.jsonl"
    before = file.read_text("utf-8")
    for change, message in (
        (lambda rows: rows[2].update(score=5.5), r"KorSTS \(.*kor-sts\), test: row 3: the score 5.5 is outside 0-5"),
        (lambda rows: rows[1].update(sentence1=None), r"row 2: a sentence is not a text"),
        (lambda rows: [row.pop("sentence2") for row in rows], r"no column sentence2 \(there are sentence1, score\)"),
        (lambda rows: rows.clear(), r"KorSTS: mteb cannot read|holds no pair"),
    ):
        rows = [json.loads(line) for line in before.splitlines()]
        change(rows)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        refuses(DataError, message, load_pairs, "korsts/test", data_dir=tmp_path)
    write(tmp_path, ITEMS["STS17"], only=("ko-ko", "ar-ar"))
    refuses(DataError, r"STS17 \(.*\), subset en-ar is not there; the set is all of ko-ko, ar-ar, en-ar",
            load_pairs, "sts17/test", data_dir=tmp_path)


def test_nowhere(tmp_path, monkeypatch):
    message = r"mteb/JSTS is missing: --data-dir must hold JSTS's files there"
    refuses(MissingDataError, message, load_pairs, "jsts/validation", data_dir=tmp_path)
    refuses(DataError, r"the sample holds nothing of JSTS", evaluate, **MODEL, protocol="sts", tasks="JSTS", sample=True)
    monkeypatch.setenv("STSBENCH_DATA", str(tmp_path))
    message = r"the Hub's mteb/JSTS at [0-9a-f]{12}.* files into DIR/mteb/JSTS"
    refuses(MissingDataError, message, load_pairs, "jsts/validation", offline=True)
    write(tmp_path, ITEMS["JSTS"])
    assert load_pairs("jsts/validation", offline=True).origin == str(tmp_path / "mteb/JSTS")


def test_through_mteb_s_own_loading(tmp_path, monkeypatch):
    """Without a copy in a folder mteb loads the revision that it pins: here the Hub's client is a function."""
    import datasets
    import mteb.abstasks.abstask as module

    folder = write(tmp_path, ITEMS["STS-B-zh"]).metadata.dataset["path"]
    asked = []

    def fetched(path, revision, **settings):
        asked.append((path, revision))
        return datasets.load_dataset(folder, cache_dir=str(tmp_path / "hub"))

    monkeypatch.setattr(module, "load_dataset", fetched)
    data = load_pairs("stsb-zh/test")
    assert asked == [("mteb/STSB", "e036defee8f190911de6fc825a944b928c8cda53")]
    assert data.origin == "the Hub's mteb/STSB at e036defee8f1, through mteb"
    assert (data.task, data.order, len(data)) == ("STS-B-zh", ("STS-B-zh",), PAIRS)


def test_a_bundle_carries_the_copies(tmp_path):
    write(tmp_path / "here", ITEMS["JSTS"])
    (tmp_path / "here/mteb/JSTS/.cache").mkdir()
    (tmp_path / "here/mteb/JSTS/.cache/kept").write_text("x")
    assert write_bundle(tmp_path / "here", tmp_path / "b.tar") == ["mteb/JSTS/validation.parquet"]
    report = install_bundle(tmp_path / "b.tar", tmp_path / "there")
    assert report.installed == ("mteb/JSTS/validation.parquet",) and not report.changed
    there = load_pairs("jsts/validation", data_dir=tmp_path / "there")
    assert there.digest == load_pairs("jsts/validation", data_dir=tmp_path / "here").digest
    with pytest.raises(DataError, match=r"JSTS holds 14 pairs, mteb's statistics say 1457 \(refused: --strict-data\)"):
        load_pairs("jsts/validation", data_dir=tmp_path / "there", strict=True)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder served as the Hub serves it, with a small STS17 and JSTS at the revisions that mteb pins."""
    served = tmp_path / "hub"
    for task in ("STS17", "JSTS"):
        item = ITEMS[task]
        revision = pinned_revision(item)
        write(tmp_path / "made", item)
        files = served / "datasets" / item.repository / "resolve" / revision
        files.parent.mkdir(parents=True)
        (tmp_path / "made" / item.repository).rename(files)
        (files / ".gitattributes").write_text("")
        names = [path.relative_to(files).as_posix() for path in sorted(files.rglob("*")) if path.is_file()]
        listing = served / "api/datasets" / item.repository / "revision" / revision
        listing.parent.mkdir(parents=True)
        listing.write_text(json.dumps({"siblings": [{"rfilename": name} for name in names]}))
    data_nowhere(monkeypatch, tmp_path)

    def answer(path):
        return file.read_bytes() if (file := served / path.partition("?")[0][1:]).is_file() else None

    with answering(answer) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield served


def test_what_was_fetched_is_read_offline(hub, monkeypatch):
    done = CliRunner().invoke(cli, ["data", "fetch", "STS17", "JSTS"])
    assert done.exit_code == 0 and "senteval" not in done.output.lower(), done.output
    names = copied_files(data_root())
    assert len(names) == 12 + 1 and not any(".gitattributes" in name for name in names)  # 11 parts and a card; one file
    again = CliRunner().invoke(cli, ["data", "fetch", "STS17"])
    assert again.exit_code == 0 and "nothing to do" in again.output
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pairs = load_pairs("sts17/test", offline=True)
    assert len(pairs.counts) == 11 and pairs.origin == str(data_root() / "mteb/sts17-crosslingual-sts")


def test_all_files_come_or_none_and_the_next_call_goes_on(hub):
    item = ITEMS["STS17"]
    folder = hub / "datasets" / item.repository / "resolve" / pinned_revision(item)
    lost = (folder / "ko-ko/test.jsonl").read_bytes()
    (folder / "ko-ko/test.jsonl").unlink()
    refuses(DataError, "HTTP 404", fetch_repository, item.repository, pinned_revision(item), data_root(), pause=0)
    assert not (data_root() / item.repository).exists()
    (folder / "ko-ko/test.jsonl").write_bytes(lost)
    (folder / "ar-ar/test.jsonl").write_text("{}")  # was received, and is not asked for again
    report = fetch_repository(item.repository, pinned_revision(item), data_root(), pause=0)
    assert len(report.installed) == 12 and len(load_pairs("sts17/test", offline=True)) == 11 * 14
    assert not list(data_root().glob(".fetch-*"))
    with pytest.raises(DataError, match="changed since its first fetch"):
        fetch_repository(item.repository, pinned_revision(item), data_root(), pause=0, force=True, strict=True)


def test_a_wrong_listing_is_refused(hub):
    item = ITEMS["JSTS"]
    path = hub / "api/datasets" / item.repository / "revision" / pinned_revision(item)
    for listing, says in (
        ("{}", "does not list the repository's files"), ('{"siblings": [{"rfilename": "../x"}]}', "leaves its folder"),
        ('{"siblings": [{"rfilename": ".gitattributes"}]}', "lists no file"),
    ):
        path.write_text(listing)
        refuses(DataError, says, fetch_repository, item.repository, pinned_revision(item), data_root(), pause=0)
        assert not (data_root() / item.repository).exists()
    assert all(len(pinned_revision(item)) == 40 for item in LANGUAGES)
    refuses(DataError, "not a full commit", fetch_repository, "mteb/JSTS", "main", data_root())
