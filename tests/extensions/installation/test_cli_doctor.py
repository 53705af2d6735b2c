"""`stsbench doctor`: what it says would be measured is what `eval` plans; its exit code says whether something is broken.
What is asked of this machine: the Hub, for which a server here stands in, installed packages, the cache's folder.
`stsbench cache`: what is kept, what no run reads again, and emptying it."""

import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from clirun import SAMPLE, cli, damaged, place  # noqa: F401 - fixtures
from hubserver import serving
from toy_encoder import Toy, embed

import stsbench
from stsbench.data.fetch.download import hub_url
from stsbench.data.sets.catalog import catalog
from stsbench.encoders.cache.cache import CacheNote, EmbeddingCache
from stsbench.encoders.cache.encode import encode_cached, versions
from stsbench.evaluation.api import EvalOptions, _chosen
from stsbench.extensions.installation import checks
from stsbench.extensions.installation.checks import Package, ask_hub, embedding_cache, packages


def test_all_is_what_eval_would_measure(cli, damaged):
    (damaged / "downstream/MR/rt-polarity.neg").unlink()
    (damaged / "downstream/STS/STS12-en-test/STS.gs.MSRpar.txt").unlink()
    code, out, _ = cli("doctor", "--data-dir", damaged, "--offline", "--json", "-")
    said = json.loads(out)["all"]
    options = EvalOptions(model="lexical:token-set", output=Path("run"), protocols=["all"], data_dir=damaged, offline=True)
    _, chosen = _chosen(options, print)
    assert code == 0 and said["measured"] == {each.label: list(sets) for each, sets in chosen if sets}
    assert "STS12" in said["without_data"]["sts"] and "MR" in said["without_data"]["transfer:exact"]


def test_the_user_cache_comes_after_stsbench_data(monkeypatch, tmp_path):
    monkeypatch.setenv("STSBENCH_DATA", str(SAMPLE))
    assert [each.named for each in checks.folders()] == ["$STSBENCH_DATA", "user cache"]
    assert {each.folder for each in checks.sets() if each.text_version == "senteval"} == {SAMPLE}


@pytest.mark.parametrize("data_dir", [None, "nowhere"])
def test_the_function_says_what_the_command_prints(cli, place, data_dir):
    options = ["--data-dir", data_dir] if data_dir else []
    code, out, err = cli("doctor", "--offline", "--json", "report.json", *options)
    report = stsbench.doctor(data_dir=data_dir, offline=True)  # a function also where its folder was imported
    assert str(report) == (out + err).removesuffix("\n") and code == bool(report.problems) == bool(data_dir)
    assert json.loads(Path("report.json").read_text("utf-8")) == report.to_dict() and report.to_dict()["devices"]
    assert len(repr(report)) < 100 and err.count("\n") == code == err.count("broken: ") == err.count("nowhere")
    if not data_dir:  # a bare machine is not broken
        assert "senteval text: 0 of 22 sets; not sts12/test" in out and "--sample has some" in out
        assert "is not asked: --offline" in out and "\n  no data: sts STS12" in out


def test_a_cache_is_shown_and_emptied(cli, tmp_path):
    store = EmbeddingCache(tmp_path / "cache" / "embeddings")
    encode_cached(Toy(), ["a", "b"], store)
    code, out, err = cli("cache", "info")
    assert code == 0, err
    assert str(store.folder) in out and "1 encoder" in out and "toy" in out and "stale" not in out
    assert Toy().spec.fingerprint()[:12] in out and "2 texts" in out
    for letter in "abc":
        store.put(letter * 64, ["a"], embed(["a"]))
    store.note("a" * 64, CacheNote({"name": "old"}, {"numpy": "0.1"}))
    store.note("c" * 64, CacheNote({"name": "mine", "pooler": "cls", "prefix": "query: "}, versions([])))
    out = cli("cache", "info")[1]
    assert f"old, stale: stsbench's encoding 1 -> 5, numpy 0.1 -> {np.__version__}" in out
    assert "?, stale: made before the versions of libraries were kept" in out
    assert "mine, pooler cls, prefix 'query: '\n" in out
    assert "freed" in cli("cache", "clear")[1]
    assert store.size() == 0 and list(store.folder.iterdir()) == []
    code, out, _ = cli("cache", "info", "--cache", tmp_path / "elsewhere")
    assert code == 0 and "0 encoders" in out


def test_the_hub_is_asked_for_what_data_fetch_downloads(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path) as server, socket.socket() as other:
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
        monkeypatch.delenv("HF_HUB_OFFLINE")
        other.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{other.getsockname()[1]}")
        hub = ask_hub()
        assert hub.state == "unreachable" and "refused" in hub.detail  # nobody listens
        other.listen()
        hub = ask_hub(timeout=0.1)
        assert (hub.state, hub.detail) == ("unreachable", "no answer within 0.1 s")


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
