"""Errors that a new user meets first say what to do next."""

import pytest
from clirun import cli, evaluate, fails, place  # noqa: F401 - fixtures


def test_a_new_entry_is_described_as_in_an_example_that_works(cli, evaluate):
    assert evaluate("lexical:token-set")[0] == 0
    add = ("leaderboard", "add", "run", "--entry", "mine", "--board", "board")
    code, _, err = cli(*add)
    assert code == 1 and "board/measured/mine is a new entry: say what it is, as in --method 'all-MiniLM-L6-v2, mean'" in err
    shown = ("--method", "all-MiniLM-L6-v2, mean", "--backbone", "MiniLM-L6", "--setting", "sup", "--flag", "nli")
    assert all(word in err for word in shown)
    assert "is a new entry" not in cli(*add, *shown)[2]


@pytest.mark.parametrize("words", [["eval", "--model", "someone/something", "--pooler", "cls", "--sample"],
                                   ["train", "simcse", "--offline", "--backbone", "someone/something"]])
def test_a_model_out_of_reach(cli, words):
    code, _, err = cli(*words, "--offline")
    assert code == 1 and "; name a folder that holds the model, or minilm, which needs no network" in err
