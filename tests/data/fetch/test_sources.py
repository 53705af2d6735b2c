"""Where a set is looked for, and what happens to one that is not as the catalog knows it."""

from __future__ import annotations

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


def test_offline_names_the_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = r"--data-dir DIR .*STSBENCH_DATA .*stsbench data fetch.*--sample"
    with pytest.raises(DataError, match=r"cannot be fetched: .*no connection .*refused.*" + ways):
        load_data("stsb/dev")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="downloads are off"):
        load_data("stsb/dev", text_version="senteval")
