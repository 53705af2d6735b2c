"""What `stsbench eval` does with studies, which extensions add: those here are planted."""

from dataclasses import dataclass, fields
from pathlib import Path

import click
import pytest

from stsbench.cli import studies
from stsbench.cli.studies import Study, asked_study, run_study
from stsbench.display.table import Document
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.encoders.options import EncoderOptions
from stsbench.options import option


@dataclass(frozen=True, kw_only=True)
class Options:
    count: int | None = option(None, "How often.")
    manner: str = option("plain", "How.")


@dataclass(frozen=True, kw_only=True)
class OtherOptions:
    far: str | None = option(None, "How far.", flag="--how-far")


@dataclass(frozen=True, kw_only=True)
class MoreOptions:
    also: bool = option(False, "What else is recorded.")


class Made(Tabular):
    def __init__(self, name, failures=()):
        self.name, self.failures = name, failures

    def document(self):
        return Document(above=[f"the table of {self.name}"])

    def to_arrow(self):
        return arrow_table([{"name": self.name}])

    def save(self, folder):
        Path(folder).mkdir()
        (folder / "table.csv").write_text(self.name)


def measure(load, *, count, manner, output, log, protocols, **how):
    log(f"{count} times, {manner}")
    return Made(f"{load().spec.name} under {protocols}", ("a task",) * how["strict"])


FIRST = Study(options=Options, asked_by=("count",), subject="copies", suffix="copies", files="a table", measure=measure)
SECOND = Study(options=OtherOptions, asked_by=("far",), subject="distances", suffix="far", files="", measure=measure)
NOTHING = {"count": None, "manner": "plain", "far": None}


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    monkeypatch.setattr(studies, "studies", lambda: [FIRST, SECOND])
    monkeypatch.setattr(studies, "ProcessOptions", OtherOptions)  # of an extension
    monkeypatch.setattr(studies, "RecordOptions", MoreOptions)


def test_the_options_of_studies_are_taken_out():
    options = {**NOTHING, "model": "m"}
    assert asked_study(options) is None and options == {"model": "m"}
    options = {**NOTHING, "count": 2, "manner": "other", "model": "m"}
    assert asked_study(options) == (FIRST, {"count": 2, "manner": "other"}) and options == {"model": "m"}


@pytest.mark.parametrize(("asked", "message"), [
    ({"manner": "other"}, "--manner has no effect without --count"),
    ({"count": 1, "far": "1 m"}, "copies and distances exclude each other"),
])
def test_options_without_effect_and_two_studies_are_wrong_usage(asked, message):
    with pytest.raises(click.UsageError) as stop:
        asked_study({**NOTHING, **asked})
    assert stop.value.message == message


def options_of_eval(**more):
    defaults = {entry.name: entry.default for entry in fields(EncoderOptions)}
    of_extensions = {"far": None, "also": False}
    return {**defaults, **of_extensions, "model": "lexical:token-set", "protocols": "sts", "strict": False, **more}


def test_a_study_is_measured_saved_and_printed(tmp_path, capsys):
    json = tmp_path / "rows.json"
    asked = {"count": 2, "manner": "plain"}
    assert run_study(FIRST, asked, options_of_eval(), tmp_path / "out", "table", str(json)) == 0
    out, err = capsys.readouterr()
    assert out == "the table of lexical:token-set under sts\n" and "2 times, plain" in err and f"{tmp_path / 'out'}" in err
    assert (tmp_path / "out/table.csv").is_file() and "lexical:token-set under sts" in json.read_text()
    assert run_study(FIRST, asked, options_of_eval(strict=True), tmp_path / "other", "table", "-") == 3
    assert '"name"' in capsys.readouterr().out


@pytest.mark.parametrize(("more", "form", "message"), [
    ({"far": "1 m"}, "table", "--how-far: copies are measured in one process"),
    ({"also": True}, "table", "--also: copies .* measure the one that you choose with it"),
    ({}, "csv", "--format csv: copies are printed as a table"),
])
def test_what_several_runs_do_not_take_is_wrong_usage(tmp_path, more, form, message):
    with pytest.raises(click.UsageError, match=message):
        run_study(FIRST, {"count": 2, "manner": "plain"}, options_of_eval(**more), tmp_path / "out", form, None)
    assert not (tmp_path / "out").exists()
