"""Every refusal as a table, tests/refusals/*.yaml: what is typed or called, on which files, the whole line, the exit code.
An extension's are beside its tests, tests/extensions/NAME/refusals.yaml.

A table is a list of groups. A group is a command (`run`) or a Python expression (`call`), and `cases`, each the words that
fill its {} and the line of the error (behind that of a failed task, if one failed), where "..." stands for any text. Beside
them: `with` (names of PLACES, made in the working folder first), `files` (path -> content), `exit` (1 unless told), `error`
(the class of a call's error, StsbenchError unless told), `imports` (statements for a call)."""

from __future__ import annotations

import builtins
import re
import shlex
from pathlib import Path

import pytest
import yaml
from clirun import cli, place  # noqa: F401 - fixtures
from refusal_places import PLACES

from stsbench import errors

TESTS = Path(__file__).parent
TABLES = sorted([*TESTS.glob("refusals/*.yaml"), *TESTS.glob("extensions/*/refusals.yaml")])
CASES = [
    pytest.param(group, words, line, id=f"{table.parent.name}/{table.stem}: {words or group.get('run', group.get('call'))}")
    for table in TABLES for group in yaml.safe_load(table.read_text("utf-8"))
    for words, line in group["cases"].items()
]


@pytest.mark.parametrize(("group", "words", "line"), CASES)
def test_one_line_says_what_is_wrong_and_nothing_is_left(place, cli, group, words, line):
    for name in group.get("with", ()):
        PLACES[name](place)
    for path, content in group.get("files", {}).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(content, "utf-8")
    before = sorted(place.rglob("*"))
    if "run" in group:
        code, out, err = cli(*shlex.split(group["run"].replace("{}", words or "")))
        assert (code, out) == (group.get("exit", 1), ""), err
        assert "Traceback" not in err
        told = "\n".join(re.findall(r"^(?:stsbench: error|Error|failed): (.*)$", err, re.M))
    else:
        names: dict[str, object] = {}
        for statement in group.get("imports", ()):
            exec(statement, names)
        kind = group.get("error", "StsbenchError")
        with pytest.raises(getattr(errors, kind, None) or getattr(builtins, kind)) as caught:
            eval(group["call"].replace("{}", words or ""), names)
        told = str(caught.value)
    pattern = ".*".join(map(re.escape, line.split("...")))
    assert re.fullmatch(pattern, told, re.S), told
    assert sorted(path for path in place.rglob("*") if "__pycache__" not in path.parts) == before
