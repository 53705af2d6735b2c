"""What jobs read under one name stays what it was: results of other text, weights or development data do not meet in one
folder, and an evaluation of a user's own data is done when its records are of what the files hold now."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from clirun import SAMPLE, cli, fails  # noqa: F401
from core_protocols import core_protocols
from plans import here, jobs_of, training, write  # noqa: F401
from test_sweep import never, of_group, run, search

import stsbench
from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.content import READ, check_jobs, check_read, dev_digests
from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.plan import _lacks_file
from stsbench.extensions.jobs.plan_file import Defaults, made_plan
from stsbench.extensions.jobs.space import Trial, space_of_grid
from stsbench.extensions.jobs.state import BESIDE, is_done, missing_records
from stsbench.training.rows.files import SetPlace

GRID = ["training.learning_rate=1e-5,3e-5"]


def begin(chosen):
    check_read(chosen.output, chosen.read())


@pytest.fixture
def places(here, monkeypatch):
    """Text in a data folder, and development data there."""
    monkeypatch.setenv("STSBENCH_CACHE", "cache")
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    shutil.copytree(SAMPLE, "data")
    Path("data/train").mkdir(exist_ok=True)
    shutil.copy("text.txt", "data/train/some.txt")
    Path("more.txt").write_text("Text of a stage.\n", "utf-8")
    return here


def change(pattern):
    """Another content of a file: the last byte but one."""
    [path] = Path().glob(pattern)
    content = path.read_bytes()
    path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])


def of_places():
    chosen = search(space_of_grid(GRID), **{"stages.main.data.file": "more.txt"})
    return replace(of_group(chosen, data="some.txt"), defaults=Defaults(offline=True, data_dir="data"))


@pytest.mark.parametrize(("changed", "named"), [
    ("data/train/some.txt", "some.txt"), ("tiny/tokenizer.json", "tiny"), ("data/**/sts-dev.csv", "sts-b dev"),
    ("more.txt", "more.txt")])
def test_a_sweep_is_of_one_text_backbone_and_dev_data(places, changed, named):
    begin(of_places())
    begin(of_places())  # the same again goes on
    change(changed)
    with pytest.raises(StsbenchError, match=rf"^{named} is not what it was when jobs in out read it: put it back"):
        run(of_places(), never)


def test_what_a_first_trial_fetches_is_no_change(places):
    path = Path("data/train/some.txt")
    content = path.read_bytes()
    path.unlink()
    begin(of_places())
    path.write_bytes(content)
    begin(of_places())


def test_without_dev_data_no_trial_is_begun(places):
    for by in ("sts-b dev", "avg_sts", "transfer dev"):
        chosen = search(space_of_grid(GRID), **{"selection.by": by})
        with pytest.raises(StsbenchError, match=r"no dev data, by which trials are compared: .*stsbench data fetch"):
            run(replace(chosen, defaults=Defaults(offline=True)), never)
    assert not Path("out").exists() or not [path for path in Path("out").iterdir() if path.name != ".jobs"]


def test_a_plan_is_of_one_text_and_backbone(cli, here, monkeypatch):
    """Refused where a training has begun, done or not; text of trainings that are still to come may change."""
    monkeypatch.setenv("STSBENCH_CACHE", "cache")
    for name in ("one.txt", "two.txt"):
        shutil.copy("text.txt", name)
    plan = write({"train": {"a": training(data="one.txt"), "b": training(data="two.txt", seeds=[1, 2])}})
    jobs, defaults = jobs_of(plan), Defaults(offline=True)

    def check():
        check_jobs([*jobs.values()], Path("out"), defaults)

    check()
    jobs["a-1"].folder(Path("out")).mkdir()
    Path("two.txt").write_text("To come.\n", "utf-8")
    check()
    jobs["b-1"].folder(Path("out")).mkdir()
    check()
    Path("two.txt").write_text("Another one.\n", "utf-8")
    fails(cli("run", plan), "two.txt is not what it was when jobs in out read it")
    check_jobs([jobs["a-1"]], Path("out"), defaults)  # which reads another
    Path("two.txt").write_text("To come.\n", "utf-8")
    check()
    change("tiny/model.safetensors")
    fails(cli("run", plan), "tiny is not what it was")


@pytest.mark.parametrize(("model", "options", "changed"), [
    ("tiny", {}, "tiny"), ("tiny", {"pooler": "cls", "post": "standardise", "fit_on": "more.txt"}, "more.txt"),
    ("judge:chat", {"judge_prompt": "more.txt"}, "more.txt")])
def test_evaluations_are_of_one_model_and_of_the_files_that_options_name(here, model, options, changed):
    Path("more.txt").write_text("How alike are {a} and {b}?\n", "utf-8")
    [job] = jobs_of(write({"eval": {"e": {"model": model, "protocols": "sts", **options}}})).values()
    check_jobs([job], Path("out"), Defaults())
    job.folder(Path("out")).mkdir()
    check_jobs([job], Path("out"), Defaults())
    change("tiny/model.safetensors" if changed == "tiny" else changed)
    with pytest.raises(StsbenchError, match=rf"^{changed} is not what it was when jobs in out read it"):
        check_jobs([job], Path("out"), Defaults())


def test_callers_at_one_moment_lose_nothing_that_the_others_read(tmp_path):
    """Each reads the file, adds its names and writes it."""
    names = [f"text-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: check_read(tmp_path, {name: "a digest"}), names))
    assert json.loads((tmp_path / BESIDE / READ).read_text("utf-8")) == dict.fromkeys(names, "a digest")


def test_how_often_a_checkpoint_is_written_makes_no_other_job_and_no_other_search(here):
    chosen = search(space_of_grid(GRID))
    often = replace(chosen, group=chosen.group.model_copy(update={"set": {**chosen.group.set, "checkpoint_minutes": 1}}))
    assert often.identity == chosen.identity and often.name == chosen.name
    trial = Trial(0, {"training.learning_rate": 1e-5}, "")
    [one], [other] = chosen.jobs(trial), often.jobs(trial)
    assert one.id == other.id and "checkpoint_minutes=1" in other.words and "checkpoint_minutes=1" not in one.words


def test_own_pairs_are_known_by_their_content(tmp_path):
    rows = ["a cat runs .\tthe cat runs .\t1", "the red park\ta blue park\t0", "a dog\tfood\t1"]
    for kind, column in (("sts", "score"), ("pairs", "label")):
        for name, lines in (("a.tsv", rows), ("b.tsv", rows), ("c.tsv", rows[1:])):
            (tmp_path / name).write_text("\n".join([f"sentence1\tsentence2\t{column}", *lines, ""]), "utf-8")
        one, again, other = (dev_digests(f"{kind}:{tmp_path / name}", Defaults()) for name in ("a.tsv", "b.tsv", "c.tsv"))
        assert [*one.values()] == [*again.values()] != [*other.values()] and [*one] == [f"{kind}:{tmp_path / 'a.tsv'}"]


def test_where_a_text_may_lie(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    offline = SetPlace(offline=True)
    assert _lacks_file("nli_for_simcse.csv", offline) and not _lacks_file("nli_for_simcse.csv", SetPlace())
    assert _lacks_file("mine.txt", SetPlace()) and not _lacks_file("stsb/train", offline)
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "train" / "mine.txt").write_text("a\n")
    assert not _lacks_file("mine.txt", SetPlace(tmp_path / "data", offline=True))
    monkeypatch.setenv("STSBENCH_DATA", str(tmp_path / "data"))
    assert not _lacks_file("mine.txt", offline)


WORDS = ("cat", "dog", "horse", "bird", "fish")
PAIRS = pd.DataFrame([
    (f"a {WORDS[i % 5]} number {i} sits", f"the {WORDS[i % 3]} of {i % 7} runs", i % 4) for i in range(24)
], columns=["sentence1", "sentence2", "score"])
ONE, TWO, LABEL = PAIRS.sentence1, PAIRS.sentence2, PAIRS.score % 2
TABLES = {
    "scored.tsv": PAIRS, "odd.tsv": PAIRS.set_axis(["left", "right", "value"], axis=1).assign(other=1),
    "labels.csv": pd.DataFrame({"sentence1": ONE, "sentence2": TWO, "label": LABEL}),
    "triplets.csv": pd.DataFrame({"anchor": ONE, "positive": TWO, "negative": "not " + ONE}),
    "texts.csv": pd.DataFrame({"text": ONE, "label": LABEL}),
    "folder/queries.jsonl": pd.DataFrame({"_id": [f"q{i}" for i in range(9)], "text": TWO[:9]}),
    "folder/corpus.jsonl": pd.DataFrame({"_id": [f"d{i}" for i in range(24)], "text": ONE}),
    "folder/qrels.tsv": pd.DataFrame([(f"q{i}", f"d{i}", 1) for i in range(9)], columns=["query-id", "corpus-id", "score"])}
EACH = [  # the protocols of one evaluation, the file that changes, further keys of the group
    ("sts:mean:odd.tsv", "odd.tsv", {"columns": "sentence1=left,sentence2=right,score=value"}),
    ("sts:scored.tsv,sts", "scored.tsv", {"tasks": ["scored.tsv", "STS-B"]}),
    ("sts:scored.tsv", "scored.tsv", {"text": "raw"}),
    ("pairs:labels.csv", "labels.csv", {"set": {"pairs.positive": "1"}}), ("triplets:triplets.csv", "triplets.csv", {}),
    ("transfer:texts.csv", "texts.csv", {}), ("retrieval:folder", "folder/corpus.jsonl", {})]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name, table in TABLES.items():
        if name.endswith(".jsonl"):
            table.to_json(name, orient="records", lines=True)
        else:
            table.to_csv(name, sep="\t" if name.endswith(".tsv") else ",", index=False)


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
