"""Fetching into the cache: the SentEval archive and the raw files, from a server on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hubserver import Server, raw, sample_files, tar_of

from stsbench.data.fetch.download import fetch_archive, fetch_file, hub_url
from stsbench.data.fetch.install import read_lock
from stsbench.data.fetch.sources import load_data, training_text
from stsbench.data.sets.catalog import Catalog, catalog, entry
from stsbench.errors import DataError
from stsbench.files import data_root


@pytest.mark.parametrize("prefix", ["./", "data/downstream/"])
def test_archive_is_installed_wherever_it_begins(server: Server, sample_catalog: Catalog, prefix: str) -> None:
    server.body = tar_of(sample_files(prefix) | {prefix + "SNLI/other.txt": b"not ours"})
    actual = load_data("sts12/test")  # which fetches it where nothing is there
    assert actual.known and actual.origin == "user cache" and actual.first == load_data("sts12/test", sample=True).first
    assert "e145e8bb659b2aa2669f32ef79cb4cdef6c58fef/senteval.tar" in server.asked[0][0]
    assert not (data_root() / "downstream/SNLI").exists() and not (data_root() / "senteval.tar").exists()
    assert fetch_archive(data_root()).installed == () and len(server.asked) == 1
    report = fetch_archive(data_root(), force=True, strict=True)
    assert len(report.installed) == len(sample_catalog.files) and not report.changed and not report.missing
    assert len(server.asked) == 2 and not list(data_root().glob(".unpack-*"))


def test_a_tampered_file_is_reported_and_strict_refuses(server: Server, sample_catalog: Catalog) -> None:
    name = "STS/STSBenchmark/sts-dev.csv"
    server.body = tar_of(sample_files() | {name: b"g\tf\ty\t1\t0.000\tevil\tb\n"})
    with pytest.raises(DataError, match=r"sts-dev\.csv differs from the catalog \(1 changed, 0 missing"):
        fetch_archive(data_root(), strict=True)
    whole = server.body
    for server.body in (whole[: len(whole) // 2], tar_of({**sample_files(), "../../evil": b"1"})):
        with pytest.raises(DataError):
            fetch_archive(data_root())
        assert {path.name for path in data_root().iterdir()} == {".fetch.lock"}
    server.body = whole
    assert fetch_archive(data_root()).changed == ("downstream/" + name,)


def test_an_incomplete_archive_says_what_is_missing(server: Server, sample_catalog: Catalog) -> None:
    files = sample_files()
    del files["MR/rt-polarity.pos"]
    server.body = tar_of(files)
    with pytest.raises(DataError, match=r"rt-polarity\.pos is missing"):
        fetch_archive(data_root(), strict=True)
    assert fetch_archive(data_root()).missing == ("downstream/MR/rt-polarity.pos",)
    server.body = tar_of({"README": b"?"})
    with pytest.raises(DataError, match="none of the benchmark's files"):
        fetch_archive(data_root(), force=True)


def test_first_fetch_locks_and_a_later_change_is_reported(server: Server) -> None:
    server.body, item = raw(3.0), entry("stsb/test", "raw")
    actual = load_data("stsb/test", text_version="raw")
    (name,) = item.files
    assert actual.known and len(actual) == 1379 and actual.first[0] == "A man's hat."
    assert list(read_lock(data_root())) == [name]
    assert server.asked[0][0].endswith("/mteb/stsbenchmark-sts/resolve/" + item.hub.revision + "/test.jsonl.gz")
    assert fetch_file(item, data_root()).installed == ()
    locked = read_lock(data_root())
    server.body = raw(4.0)
    with pytest.raises(DataError, match="changed since its first fetch"):
        fetch_file(item, data_root(), force=True, strict=True)
    assert load_data("stsb/test", text_version="raw", strict=True).gold[0] == 3.0
    assert fetch_file(item, data_root(), force=True).changed == (name,)
    after = load_data("stsb/test", text_version="raw")
    assert not after.known and "lock.json" in after.warnings[0] and read_lock(data_root()) == locked
    with pytest.raises(DataError, match="refused: --strict-data"):
        load_data("stsb/test", text_version="raw", strict=True)
    with pytest.raises(DataError, match="not a single file"):
        fetch_file(entry("stsb/test"), data_root())


def test_training_texts_are_fetched_and_found(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    for place in ("environment", "given"):
        (tmp_path / place / "train").mkdir(parents=True)
        (tmp_path / place / "train" / name).write_text("x\n")
        if place == "environment":
            monkeypatch.setenv("STSBENCH_DATA", str(tmp_path / place))
            assert training_text(name)[0] == tmp_path / "environment" / "train" / name
    assert training_text(name, data_dir=tmp_path / "given")[0] == tmp_path / "given" / "train" / name
    for other in ("mine.csv", "../train/" + name, f"train/{name}", "", ".."):
        assert training_text(other) == (None, "")
    server.body = b"changed\n"
    with pytest.raises(DataError, match="changed since its first fetch"):
        fetch_file(catalog().training[name], data_root(), force=True, strict=True)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert training_text("wiki1m_for_simcse.txt")[0] is None
    monkeypatch.delenv("HF_ENDPOINT")
    assert hub_url(catalog().archive).startswith("https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse/resolve/")
