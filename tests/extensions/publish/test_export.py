"""`stsbench export`: a run's records as they are, a training's model, and mteb's result files, which mteb reads. The card
beside a trained model: what was trained, and code that loads it in three libraries with the same vectors."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from clirun import cli, contents, measured, place  # noqa: F401
from huggingface_hub import ModelCard
from live_models import by_hand, inference
from mteb_run import SIZE, run, vectors  # noqa: F401  a fixture
from prompted import PLAIN, models, rich, with_prompt  # noqa: F401
from run_edits import edit, put_beside
from tiny_models import build, sentences
from transformers import AutoModel, AutoTokenizer

import stsbench
from stsbench import evaluate, load_encoder
from stsbench.data.fetch.mteb import undisturbed
from stsbench.data.sets.catalog import entry, hub_revision
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.forward.pooling import KINDS
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import measure
from stsbench.evaluation.records import Record
from stsbench.evaluation.result import Result
from stsbench.evaluation.run_file import load_records
from stsbench.extensions.publish.export import RECORDS, export_json
from stsbench.extensions.publish.mteb_results import export_mteb, why_not_mteb
from stsbench.extensions.publish.training_card import describe, model_card, training_card, transformers_snippet
from stsbench.protocols.mteb import MtebProtocol
from stsbench.training.api.method import Inference
from stsbench.training.engine.selection import live_encoder
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.runs.export import export_model

pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")


def test_a_training_run_exports_as_the_model_that_it_kept(place, cli):
    run = place / "trained"
    run.mkdir()
    (run / "recipe.yaml").write_text("name: tiny-run\n")
    words = ("export", "trained", "--to", "sentence-transformers")
    build(run / "best")
    code, out, _ = cli(*words)
    copied = place / "trained-sentence-transformers"
    assert code == 0 and out.split() == [str(path) for path in sorted(copied.rglob("*")) if path.is_file()]
    assert contents(copied) == contents(run / "best") and len(contents(copied)) > 3
    stsbench.export("trained", "sentence-transformers", "by-function")
    assert contents("by-function") == contents(copied)
    vectors = [load_encoder(str(folder), pooler="mean").encode(sentences(4)) for folder in (copied, run)]
    assert (vectors[0] == vectors[1]).all()
    assert "already there" in cli(*words)[2]


def test_every_record_comes_back_in_the_order_of_measuring(measured, place):
    """Nothing is overwritten, and a damaged run gives nothing."""
    run = measured.folder
    [path] = export_json(run, place / "out")
    assert path == place / "out" / RECORDS and list(path.parent.iterdir()) == [path]
    before = path.read_bytes()
    objects = json.loads(before)
    assert [(each.pop("name"), Record.model_validate(each)) for each in objects] == [
        (pseudo.name, record) for pseudo, record in load_records(run)]
    assert "similarity" not in {key for each in objects for key in each}
    with pytest.raises(StsbenchError, match="is already there"):
        export_json(run, place / "out")
    assert path.read_bytes() == before
    copy = shutil.copytree(run, place / "copy")
    damaged = edit(copy, lambda row: row.record["data"].update(n=-1))
    with pytest.raises(StsbenchError) as caught:
        export_json(copy, place / "other")
    assert str(caught.value).startswith(f"{damaged} is not a valid record: data.n: ") and not (place / "other").exists()


def test_mteb_reads_what_is_written(run, tmp_path):
    files, left_out = export_mteb(run, tmp_path / "out")
    [(_, record)] = load_records(run)
    fingerprint = record.encoder.fingerprint
    assert left_out == {} and [path.name for path in files] == ["STSBenchmark.json"]
    assert files[0].parts[-4:-2] == ("results", "stsbench__" + record.encoder.spec["name"].replace(":", "-"))
    assert files[0].parent.name == f"stsbench-{fingerprint}"
    rows = {row.metric: row.value / 100 for row in record.scores}
    with undisturbed() as mteb:
        loaded = mteb.ResultCache(tmp_path / "out").load_results(validate_and_filter=True)
        [model] = loaded.model_results
        [result] = model.task_results
        assert model.model_name.startswith("stsbench/") and model.model_revision == f"stsbench-{fingerprint}"
        assert model.model_meta.embed_dim == 4
        assert result.dataset_revision == mteb.get_task("STSBenchmark").metadata.revision
        assert result.get_score() == pytest.approx(rows["cosine_spearman"], abs=1e-6)
        assert result.scores["test"][0]["spearman"] == pytest.approx(rows["spearman"], abs=1e-6)


def test_each_reason(run):
    [(_, record)] = load_records(run)
    for parts, revision, reason in (
        ({}, None, None), ({"text_version": "senteval"}, None, "text version 'senteval'"),
        ({"text_version": "sample"}, None, "sample data"), ({"known": False}, None, "not known"),
        ({"n": SIZE - 1}, None, "not the set that MTEB measures on"),
        ({"id": "sick-r/test", "n": 4927}, None, "sick-r/test with 4927 pairs is not the set"),
        ({"fitted_on": "stsb/test@abc"}, None, "fitted on the very texts"), ({"fitted_on": "nli@abc"}, None, None),
        ({}, "another", "another revision"),
        ({"id": "mteb:BIOSSES", "text_version": "own", "known": False, "n": 0}, "theirs", None)):
        changed = record.model_copy(deep=True)
        changed.encoder.spec |= {"fitted_on": parts.pop("fitted_on", None)}
        for key, value in parts.items():
            setattr(changed.data, key, value)
        why = why_not_mteb(changed, {"dataset_revision": revision or entry("stsb/test", "raw").hub.revision})
        assert (why is None) if reason is None else (reason in why and "\n" not in why)


def test_every_raw_set_is_measured_at_the_revision_that_mteb_pins():
    with undisturbed() as mteb:
        pinned = {name: mteb.get_task(name).metadata.revision for name in ("STS12", "STS13", "STS14", "STS15", "STS16")}
        pinned |= {"STS-B": mteb.get_task("STSBenchmark").metadata.revision}
        pinned |= {"SICK-R-MTEB": mteb.get_task("SICK-R").metadata.revision}
    for task, id in MtebProtocol({}).tasks().items():
        if task != "SICK-R":
            assert hub_revision(id, "raw", True, entry(id, "raw").total) == pinned[task]
    assert hub_revision("sick-r/test", "raw", True, 4927) is None
    assert hub_revision("stsb/test", "senteval", True, SIZE) is None


def test_the_command_writes_what_it_can_and_says_what_it_left_out(run, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("export", run, "--to", "mteb", "--output", "out")
    assert (code, err) == (0, "") and out.startswith("out/results/stsbench__") and out.count("\n") == 1
    [made] = stsbench.export(run, "mteb", "by-function")
    assert made.read_bytes() == Path(out.strip()).read_bytes()
    sample = evaluate(vectors, output=tmp_path / "sample", protocols=["mteb:STS12"], sample=True, no_cache=True)
    mixed = put_beside(shutil.copytree(run, tmp_path / "mixed"), sample.folder)
    code, out, err = cli("export", mixed, "--to", "mteb")
    assert code == 3 and "STS12 left out: it was measured on the sample data" in err
    assert out == f"{tmp_path}/mixed-mteb/{next(Path('out').rglob('STSBenchmark.json')).relative_to('out')}\n"
    code, out, err = cli("export", sample.folder, "--to", "mteb")
    assert code == 1 and out == "" and err.count("\n") == 1 and "sample data" in err


def test_a_task_of_the_hub_is_exported_as_mteb_named_it(tmp_path, monkeypatch):
    with undisturbed():
        from mteb.mocks import mock_tasks

        task = mock_tasks.MockSTSTask()
    monkeypatch.setattr(MtebProtocol, "_task", lambda self, mteb, name: task)
    protocol = MtebProtocol({"tasks": {"MockSTSTask": "mteb:MockSTSTask"}})
    sets = {"MockSTSTask": protocol.load("mteb:MockSTSTask")}
    result = Result(tmp_path / "run")
    measure(result, Embed(CallableEncoder(vectors)), protocol, sets)
    assert not result.failures
    result.write()
    files, left_out = export_mteb(result.folder, tmp_path / "out")
    assert left_out == {} and json.loads(files[0].read_text())["task_name"] == task.metadata.name


TEXTS = [*sentences(6), "", "a cat", "the cat " * 25]  # the last one is longer than 64 tokens
RECIPE = Recipe(name="tiny-run", method="simcse", backbone={"model": "/home/me/models/tiny"},
                data={"file": "/data/x/text.txt"})
SAID = {"pooler": "cls", "max_length": None, "auto_pooler": ""}


def exported(made, folder):
    """The card, and what each of its snippets computes of TEXTS."""
    state = torch.get_rng_state()
    card = training_card(RECIPE, made, {})
    assert torch.equal(torch.get_rng_state(), state)
    export_model(made, folder, card=card)
    assert (folder / "README.md").read_text("utf-8") == card
    made_by = []
    for code in re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL):
        names = {"texts": TEXTS}
        exec(code.replace("PATH", str(folder)), names)
        made_by.append(np.asarray(names["vectors"]))
    return card, made_by


@pytest.mark.parametrize("family", ["roberta", "distilbert"])  # whose head AutoModel has, and has not
def test_three_snippets_give_the_methods_vectors(tmp_path, family):
    made = inference(tmp_path / "model", family, "cls+dense")
    want = by_hand(made, TEXTS)
    card, vectors = exported(made, tmp_path / "out")
    assert len(vectors) == 3 and "All three" in card
    assert all(np.abs(some - want).max() < 1e-5 for some in vectors)


def test_the_snippet_of_each_pooler_gives_its_vectors(tmp_path):
    made = inference(tmp_path / "model")
    made.model.config.output_hidden_states = True  # as in the folder of an export that needs them
    made.model.config.save_pretrained(tmp_path / "model")
    for pooler in ("cls", "mean", "cls_avg", "max", "last", "weighted_mean", "last2", "first_last:layer1"):
        other, names = replace(made, pooler=pooler), {"texts": TEXTS}
        exec(transformers_snippet(describe(other)).replace("PATH", str(tmp_path / "model")), names)
        assert np.abs(np.asarray(names["vectors"]) - by_hand(other, TEXTS)).max() < 1e-5, pooler


def test_padded_to_a_length_they_say_so(tmp_path):
    folder = tiny_models.build(tmp_path / "model", "roberta")
    made = Inference(AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), "mean_padded:16")
    card, vectors = exported(made, tmp_path / "out")
    want = load_encoder(str(tmp_path / "out")).encode(TEXTS)
    assert len(vectors) == 3 and "of texts padded to 16 tokens" in card
    assert all(np.abs(some - want).max() < 1e-5 for some in vectors)


def test_it_says_that_transformers_lacks_a_learned_pooler_which_stage_it_is_and_what_it_went_on_from():
    card = model_card(RECIPE, {**SAID, "pooler": "text_cnn"})
    assert card.count("```python") == 2 and "All three" not in card
    assert "With transformers alone there are no sentence vectors" in card
    assert f"needs stsbench installed for the {KINDS['text_cnn'].title}, and trust_remote_code=True" in card
    earlier = {"stage": "first", "step": 12, "run": "one", "recipe": "toy", "seed": 42, "weights": "ab12", "from": None,
               "differs": {"stages.first.training.epochs": 2.0}}
    card = model_card(RECIPE, {**SAID, "stage": "second", "from": earlier, "adapter": True})
    assert "second alone" in card and "merged into its weights before the training" in card
    assert "| went on from | the end of stage first (step 12) of the run one, recipe toy, seed 42, weights" in card
    assert "stages.first.training.epochs 2.0" in card


def test_three_snippets_give_the_vectors_of_a_prompted_encoder(models, tmp_path):
    made = with_prompt(models, *PLAIN[2])
    want = live_encoder(made, "live").encode(TEXTS)
    card, vectors = exported(made, tmp_path / "out")
    assert len(vectors) == 3 and "All three" in card
    assert all(np.abs(some - want).max() < 1e-4 for some in vectors)


def test_the_prompt_is_described(rich):
    card = model_card(RECIPE, describe(rich[0]))
    assert card.count("```python") == 2 and "With transformers alone there are no sentence vectors" in card
    for row in ("pooler | mask", "prefix | 3 and 2 keys and values in every layer; the vectors of each are averaged",
                "positions before the text | 5", "learned words | 8 embeddings in the template", "head | a masked LM"):
        assert f"| {row}" in card, card
    assert "the vector of the template alone is subtracted, at its positions around a text of as many tokens" in card


def test_it_says_what_was_trained_and_keeps_folders_to_itself(tmp_path):
    own = {"description": "a `tick` | and ``` fence", "options": {"note": "see ```` here"}}
    recipe = Recipe(**{**RECIPE.model_dump(), **own})
    data = [{"name": "/data/x/text.txt", "digest": "ab12", "rows": 12345}]
    card = training_card(recipe, inference(tmp_path), {"data": data, "seed": 7, "steps": 2000})
    assert "| data | text.txt, 12,345 rows, sha256 ab12 |" in card and "file: text.txt" in card
    assert "/home/me" not in card and "/data/x" not in card
    data = ModelCard(card).data  # the Hub's own reader
    assert (data.library_name, data.pipeline_tag, data.base_model) == ("sentence-transformers", "sentence-similarity", None)
    assert card.rstrip().endswith("`````") and "`````yaml" in card  # longer than any fence inside
    assert "chose these weights" not in model_card(recipe, SAID)
    named = Recipe(**{**RECIPE.model_dump(), "backbone": {"model": "no-such-owner/no-such-model"}})
    assert ModelCard(model_card(named, SAID)).data.base_model == "no-such-owner/no-such-model"
    for name, score, words in (
        ("held-out", -0.012345, "on held-out: -0.0123 |"),
        ("sts-b dev (sample)", 84.618, "on sts-b dev: 84.62 (sample data: not comparable with published numbers) |")):
        best = {"name": name, "score": score, "stage": "main", "step": 5}
        card = model_card(RECIPE, {**SAID, "best": best, "sample": True})
        assert f"the weights of step 5, the best {words}" in card and "the dev score above chose these weights" in card
        assert card.count("sample") == (3 if "(sample)" in name else 2)
