"""Entries of prompts: which runs they take, of whose encoder, and what is refused by `add` and by a build."""

import pytest
import yaml
from board_prompts import PROMPTS, Prompted, prompted
from board_runs import read_once  # noqa: F401  a fixture
from checked_entries import load_entries
from clirun import cli, place  # noqa: F401  fixtures

from stsbench.errors import StsbenchError
from stsbench.evaluation.run_file import prompt_runs
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry, Prompts

LETTERS = Entry(method="letters", backbone="none", setting="unsup")
OF_LETTERS = Prompts(prompt_of="letters")
QUICK = {"tasks": "STS-B", "resamples": 50}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two folders of studies of prompts, of one encoder and of another."""
    home = tmp_path_factory.mktemp("prompts")
    for name, seed in (("one", 1), ("two", 2)):
        prompted(home / name, Prompted(seed, 0.5), **QUICK)
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
    assert code == 0, err
    assert out.count("1 record") == 3
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
        ("one/04-prompt", "letters", None, r"differ in more than their seed \(prefix\)"),
    ):
        with pytest.raises(StsbenchError, match=words):
            add(board, [made / run], slug, of and Prompts(prompt_of=of))
        assert not (board / "measured/new").exists()


def test_nearly_equal_prompts_are_two_prompts(board, tmp_path):
    """Seeds that are as near to each other would be refused as copies."""
    class Deaf(Prompted):
        def run(self, texts, progress=None):
            encoded = Prompted(self.seed, self.noise).run(texts)
            encoded.vectors[:, 0] += 1e-3 * len(self.spec.prefix or "")
            return encoded

    prompted(tmp_path / "deaf", Deaf(1, 0.5), **QUICK)
    add(board, [tmp_path / "deaf"], "worded", OF_LETTERS)
    (entry,) = load_entries(board / "measured")
    assert len(entry.prompts) == 3


def test_a_build_refuses_what_add_would(made, board):
    """Whoever edits an entry.yaml does not ask `add`."""
    add(board, [made / "one"], "worded", OF_LETTERS)
    add(board, [made / "two/00-default"], "two", LETTERS.model_copy(update={"method": "two"}))
    for of, says in (("gone", "worded/entry.yaml: prompt_of: gone is no entry"), ("worded", "worded is of prompts itself"),
                     ("two", r"worded/\w+: its encoder differs from that of the entry in more than its prompt \(weights")):
        (board / "measured/worded/entry.yaml").write_text(f"prompt_of: {of}\n")
        with pytest.raises(StsbenchError, match=says):
            load_entries(board / "measured")
