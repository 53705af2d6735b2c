"""Bundles for machines without network, and the `data` commands around fetching."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hubserver import SAMPLE, Server, raw, sample_files, tar_of

from stsbench.cli.data import data as data_command
from stsbench.data.fetch.download import fetch_file, select_sources
from stsbench.data.fetch.install import install_bundle, read_lock, write_bundle
from stsbench.data.fetch.sources import load_data
from stsbench.data.sets.catalog import Catalog, entries, entry
from stsbench.errors import DataError, StsbenchError
from stsbench.files import data_root


@pytest.mark.parametrize("name", ["b.tar", "b.tar.gz"])
def test_bundle_round_trip(server: Server, sample_catalog: Catalog, tmp_path: Path, name: str) -> None:
    names = write_bundle(SAMPLE, tmp_path / name)
    again = tmp_path / f"again-{name}"
    write_bundle(SAMPLE / "downstream", again)
    assert again.read_bytes() == (tmp_path / name).read_bytes()
    report = install_bundle(tmp_path / name, data_root(), strict=True)
    assert sorted(report.installed) == names and load_data("sts12/test").known and not server.asked
    assert not (data_root() / "manifest.json").exists()


def test_bundle_carries_raw_files_and_locks_them(server: Server, tmp_path: Path) -> None:
    server.body = raw(3.0)
    fetch_file(entry("stsb/test", "raw"), data_root())
    write_bundle(data_root(), tmp_path / "b.tar")
    install_bundle(tmp_path / "b.tar", tmp_path / "other")
    assert read_lock(tmp_path / "other") == read_lock(data_root())
    assert load_data("stsb/test", text_version="raw", data_dir=tmp_path / "other", strict=True).known


def run(*arguments: str) -> str:
    result = CliRunner().invoke(data_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_commands(server: Server, sample_catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.body = tar_of(sample_files())
    assert "files installed" in run("fetch")
    assert "nothing to do" in run("fetch")
    run("bundle", str(tmp_path / "b.tar.gz"))
    assert "files installed" in run("fetch", "--from", str(tmp_path / "b.tar.gz"))
    server.body = raw(3.0)
    assert "1 file installed" in run("fetch", "--raw", "stsb/test")
    with pytest.raises(DataError, match=r"22 of 29 sets differ"):  # the sample's digests are not the catalog's
        run("verify")
    with pytest.raises(DataError, match="did you mean"):
        run("fetch", "stsb/tset")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StsbenchError, match=r"no connection.*--from BUNDLE.*--sample"):
        run("fetch", "--force")


def test_what_is_wanted(server: Server) -> None:
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


def test_verify(server: Server) -> None:
    server.body = raw(3.0)
    run("fetch", "--raw", "stsb/test")
    rows = json.loads(run("verify", "stsb/test", "--json", "-"))["sets"]
    assert [row["state"] for row in rows] == ["missing", "ok"] and [row["pairs"] for row in rows] == [None, 1379]
    with pytest.raises(DataError, match="no data set is complete"):
        run("verify", "stsb/dev")
    with pytest.raises(DataError, match="stsb/dev is not complete"):
        run("verify", "stsb/test", "stsb/dev")
    with pytest.raises(DataError, match="did you mean"):
        run("verify", "stsb/tst")
    with pytest.raises(DataError, match="sets differ from the catalog"):
        run("verify", "--data-dir", str(SAMPLE))
