"""What every protocol keeps, a plug-in's as well: each text is encoded once, each task is scored, scores come back from what
was stored, and a setting is checked, described and kept.

The plug-in is that of docs/how-to/adding-a-protocol.md. Draws are in tests/evaluation/test_intervals.py, data of the
user's own in test_own_kinds.py."""

import json
import math
import re

import howto_protocol
import light_process
import pytest
import yaml
from click.testing import CliRunner
from geometry_runs import vectors

from stsbench.cli.show import show
from stsbench.encoders.probe import TEXTS
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.plan import plan, presets
from stsbench.evaluation.protocol import kinds
from stsbench.evaluation.schema import described

KINDS = [*kinds(), *howto_protocol.NAMES]
FORMS = ["transfer:exact", "retrieval:keep", "sts:wmean", "geometry", "mteb:STSBenchmark", "sts-top:half"]


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plug-in") / "site"
    with pytest.MonkeyPatch.context() as patch, howto_protocol.installed(folder, patch):
        yield folder


@pytest.fixture(scope="module")
def everything(site, tmp_path_factory):
    """(result, every text the encoder was asked for) of `--protocol all` on the sample."""
    asked = []

    def encoder(texts):
        asked.extend(texts)
        return vectors(texts)

    folder = tmp_path_factory.mktemp("all") / "run"
    few = {"transfer.k": 2, "transfer.grid": [1.0, 2.0], "transfer.grid_kfold": [1.0, 2.0],  # the usual ones take a minute
           "regression.round_epochs": 2, "regression.max_epoch": 8, "regression.entailment_max_epoch": 8}
    given = {"sample": True, "protocols": ["all"], "no_cache": True, "resamples": 20, "settings": few}
    return evaluate(encoder, output=folder, **given), asked


def test_each_text_is_encoded_once_and_mteb_and_sts_are_one_number(everything):
    result, asked = everything
    asked = asked[2 * len(TEXTS):]  # behind the probe's
    assert len(asked) == len(set(asked)) > 1400 and not result.failures
    ours = {row.task: row.value for row in result.rows
            if (row.protocol, row.metric, row.aggregation, row.subset) == ("sts", "spearman", "all", None)}
    theirs = {row.task: row.value for row in result.rows if (row.protocol, row.metric) == ("mteb", "cosine_spearman")}
    assert theirs.pop("SICK-R-MTEB") and "SICK-R-MTEB" not in ours  # asked for by MTEB's name alone
    assert len(theirs) == 7 and theirs == pytest.approx({task: ours[task] for task in theirs}, abs=1e-4)


def test_every_protocol_and_task_is_there(everything):
    result, _ = everything
    want = set()
    for name, kind in kinds().items():
        for word in kind.in_all:
            protocol = kind(kind.variant(word) if word else {})
            want |= {(f"{name}:{word}" if word else name, task) for task in protocol.tasks() if task not in kind.on_request}
    assert {(row.protocol, row.task) for row in result.rows if not row.task.startswith("Avg")} == want
    assert {row.protocol for row in result.rows if row.task == "Avg"} == {
        "sts", "transfer", "transfer:sklearn", "transfer:exact"}
    assert set(result.left_out) == {"transfer:fast", "retrieval:keep", "retrieval:drop"}


def test_scores_come_back_from_what_was_stored_without_a_heavy_library(everything, site):
    result, _ = everything
    code = (f"import json, sys; sys.path.insert(0, {str(site)!r})\n"
            "from stsbench.evaluation.rescore import score_again\n"
            f"again = score_again({str(result.folder)!r})\n"
            "heavy = {'torch', 'transformers', 'sklearn', 'mteb', 'datasets'} & set(sys.modules)\n"
            "print(json.dumps([sorted(heavy), again.failures, [row.model_dump() for row in again.rows]]))\n")
    done = light_process.run(code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], {}, [row.model_dump() for row in result.rows]]


NONSENSE = (None, True, "nonsense", -1, 1.5, 0, math.nan, math.inf, 10**400, [], {}, [1], ["nonsense"], [math.nan], {"a": 5})


def settings_of(name):
    """Each form of a protocol's settings: the plain ones, then those of its variants."""
    kind = kinds()[name]
    return [kind(form).settings for form in ({}, *map(kind.variant, kind.variants))]


@pytest.mark.parametrize("name", KINDS)
def test_a_setting_is_refused_in_one_line_or_comes_back_as_it_is(name):
    kind = kinds()[name]
    for settings in settings_of(name):
        for key, good in settings.items():
            refused = 0
            for value in NONSENSE:
                try:
                    kept = kind({**settings, key: value}).settings[key]
                except StsbenchError as error:
                    refused += 1
                    assert re.match(rf"{name}: {key}(\.\w+)? must be .*, not ", str(error)), error
                    assert "\n" not in str(error) and len(str(error)) < 300
                else:
                    assert kind({**settings, key: kept}).settings[key] == kept
            assert refused >= 7, (key, good)
    with pytest.raises(StsbenchError):
        kind({"sede": 1})


@pytest.mark.parametrize("name", KINDS)
def test_settings_come_back_from_json_are_described_and_share_no_list(name):
    kind = kinds()[name]
    for form, settings in zip(({}, *map(kind.variant, kind.variants)), settings_of(name), strict=True):
        assert json.dumps(kind(json.loads(json.dumps(settings))).settings) == json.dumps(settings)
        assert all(settings[key] == value for key, value in form.items())
        lines = described(kind({}).settings_model(settings), settings)
        assert [line.name for line in lines] == list(settings)
        assert all(line.values and line.meaning and line.source for line in lines)
        assert [json.loads(line.default) for line in lines] == list(settings.values())
    one, other = kind({}).settings, kind({}).settings
    assert not [key for key, value in one.items() if isinstance(value, list | dict) and value is other[key]]


@pytest.mark.parametrize("name", presets())
def test_every_preset_can_be_planned(name):
    assert presets()[name]["paper"] and plan([name], None, {})[0]


@pytest.mark.parametrize("name", [*FORMS, "simcse"])
def test_every_form_can_be_shown(name):
    done = CliRunner().invoke(show, ["protocol", name])
    facts, _, settings = done.output.partition("\nSettings")
    assert done.exit_code == 0 and yaml.safe_load(facts)["name"] == name and "&id" not in facts
    if name != "simcse":
        kind, form = kinds()[name.partition(":")[0]], name.partition(":")[2]
        values = kind(kind.variant(form) if form else {}).settings
        lines = [line for line in settings.splitlines() if line.startswith("- ") and " = " in line]
        assert len(lines) == len(values)
        for line, (key, value) in zip(lines, values.items(), strict=True):
            assert line.startswith(f"- {key} = {json.dumps(value)} (") and "): " in line and ". Source: " in line
