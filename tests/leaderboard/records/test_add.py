"""Adding records to a board: whole, checked, never overwritten, and by several processes at once."""

import multiprocessing
import shutil
from dataclasses import replace

import numpy as np
import pytest
import yaml
from board_runs import copied, read_once, runs  # noqa: F401  fixtures
from run_edits import edit, rows_of, write_rows
from toy_encoder import Toy

from stsbench.encoders.base import EncoderSpec
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.columns import digest_of
from stsbench.evaluation.run_file import RUN, load_records, stored_beside
from stsbench.leaderboard.records.add import add, described
from stsbench.leaderboard.records.entries import Entry, load_entries

LETTERS = Entry(method="letters", backbone="none", setting="unsup")


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def measurements(folder):
    """All records below a folder, by name and in their order, without the observations: a board has a form for them."""
    return {path.name: record.model_dump(exclude={"observations"})
            for run in sorted(folder.rglob(RUN)) for path, record in load_records(run)}


def some(run, target, chosen):
    """A run of some of another run's records."""
    return write_rows(target, rows_of(run)[chosen]).parent


def first_sts(run):
    return min(row.name for row in rows_of(run) if row.name.startswith("sts."))


def test_a_run_arrives_whole_and_loads(runs, tmp_path):
    added = add(tmp_path, [runs["letters"]], "letters", LETTERS)
    made, there = measurements(runs["letters"]), measurements(tmp_path)
    assert there == made and list(there) == list(made)
    (folder,) = (path for path in (tmp_path / "measured/letters").iterdir() if path.is_dir())
    assert [path.name for path in folder.iterdir()] == [RUN]
    assert added.written == tuple(path for path, _ in load_records(folder)) and added.present == ()
    (entry,) = load_entries(tmp_path / "measured")
    assert (entry.id, entry.entry) == ("letters", LETTERS) and len(entry.runs) == 1
    assert "sample data" in " ".join(added.warnings)


def test_a_run_file_is_named_as_its_folder(runs, tmp_path):
    add(tmp_path / "folder", [runs["letters"]], "letters", LETTERS)
    add(tmp_path / "file", [runs["letters"] / RUN], "letters", LETTERS)
    assert files(tmp_path / "folder") == files(tmp_path / "file")
    with pytest.raises(StsbenchError, match=r"scores\.csv is a file: name the run folder"):
        add(tmp_path / "other", [runs["letters"] / "scores.csv"], "letters", LETTERS)
    assert not (tmp_path / "other").exists()


def test_a_run_gains_what_it_lacks_and_keeps_what_it_has(runs, tmp_path):
    """Its records are those of before, in their order, with the very arrays; nothing is measured or rounded again."""
    board, run = tmp_path / "board", runs["letters"]
    first = add(board, [some(run, tmp_path / "first", slice(2))], "letters", LETTERS)
    (folder,) = (path for path in (board / "measured/letters").iterdir() if path.is_dir())
    before = load_records(folder)
    arrays = [stored_beside(folder, record) for _, record in before]
    again = add(board, [some(run, tmp_path / "again", slice(3))], "letters", None)
    assert [len(first.written), len(again.written), len(again.present)] == [2, 1, 2]
    assert again.present == first.written
    last = add(board, [run], "letters", None)
    assert len(last.written) == len(load_records(run)) - 3 and len(last.present) == 3
    after = load_records(folder)
    assert after[:2] == before and [path.name for path, _ in after] == [path.name for path, _ in load_records(run)]
    for (_, record), was in zip(after, arrays, strict=False):
        now = stored_beside(folder, record)
        assert digest_of(now) == digest_of(was) and now.arrays.keys() == was.arrays.keys()
        assert all(np.array_equal(now.arrays[key], array) for key, array in was.arrays.items())
    assert add(board, [run], "letters", None).written == ()
    add(tmp_path / "at once", [run], "letters", LETTERS)
    assert files(board) == files(tmp_path / "at once")


def test_a_damaged_run_gains_nothing(runs, tmp_path):
    """What stands in a run is read before it is written again: else an addition would make the damage look sound."""
    board = tmp_path / "board"
    add(board, [some(runs["letters"], tmp_path / "first", slice(2))], "letters", LETTERS)
    (file,) = (board / "measured").rglob(RUN)
    edit(file, lambda row: next(iter(row.observed.arrays.values())).__setitem__(0, 0))
    before = files(board)
    with pytest.raises(StsbenchError, match="sha256 differs"):
        add(board, [runs["letters"]], "letters", None)
    assert files(board) == before


def test_a_folder_that_a_killed_addition_left_empty_is_no_run(runs, tmp_path):
    board = tmp_path / "board"
    empty = board / "measured/letters" / ("0" * 12)
    empty.mkdir(parents=True)
    (empty / f".{RUN}.abc.tmp").write_bytes(b"half of i")
    add(board, [runs["letters"]], "letters", LETTERS)
    (entry,) = load_entries(board / "measured")
    assert len(entry.runs) == 1
    (empty / "notes.txt").write_text("something else")
    with pytest.raises(StsbenchError, match=f"{empty.name} is not a run folder: it holds no run.parquet"):
        load_entries(board / "measured")


def test_two_seeds_are_two_runs_of_one_entry_but_two_encoders_are_not(runs, tmp_path):
    add(tmp_path, [runs["noisy"], runs["noisy-2"]], "noisy", LETTERS)
    (entry,) = load_entries(tmp_path / "measured")
    assert len(entry.runs) == 2
    before = files(tmp_path)
    with pytest.raises(StsbenchError, match="differ in more than their seed"):
        add(tmp_path, [runs["words"]], "noisy", None)
    with pytest.raises(StsbenchError, match="differ in more than their seed"):
        add(tmp_path, [runs["words"], runs["letters"]], "new", LETTERS)
    assert files(tmp_path) == before  # refused before anything was written


def _trained(folder, target, **origin):
    """A copy of a run whose records say how it was trained."""
    rows = rows_of(folder)
    for row in rows:
        row.record["provenance"] |= origin
    return write_rows(target, rows).parent


def test_a_training_with_several_seeds_is_added_as_its_seeds(runs, tmp_path):
    for seed, name in enumerate(("noisy", "noisy-2")):
        shutil.copytree(runs[name], tmp_path / "trained" / f"seed-{seed}" / "eval")
        (tmp_path / "trained" / f"seed-{seed}" / "begun.json").write_text("{}")
    (tmp_path / "trained" / "seeds.json").write_text("{}")
    add(tmp_path / "board", [tmp_path / "trained"], "noisy", LETTERS)
    add(tmp_path / "one by one", [runs["noisy"], runs["noisy-2"]], "noisy", LETTERS)
    assert files(tmp_path / "board") == files(tmp_path / "one by one")


@pytest.mark.parametrize("key", ["recipe", "settings", "stage"])
def test_runs_trained_in_different_ways_are_no_seeds_of_one_entry(runs, tmp_path, key):
    first = _trained(runs["noisy"], tmp_path / "one", seed=1, **{key: "a"})
    other = _trained(runs["noisy-2"], tmp_path / "two", seed=2, **{key: "b"})
    with pytest.raises(StsbenchError, match=f'different {key.removesuffix("s")}s of training .*"a", "b"'):
        add(tmp_path / "board", [first, other], "noisy", LETTERS)


@pytest.mark.parametrize(("key", "says"), [("backbone", "start from different backbones"),
                                           ("data", "were trained on different data"),
                                           ("method_file", "were trained by different code")])
def test_runs_of_different_starts_data_or_code_are_no_seeds_of_one_entry(runs, tmp_path, key, says):
    first = _trained(runs["noisy"], tmp_path / "one", seed=1, **{key: "a" * 64})
    other = _trained(runs["noisy-2"], tmp_path / "two", seed=2, **{key: "b" * 64})
    with pytest.raises(StsbenchError, match=says):
        add(tmp_path / "board", [first, other], "noisy", LETTERS)
    unsaid = _trained(runs["noisy-2"], tmp_path / "three", seed=2)
    add(tmp_path / "board", [first, unsaid], "noisy", LETTERS)


def test_a_seed_counts_once_and_a_subset_of_the_rows_makes_it_another(runs, tmp_path):
    for name, subset in (("one", 0), ("two", 0), ("three", 1)):
        _trained(runs["noisy-2" if name != "one" else "noisy"], tmp_path / name, seed=1, subset=subset, settings="s")
    with pytest.raises(StsbenchError, match="both of seed 1"):
        add(tmp_path / "board", [tmp_path / "one", tmp_path / "two"], "noisy", LETTERS)
    add(tmp_path / "board", [tmp_path / "one", tmp_path / "three"], "noisy", LETTERS)
    (entry,) = load_entries(tmp_path / "board" / "measured")
    assert len(entry.runs) == 2


def test_seeds_that_share_an_earlier_stage_are_no_independent_seeds(runs, tmp_path):
    for name, weights in (("one", "a"), ("two", "a"), ("three", "b")):
        origin = {"stage": "prefix", "weights": weights}
        seed = 1 + (name != "one")
        _trained(runs["noisy-2" if name != "one" else "noisy"], tmp_path / name, seed=seed, settings="s", **{"from": origin})
    with pytest.raises(StsbenchError, match="went on from one run of stage prefix"):
        add(tmp_path / "board", [tmp_path / "one", tmp_path / "two"], "noisy", LETTERS)
    add(tmp_path / "board", [tmp_path / "one", tmp_path / "three"], "noisy", LETTERS)
    (entry,) = load_entries(tmp_path / "board" / "measured")
    assert len(entry.runs) == 2


def test_a_run_under_the_name_of_other_weights_is_no_second_seed(tmp_path):
    """The similarities tell: a copy would make the score of one seed look like that of two that agree."""
    runs = []
    for weights in "12":
        run = tmp_path / weights
        encoder = Toy(EncoderSpec(name="toy", kind="callable", weights=weights * 64))
        evaluate(encoder, output=run, sample=True, resamples=0, no_cache=True, tasks=["STS-B"])
        runs.append(_trained(run, tmp_path / f"seed-{weights}", seed=int(weights)))
    board = tmp_path / "board"
    with pytest.raises(StsbenchError, match="one run, measured twice"):
        add(board, runs, "toy", LETTERS)
    add(board, runs[:1], "toy", LETTERS)
    with pytest.raises(StsbenchError, match="one run, measured twice"):
        add(board, runs[1:], "toy", None)
    with pytest.raises(StsbenchError, match=r"measured/other has the similarity of .*/toy on stsb/test: one run"):
        add(board, runs[1:], "other", LETTERS)
    add(tmp_path / "elsewhere", runs[1:], "other", LETTERS)
    other = shutil.copytree(tmp_path / "elsewhere/measured/other", board / "measured/other")
    with pytest.raises(StsbenchError, match=r"measured/toy has the similarity of .*measured/other on stsb/test"):
        load_entries(board / "measured")
    (copy,) = (each for each in other.iterdir() if each.is_dir())
    copy.rename(board / "measured/toy" / copy.name)
    shutil.rmtree(other)
    with pytest.raises(StsbenchError, match="one run, measured twice"):
        load_entries(board / "measured")


def test_one_encoder_is_one_run_of_one_entry(runs, copied, tmp_path):
    board = tmp_path / "board"
    add(board, [runs["letters"]], "letters", LETTERS)
    with pytest.raises(StsbenchError, match="holds this encoder already"):
        add(board, [runs["letters"]], "twin", LETTERS)
    renamed = copied("letters")  # the same weights under another display name are no second seed
    rows = rows_of(renamed)
    for row in rows:
        row.record["encoder"]["spec"]["name"] = "other letters"
    write_rows(renamed, rows)
    with pytest.raises(StsbenchError, match="never overwritten"):
        add(board, [renamed], "letters", None)
    folder = next(path for path in (board / "measured/letters").iterdir() if path.is_dir())
    folder.rename(folder.with_name("0" * 12))
    with pytest.raises(StsbenchError, match=f"would call {folder.name}"):
        load_entries(board / "measured")


def test_two_entries_never_have_one_name(runs, tmp_path):
    board = tmp_path / "board"
    add(board, [runs["letters"]], "letters", LETTERS)
    same = LETTERS.model_copy(update={"method": " Letters"})
    with pytest.raises(StsbenchError, match=r"measured/words and .*measured/letters have one method, backbone and setting"):
        add(board, [runs["words"]], "words", same)
    assert not (board / "measured/words").exists()
    add(board, [runs["words"]], "words", LETTERS.model_copy(update={"setting": "sup"}))
    load_entries(board / "measured")
    shutil.copy(board / "measured/letters/entry.yaml", board / "measured/words/entry.yaml")
    with pytest.raises(StsbenchError, match=r"measured/words and .*measured/letters have one method"):
        load_entries(board / "measured")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r["scores"][-1].update(value=r["scores"][-1]["value"] + 0.01), "was edited: its scores"),
        (lambda r: r["scores"][-1].update(high=r["scores"][-1]["high"] + 0.01), "was edited: its scores"),
        (lambda r: r["scores"][-1].update(low=None), "was edited: its scores"),
        (lambda r: r["scores"].pop(), "was edited: its scores"),
        (lambda r: r["data"].update(digest="0" * 64), "was edited: its name"),
        (lambda r: r["data"].update(known=True, view="senteval"), "digest is not the catalog's"),
        (lambda r: r["encoder"]["spec"].update(pooler="mean"), "fingerprint is not that of its spec"),
        (lambda r: r["encoder"].update(fingerprint="0" * 64), "was edited: its name"),
        (lambda r: r["protocol"]["settings"].update(similarity="dot"), "was edited: its name"),
        (lambda r: r["observations"].update(sha256="0" * 64), "sha256 differs"),
        (lambda r: r["provenance"].update(git="0" * 40 + "+changes"), "uncommitted changes"),
        (lambda r: r["provenance"].pop("versions"), "no versions"),
        (lambda r: r["data"].update(verified=True), "is not a valid record: data.verified"),
        (lambda r: r["scores"][-1].update(value=None), "is not a valid record: scores"),
        (lambda r: r["scores"][-1].update(value=float("nan")), "is not a valid record"),
    ],
)
def test_an_edited_record_is_refused_and_nothing_is_written(copied, tmp_path, change, says):
    run = copied("letters")
    path = edit(run, lambda row: change(row.record), first_sts(run))
    board = tmp_path / "board"
    board.mkdir()
    with pytest.raises(StsbenchError, match=says) as error:
        add(board, [run], "letters", LETTERS)
    assert path.name in str(error.value)
    assert not any(board.iterdir())


def fingerprinted(row):
    row.record["encoder"]["fingerprint"] = "0" * 64
    row.renamed()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (fingerprinted, "fingerprint is not that of its spec"),
        (lambda row: setattr(row, "name", "sts.another.000000000000"), "another.* was edited: its name"),
        (lambda row: setattr(row, "name", "../../../../up"), "run file: a name is not that of a record"),
        (lambda row: row.texts.update(counts='{}, "scores": []'), "is not a valid record: counts: Extra data"),
        (lambda row: row.texts.update(counts='{"truncated": 1, "truncated": 0}'), "'truncated' stands in it twice"),
        (lambda row: row.texts.update(counts='{}, "verified": true'), "is not a valid record: counts: Extra data"),
        (lambda row: row.texts.update(encoder="{"), "is not a valid record"),
        (lambda row: row.texts.update(data="null"), "is not a valid record: data"),
    ],
)
def test_an_edited_row_is_refused_and_nothing_is_written(copied, tmp_path, change, says):
    """What no dictionary holds: another name, and texts that are not JSON or more than one value."""
    run, board = copied("letters"), tmp_path / "board"
    edit(run, change, first_sts(run))
    with pytest.raises(StsbenchError, match=says) as error:
        add(board, [run], "letters", LETTERS)
    assert "\n" not in str(error.value) and not board.exists()


def test_two_records_of_one_name_are_refused(copied, tmp_path):
    run = copied("letters")
    rows = rows_of(run)
    write_rows(run, [*rows, replace(rows[0])])
    with pytest.raises(StsbenchError, match=r"run\.parquet holds two records of one name"):
        add(tmp_path / "board", [run], "letters", LETTERS)
    add(tmp_path / "board", [write_rows(run, rows)], "letters", LETTERS)
    (file,) = (tmp_path / "board/measured").rglob(RUN)
    rows = rows_of(file)
    write_rows(file, [*rows, replace(rows[0])])
    with pytest.raises(StsbenchError, match=r"run\.parquet holds two records of one name"):
        load_entries(tmp_path / "board/measured")


def test_swapped_observations_are_refused(copied, runs, tmp_path):
    run = copied("letters")
    name = first_sts(run)
    other = next(row for row in rows_of(runs["noisy"]) if row.name == first_sts(runs["noisy"]))
    edit(run, lambda row: setattr(row, "observed", other.observed), name)
    with pytest.raises(StsbenchError, match=f"observations of {name} are not what the record names .sha256 differs"):
        add(tmp_path / "board", [run], "letters", LETTERS)


def test_nothing_is_overwritten(copied, tmp_path):
    board, run = tmp_path / "board", copied("letters")
    add(board, [run], "letters", LETTERS)
    before = files(board)
    edit(run, lambda row: row.record["provenance"].update(seconds=1.5), first_sts(run))
    with pytest.raises(StsbenchError, match="never overwritten"):
        add(board, [run], "letters", None)
    assert files(board) == before


def test_a_description_is_asked_for_once_and_must_not_change(runs, tmp_path):
    with pytest.raises(StsbenchError, match="say what it is"):
        add(tmp_path, [runs["letters"]], "letters", None)
    add(tmp_path, [runs["letters"]], "letters", LETTERS)
    add(tmp_path, [runs["letters"]], "letters", LETTERS)
    with pytest.raises(StsbenchError, match="describes the entry otherwise"):
        add(tmp_path, [runs["letters"]], "letters", LETTERS.model_copy(update={"setting": "sup"}))
    for name in ("../up", "Upper", "", "a b", ".hidden", "end.", "con", "nul.x", "com1"):
        with pytest.raises(StsbenchError, match="cannot name an entry"):
            add(tmp_path, [runs["letters"]], name, LETTERS)
    with pytest.raises(StsbenchError, match="--backbone, --setting"):
        described({"method": "x", "flags": ()})
    with pytest.raises(StsbenchError, match="--paper"):
        described({"method": "x", "backbone": "y", "setting": "sup", "paper": "javascript:alert(1)"})
    with pytest.raises(StsbenchError, match="--card: an address or a path"):
        described({"method": "x", "backbone": "y", "setting": "sup", "card": "javascript:alert(1)"})
    assert described({"method": "x", "backbone": "y", "setting": "sup", "card": "methods/x/card.md"}).card


@pytest.mark.parametrize("text", ["method: [", "method: x", "method: x\nbackbone: y\nsetting: sup\nscore: 99\n", "- 1",
                                  "method: x\nbackbone: y\nsetting: unsup\nsetting: sup\n", "paper: 2020-13-01"])
def test_a_damaged_description_names_the_file(runs, tmp_path, text):
    add(tmp_path, [runs["letters"]], "letters", LETTERS)
    path = tmp_path / "measured" / "letters" / "entry.yaml"
    path.write_text(text)
    with pytest.raises(StsbenchError, match=r"entry\.yaml"):
        load_entries(tmp_path / "measured")


def at_once(board, orders):
    """Add each list of runs to one new entry of the board, in a process of its own."""
    context = multiprocessing.get_context("fork")  # six that import everything would take as long as all other tests here
    started = [context.Process(target=add, args=(board, order, "letters", LETTERS)) for order in orders]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * len(orders)
    assert yaml.safe_load((board / "measured/letters/entry.yaml").read_text())["method"] == "letters"
    assert not [path for path in board.rglob("*.tmp")]


def test_processes_that_add_at_once_lose_nothing(runs, tmp_path):
    """Six processes, each adding some records of three runs to one new entry: every record is there once, and whole."""
    short = [some(runs[name], tmp_path / name, slice(3)) for name in ("noisy", "noisy-2", "letters")]
    at_once(tmp_path / "board", [[*short[i:], *short[:i]] for i in range(3)] * 2)
    expected = {name: record for run in short for name, record in measurements(run).items()}
    assert measurements(tmp_path / "board") == expected and len(expected) == 9
    (entry,) = load_entries(tmp_path / "board/measured")
    assert len(entry.runs) == 3


def test_processes_that_add_to_one_run_at_once_lose_nothing(runs, tmp_path):
    """Six processes, each with two records of one run, of which another process has one, too."""
    count = len(rows_of(runs["letters"]))
    parts = [some(runs["letters"], tmp_path / str(at), slice(at, at + 2)) for at in range(6)]
    assert count >= 7
    at_once(tmp_path / "board", [[part] for part in parts])
    names = [path.name for path, _ in load_records(runs["letters"])[:7]]
    assert sorted(measurements(tmp_path / "board")) == sorted(names)
    (entry,) = load_entries(tmp_path / "board/measured")
    assert [len(run.records) for run in entry.runs] == [7]
