"""Prompts by role and task: our own protocols' scores equal mteb's with the library itself, whatever a folder declares."""

import functools
import json
import re
import shutil
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from clirun import refuses
from live_models import library
from model_folder_kinds import router
from model_folders import change, declare, normalize, pooling, transformer

from stsbench.data.fetch.mteb import undisturbed
from stsbench.data.fetch.sources import load_data
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder
from stsbench.encoders.traits import TextTask, prompt_name
from stsbench.errors import EncoderError
from stsbench.evaluation.api import evaluate, run
from stsbench.evaluation.options import EvalOptions
from stsbench.evaluation.rescore import encoder_key
from stsbench.evaluation.run_file import read_observations
from stsbench.evaluation.tables import task_prompts

SIDES = {"query": "the man reads : ", "document": "a small dog , "}
QUERIES = ("a dog runs", "the man eats bread", "two birds", "her old piano", "the girl sings in the park", "a fish",
           "no road", "young and old")
CORPUS = (
    "a big dog runs in the garden", "the old man eats", "one bird sings", "the woman plays a piano", "a girl and a boy",
    "the fish is in the water", "a road to the house", "a cat sleeps", "red apple and bread", "the horse walks at the park",
    "his guitar", "new food for the child", "the boy is running", "a blue house", "young birds")
RELEVANT = ((0,), (1, 8), (2, 14), (3,), (4, 9), (5,), (6,), (12,))  # 8 queries: mteb rounds a recall


def bert(folder, **settings):
    return declare(transformer(folder), pooling("mean"), normalize(), settings=settings)


FOLDERS = {
    "no prompts": bert,
    "a task's": lambda folder: bert(folder, prompts={"STSBenchmark": "no : ", "STS": "yes : ", **SIDES}),
    "a type's by role": lambda folder: bert(folder, prompts={
        "Retrieval-query": "a boy : ", "Retrieval-document": "a girl : ", "STS": "bread ", **SIDES}),
    "an empty one": lambda folder: bert(folder, prompts={"STS": "", "other": "red ", **SIDES}, default_prompt_name="other"),
    "a default": lambda folder: bert(
        folder, prompts={"other": "red apple : ", "passage": "a girl : "}, default_prompt_name="other"),
    "a router": lambda folder: router(folder, settings={}),
    "a router with prompts": lambda folder: router(folder, settings={"prompts": {"STS": "two dogs ", **SIDES}})}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Name in FOLDERS -> the folder, made once."""
    return functools.cache(lambda name: FOLDERS[name](tmp_path_factory.mktemp(re.sub(r"\W", "-", name))))


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "find"
    folder.mkdir()
    (folder / "queries.tsv").write_text("".join(f"q{i}\t{text}\n" for i, text in enumerate(QUERIES)))
    (folder / "corpus.tsv").write_text("".join(f"d{i}\t{text}\n" for i, text in enumerate(CORPUS)))
    (folder / "relevance.tsv").write_text("".join(f"q{i}\td{j}\n" for i, these in enumerate(RELEVANT) for j in these))
    return folder


def in_mteb(model):
    """Of one of mteb's encoders: the Spearman of STS-B's sample, and recalls and MRR of the user's folder, x 100."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData

    pairs = load_data("stsb/test", sample=True)
    with undisturbed() as mteb:
        from mteb.mocks.mock_tasks.retrieval import MockRetrievalTask

        sts = mteb.get_task("STSBenchmark")
        columns = {"sentence1": list(pairs.first), "sentence2": list(pairs.second), "score": pairs.gold.tolist()}
        sts.dataset, sts.data_loaded = DatasetDict({"test": Dataset.from_dict(columns)}), True
        find = MockRetrievalTask()
        split = RetrievalSplitData(
            queries=Dataset.from_list([{"id": f"q{i}", "text": text} for i, text in enumerate(QUERIES)]),
            corpus=Dataset.from_list([{"id": f"d{i}", "title": "", "text": text} for i, text in enumerate(CORPUS)]),
            relevant_docs={f"q{i}": {f"d{j}": 1 for j in these} for i, these in enumerate(RELEVANT)}, top_ranked=None)
        find.dataset, find.data_loaded = {"default": dict.fromkeys(find.eval_splits, split)}, True
        find.load_data = lambda *given, **named: None
        scores = {}
        for task in (sts, find):
            done = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
            scores |= done.task_results[0].scores["test"][0]
    wanted = {"spearman": "cosine_spearman", "mrr": "mrr_at_1000", **{f"recall@{k}": f"recall_at_{k}" for k in (1, 5, 10)}}
    return {ours: 100 * scores[theirs] for ours, theirs in wanted.items()}


def wrapped(model, prompts=None):
    from mteb.models import SentenceTransformerEncoderWrapper

    with undisturbed():
        return SentenceTransformerEncoderWrapper(model, "stsbench/it", model_prompts=prompts)


def in_ours(model, own, **options):
    """(the same scores by our own protocols, the records)"""
    given = {"no_cache": True, "device": "cpu", "offline": True, "resamples": 0, **options}
    results = [evaluate(str(model), protocols=["sts:all"], tasks=["STS-B"], sample=True, **given),
               evaluate(str(model), protocols=[f"retrieval:{own}"], **given)]
    assert not any(result.failures for result in results)
    rows = {row.metric: row.value for result in results for row in result.rows}
    return rows, [record for result in results for record in result.records]


def same(ours, theirs):
    assert {name: ours[name] for name in theirs} == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("name", ["a router with prompts", "an empty one"])
def test_our_protocols_and_mteb_with_the_library_agree(folder_of, own, name):
    folder = folder_of(name)
    ours, _ = in_ours(folder, own)
    same(ours, in_mteb(wrapped(library(folder))))


def test_a_model_of_the_library_in_memory_is_read_in_the_same_way(folder_of, own):
    folder = folder_of("a default")
    model = library(folder)
    ours = {row.metric: row.value for protocol in ({"protocols": "sts:all", "tasks": "STS-B", "sample": True},
                                                   {"protocols": f"retrieval:{own}"})
            for row in evaluate(model, no_cache=True, resamples=0, **protocol).rows}
    same(ours, in_mteb(wrapped(library(folder))))


def test_names_are_tried_in_mteb_s_order():
    """Every set of names, against mteb's own choice."""
    from mteb.models.abs_encoder import get_prompt_name
    from mteb.types import PromptType

    names = ["T-query", "T", "K-query", "K", "query", "other"]
    task, described = TextTask("T", "K"), SimpleNamespace(name="T", type="K")
    for count in range(len(names) + 1):
        for chosen in combinations(names, count):
            prompts = {name: name + " : " for name in chosen}
            for role in (None, "query", "document"):
                want = get_prompt_name(prompts, described, role and PromptType(role))
                assert prompt_name(prompts, task, role) == want


def test_the_record_says_which_prompts_were_read_and_is_one_encoder_s(folder_of, own):
    folder = folder_of("a type's by role")
    stored = json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"]
    _, records = in_ours(folder, own)
    sts, find = records
    assert sts.provenance["prompts"] == {"text": stored["STS"]}
    assert find.provenance["prompts"] == {"document": "a girl : ", "query": "a boy : "}
    assert sts.encoder == find.encoder and sts.encoder.spec["options"]["prompts"] == stored
    # the very same scores as behind that prompt, said by hand: but another encoder, which reads everything so
    _, (again, _) = in_ours(folder, own, prompt=stored["STS"])
    assert again.scores == sts.scores and again.provenance["prompts"] == {"text": stored["STS"]}
    _, (bare, found) = in_ours(folder, own, prompt="none")
    assert bare.scores != sts.scores and "prompts" not in {**bare.provenance, **found.provenance}
    assert load_encoder(str(folder), device="cpu", prompt="").identity.fingerprint() == bare.encoder.fingerprint
    asked, found_by = f'{json.dumps(stored["STS"])} (STS-B)', 'document "a girl : ", query "a boy : " (find)'
    assert task_prompts([sts, find, bare]) == {"sts": asked, find.protocol.label: found_by}
    assert not task_prompts([bare, found])
    assert len({record.encoder.fingerprint for record in (sts, again, bare)}) == 3
    assert len({encoder_key(record) for record in (sts, find, again, bare)}) == 3


def lines_of(folder, **options):
    lines = []
    given = {"no_cache": True, "device": "cpu", "offline": True, "resamples": 0, "sample": True, "tasks": ["STS-B", "STS12"]}
    run(EvalOptions(**{"model": str(folder), "protocols": ["sts", "geometry"], **given, **options}), log=lines.append)
    return lines


def test_the_line_before_a_run_shows_each_protocol_s_prompts(folder_of, own):
    folder = folder_of("a task's")
    lines = lines_of(folder)
    assert 'prompts: sts STS12 "yes : "; sts STS-B "no : "; geometry "no : "' in lines
    of_search = lines_of(folder, protocols=[f"retrieval:{own}"], tasks=None, sample=False)
    assert f'prompts: retrieval:{own.name} query "the man reads : ", document "a small dog , "' in of_search
    encoder = next(line for line in lines if line.startswith("encoder "))
    assert "no default prompt" in encoder and load_encoder(str(folder)).identity.fingerprint()[:12] in encoder
    plain = lines_of(folder_of("no prompts"), protocols=["sts"], tasks=["STS-B"])
    assert not any(line.startswith("prompts") for line in plain)


def test_a_router_s_route_is_the_protocol_s_or_the_user_s(folder_of, own):
    folder = folder_of("a router")
    lines = lines_of(folder)
    assert any("those without a role (STS) take document, its default" in line for line in lines)
    assert "prompts: sts no prompt by document; geometry no prompt by document" in lines
    model = library(folder)
    bare, (sts, find) = in_ours(folder, own)
    assert sts.provenance["routes"] == {"text": "document"}
    assert find.provenance["routes"] == {"document": "document", "query": "query"}
    assert sts.encoder.spec["options"]["default_route"] == "document"
    texts = ["a dog runs", "the cat"]
    for route, encode in (("query", model.encode_query), ("document", model.encode_document)):
        encoder = load_encoder(str(folder), route=route)
        np.testing.assert_allclose(encoder.encode(texts), encode(texts), atol=1e-6)
        assert encoder.spec.fingerprint() != sts.encoder.fingerprint
    scores, records = in_ours(folder, own, route="query")
    assert {record.encoder.spec["options"]["role"] for record in records} == {"query"}
    assert scores["spearman"] != bare["spearman"]
    said = "--route other: .* has the routes query, document for its texts"
    refuses(EncoderError, said, load_encoder, str(folder), route="other")


def test_texts_that_a_prompt_makes_too_long_are_counted(folder_of, own, tmp_path):
    result = evaluate(str(folder_of("a task's")), output=tmp_path / "run", retrieval=own, resamples=0, no_cache=True,
                      device="cpu", offline=True, max_length=11)
    stored = read_observations(result.folder, result.records[0])
    assert "1 queries were truncated behind their prompt" in stored.names["notes"]


ADAPTED = """
import torch
from sentence_transformers.sentence_transformer.modules import Transformer
class Adapted(Transformer):
    NAMES = ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]
    def forward(self, features, task=None, **named):
        features = super().forward(features)
        if task is not None:
            turn = torch.Generator().manual_seed(self.NAMES.index(task) + 1)
            states = features["token_embeddings"]
            features["token_embeddings"] = states + states @ torch.randn(2 * states.shape[-1:], generator=turn)
        return features
"""


def test_an_adapter_is_chosen_by_the_task(tmp_path, own):
    """As in jina-embeddings-v3: modules.json hands `task` to a module of the folder's own; prompts have adapters' names."""
    prompts = {"retrieval.query": "a boy : ", "retrieval.passage": "a girl : "}
    folder = declare(transformer(tmp_path / "adapted"), pooling("mean"), normalize(), settings={"prompts": prompts})
    (folder / "adapted.py").write_text(ADAPTED)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0] |= {"type": "adapted.Adapted", "kwargs": ["task"]}
    (folder / "modules.json").write_text(json.dumps(modules))
    names = ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]
    change(folder / "config.json", lora_adaptations=names)
    model = library(folder, trust_remote_code=True)
    embed = Embed(load_encoder(str(folder), trust_remote_code=True, device="cpu"))
    texts = ["a dog runs", "the cat"]
    for task, role, adapter in (
        (TextTask("STS12", "STS"), None, "text-matching"), (TextTask("MR", "Classification"), None, "classification"),
        (TextTask("x", "Clustering"), None, "separation"), (TextTask("x", "Retrieval"), "query", "retrieval.query"),
        (TextTask("x", "Retrieval"), "document", "retrieval.passage"), (TextTask("x"), None, None)):
        reads = embed.for_task(task) if role is None else embed.for_task(task).for_role(role)
        want = model.encode(texts, prompt=prompts.get(adapter, ""), **({"task": adapter} if adapter else {}))
        np.testing.assert_allclose(reads(texts), want, atol=1e-6)
    _, (sts, find) = in_ours(folder, own, trust_remote_code=True)
    assert sts.provenance["routes"] == {"text": "text-matching"}
    assert find.provenance["routes"] == {"document": "retrieval.passage", "query": "retrieval.query"}
    assert find.provenance["prompts"] == {"document": "a girl : ", "query": "a boy : "}
    assert sts.encoder == find.encoder
    chosen = load_encoder(str(folder), trust_remote_code=True, route="retrieval.query")
    want = model.encode(texts, task="retrieval.query", prompt="a boy : ")
    np.testing.assert_allclose(chosen.encode(texts), want, atol=1e-6)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Puts a folder into the Hub's cache under an id."""
    for name in ("huggingface_hub.constants.HF_HUB_CACHE", "huggingface_hub._snapshot_download.constants.HF_HUB_CACHE"):
        monkeypatch.setattr(name, str(tmp_path / "hub"))

    def put(folder, hub_id):
        repository = tmp_path / "hub" / f"models--{hub_id.replace('/', '--')}"
        shutil.copytree(folder, repository / "snapshots" / ("1" * 40))
        (repository / "refs").mkdir()
        (repository / "refs/main").write_text("1" * 40)
        return hub_id

    return put


def test_e5_s_card_and_mteb_s_loader_differ_on_sts(folder_of, own, hub):
    """The card: "query: " on both sides of a symmetric task; mteb: nothing there."""
    folder = folder_of("no prompts")
    name = hub(folder, "intfloat/e5-small-v2")
    _, (sts, find) = in_ours(name, own)
    assert sts.provenance["prompts"] == {"text": "query: "}
    assert find.provenance["prompts"] == {"document": "passage: ", "query": "query: "}
    ours, (sts, _) = in_ours(name, own, prompt="mteb")
    assert sts.provenance["prompts"] == {"text": ""}
    with undisturbed() as mteb:
        passed = mteb.get_model_meta(name).loader_kwargs["model_prompts"]
    same(ours, in_mteb(wrapped(library(folder), passed)))
    # a copy of the folder, whatever it is called, has what it stores
    assert "prompts" not in in_ours(folder, own)[1][0].provenance


def test_instructions_are_those_of_mteb_s_loader(folder_of, own, hub):
    from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    folder = folder_of("no prompts")
    template = "Instruct: {instruction}\nQuery: "
    with undisturbed():
        theirs = InstructSentenceTransformerModel(str(folder), None, device="cpu", instruction_template=template,
                                                  apply_instruction_to_passages=False)
        about = {"name": "stsbench/it", "similarity_fn_name": ScoringFunction.COSINE}
        theirs.mteb_model_meta = ModelMeta.create_empty(overwrites=about)
    ours, (sts, find) = in_ours(hub(folder, "intfloat/multilingual-e5-large-instruct"), own, prompt="mteb")
    assert sts.provenance["prompts"] == {"text": "Instruct: Retrieve semantically similar text.\nQuery: "}
    assert find.provenance["prompts"]["document"] == ""
    assert find.provenance["prompts"]["query"].startswith("Instruct: Retrieve text based on user query.")
    same(ours, in_mteb(theirs))


def test_a_loader_of_mteb_s_own_code_is_refused(folder_of, hub):
    name = hub(folder_of("no prompts"), "nomic-ai/nomic-embed-text-v1.5")
    said = r"mteb loads nomic-ai/\S+ by code of its own \(NomicWrapper\)"
    refuses(EncoderError, said, load_encoder, name, prompt="mteb", offline=True)
    assert load_encoder(name, offline=True).prompts["STS"] == "classification: "
    assert load_encoder(name, prompt="name: ", offline=True).spec.prefix == "name: "
    refuses(EncoderError, "--prompt name:some: .* stores no such", load_encoder, name, prompt="name:some", offline=True)


def test_a_post_processing_is_fitted_on_texts_as_the_task_reads_them(folder_of, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in (*CORPUS, *QUERIES)))
    folder = folder_of("a task's")
    given = {"protocols": "sts", "tasks": "STS-B", "sample": True, "no_cache": True, "device": "cpu", "resamples": 0,
             "post": "whitening:dimensions=4"}
    by_task, by_hand = (evaluate(str(folder), fit_on=tmp_path / "texts.txt", **given, **more)
                        for more in ({}, {"prompt": "no : "}))
    assert by_task.rows == by_hand.rows and by_task.rows
