"""Classification files: what the readers of SentEval keep, labels and splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from realdata import real_data

from stsbench.data.fetch.sources import load_data, verify
from stsbench.data.sets import readers
from stsbench.data.sets.catalog import catalog, entries, entry
from stsbench.data.sets.sets import LabelledSet, PairSet, fed
from stsbench.errors import DataError

TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
SAMPLE = Path(readers.__file__).parents[1] / "sample"
LABELLED = (*TRANSFER, "sick-e/splits")
SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
MRPC_HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def written(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "file.txt"
    path.write_bytes(text.encode(encoding))
    return path


def test_class_file_keeps_lines_without_words_and_is_latin_1(tmp_path: Path) -> None:
    items = readers.read_class(written(tmp_path, "caf\xe9  noir \n\n \t\nlast", "latin-1"), 1)
    assert items.first == ["caf\xe9 noir", "", "", "last"] and items.labels == [1] * 4
    assert items.splits == ["all"] * 4 and items.second == [] and fed(items.first)[1:3] == [".", "."]
    for odd in "\x85\x0b\x0c\x1c\r":  # exotic line ends stay inside a text
        path = written(tmp_path, f"one{odd}two\nthree\n", "latin-1")
        assert readers.read_class(path, 0).first == ["one two", "three"]
        assert len(path.read_text("latin-1").splitlines()) == 3  # where SentEval's way would differ


def test_sst(tmp_path: Path) -> None:
    items = readers.read_sst(written(tmp_path, "a  fine\xa0film \t1\r\nno : good\t0"), "dev")
    assert (items.first, items.labels, items.splits) == (["a fine film", "no : good"], [1, 0], ["dev", "dev"])


def test_trec_drops_the_fine_class_only(tmp_path: Path) -> None:
    lines = [f"{name}:fine What : is  it ?" for name in ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")]
    items = readers.read_trec(written(tmp_path, "\n".join(lines) + "\n"), "test")
    assert items.labels == [0, 1, 2, 3, 4, 5] and set(items.first) == {"What : is it ?"} and items.splits[0] == "test"


def test_mrpc_with_and_without_byte_order_mark(tmp_path: Path) -> None:
    for mark in ("", "\ufeff"):
        path = written(tmp_path, mark + MRPC_HEADER.lstrip("\ufeff") + '1\t5\t6\tHe said "no\tHe  said no\n0\t7\t8\tA\tB\n')
        items = readers.read_mrpc(path, "train")
        assert (items.first, items.second, items.labels) == (['He said "no', "A"], ["He said no", "B"], [1, 0])


def test_entailment(tmp_path: Path) -> None:
    rows = "".join(f"{i}\tA {i}\tB\t3.0\t{name}\r\n" for i, name in enumerate(readers.ENTAILMENT))
    items = readers.read_sick_entailment(written(tmp_path, SICK_HEADER + rows), "dev")
    assert items.labels == [0, 1, 2] and items.first == ["A 0", "A 1", "A 2"] and items.second == ["B"] * 3


def test_every_sample_reads() -> None:
    for item in entries("senteval"):
        found = load_data(item.id, sample=True, strict=True)
        assert (found.text_version, found.origin, found.known) == ("sample", "sample", True) and found.digest != item.digest
        if isinstance(found, LabelledSet):
            assert set(found.labels.tolist()) == set(range({"trec": 6, "sick-e/splits": 3}.get(item.id, 2)))
            assert bool(found.second) == (item.id in ("mrpc", "sick-e/splits"))
        assert list(found.counts) == (["all"] if item.id in TRANSFER[:4] else list(item.counts))


@pytest.mark.parametrize("item", entries("senteval"), ids=lambda item: item.id)
def test_real_data_have_the_catalog_s_counts_and_digest(item) -> None:
    found = load_data(item.id, data_dir=real_data(), strict=True)
    assert found.known and found.warnings == () and found.digest == item.digest and len(found) == item.total
    if item.id in TRANSFER[:4]:
        assert list(item.counts.values()) == [int((found.labels == 1).sum()), int((found.labels == 0).sum())]
    else:
        assert list(found.counts.items()) == list(item.counts.items())
    if not isinstance(found, LabelledSet):
        assert found.order == tuple(item.counts)


def test_splits_are_the_single_sets_joined() -> None:
    whole = load_data("sick-r/splits", sample=True)
    assert isinstance(whole, PairSet) and whole.order == ("train", "dev", "test")
    for split, single in (("train", "train"), ("dev", "trial"), ("test", "test")):
        part, alone = whole.keep(np.array(whole.subsets) == split), load_data(f"sick-r/{single}", sample=True)
        assert (part.first, part.second, part.gold.tolist()) == (alone.first, alone.second, alone.gold.tolist())
    entailment = load_data("sick-e/splits", sample=True)
    assert entailment.first == whole.first and entailment.splits == whole.subsets


def test_digest_moves_with_every_field() -> None:
    base = LabelledSet("x", "X", "own", first=("a", "b"), labels=np.array([0, 1]), splits=("all", "all"))
    others = [
        LabelledSet("x", "X", "own", first=("a", "c"), labels=np.array([0, 1]), splits=("all", "all")),
        LabelledSet("x", "X", "own", first=("a", "b"), labels=np.array([1, 1]), splits=("all", "all")),
        LabelledSet("x", "X", "own", first=("a", "b"), labels=np.array([0, 1]), splits=("all", "test")),
        LabelledSet("x", "X", "own", first=("a", "b"), labels=np.array([0, 1]), splits=("all", "all"), second=("", "")),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == 5


def test_changed_files_are_counted_by_class_and_split(tmp_path: Path) -> None:
    for name in entry("mr").files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\ntwo\n" if name.endswith("pos") else "three\n")
    found = load_data("mr", data_dir=tmp_path)
    assert not found.known and found.labels.tolist() == [1, 1, 0]
    assert found.warnings[2:] == (
        "mr pos holds 2 items, the catalog says 5331", "mr neg holds 1 items, the catalog says 5331",
    )
    with pytest.raises(DataError, match="refused: --strict-data"):
        load_data("mr", data_dir=tmp_path, strict=True)


def test_verify_reads_the_transfer_tasks(tmp_path: Path) -> None:
    states = {state.id: state for state in verify(SAMPLE) if state.text_version == "senteval"}
    for name in LABELLED:
        assert states[name].state == "changed" and states[name].pairs == len(load_data(name, sample=True))
        assert len(states[name].digest) == 64
    for name in entry("trec").files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("nothing\n")
    (state,) = verify(tmp_path, ["trec"])
    assert state.state == "unreadable" and "train_5500.label:1: expected" in state.notes[0]


def test_entries_that_share_files_agree_on_their_digests() -> None:
    seen: dict[str, str] = {}
    for item in entries("senteval"):
        assert len(item.digest) == 64 and sum(item.counts.values()) == item.total
        for name, digest in item.files.items():
            assert seen.setdefault(name, digest) == digest
    assert catalog().files == seen | dict(catalog().documents)


def test_real_counts_are_the_published_ones() -> None:
    folder = real_data()
    assert [entry(name).total for name in TRANSFER] == [10662, 3775, 10000, 10606, 70042, 5952, 5801]
    assert [load_data(name, data_dir=folder).first.count("") for name in ("cr", "mpqa")] == [4, 3]  # blank
