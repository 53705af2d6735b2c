"""Tiny random folders of some families, which mteb loads as it loads a registered model of the family; and tasks without a
network, for mteb and for us."""

import math
from contextlib import contextmanager

import numpy as np
from code_folders import own_module
from model_folder_kinds import router
from model_folders import declare, dense, normalize, pooling, read, tokenizer, transformer, write
from tiny_models import sentences

PAIRS, QUERIES, DOCUMENTS = 24, 12, 30
PROMPTS = {  # by mteb's names of types, as EmbeddingGemma stores them
    "query": "the man reads : ", "document": "no food : ", "STS": "a small dog : ", "Classification": "the house , ",
}

_BY_TASK = """
import torch
from sentence_transformers.sentence_transformer.modules import LayerNorm
TASKS = ("text-matching", "retrieval.query", "retrieval.passage", "separation", "classification")
class MyModule(LayerNorm):
    def forward(self, features, task=None):
        weights = torch.rand(16, generator=torch.Generator().manual_seed(TASKS.index(task)))
        features["sentence_embedding"] = features["sentence_embedding"] * weights
        return features
"""


def tasks_of_jina(folder):
    """Vectors that depend on `task=`, as the adapters of jina-embeddings-v3 do, by code in the folder."""
    own_module(folder)
    entries = read(folder / "modules.json")
    entries[2]["kwargs"] = ["task"]
    write(folder / "modules.json", entries)
    (folder / "mine.py").write_text(_BY_TASK, "utf-8")
    return folder


# name -> how the folder is built, and whose entry in mteb's registry loads it
MODELS = {
    "qwen3": (lambda folder: declare(
        transformer(folder, "qwen3", tok=tokenizer("qwen3", padding_side="left", limit=64)),
        pooling("lasttoken"), normalize()), "Qwen/Qwen3-Embedding-0.6B"),
    "gemma3": (lambda folder: declare(
        transformer(folder, "gemma3 bidirectional", tok=tokenizer("llama", limit=64)),
        pooling("mean", width=32), dense(12, 32), normalize(), settings={"prompts": PROMPTS}), "google/embeddinggemma-300m"),
    "e5": (lambda folder: declare(transformer(folder), pooling("mean"), normalize()), "intfloat/e5-small"),
    "jina": (tasks_of_jina, "jinaai/jina-embeddings-v3"),
    "router": (lambda folder: router(folder, normalize()), "sentence-transformers/all-MiniLM-L6-v2"),
}


def entry(folder, like):
    """mteb's entry of the model `like`, for a folder; not in bfloat16, in which vectors move with their batch."""
    import mteb

    meta = mteb.get_model_meta(like)
    asked = dict(meta.loader_kwargs)
    if asked.get("model_kwargs", {}).get("dtype") == "bfloat16":
        del asked["model_kwargs"]
    about = {"name": str(folder), "embed_dim": None, "extra_requirements_groups": None, "loader_kwargs": asked}
    return meta.model_copy(update=about)


@contextmanager
def registered(meta):
    """For the time of the block mteb registers it; its name as after --model."""
    from mteb.models.model_implementations import MODEL_REGISTRY

    MODEL_REGISTRY[meta.name] = meta
    try:
        yield f"mteb:{meta.name}"
    finally:
        del MODEL_REGISTRY[meta.name]


def scored_pairs():
    texts = sentences(2 * PAIRS, longest=12)
    return texts[:PAIRS], texts[PAIRS:], np.random.default_rng(2).uniform(0, 5, size=PAIRS).round(2).tolist()


def judged():
    texts = sentences(QUERIES + DOCUMENTS, longest=12, seed=4)
    queries = {f"q{i}": text for i, text in enumerate(texts[:QUERIES])}
    corpus = {f"d{i}": text for i, text in enumerate(texts[QUERIES:])}
    drawn = np.random.default_rng(5)
    return queries, corpus, {key: {f"d{i}": 1 for i in drawn.choice(DOCUMENTS, 2, replace=False)} for key in queries}


def similarity_task(name="STSBenchmark"):
    import mteb
    from datasets import Dataset, DatasetDict

    task = mteb.get_task(name)
    first, second, gold = scored_pairs()
    columns = {"sentence1": first, "sentence2": second, "score": gold}
    task.dataset, task.data_loaded = DatasetDict(test=Dataset.from_dict(columns)), True
    return task


def retrieval_task():
    """A task of mteb's type Retrieval without a prompt of its own, on these queries and texts."""
    from datasets import Dataset
    from mteb.mocks.mock_tasks import MockRetrievalTask

    class LocalRetrieval(MockRetrievalTask):
        metadata = MockRetrievalTask.metadata.model_copy(
            update={"name": "LocalRetrieval", "prompt": None, "eval_splits": ["test"]})

        def load_data(self, *arguments, **more):
            queries, corpus, relevant = judged()
            rows = {name: Dataset.from_list([{"id": key, "text": text} for key, text in texts.items()])
                    for name, texts in (("queries", queries), ("corpus", corpus))}
            self.dataset = {"default": {"test": {**rows, "relevant_docs": relevant, "top_ranked": None}}}
            self.data_loaded = True

        def unload_data(self):
            return

    task = LocalRetrieval()
    task.load_data()
    return task


def scores_of_mteb(package, model, tasks):
    """What mteb.evaluate gives for each task, in mteb's own names and from 0 to 1."""
    done = package.evaluate(model, list(tasks), cache=None, co2_tracker=False, show_progress_bar=False)
    assert not done.exceptions
    return [{key: value for key, value in result.scores["test"][0].items()
             if isinstance(value, int | float) and not math.isnan(value)} for result in done.task_results]
