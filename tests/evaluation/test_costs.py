"""What a record says of its encoder's cost."""

from __future__ import annotations

import json

import pytest
from run_edits import edit_all
from sts_runs import sts_run

from stsbench import load_records
from stsbench.comparison.comparability import bytes_a_vector, machine_and_use, recorded_cost
from stsbench.evaluation.records import Cost, parsed

COST = {"probe": 1, "texts": 64, "seconds": [0.1] * 5, "sentences_per_second": 640.0, "latency_seconds": 0.004,
        "bytes_a_vector": 12.0, "machine": {"cpu": "Some CPU", "cores": 8}, "device": "cpu", "threads": 4}


def test_costs_are_read_off_the_record(tmp_path):
    [(_, record)] = load_records(sts_run(tmp_path / "run", 0.2, ["STS-B"]))
    assert recorded_cost(record) is None
    [(_, record)] = load_records(edit_all(tmp_path / "run", lambda row: row.record["provenance"].update(cost=COST)))
    assert recorded_cost(record) == Cost.model_validate(COST)
    stored = json.loads(record.model_dump_json())
    assert parsed(json.dumps(stored)).provenance["cost"] == COST
    for key, value in (("seconds", ["1"]), ("sentences_per_second", 0), ("memory_bytes", 1.5), ("machine", "mine")):
        edited = {**stored, "provenance": {**stored["provenance"], "cost": {**COST, key: value}}}
        with pytest.raises(ValueError, match=f"provenance.cost.{key}"):
            parsed(json.dumps(edited))


@pytest.mark.parametrize(("changed", "words"), [
    ({}, ("Some CPU, 8 cores", "cpu, 4 threads")), ({"threads": None}, ("Some CPU, 8 cores", None)),
    ({"where": "processes", "processes": 2, "probe": 3},
     ("Some CPU, 8 cores, 2 processes, probe texts 3", "cpu, 4 threads")),
    ({"where": "server", "device": "server", "threads": None}, ("Some CPU, 8 cores, a server", None)),
])
def test_a_machine_and_its_use_in_words(changed, words):
    assert machine_and_use(Cost.model_validate({**COST, **changed})) == words


@pytest.mark.parametrize(("spec", "expected"), [
    ({}, 400), ({"options": {"precision": "int8"}}, 100), ({"options": {"precision": "ubinary"}}, 13),
    ({"kind": "vectors", "options": {"dtype": "float16"}}, 200), ({"kind": "lexical"}, None),
    ({"kind": "callable"}, None), ({"options": {"precision": "int3"}}, None),
])
def test_bytes_follow_from_width_and_precision(tmp_path, spec, expected):
    [(_, record)] = load_records(sts_run(tmp_path / "run", 0.2, ["STS-B"]))
    encoder = record.encoder.model_copy(update={"dimension": 100, "spec": {"name": "x", **spec}})
    assert bytes_a_vector(record.model_copy(update={"encoder": encoder})) == expected
