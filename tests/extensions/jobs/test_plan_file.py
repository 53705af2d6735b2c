"""A plan file: what it may say, which jobs it stands for and how many. It may be somebody else's: code that it names is run
only where the command names it, and its jobs import nothing from the working folder."""

import json
import multiprocessing
import os
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from clirun import cli, fails, place  # noqa: F401
from plans import SHORT, here, jobs_of, training, write  # noqa: F401

from stsbench.config import parse_yaml
from stsbench.encoders.options import EncoderOptions
from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.expand import DEEPEST, _without_later, command_words, expand, job_count
from stsbench.extensions.jobs.plan_file import EvalGroup, made_plan, read_plan
from stsbench.extensions.jobs.pool import PROGRAM
from stsbench.registry import names
from stsbench.training.recipes.recipes import load_recipe


def test_methods_models_recipes_seeds_and_protocols_are_multiplied(here):
    path = write({
        "defaults": {**SHORT, "seeds": [1, 2]},
        "train": {
            "base": {"method": "mlm", "backbone": "tiny", "data": "text.txt", "seeds": 7},
            "zoo": {"method": ["simcse", "ct"], "backbone": ["tiny", "job:base"], "data": "text.txt"}},
        "eval": {"e": {"model": ["job:zoo", "minilm"], "protocols": ["sts,geometry", "transfer"]}}})
    jobs = jobs_of(path)
    zoo = [f"zoo.{method}.{model}-{seed}" for method in ("simcse", "ct") for model in ("tiny", "base") for seed in (1, 2)]
    evals = [f"e.{model}.{kind}" for model in [*zoo, "minilm"] for kind in ("sts-geometry", "transfer")]
    assert list(jobs) == ["base-7", *zoo, *evals]
    assert all(jobs[name].needs == ((jobs["base-7"].id,) if "base" in name else ()) for name in zoo)
    assert jobs["e.zoo.ct.base-2.transfer"].needs == (jobs["zoo.ct.base-2"].id,)
    words = jobs["zoo.ct.base-2"].command(Path("out"))
    assert words[:2] == ["train", "ct"] and words[words.index("--backbone") + 1] == f"out/{jobs['base-7'].id}"


def test_a_seed_s_training_goes_on_from_that_of_its_seed(here):
    jobs = jobs_of(write({"train": {
        "one": training(method="diffaug", stage="1", seeds=[1, 2], recipe="bert-base-semi", set={}),
        "two": training(method="diffaug", stage="2", start_from="job:one", seeds=[2], recipe="bert-base-semi", set={})}}))
    assert jobs["two-2"].needs == (jobs["one-2"].id,)
    assert f"--from out/{jobs['one-2'].id}" in jobs["two-2"].line(Path("out"))


def digests(**more):
    return {name: job.digest for name, job in jobs_of(write({
        "train": {"a": training(**more), "b": training(backbone="job:a", max_steps=1)},
        "eval": {"e": {"model": "job:b"}, "m": {"model": "minilm"}}})).items()}


def test_a_changed_recipe_makes_another_job_and_others_of_all_that_need_it(here):
    recipe = {"name": "mine", "description": "first", "backbone": {"model": "tiny", "max_length": 20}}
    Path("mine.yaml").write_text(yaml.safe_dump(recipe), "utf-8")
    before = digests(recipe="mine.yaml")
    assert digests(recipe="mine.yaml") == before
    Path("mine.yaml").write_text(yaml.safe_dump({**recipe, "description": "said otherwise"}), "utf-8")
    assert digests(recipe="mine.yaml") == before
    Path("mine.yaml").write_text(yaml.safe_dump({**recipe, "training": {"learning_rate": 1e-4}}), "utf-8")
    after = digests(recipe="mine.yaml")
    assert {name for name in before if before[name] != after[name]} == {"a-1", "b-1", "e.b-1"}


def test_the_command_line_counts_before_groups_and_defaults(here):
    group = training(data="{data_dir}/t.txt", dtype="float32", device="cpu")
    plan = {"train": {"a": group}, "eval": {"e": {"model": "job:a"}}}
    train, evaluation = expand(read_plan(write(plan), {"device": "cuda", "dtype": "bf16", "data_dir": "D"}), "plan")
    assert "--data D/t.txt" in train.line(Path("out")) and train.reads == ("D/t.txt",)
    for words in ("--device cuda", "--dtype bf16", "--data-dir D"):
        assert words in train.line(Path("out"))
    assert "--device cuda" in evaluation.line(Path("out")) and "--dtype" not in evaluation.line(Path("out"))
    assert "--sample" not in train.line(Path("out"))


def test_recipes_without_later_sections_keep_their_digests():
    values = _without_later(load_recipe("simcse").model_dump(mode="json"))
    assert not {"matryoshka", "guide", "ranking"} & values.keys()
    nested = load_recipe("simcse", None, ["matryoshka.dims=[32, 8]"])
    assert "matryoshka" in _without_later(nested.model_dump(mode="json"))


def test_every_option_of_an_encoder_is_a_key():
    """But for those that all jobs share, or that would run a stranger's code."""
    shared = {"model", "device", "offline", "trust_remote_code"}
    declared = {entry.name for entry in fields(EncoderOptions)} - shared
    assert declared <= EvalGroup.model_fields.keys() and not {"trust_remote_code", "offline"} & EvalGroup.model_fields.keys()


@pytest.mark.parametrize(("group", "digest"), [  # what a group says, and its job's digest since there are plans
    ('{"model": "org/model", "tasks": ["STS12", "STS-B"], "pooler": "mean", "template": "a {} b", "full_stop": false, '
     '"max_length": 9, "normalize": false, "truncate_dim": 3, "revision": "r", "post": "whitening", "fit_on": "target", '
     '"similarity": "dot", "resamples": 7, "text": "raw", "without_overlap": ["stsb/dev", "sts12"], "batch_tokens": 5, '
     '"attention": "eager", "dtype": "bfloat16"}', "2c26436900"),
    ('{"model": "minilm", "full_stop": true, "normalize": true, "set": {"sts.aggregations": ["mean"]}}', "fd8e105633"),
    ('{"model": "minilm", "prompt": "q: ", "full_stop": true, "normalize": true, "set": {"sts.aggregations": ["mean"]}}',
     "3063045c40"),
    ('{"model": "lexical:token-set", "protocols": "sts:own.csv", "columns": "sentence1=a,sentence2=b,score=c"}',
     "ce1eb14876")])
def test_a_job_keeps_its_id(here, group, digest):
    [job] = jobs_of(write({"defaults": {}, "eval": {"e": json.loads(group)}})).values()
    assert job.id.endswith(digest)


@pytest.mark.skipif("openai" not in names("stsbench.encoders"), reason="nothing asks a server here")
def test_what_goes_to_a_server_is_in_a_plan_and_in_the_digest(here):
    def job(**more):
        [made] = jobs_of(write({"eval": {"e": {"model": "openai:x", "base_url": "http://127.0.0.1:1/v1", **more}}})).values()
        return made

    further = {"input_type": {"query": "query", "document": "passage", "text": "query"}}
    made = job(extra_body=further, query_prompt="q: ", document_prompt="", truncate_dim=8)
    words = dict(zip(made.words[1::2], made.words[2::2], strict=False))
    assert json.loads(words["--extra-body"]) == further and words["--query-prompt"] == "q: "
    assert words["--document-prompt"] == "" and words["--truncate-dim"] == "8" and words["--base-url"].startswith("http")
    assert made.digest == job(extra_body=further, query_prompt="q: ", document_prompt="", truncate_dim=8).digest
    assert len({made.digest, job().digest, job(extra_body=further).digest, job(extra_body={"a": 1}).digest}) == 4
    for wrong in ({"extra_body": "fields.json"}, {"dimensions": 8}):
        with pytest.raises(StsbenchError, match=next(iter(wrong))):
            job(**wrong)


def test_values_of_set_are_read_back_as_they_were():
    values = {"a": 3e-05, "b": None, "c": True, "d": "sts-b dev", "e": "1e-5", "f": [1, 2], "g": "null", "h": "",
              "i": "x: y", "j": 0.1}
    words = command_words({"set": values})
    assert words[::2] == ["--set"] * len(values)
    assert {word.partition("=")[0]: parse_yaml(word.partition("=")[2], "") for word in words[1::2]} == values
    words = command_words({"no": None, "on": True, "off": False, "n": 3, "list": ("a", "b")})
    assert shlex.join(words) == "--on --no-off --n 3 --list a,b"


def test_a_setting_may_name_another_training_a_teacher_say(here):
    def plan(teacher, **more):
        sets = {"options.teachers": [{"model": teacher}], **more}
        ranked = training(method="rankcse", recipe="listnet-bert-base", set=sets)
        return write({"defaults": {**SHORT, "seeds": [1, 2]}, "train": {"a": training(), "b": ranked}})

    jobs = jobs_of(plan("job:a"))
    for seed in (1, 2):
        job, teacher = jobs[f"b-{seed}"], jobs[f"a-{seed}"]
        assert job.needs == (teacher.id,) and job.backbone == "tiny"
        assert f'options.teachers=[{{"model": "{Path("out") / teacher.id}"}}]' in job.command(Path("out"))
    one = jobs_of(plan("job:a-1"))
    assert {job.needs for name, job in one.items() if name[0] == "b"} == {(jobs["a-1"].id,)}
    assert one["b-1"].digest == jobs["b-1"].digest != jobs["b-2"].digest
    other = jobs_of(plan("job:a", **{"training.learning_rate": 1e-3}))
    assert other["b-1"].needs == jobs["b-1"].needs and other["b-1"].digest != jobs["b-1"].digest


METHOD = 'open("RAN", "w").write("x")\nfrom stsbench.methods.simcse.method import SimCSE\nclass M(SimCSE):\n    pass\n'
GROUP = {"backbone": "minilm", "max_steps": 1, "recipe": "unsup-bert-base"}


def test_code_is_run_only_where_the_command_names_it(cli, place):
    (place / "m.py").write_text(METHOD, "utf-8")
    before = {*sys.modules}
    for plan, named in (
        ({"train": {"t": {"method": ["simcse", "./m.py:M"], **GROUP}}}, "./m.py:M"),
        ({"train": {"t": {"method": "/proc/self/cwd/m.py:M", **GROUP}}}, "/proc/self/cwd/m.py:M"),
        ({"eval": {"e": {"model": ["minilm", "python:mine_cli:hashed"]}}}, "python:mine_cli:hashed"),
        ({"eval": {"e": {"model": "{data_dir}"}}, "defaults": {"data_dir": "python:os:system"}}, "python:os:system")):
        path = write(plan)
        for words in ((), ("--status",), ("--dry-run",), ("--allow", "m.py:N"), ("--allow", "python:mine_cli:flat")):
            fails(cli("run", path, *words), "names code", f"--allow {named}")
    assert not Path("RAN").exists() and not any("stsbench_method" in name for name in {*sys.modules} - before)


def test_what_the_command_names_is_run(cli, place):
    (place / "m.py").write_text(METHOD.replace('open("RAN", "w").write("x")', ""), "utf-8")
    (place / "unsup-bert-base.yaml").write_text(
        "backbone: {model: minilm}\nselection: {by: none}\ndata: {file: text.txt}\n", "utf-8")
    path = write({"train": {"t": {"method": "./m.py:M", **GROUP}}, "eval": {"e": {"model": "python:mine_cli:hashed"}}})
    code, out, _ = cli("run", path, "--dry-run", "--allow", "m.py:M", "--allow", "python:mine_cli:hashed")
    assert code == 0 and [line.split()[1:3] for line in out.splitlines()] == [["train", "./m.py:M"], ["eval", "--model"]]


def test_a_chain_of_groups_is_refused_beyond_a_length_and_a_number_of_jobs():
    def refused(said, **backbones):
        train = {name: {"method": "simcse", "backbone": among} for name, among in backbones.items()}
        with pytest.raises(StsbenchError, match=said):
            expand(made_plan({"output": "out", "train": {**train, "end": {"method": "simcse"}}}, "plan"), "plan")

    def chain(length, times):
        return {f"g{at}": [f"job:g{at + 1}" if at < length - 1 else "job:end"] * times for at in range(length)}

    refused(f"more than {DEEPEST} groups go on from one another", **chain(DEEPEST + 100, 1))
    refused("a plan may have", **chain(60, 9))


def test_the_count_is_that_of_the_jobs(place):
    plan = read_plan(write({
        "train": {"a": {"method": ["simcse", "ct"], "seeds": [1, 2]}, "b": {"method": "simcse", "backbone": ["job:a", "x"]},
                  "c": {"method": "simcse", "backbone": "job:a.ct-1", "seeds": [1, 2, 3], "max_steps": 7}},
        "eval": {"e": {"model": ["job:a", "job:b", "job:c-2", "minilm"], "protocols": ["sts", "transfer"]}}}))
    assert job_count(plan, "") == len(expand(plan, "")) == 4 + 3 + 3 + 2 * (4 + 3 + 1 + 1)


def test_no_process_that_is_started_looks_for_a_module_in_the_working_folder(cli, place, monkeypatch):
    """Neither those of --processes and joblib's, nor jobs, entries for the board, what they start in turn, and `python -m
    stsbench` itself."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    environment = dict(os.environ)
    assert cli("list", "methods")[0] == 0
    for name in ("tokenize", "click", "numpy", "socket", "pickle", "yaml", "json", "multiprocessing", "joblib", "torch"):
        (place / f"{name}.py").write_text("open('RAN', 'a').write(__name__)\nraise SystemExit(7)\n", "utf-8")
    spawned = multiprocessing.get_context("spawn").Process(target=os.getpid)
    spawned.start()
    spawned.join(60)
    assert spawned.exitcode == 0 and not Path("RAN").exists()
    for words in (*PROGRAM, "--version"), (sys.executable, "-m", "stsbench", "list", "protocols"):
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100)
        assert ended.returncode == 0 and not Path("RAN").exists(), ended.stderr
