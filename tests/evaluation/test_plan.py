"""What is measured: the protocols, tasks and settings that are asked for, and what is left out."""

import pytest

from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import plan, presets, split_names


def test_settings_reach_the_protocols_that_have_them():
    planned, _ = plan(["all"], None, {"": {"resamples": 7}, "transfer": {"k": 3, "batch": 32}})
    settings = {each.label: each.protocol.settings for each in planned}
    assert settings["sts"]["resamples"] == settings["retrieval"]["resamples"] == 7
    assert settings["transfer"]["batch"] == 32 and "batch" not in settings["transfer:exact"]
    assert {settings[label]["k"] for label in ("transfer", "transfer:sklearn", "transfer:exact")} == {3}
    with pytest.raises(StsbenchError):
        plan(["all"], None, {"transfer": {"bach": 32}})


def test_tasks_of_several_named_protocols():
    planned, left_out = plan(["sts", "transfer:exact", "infersent", "retrieval"], ["STS12", "CR"], {})
    assert [(each.label, list(each.tasks)) for each in planned] == [
        ("sts", ["STS12"]), ("transfer:exact", ["CR"]), ("infersent", ["STS12"])
    ]
    assert left_out == {"retrieval": "it has none of the tasks STS12, CR"}
    planned, _ = plan(["sts", "all"], None, {})
    labels = [each.label for each in planned]
    assert len(labels) == len(set(labels)) and labels[0] == "sts"


def test_tasks_pick_from_every_protocol():
    planned, left_out = plan(["all"], ["sts-b", "MR"], {})
    tasks = {each.label: list(each.tasks) for each in planned}
    assert tasks["sts"] == tasks["regression"] == tasks["geometry"] == ["STS-B"] and tasks["transfer:exact"] == ["MR"]
    assert not [name for name in left_out if name in tasks]


def test_a_preset_and_a_form_have_their_own_settings():
    planned, left_out = plan(["sts:wmean", "simcse"], ["sts12"], {"": {"resamples": 5}})
    assert [(p.label, p.protocol.label, p.tasks) for p in planned] == [
        ("sts:wmean", "sts", {"STS12": "sts12/test"}), ("simcse", "simcse", {"STS12": "sts12/test"}),
    ]
    assert all(p.protocol.settings["resamples"] == 5 for p in planned) and left_out == {}
    assert planned[0].protocol.settings["aggregations"] == ["wmean"]
    assert planned[1].protocol.settings["metrics"] == ["spearman"]


@pytest.mark.parametrize("protocol", ["sts", "sts:all", "sts:mean", "sts:wmean", *presets(), "all"])
def test_a_task_on_request_runs_only_where_it_is_named(protocol):
    chosen, _ = plan([protocol], None, {})
    assert not [each.label for each in chosen if each.protocol.name == "sts" and "SICK-R-MTEB" in each.tasks]
    named, _ = plan(["sts"], ["sick-r-mteb"], {})
    assert [each.tasks for each in named] == [{"SICK-R-MTEB": "sick-r/mteb"}]


def test_names_hold_commas_in_brackets():
    assert split_names("mteb:MTEB(eng, v2), sts") == ("mteb:MTEB(eng, v2)", "sts")
