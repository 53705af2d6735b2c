"""Every refusal as a table, tests/refusals/*.yaml: what is typed or called, on which files, the whole line, the exit code.
An extension's are beside its tests, tests/extensions/NAME/refusals.yaml.

A table is a list of groups, each a test. A group is a command (`run`) or a Python expression (`call`), and `cases`, each the
words that fill its {} and the line of the error (behind that of a failed task, if one failed), where "..." stands for any
text. Beside them: `with` (names of PLACES, made in the working folder first), `files` (path -> content, written anew before
each case), `exit` (1 unless told), `error` (the class of a call's error, StsbenchError unless told), `imports` (statements
for a call)."""

import builtins
import os
import re
import shlex
from pathlib import Path

import pytest
import yaml
from board_runs import read_once  # noqa: F401 - a fixture
from clirun import cli, place  # noqa: F401 - fixtures
from refusal_places import PLACES

from stsbench import errors
from stsbench.parsing import SafeLoader

TESTS = Path(__file__).parent
TABLES = sorted([*TESTS.glob("refusals/*.yaml"), *TESTS.glob("extensions/*/refusals.yaml")])
GROUPS = [
    pytest.param(group, id=f"{table.parent.name}/{table.stem}: {group.get('run', group.get('call'))}")
    for table in TABLES for group in yaml.load(table.read_text("utf-8"), SafeLoader)
]


def told_by_command(cli, group, words):
    code, out, err = cli(*shlex.split(group["run"].replace("{}", words)))
    if (code, out) != (group.get("exit", 1), "") or "Traceback" in err:
        return f"exit {code}\n{out}\n{err}"
    return "\n".join(re.findall(r"^(?:stsbench: error|Error|failed): (.*)$", err, re.M))


def told_by_call(names, group, words):
    kind = group.get("error", "StsbenchError")
    try:
        eval(group["call"].replace("{}", words), names)
    except Exception as error:
        return str(error) if isinstance(error, getattr(errors, kind, None) or getattr(builtins, kind)) else repr(error)
    return "nothing was refused"


def held(place):
    found = (f"{folder}/{name}" for folder, *names in os.walk(place) for some in names for name in some)
    return {path for path in found if "__pycache__" not in path}  # rglob takes more than twice as long


@pytest.mark.parametrize("group", GROUPS)
def test_one_line_says_what_is_wrong_and_nothing_is_left(place, cli, group):
    for name in group.get("with", ()):
        PLACES[name](place)
    names: dict[str, object] = {}
    for statement in group.get("imports", ()):
        exec(statement, names)
    wrong, before = {}, None
    for words, line in group["cases"].items():
        for path, content in group.get("files", {}).items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(content, "utf-8")
        before = before or held(place)  # each case leaves it so
        told = told_by_command(cli, group, words or "") if "run" in group else told_by_call(names, group, words or "")
        if not re.fullmatch(".*".join(map(re.escape, line.split("..."))), told, re.S):
            wrong[words] = told
        assert held(place) == before, words
    assert not wrong
