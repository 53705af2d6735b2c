"""An evaluation of a user's own data is done when its records are of what the files hold now, whatever the protocol."""

import json
from pathlib import Path

import pytest
from core_protocols import core_protocols

import stsbench
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import user_protocol
from stsbench.extensions.jobs.content import check_jobs
from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.plan_file import made_plan
from stsbench.extensions.jobs.state import is_done, missing_records

WORDS = ("cat", "dog", "horse", "bird", "fish")
PAIRS = [(f"a {WORDS[i % 5]} number {i} sits", f"the {WORDS[i % 3]} of {i % 7} runs", i % 4) for i in range(24)]
TABLES = {
    "scored.tsv": ("sentence1 sentence2 score", PAIRS),
    "odd.tsv": ("left right value other", [(*row, 1) for row in PAIRS]),
    "labels.csv": ("sentence1 sentence2 label", [(one, two, score % 2) for one, two, score in PAIRS]),
    "triplets.csv": ("anchor positive negative", [(one, two, f"not {one}") for one, two, _ in PAIRS]),
    "texts.csv": ("text label", [(one, score % 2) for one, _, score in PAIRS]),
}
COLUMNS = {"columns": "sentence1=left,sentence2=right,score=value"}
EACH = [  # the protocols of one evaluation, the file that changes, further keys of the group
    ("sts:scored.tsv", "scored.tsv", {}), ("sts:mean:scored.tsv", "scored.tsv", {}), ("sts:odd.tsv", "odd.tsv", COLUMNS),
    ("sts:scored.tsv,pairs:labels.csv", "labels.csv", {}), ("sts:mean,sts:scored.tsv", "scored.tsv", {}),
    ("sts:scored.tsv,sts", "scored.tsv", {"tasks": ["scored.tsv", "STS-B"]}),
    ("sts:scored.tsv", "scored.tsv", {"text": "raw"}),
    ("pairs:labels.csv", "labels.csv", {"set": {"pairs.positive": "1"}}), ("triplets:triplets.csv", "triplets.csv", {}),
    ("transfer:texts.csv", "texts.csv", {}), ("retrieval:folder", "folder/corpus.jsonl", {}),
]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, (header, rows) in TABLES.items():
        separator = "\t" if name.endswith(".tsv") else ","
        lines = [separator.join(map(str, row)) for row in [header.split(), *rows]]
        Path(name).write_text("\n".join(lines) + "\n", "utf-8")
    Path("folder").mkdir()
    for name, texts in (("queries", [two for _, two, _ in PAIRS[:9]]), ("corpus", [one for one, _, _ in PAIRS])):
        lines = [json.dumps({"_id": f"{name}{number}", "text": text}) for number, text in enumerate(texts)]
        Path(f"folder/{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    rows = [f"queries{number}\tcorpus{number}\t1" for number in range(9)]
    Path("folder/qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n", "utf-8")


def test_every_protocol_that_takes_a_user_s_data_is_below():
    protocols = {protocol.partition(":")[0] for names, *_ in EACH for protocol in names.split(",")}
    assert protocols == {name for name, kind in core_protocols().items() if kind.path_setting}


@pytest.mark.parametrize(("protocols", "file", "more"), EACH)
def test_what_is_measured_is_done_until_a_file_changes(files, protocols, file, more):
    group = {"model": "lexical:token-set", "protocols": [protocols], **more}
    plan = made_plan({"output": "out", "eval": {"own": group}}, "plan.yaml")
    [job] = expand(plan, "plan.yaml")
    out = Path("out")
    assert not is_done(job, out)
    names = {"set": "settings", "text": "text_version"}
    options = {names.get(key, key): value for key, value in more.items()}
    options["sample"] = "text" not in more
    stsbench.evaluate("lexical:token-set", protocols=protocols, output=job.folder(out), **options)
    assert missing_records(job, job.folder(out)) == [] and is_done(job, out)
    check_jobs([job], out, plan.defaults)
    path = Path(file)
    before = path.read_text("utf-8")
    path.write_text(before.replace("number 3", "number three"), "utf-8")
    assert not is_done(job, out)
    with pytest.raises(StsbenchError, match="is not what it was when jobs in out read it"):
        check_jobs([job], out, plan.defaults)
    path.write_text("damaged", "utf-8")
    assert not is_done(job, out)
    path.write_text(before, "utf-8")
    assert is_done(job, out)
    path.rename("elsewhere")  # what was measured is not measured again
    assert is_done(job, out) == (path.parent == Path())


def test_settings_and_tasks_are_checked_before_the_training_that_the_evaluation_waits_for(files):
    def expanded(**more):
        group = {"model": "lexical:token-set", **more}
        expand(made_plan({"output": "out", "eval": {"own": group}}, "plan.yaml"), "plan.yaml")

    expanded(protocols=["sts:later.tsv", "retrieval:later"])
    for group, message in (
        ({"protocols": ["sts:later.tsv"], "set": {"sts.tie": 1}}, "eval.own: .*tie"),
        ({"protocols": ["sts:later.tsv"], "tasks": ["STS-B"]}, "eval.own: unknown task 'STS-B'"),
        ({"protocols": ["sts"], "columns": "score=s"}, "eval.own: --columns does not apply"),
    ):
        with pytest.raises(StsbenchError, match=message):
            expanded(**group)
    assert user_protocol("sts:maen", {}) is None
