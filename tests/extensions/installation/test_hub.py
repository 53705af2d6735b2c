"""What is asked of this machine: the Hub, for which a server here stands in, installed packages, the cache's folder."""

import os
import socket
import time

import pytest
from hubserver import serving

from stsbench.data.fetch.download import hub_url
from stsbench.data.sets.catalog import catalog
from stsbench.extensions.installation.checks import Package, ask_hub, embedding_cache, packages


def test_the_hub_is_asked_for_what_data_fetch_downloads(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path) as server:
        server.body = b"x" * 100
        hub = ask_hub()
        assert (hub.endpoint, hub.state) == (server.url, "reached") and hub.detail.startswith("answered in ")
        assert server.asked == [(hub_url(catalog().archive).removeprefix(server.url), "bytes=0-0")]
        server.status = [503]
        hub = ask_hub()
        assert (hub.state, hub.detail[:19]) == ("unreachable", "it answers HTTP 503")
        server.asked.clear()
        assert ask_hub(offline=True).detail == "--offline"
        for endpoint in ("ftp://127.0.0.1", "huggingface.co"):
            monkeypatch.setenv("HF_ENDPOINT", endpoint)
            assert ask_hub().detail == "HF_ENDPOINT must start with http:// or https://"
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert (ask_hub().state, ask_hub().detail) == ("not asked", "$HF_HUB_OFFLINE is set") and server.asked == []


def test_nobody_listens_or_says_nothing(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path), socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{other.getsockname()[1]}")
        hub = ask_hub()
        assert hub.state == "unreachable" and "refused" in hub.detail
        other.listen()
        began = time.monotonic()
        hub = ask_hub(timeout=0.1)
        assert (hub.state, hub.detail) == ("unreachable", "no answer within 0.1 s") and time.monotonic() - began < 5


METADATA = """Metadata-Version: 2.1
Name: demo-of-the-doctor
Version: 1.0
Provides-Extra: more
Provides-Extra: dev
Requires-Dist: numpy>=1.26
Requires-Dist: no-such-package-anywhere>=3
Requires-Dist: click<2
Requires-Dist: missing-extra>=1; extra == "more"
Requires-Dist: missing-tool>=1; extra == "dev"
Requires-Dist: for-other-systems>=1; sys_platform == "plan9"
"""


def test_what_is_missing_or_of_another_version(tmp_path, monkeypatch):
    info = tmp_path / "demo_of_the_doctor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(tmp_path)
    listed = {each.name: each for each in packages("demo-of-the-doctor")}
    assert list(listed) == ["numpy", "no-such-package-anywhere", "click", "missing-extra"]
    assert listed["numpy"].version and listed["numpy"].problem is None
    absent = listed["no-such-package-anywhere"].problem
    assert absent == "no-such-package-anywhere>=3 is not installed: pip install 'no-such-package-anywhere>=3'"
    assert listed["click"].problem.endswith("is installed, and click<2 is needed: pip install 'click<2'")
    assert (listed["missing-extra"].extra, listed["missing-extra"].problem) == ("more", None)


def test_builds_and_previews_count_by_their_number_and_stsbench_s_own_are_as_declared():
    assert not any(Package("torch", version, ">=2.6").problem for version in ("2.6.0", "2.13.0+cpu", "2.7.0a1"))
    assert Package("torch", "2.4.1", ">=2.6").problem
    assert [each.problem for each in packages() if each.problem] == []
    assert {"torch", "transformers", "click"} <= {each.name for each in packages() if each.extra is None}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_folder_that_refuses(tmp_path, monkeypatch):
    tmp_path.chmod(0o500)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    assert "cannot be written: Permission denied" in embedding_cache().problem


def test_a_cache_folder_below_a_file(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "file"))
    assert "$STSBENCH_CACHE names another folder" in embedding_cache().problem
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "new"))
    assert embedding_cache().problem is None and not (tmp_path / "new").exists()
