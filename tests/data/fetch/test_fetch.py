"""Where a set is looked for, fetching into the cache from a server on this machine, and bundles for machines without
network. The sentences of the STS data as training text: the paper's counts on the real data, and what the sample holds."""

import json
import shutil

import pytest
from click.testing import CliRunner
from clirun import refuses
from hubserver import SAMPLE, data_nowhere, raw, sample_catalog, sample_files, server, tar_of  # noqa: F401 - fixtures
from realdata import real_data

from stsbench.cli.data import data as data_command
from stsbench.data.fetch.download import fetch_archive, fetch_file, hub_url, select_sources
from stsbench.data.fetch.install import install_bundle, read_lock, write_bundle
from stsbench.data.fetch.sources import NAMED, load_data, locate, sts_texts, training_text
from stsbench.data.sets.catalog import catalog, entries, entry
from stsbench.errors import DataError, MissingDataError, StsbenchError
from stsbench.files import data_root

STSB = "downstream/STS/STSBenchmark/sts-dev.csv"
SICK = "downstream/SICK/SICK_trial.txt"
COUNTS = {"sts12": 6216, "sts13": 3000, "sts14": 7500, "sts15": 17000, "sts16": 18366, "stsb": 17256, "sick-r": 19854}


@pytest.mark.parametrize("prefix", ["./", "data/downstream/"])
def test_archive_is_installed_wherever_it_begins(server, sample_catalog, prefix):
    server.body = tar_of(sample_files(prefix) | {prefix + "SNLI/other.txt": b"not ours"})
    actual = load_data("sts12/test")  # which fetches it where nothing is there
    assert actual.known and actual.origin == "user cache" and actual.first == load_data("sts12/test", sample=True).first
    assert "e145e8bb659b2aa2669f32ef79cb4cdef6c58fef/senteval.tar" in server.asked[0][0]
    assert not (data_root() / "downstream/SNLI").exists() and not (data_root() / "senteval.tar").exists()
    assert fetch_archive(data_root()).installed == () and len(server.asked) == 1
    report = fetch_archive(data_root(), force=True, strict=True)
    assert len(report.installed) == len(sample_catalog.files) and not report.changed and not report.missing
    assert len(server.asked) == 2 and not list(data_root().glob(".unpack-*"))


def test_tampered_and_missing_files_are_reported_and_strict_refuses(server, sample_catalog):
    name, lost = "STS/STSBenchmark/sts-dev.csv", "MR/rt-polarity.pos"
    evil, lacking = {name: b"g\tf\ty\t1\t0.000\tevil\tb\n"}, sample_files()
    del lacking[lost]
    for files, fault in ((sample_files() | evil, r"sts-dev\.csv differs from the catalog \(1 changed, 0 missing"),
                         (lacking, r"rt-polarity\.pos is missing \(0 changed, 1 missing"),
                         ({"README": b"?"}, "none of the benchmark's files")):
        server.body = tar_of(files)
        refuses(DataError, fault, fetch_archive, data_root(), strict=True)
    whole = tar_of(lacking | evil)
    for server.body in (whole[: len(whole) // 2], tar_of({**sample_files(), "../../evil": b"1"})):
        refuses(DataError, "", fetch_archive, data_root())
        assert {path.name for path in data_root().iterdir()} == {".fetch.lock"}
    server.body = whole
    report = fetch_archive(data_root())
    assert (report.changed, report.missing) == (("downstream/" + name,), ("downstream/" + lost,))


def test_first_fetch_locks_and_a_later_change_is_reported(server):
    server.body, item = raw(3.0), entry("stsb/test", "raw")
    actual = load_data("stsb/test", text_version="raw")
    (name,) = item.files
    assert actual.known and len(actual) == 1379 and actual.first[0] == "A man's hat."
    assert list(read_lock(data_root())) == [name]
    assert server.asked[0][0].endswith("/mteb/stsbenchmark-sts/resolve/" + item.hub.revision + "/test.jsonl.gz")
    assert fetch_file(item, data_root()).installed == ()
    locked = read_lock(data_root())
    server.body = raw(4.0)
    refuses(DataError, "changed since its first fetch", fetch_file, item, data_root(), force=True, strict=True)
    assert load_data("stsb/test", text_version="raw", strict=True).gold[0] == 3.0
    assert fetch_file(item, data_root(), force=True).changed == (name,)
    after = load_data("stsb/test", text_version="raw")
    assert not after.known and "lock.json" in after.warnings[0] and read_lock(data_root()) == locked
    refuses(DataError, "refused: --strict-data", load_data, "stsb/test", text_version="raw", strict=True)
    refuses(DataError, "not a single file", fetch_file, entry("stsb/test"), data_root())


def test_training_texts_are_fetched_and_found(server, tmp_path, monkeypatch):
    """In train/ of the data folder, $STSBENCH_DATA, the cache; then from the Hub, where its name is a published one."""
    name = "nli_for_simcse.csv"
    server.body = b"sent0,sent1,hard_neg\na,b,c\n"
    absent, ways = training_text(name, offline=True)
    assert absent is None and "stsbench data fetch nli_for_simcse.csv" in ways
    actual, _ = training_text(name)
    assert actual == data_root() / "train" / name and actual.read_bytes() == server.body
    assert server.asked[-1][0].endswith(f"/datasets-for-simcse/resolve/{catalog().archive.revision}/{name}")
    assert list(read_lock(data_root())) == [f"train/{name}"]
    asked = len(server.asked)
    assert training_text(name)[0] == actual and len(server.asked) == asked
    environment, given = (put(tmp_path / place, f"train/{name}") for place in ("environment", "given"))
    monkeypatch.setenv("STSBENCH_DATA", str(tmp_path / "environment"))
    assert training_text(name)[0] == environment and training_text(name, data_dir=tmp_path / "given")[0] == given
    for other in ("mine.csv", "../train/" + name, f"train/{name}", "", ".."):
        assert training_text(other) == (None, "")
    server.body, file = b"changed\n", catalog().training[name]
    refuses(DataError, "changed since its first fetch", fetch_file, file, data_root(), force=True, strict=True)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert training_text("wiki1m_for_simcse.txt")[0] is None
    monkeypatch.delenv("HF_ENDPOINT")
    assert hub_url(catalog().archive).startswith("https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse/resolve/")


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    data_nowhere(monkeypatch, tmp_path)


def put(root, name=STSB, text="g\tf\ty\t1\t5.000\ta man\tb\n"):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_data_dir_may_be_downstream_itself(nowhere, tmp_path):
    put(tmp_path / "d")
    whole, inner = (load_data("stsb/dev", data_dir=tmp_path / name) for name in ("d", "d/downstream"))
    assert whole.digest == inner.digest and whole.first == ("a man",) and whole.origin == str(tmp_path / "d")
    put(data_root(), SICK, "pair_ID\ta\n1\tA\tB\t3\tNEUTRAL\n")  # --data-dir is the only place that is asked
    refuses(MissingDataError, "", load_data, "sick-r/trial", data_dir=tmp_path / "d")
    put(tmp_path / "d", "downstream/MR/rt-polarity.pos", "x\n")
    put(tmp_path / "d", "downstream/MR/rt-polarity.neg", "y\n")
    assert locate(entry("mr"), data_dir=tmp_path / "d").root == tmp_path / "d"
    assert load_data("mr", data_dir=tmp_path / "d").first == ("x", "y")


def test_environment_then_cache(nowhere, tmp_path, monkeypatch):
    put(data_root(), text="g\tf\ty\t1\t1.000\tcache\tb\n")
    assert load_data("stsb/dev").first == ("cache",) and load_data("stsb/dev").origin == "user cache"
    put(tmp_path / "env", text="g\tf\ty\t1\t1.000\tenv\tb\n")
    put(data_root(), SICK, "pair_ID\ta\n1\tA\tB\t3\tNEUTRAL\n")
    monkeypatch.setenv("STSBENCH_DATA", str(tmp_path / "env"))
    assert load_data("stsb/dev").first == ("env",) and load_data("stsb/dev").origin == str(tmp_path / "env")
    assert load_data("sick-r/trial").origin == "user cache"  # the environment's folder holds nothing of it
    monkeypatch.setenv("STSBENCH_DATA", str(tmp_path / "typo"))
    refuses(DataError, r"\$STSBENCH_DATA names .*typo, which is not a folder", load_data, "stsb/dev")


def test_offline_names_the_three_ways(nowhere, monkeypatch):
    ways = r"--data-dir DIR .*STSBENCH_DATA .*stsbench data fetch.*--sample"
    refuses(DataError, r"cannot be fetched: .*no connection .*refused.*" + ways, load_data, "stsb/dev")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refuses(DataError, "downloads are off", load_data, "stsb/dev", text_version="senteval")


def test_bundle_round_trip(server, sample_catalog, tmp_path):
    names = write_bundle(SAMPLE, tmp_path / "b.tar.gz")
    write_bundle(SAMPLE / "downstream", tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    report = install_bundle(tmp_path / "b.tar.gz", data_root(), strict=True)
    assert sorted(report.installed) == names and load_data("sts12/test").known and not server.asked
    assert not (data_root() / "manifest.json").exists()


def test_bundle_carries_raw_files_and_locks_them(server, tmp_path):
    server.body = raw(3.0)
    fetch_file(entry("stsb/test", "raw"), data_root())
    write_bundle(data_root(), tmp_path / "b.tar")
    install_bundle(tmp_path / "b.tar", tmp_path / "other")
    assert read_lock(tmp_path / "other") == read_lock(data_root())
    assert load_data("stsb/test", text_version="raw", data_dir=tmp_path / "other", strict=True).known


def run(*arguments):
    result = CliRunner().invoke(data_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_commands(server, sample_catalog, tmp_path, monkeypatch):
    server.body = tar_of(sample_files())
    assert "files installed" in run("fetch")
    assert "nothing to do" in run("fetch")
    run("bundle", str(tmp_path / "b.tar"))
    assert "files installed" in run("fetch", "--from", str(tmp_path / "b.tar"))
    server.body = raw(3.0)
    assert "1 file installed" in run("fetch", "--raw", "stsb/test")
    refuses(DataError, r"22 of 29 sets differ", run, "verify")  # the sample's digests are not the catalog's
    refuses(DataError, "did you mean", run, "fetch", "stsb/tset")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    refuses(StsbenchError, r"no connection.*--from BUNDLE.*--sample", run, "fetch", "--force")


def test_what_is_wanted(server):
    for options, expected in (
        ({}, (True, 0, 0)), ({"training": True}, (False, 0, 2)), ({"sets": ["stsb/test"]}, (True, 0, 0)),
        ({"raw": True}, (True, len(entries("raw")), 0)), ({"sets": ["stsb/test"], "raw": True}, (False, 1, 0)),
        ({"sets": ["nli_for_simcse.csv", "stsb/test"]}, (True, 0, 1)),
        ({"sets": ["nli_for_simcse.csv"], "raw": True}, (False, 0, 1)),
    ):
        what = select_sources(**options)
        assert (what.archive, len(what.raw), len(what.training)) == expected
    server.body = b"a\n"
    assert "1 file installed" in run("fetch", "wiki1m_for_simcse.txt") and len(server.asked) == 1
    assert run("fetch", "--training").count("1 file installed") == 1  # the other one
    assert sorted(path.name for path in (data_root() / "train").iterdir()) == ["nli_for_simcse.csv", "wiki1m_for_simcse.txt"]


def test_verify(server):
    server.body = raw(3.0)
    run("fetch", "--raw", "stsb/test")
    rows = json.loads(run("verify", "stsb/test", "--json", "-"))["sets"]
    assert [row["state"] for row in rows] == ["missing", "ok"] and [row["pairs"] for row in rows] == [None, 1379]
    refuses(DataError, "no data set is complete", run, "verify", "stsb/dev")
    refuses(DataError, "stsb/dev is not complete", run, "verify", "stsb/test", "stsb/dev")
    refuses(DataError, "did you mean", run, "verify", "stsb/tst")
    refuses(DataError, "sets differ from the catalog", run, "verify", "--data-dir", str(SAMPLE))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))


def test_the_counts_are_those_of_the_paper_and_what_a_part_of_the_texts_holds_of_the_tests(cache):
    """All the sentences, STS-B's alone, and those of its training split: shares in percent of each set's sentences."""
    texts = sts_texts(real_data())
    assert texts.counts == COUNTS and sum(COUNTS.values()) == 89_192 and not texts.warnings
    every = texts.path.read_text("utf-8").split("\n")
    assert len(every) == 89_193 and every[-1] == "" and all(every[:-1]) and texts.path.name == "sts-texts.txt"
    start, sets = 0, {}
    for name, count in COUNTS.items():
        sets[name], start = every[start : start + count], start + count
    train, alone = (sts_texts(real_data(), name=name) for name in ("stsb-train-texts", "stsb-texts"))
    assert train.counts == {"stsb": 11_498} and train.path.name == "stsb-train-texts.txt"
    known = set(train.path.read_text("utf-8").splitlines())
    shares = [round(100 * sum(text in known for text in texts) / len(texts)) for texts in [*sets.values()][:5]]
    assert shares == [35, 40, 52, 15, 3] and NAMED["stsb-train-texts"].tested == tuple(COUNTS)[:5]
    lines = alone.path.read_text("utf-8").split("\n")[:-1]
    assert lines == sets["stsb"] and alone.counts == {"stsb": 17_256} and alone.path.name == "stsb-texts.txt"
    shares = {name: 100 * len({*texts} & {*lines}) / len({*texts}) for name, texts in sets.items()}
    rounded = {"sts12": 55, "sts13": 54, "sts14": 62, "sts15": 27, "sts16": 9, "stsb": 100, "sick-r": 0}
    assert {name: round(share) for name, share in shares.items()} == rounded
    assert set(NAMED["stsb-texts"].tested) == {name for name, share in shares.items() if share}


def test_both_sentences_of_every_pair_scored_or_not(cache, tmp_path):
    """Changed files are said, missing ones named."""
    folder = tmp_path / "data"
    shutil.copytree(SAMPLE, folder)
    before = sts_texts(folder)
    year = folder / "downstream" / "STS" / "STS12-en-test"
    scores = year / "STS.gs.MSRpar.txt"
    scores.write_text("\n" * len(scores.read_text("utf-8").splitlines()), "utf-8")
    after = sts_texts(folder)
    assert after.path == before.path and after.counts == before.counts
    first = (year / "STS.input.MSRpar.txt").read_text("utf-8").split("\n")[0].split("\t")
    assert before.path.read_text("utf-8").split("\n")[:2] == [" ".join(text.split()) for text in first]
    assert set(before.counts) < set(NAMED["sts-texts"].tested)
    assert before.warnings and not sts_texts(sample=True).warnings
    (folder / "downstream" / "SICK" / "SICK_trial.txt").unlink()
    refuses(DataError, r"SICK_trial\.txt is missing", sts_texts, folder)
