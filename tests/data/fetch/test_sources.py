"""Where a set is looked for, and what happens to one that is not as the catalog knows it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from stsbench.data.fetch import download
from stsbench.data.fetch.sources import load_data, locate
from stsbench.data.sets.catalog import entry
from stsbench.errors import DataError, MissingDataError
from stsbench.files import data_root

STSB = "downstream/STS/STSBenchmark/sts-dev.csv"
SICK = "downstream/SICK/SICK_trial.txt"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    for name in ("STSBENCH_DATA", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # discard port: nobody answers
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)


def put(root: Path, name: str = STSB, text: str = "g\tf\ty\t1\t5.000\ta man\tb\n") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_data_dir_may_be_downstream_itself(tmp_path: Path) -> None:
    put(tmp_path / "d")
    whole, inner = (load_data("stsb/dev", data_dir=tmp_path / name) for name in ("d", "d/downstream"))
    assert whole.digest == inner.digest and whole.first == ("a man",) and whole.origin == str(tmp_path / "d")
    put(data_root(), SICK, "pair_ID\ta\n1\tA\tB\t3\tNEUTRAL\n")
    with pytest.raises(MissingDataError):  # --data-dir is the only place that is asked
        load_data("sick-r/trial", data_dir=tmp_path / "d")
    put(tmp_path / "d", "downstream/MR/rt-polarity.pos", "x\n")
    put(tmp_path / "d", "downstream/MR/rt-polarity.neg", "y\n")
    assert locate(entry("mr"), data_dir=tmp_path / "d").root == tmp_path / "d"
    assert load_data("mr", data_dir=tmp_path / "d").first == ("x", "y")


def test_environment_then_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(data_root(), text="g\tf\ty\t1\t1.000\tcache\tb\n")
    assert load_data("stsb/dev").first == ("cache",) and load_data("stsb/dev").origin == "user cache"
    put(tmp_path / "env", text="g\tf\ty\t1\t1.000\tenv\tb\n")
    put(data_root(), SICK, "pair_ID\ta\n1\tA\tB\t3\tNEUTRAL\n")
    monkeypatch.setenv("STSBENCH_DATA", str(tmp_path / "env"))
    assert load_data("stsb/dev").first == ("env",) and load_data("stsb/dev").origin == str(tmp_path / "env")
    assert load_data("sick-r/trial").origin == "user cache"  # the environment's folder holds nothing of it
    monkeypatch.setenv("STSBENCH_DATA", str(tmp_path / "typo"))
    with pytest.raises(DataError, match=r"\$STSBENCH_DATA names .*typo, which is not a folder"):
        load_data("stsb/dev")


def test_a_changed_file_is_reported(tmp_path: Path) -> None:
    path = put(tmp_path)
    found = load_data("stsb/dev", data_dir=tmp_path)
    assert not found.known and str(path) in found.warnings[0] and "differs" in found.warnings[0]
    assert "holds 1 pairs, the catalog says 1500" in found.warnings[1]


def test_offline_names_the_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = r"--data-dir DIR .*STSBENCH_DATA .*stsbench data fetch.*--sample"
    with pytest.raises(DataError, match=r"stsb/dev \(senteval text\) is not in .* downloads are off.*" + ways):
        load_data("stsb/dev", offline=True)
    with pytest.raises(DataError, match=r"cannot be fetched: .*no connection .*refused.*" + ways):
        load_data("stsb/dev")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="downloads are off"):
        load_data("stsb/dev", text_version="senteval")


def test_sample_has_a_view_of_its_own() -> None:
    found = load_data("stsb/dev", sample=True, strict=True)
    assert (found.text_version, found.origin, found.known, found.warnings) == ("sample", "sample", True, ())
    assert len(found) > 1 and found.digest == load_data("stsb/dev", text_version="sample").digest != entry("stsb/dev").digest


def test_raw_file_without_digest_is_unknown(tmp_path: Path) -> None:
    line = json.dumps({"sentence1": "A.", "sentence2": "B.", "score": 3.0})
    put(tmp_path, "raw/stsbenchmark-sts/test.jsonl.gz", "")
    (tmp_path / "raw/stsbenchmark-sts/test.jsonl.gz").write_bytes(gzip.compress(line.encode()))
    found = load_data("stsb/test", text_version="raw", data_dir=tmp_path)
    assert found.text_version == "raw" and found.first == ("A.",) and not found.known
    assert "its digest is unknown" in found.warnings[0]
