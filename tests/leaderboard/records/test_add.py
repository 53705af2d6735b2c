"""Adding records to a board: whole, checked, never overwritten, and by several processes at once."""

import json
import multiprocessing
import shutil
from itertools import chain

import pytest
import yaml
from board_runs import copied, read_once, runs  # noqa: F401  fixtures
from toy_encoder import Toy

from stsbench.encoders.base import EncoderSpec
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.records import load_records
from stsbench.leaderboard.records.add import add, described
from stsbench.leaderboard.records.entries import Entry, load_entries

LETTERS = Entry(method="letters", backbone="none", setting="unsup")


def records_of(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*.json")}


def measurements(records):
    """All but the observations, which have a form of their own on a board."""
    return {name: {key: value for key, value in json.loads(text).items() if key != "observations"}
            for name, text in records.items()}


def edited(run, change):
    """The first record of a run after `change` to its JSON."""
    path = min(run.glob("sts.*.json"))
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def test_a_run_arrives_whole_and_loads(runs, tmp_path):
    added = add(tmp_path, [runs["letters"]], "letters", LETTERS)
    assert measurements(records_of(tmp_path)) == measurements(records_of(runs["letters"]))
    assert len(added.written) == len(load_records(runs["letters"]))
    (entry,) = load_entries(tmp_path / "measured")
    assert (entry.id, entry.entry) == ("letters", LETTERS) and len(entry.runs) == 1
    assert "sample data" in " ".join(added.warnings)


def test_single_records_may_be_added_and_are_added_once(runs, tmp_path):
    paths = [path for path, _ in load_records(runs["letters"])]
    first = add(tmp_path, paths[:2], "letters", LETTERS)
    again = add(tmp_path, paths[:3], "letters", None)
    assert [len(first.written), len(again.written), len(again.present)] == [2, 1, 2]


def test_two_seeds_are_two_runs_of_one_entry_but_two_encoders_are_not(runs, tmp_path):
    add(tmp_path, [runs["noisy"], runs["noisy-2"]], "noisy", LETTERS)
    (entry,) = load_entries(tmp_path / "measured")
    assert len(entry.runs) == 2
    before = records_of(tmp_path)
    with pytest.raises(StsbenchError, match="differ in more than their seed"):
        add(tmp_path, [runs["words"]], "noisy", None)
    with pytest.raises(StsbenchError, match="differ in more than their seed"):
        add(tmp_path, [runs["words"], runs["letters"]], "new", LETTERS)
    assert records_of(tmp_path) == before  # refused before anything was written


def _trained(folder, target, **origin):
    """A copy of a run whose records say how it was trained."""
    shutil.copytree(folder, target)
    for path, _ in load_records(target):
        stored = json.loads(path.read_text())
        stored["provenance"] |= origin
        path.write_text(json.dumps(stored))
    return target


def test_a_training_with_several_seeds_is_added_as_its_seeds(runs, tmp_path):
    for seed, name in enumerate(("noisy", "noisy-2")):
        shutil.copytree(runs[name], tmp_path / "trained" / f"seed-{seed}" / "eval")
        (tmp_path / "trained" / f"seed-{seed}" / "begun.json").write_text("{}")
    (tmp_path / "trained" / "seeds.json").write_text("{}")
    add(tmp_path / "board", [tmp_path / "trained"], "noisy", LETTERS)
    add(tmp_path / "one by one", [runs["noisy"], runs["noisy-2"]], "noisy", LETTERS)
    assert records_of(tmp_path / "board") == records_of(tmp_path / "one by one")


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
    for path in renamed.glob("*.json"):
        path.write_text(path.read_text().replace('"name": "letters"', '"name": "other letters"'))
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
        (lambda r: r["data"].update(digest="0" * 64), "renamed or edited"),
        (lambda r: r["data"].update(known=True, view="senteval"), "digest is not the catalog's"),
        (lambda r: r["encoder"]["spec"].update(pooler="mean"), "fingerprint is not that of its spec"),
        (lambda r: r["encoder"].update(fingerprint="0" * 64), "fingerprint is not that of its spec"),
        (lambda r: r["protocol"]["settings"].update(similarity="dot"), "renamed or edited"),
        (lambda r: r["observations"].update(sha256="0" * 64), "sha256 differs"),
        (lambda r: r["provenance"].update(git="0" * 40 + "+changes"), "uncommitted changes"),
        (lambda r: r["provenance"].pop("versions"), "no versions"),
        (lambda r: r.update(verified=True), "is not a valid record"),
        (lambda r: r["scores"][-1].update(value="high"), "is not a valid record"),
    ],
)
def test_an_edited_record_is_refused_and_nothing_is_written(copied, tmp_path, change, says):
    run = copied("letters")
    path = edited(run, change)
    board = tmp_path / "board"
    board.mkdir()
    with pytest.raises(StsbenchError, match=says) as error:
        add(board, [run], "letters", LETTERS)
    assert path.stem in str(error.value)
    assert not any(board.iterdir())


def test_swapped_observations_are_refused(copied, runs, tmp_path):
    run = copied("letters")
    mine, other = (min((folder / "observations").glob("sts.*")) for folder in (run, runs["noisy"]))
    mine.write_bytes(other.read_bytes())
    with pytest.raises(StsbenchError, match="sha256 differs"):
        add(tmp_path / "board", [run], "letters", LETTERS)


def test_nothing_is_overwritten(copied, tmp_path):
    board, run = tmp_path / "board", copied("letters")
    add(board, [run], "letters", LETTERS)
    before = records_of(board)
    edited(run, lambda r: r["provenance"].update(seconds=1.5))
    with pytest.raises(StsbenchError, match="never overwritten"):
        add(board, [run], "letters", None)
    assert records_of(board) == before


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


def test_processes_that_add_at_once_lose_nothing(runs, tmp_path):
    """Six processes, each adding some records of three runs to one new entry: every record is there once, and whole."""
    some = [[path for path, _ in load_records(runs[name])[:3]] for name in ("noisy", "noisy-2", "letters")]
    orders = [[*chain(*some[i:], *some[:i])] for i in range(3)] * 2
    context = multiprocessing.get_context("fork")  # six that import everything would take as long as all other tests here
    started = [context.Process(target=add, args=(tmp_path, order, "letters", LETTERS)) for order in orders]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * 6
    assert measurements(records_of(tmp_path)) == measurements({path.name: path.read_bytes() for path in orders[0]})
    assert yaml.safe_load((tmp_path / "measured/letters/entry.yaml").read_text())["method"] == "letters"
    assert not [path for path in tmp_path.rglob("*.tmp")]
    (entry,) = load_entries(tmp_path / "measured")
    assert len(entry.runs) == 3
