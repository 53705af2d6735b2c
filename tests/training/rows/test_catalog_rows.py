"""The catalog's scored pairs as training text: data.file stsb/train."""

from __future__ import annotations

from pathlib import Path

import pytest

import stsbench
from stsbench.data.fetch import sources
from stsbench.data.text.store import open_store
from stsbench.errors import DataError
from stsbench.training.rows.files import SetPlace, catalog_file

PACKAGED = Path(stsbench.__file__).parent / "data" / "sample"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_DATA", raising=False)


@pytest.mark.parametrize(("name", "low", "high"), [("stsb/train", 0, 5), ("sick-r/train", 1, 5)])
def test_the_rows_are_those_of_the_set(name, low, high):
    said = []
    file = catalog_file(name, SetPlace(sample=True), said.append)
    pairs, store = sources.load(name, sample=True), open_store(file)
    every = range(len(store))
    assert (*store.texts("sentence1", every),) == pairs.first and (*store.texts("sentence2", every),) == pairs.second
    assert store.scores(every).tolist() == pairs.gold.tolist() and low <= min(pairs.gold) and max(pairs.gold) <= high
    assert said == [f"{name}: {len(pairs)} pairs from sample"]
    assert catalog_file(name, SetPlace(sample=True), said.append) == file


def test_a_folder_of_ones_own_and_other_data(tmp_path):
    """What is not the catalog's file is said; another file is another cached one."""
    said = []
    first = catalog_file("stsb/train", SetPlace(PACKAGED), said.append)
    assert said[0].startswith("warning: ") and "sts-train.csv differs from the file known to the catalog" in said[0]
    mine = tmp_path / "data" / "downstream" / "STS" / "STSBenchmark"
    mine.mkdir(parents=True)
    text = (PACKAGED / "downstream" / "STS" / "STSBenchmark" / "sts-train.csv").read_text("utf-8")
    (mine / "sts-train.csv").write_text("\n".join(text.splitlines()[:9]) + "\n", "utf-8")
    second = catalog_file("stsb/train", SetPlace(tmp_path / "data"), said.append)
    assert second != first and second.name == "stsb-train.jsonl" and len(open_store(second)) == 9


def test_names_that_are_no_training_set():
    log = pytest.fail
    assert catalog_file("mine.tsv", SetPlace(), log) is None
    for name in ("stsb/test", "stsb/dev", "stsb/splits", "sts12/test", "sick-e/splits", "mr"):
        with pytest.raises(DataError, match=f"^data.file {name}: of the catalog's sets stsb/train and sick-r/train can be"):
            catalog_file(name, SetPlace(sample=True), log)


def test_a_set_that_is_nowhere(tmp_path):
    with pytest.raises(DataError, match=r"^data.file stsb/train: .*sts-train.csv is missing"):
        catalog_file("stsb/train", SetPlace(tmp_path), pytest.fail)
    with pytest.raises(DataError, match=r"^labelled.file stsb/train: .*downloads are off \(offline\): give the data by"):
        catalog_file("stsb/train", SetPlace(offline=True), pytest.fail, "labelled")
