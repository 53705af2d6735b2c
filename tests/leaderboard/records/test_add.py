"""Adding records to a board: whole, checked, never overwritten, and by several processes at once; and entries of prompts."""

import multiprocessing
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import yaml
from board_runs import LETTERS, PROMPTS, Prompted, copied, load_entries, prompted, read_once, runs  # noqa: F401 - fixtures
from clirun import cli, contents, refuses  # noqa: F401 - fixtures
from run_edits import edit, edit_all, rows_of, write_rows
from toy_encoder import Toy

from stsbench.encoders.base import EncoderSpec
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.run_file import RUN, load_records, prompt_runs, read_observations, read_own_observations
from stsbench.leaderboard.records.add import add, board_forms
from stsbench.leaderboard.records.entries import Prompts, check_runs, run_name

SEEDS = [{"seed": 1, "settings": "s"}, {"seed": 2, "settings": "s"}]


def measurements(folder):
    """All records below a folder, by name and in their order, without the observations: a board has a form for them."""
    return {path.name: record.model_dump(exclude={"observations"})
            for run in sorted(folder.rglob(RUN)) for path, record in load_records(run)}


def some(run, target, chosen):
    return write_rows(target, rows_of(run)[chosen]).parent


def test_a_run_gains_what_it_lacks_and_keeps_what_it_has(runs, tmp_path):
    """Its records are those of before, in their order, with the very arrays; nothing is measured or rounded again."""
    board, run = tmp_path / "board", runs["letters"]
    first = add(board, [some(run, tmp_path / "first", slice(2)) / RUN], "letters", LETTERS)  # a file or its folder
    assert "sample data" in " ".join(first.warnings)
    (folder,) = (path for path in (board / "measured/letters").iterdir() if path.is_dir())
    before = load_records(folder)
    arrays = [read_own_observations(folder, record) for _, record in before]
    again = add(board, [some(run, tmp_path / "again", slice(3))], "letters", None)
    assert [len(first.written), len(again.written), len(again.present)] == [2, 1, 2]
    assert again.present == first.written
    last = add(board, [run], "letters", None)
    assert len(last.written) == len(load_records(run)) - 3 and len(last.present) == 3
    after = load_records(folder)
    assert after[:2] == before and [path.name for path, _ in after] == [path.name for path, _ in load_records(run)]
    for (_, record), was in zip(after, arrays, strict=False):
        now = read_own_observations(folder, record)
        assert observations_digest(now) == observations_digest(was) and now.arrays.keys() == was.arrays.keys()
        assert all(np.array_equal(now.arrays[key], array) for key, array in was.arrays.items())
    assert add(board, [run], "letters", None).written == () and [path.name for path in folder.iterdir()] == [RUN]
    assert measurements(run) == measurements(board) and list(measurements(run)) == list(measurements(board))
    (entry,) = load_entries(board / "measured")
    assert (entry.id, entry.entry, len(entry.runs)) == ("letters", LETTERS, 1)
    add(tmp_path / "at once", [run], "letters", LETTERS)
    assert contents(board) == contents(tmp_path / "at once")


def test_a_folder_that_a_killed_addition_left_empty_is_not_a_run_and_a_damaged_run_gains_nothing(runs, tmp_path):
    """What stands in a run is read before it is written again: else an addition would make the damage look sound."""
    board = tmp_path / "board"
    empty = board / "measured/letters" / ("0" * 12)
    empty.mkdir(parents=True)
    (empty / f".{RUN}.abc.tmp").write_bytes(b"half of i")
    add(board, [some(runs["letters"], tmp_path / "first", slice(2))], "letters", LETTERS)
    assert len(load_entries(board / "measured")[0].runs) == 1
    (empty / "notes.txt").write_text("something else")
    refuses(StsbenchError, f"{empty.name} is not a run folder: it holds no run.parquet", load_entries, board / "measured")
    shutil.rmtree(empty)
    (file,) = (board / "measured").rglob(RUN)
    edit(file, lambda row: next(iter(row.observed.arrays.values())).__setitem__(0, 0))
    refuse(board, "sha256 differs", [runs["letters"]], "letters", None)


def test_runs_are_seeds_of_one_entry_if_only_their_seed_differs(runs):
    for origins, words in (
        (SEEDS, None), ([{"seed": 1}, {}], None),
        *(([{"seed": 1, key: "a"}, {"seed": 2, key: "b"}], f'different {key.removesuffix("s")}s of training .*"a", "b"')
          for key in ("recipe", "settings", "stage")),
        ([{"backbone": "a"}, {"backbone": "b"}], "start from different backbones"), ([{"backbone": "a"}, {}], None),
        ([{"data": "a"}, {"data": "b"}], "were trained on different data"), ([{"data": "a"}, {}], None),
        ([{"method_file": "a"}, {"method_file": "b"}], "were trained by different code"), ([{"method_file": "a"}, {}], None),
        ([{**SEEDS[0], "subset": 0}] * 2, "both of seed 1"),
        ([{**SEEDS[0], "subset": 0}, {**SEEDS[0], "subset": 1}], None),  # a subset of the rows makes it another
        ([{**seed, "from": {"stage": "prefix", "weights": "a"}} for seed in SEEDS], "went on from one run of stage prefix"),
        ([{**seed, "from": {"stage": "prefix", "weights": str(i)}} for i, seed in enumerate(SEEDS)], None)):
        records = [load_records(runs[name])[0][1].model_copy(deep=True) for name in ("noisy", "noisy-2")]
        for record, origin in zip(records, origins, strict=True):
            record.provenance |= origin
        named = {run_name(record): record for record in records}
        with pytest.raises(StsbenchError, match=words) if words else nullcontext():
            check_runs(Path("noisy"), named)


def test_a_training_with_several_seeds_is_added_as_its_seeds(runs, tmp_path):
    for seed, name in enumerate(("noisy", "noisy-2")):
        shutil.copytree(runs[name], tmp_path / "trained" / f"seed-{seed}" / "eval")
        (tmp_path / "trained" / f"seed-{seed}" / "begun.json").write_text("{}")
    (tmp_path / "trained" / "seeds.json").write_text("{}")
    add(tmp_path / "board", [tmp_path / "trained"], "noisy", LETTERS)
    assert measurements(tmp_path / "board") == measurements(runs["noisy"]) | measurements(runs["noisy-2"])


def test_a_run_under_the_name_of_other_weights_is_no_second_seed(tmp_path):
    """The similarities tell: a copy would make the score of one seed look like that of two that agree."""
    runs = []
    for weights in "12":
        run = tmp_path / weights
        encoder = Toy(EncoderSpec(name="toy", kind="callable", weights=weights * 64))
        evaluate(encoder, output=run, sample=True, resamples=0, no_cache=True, tasks=["STS-B"])
        runs.append(edit_all(run, lambda row, seed=int(weights): row.record["provenance"].update(seed=seed)))
    board = tmp_path / "board"
    refuse(board, "one run, measured twice", runs, "toy", LETTERS)
    add(board, runs[:1], "toy", LETTERS)
    refuse(board, r"measured/other has the similarity of .*/toy on stsb/test: one run", runs[1:], "other", LETTERS)
    add(tmp_path / "elsewhere", runs[1:], "other", LETTERS)
    shutil.copytree(tmp_path / "elsewhere/measured/other", board / "measured/other")
    words = r"measured/toy has the similarity of .*measured/other on stsb/test"
    refuses(StsbenchError, words, load_entries, board / "measured")


def test_an_encoder_stands_once_and_so_does_a_name(runs, copied, tmp_path):
    refuse(tmp_path / "board", "say what it is", [runs["letters"]], "letters", None)
    board = tmp_path / "board"
    add(board, [runs["letters"]], "letters", LETTERS)
    add(board, [runs["letters"]], "letters", LETTERS)  # the same description again
    other = LETTERS.model_copy(update={"setting": "sup"})
    refuse(board, "describes the entry otherwise", [runs["letters"]], "letters", other)
    refuse(board, "holds this encoder already", [runs["letters"]], "twin", other)
    message = r"measured/words and .*measured/letters have one method, backbone and setting"
    refuse(board, message, [runs["words"]], "words", LETTERS.model_copy(update={"method": " Letters"}))
    run = edit_all(copied("letters"), lambda row: row.record["encoder"]["spec"].update(name="other letters"))
    refuse(board, "never overwritten", [run], "letters", None)  # the same weights under another name are no second seed
    add(board, [runs["words"]], "words", other)
    load_entries(board / "measured")
    shutil.copy(board / "measured/letters/entry.yaml", board / "measured/words/entry.yaml")
    refuses(StsbenchError, message, load_entries, board / "measured")


def refuse(board, message, *addition):
    """An addition must be refused, and leave the board as it was."""
    before = contents(board)
    refuses(StsbenchError, message, add, board, *addition)
    assert contents(board) == before


def test_processes_that_add_at_once_lose_nothing(runs, tmp_path):
    """Three processes add to one new entry, each of its runs from all and most records from two: every one is there once."""
    seeds = ("noisy", "noisy-2")
    parts = [[some(runs[name], tmp_path / f"{at}-{name}", slice(at, at + 2)) for name in seeds] for at in range(3)]
    board = tmp_path / "board"
    context = multiprocessing.get_context("fork")  # three that import everything would take as long as all other tests
    started = [context.Process(target=add, args=(board, [*part[at % 2 :], *part[: at % 2]], "letters", LETTERS))
               for at, part in enumerate(parts)]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * 3
    expected = dict(item for name in seeds for item in list(measurements(runs[name]).items())[:4])
    assert measurements(board) == expected
    assert sum(len(load_records(run)) for run in board.rglob(RUN)) == len(expected) == 8
    assert len(load_entries(board / "measured")[0].runs) == 2
    assert yaml.safe_load((board / "measured/letters/entry.yaml").read_text())["method"] == "letters"
    assert not [*board.rglob("*.tmp")]


@pytest.mark.parametrize(("origin", "kept"), [("/somebody/data", "data"), ("../shared/data", "../shared/data")])
def test_a_board_is_not_told_which_folder_the_data_lay_in(origin, kept, runs):
    path, record = load_records(runs["letters"])[0]
    record.data.origin = origin
    (form,) = board_forms([(path, record, read_observations(runs["letters"], record))])
    assert form.record.data.origin == kept


# Entries of prompts: which runs they take, of whose encoder.
OF_LETTERS = Prompts(prompt_of="letters")
QUICK = {"tasks": "STS-B", "resamples": 50}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two folders of studies of prompts, of one encoder and of another."""
    home = tmp_path_factory.mktemp("prompts")
    prompted(home / "one", Prompted(1, 0.5), neutral=True, **QUICK)
    prompted(home / "two", Prompted(2, 0.5), PROMPTS[:1], **QUICK)
    return home


@pytest.fixture
def board(made, tmp_path):
    add(tmp_path / "board", [made / "one/00-default"], "letters", LETTERS)
    return tmp_path / "board"


def test_the_folder_of_eval_prompts_gives_its_prompts_without_default_and_controls(made, board, cli):
    names = sorted(path.name for path in (made / "one").iterdir() if path.is_dir())
    assert names == ["00-default", "02-neutral-prompt", "03-prompt", "04-prompt", "05-prompt"]
    assert [path.name for path in prompt_runs(made / "one")] == names[2:]
    assert prompt_runs(made / "one/03-prompt") == []
    code, out, err = cli("leaderboard", "add", made / "one", "--board", board, "--entry", "worded", "--prompt-of", "letters")
    assert code == 0 and out.count("1 record") == 3, err
    assert yaml.safe_load((board / "measured/worded/entry.yaml").read_text()) == {"prompt_of": "letters"}
    (entry,) = load_entries(board / "measured")
    assert sorted(run.prompt for run in entry.prompts) == sorted(PROMPTS) and len(entry.runs) == 1
    assert (entry.id, entry.prompt_entries) == ("letters", ("worded",))
    again = add(board, [made / "one"], "worded", None)  # it is described by now
    assert not again.written and len(again.present) == 3


def test_prompts_of_another_encoder_twice_or_as_seeds_are_refused(made, board):
    add(board, [made / "one/03-prompt"], "worded", OF_LETTERS)
    for run, slug, of, words in (
        ("one", "new", "nobody", "prompt_of: nobody is no entry of this board"),
        ("two", "new", "letters", r"two/03-prompt: its encoder differs .* in more than its prompt \(weights\)"),
        ("one/00-default", "new", "letters", "00-default was not read behind one prompt"),
        ("one/04-prompt", "new", "worded", "worded is of prompts itself: name the entry of its encoder"),
        ("one/03-prompt", "new", "letters", r"worded/\w+ holds this encoder already"),
        ("one", "letters", None, r"one holds runs behind several prompts: say whose .* --prompt-of ENTRY"),
        ("one/04-prompt", "letters", None, r"differ in more than their seed \(prefix\)")):
        refuses(StsbenchError, words, add, board, [made / run], slug, of and Prompts(prompt_of=of))
        assert not (board / "measured/new").exists()


def test_nearly_equal_prompts_are_two_prompts(board, tmp_path):
    """Seeds that are as near to each other would be refused as copies."""
    class Deaf(Prompted):
        def run(self, texts, progress=None):
            encoded = Prompted(self.seed, self.noise).run(texts)
            encoded.vectors[:, 0] += 1e-3 * len(self.spec.prefix or "")
            return encoded

    prompted(tmp_path / "deaf", Deaf(1, 0.5), PROMPTS[:2], **QUICK)
    add(board, [tmp_path / "deaf"], "worded", OF_LETTERS)
    assert len(load_entries(board / "measured")[0].prompts) == 2


def test_a_build_refuses_what_add_would(made, board):
    """Whoever edits an entry.yaml does not ask `add`."""
    add(board, [made / "one"], "worded", OF_LETTERS)
    add(board, [made / "two/00-default"], "two", LETTERS.model_copy(update={"method": "two"}))
    for of, says in (("gone", "worded/entry.yaml: prompt_of: gone is no entry"), ("worded", "worded is of prompts itself"),
                     ("two", r"worded/\w+: its encoder differs from that of the entry in more than its prompt \(weights")):
        (board / "measured/worded/entry.yaml").write_text(f"prompt_of: {of}\n")
        refuses(StsbenchError, says, load_entries, board / "measured")
