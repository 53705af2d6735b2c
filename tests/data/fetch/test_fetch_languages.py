"""`stsbench data fetch STS17`: a whole repository from a server on this machine, then read without one."""

from __future__ import annotations

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

pytest.importorskip("mteb")
from mteb_folders import ITEMS, write

from stsbench.cli.main import cli
from stsbench.data.fetch.download import fetch_repository
from stsbench.data.fetch.mteb import load_pairs, pinned_revision
from stsbench.data.sets.catalog import LANGUAGES, copied_files
from stsbench.errors import DataError
from stsbench.files import data_root


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


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
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    for name in ("STSBENCH_DATA", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{http.server_address[1]}")
    yield served
    http.shutdown()
    http.server_close()


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
    with pytest.raises(DataError, match="HTTP 404"):
        fetch_repository(item.repository, pinned_revision(item), data_root(), pause=0)
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
        with pytest.raises(DataError, match=says) as error:
            fetch_repository(item.repository, pinned_revision(item), data_root(), pause=0)
        assert "\n" not in str(error.value) and not (data_root() / item.repository).exists()
    assert all(len(pinned_revision(item)) == 40 for item in LANGUAGES)
    with pytest.raises(DataError, match="not a full commit"):
        fetch_repository("mteb/JSTS", "main", data_root())
