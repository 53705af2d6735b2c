"""An encoder of stsbench in a SentenceTransformer's place in other people's programs: the numbers of both.

    pip install bertopic keybert
    python benchmarks/foreign_programs.py --model FOLDER --data-dir DATA

On STS-B's test set: sentence-transformers' evaluators and semantic search, mteb's STSBenchmark, and where they are installed
BERTopic and KeyBERT. Both read the folder in float32: of a folder in half precision the library would compute in that.
BERTopic reduces the vectors by principal components here: its default, UMAP, turns differences in the last bit, as between
two batch sizes of the library itself, into other topics (printed as the library against itself).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer import evaluation
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from stsbench import load_encoder, to_mteb
from stsbench.data.fetch.mteb import undisturbed
from stsbench.data.fetch.sources import load_data


def line(name: str, encoder: float, library: float, gap: float) -> None:
    print(f"{name:44} {encoder:10.6f} {library:10.6f} {gap:10.1e}", flush=True)


def evaluators(models: tuple[Any, Any], data: Any) -> None:
    similar = data.gold >= 4
    queries = {f"q{i}": text for i, text in enumerate(data.first) if similar[i]}
    corpus = {f"d{i}": text for i, text in enumerate(data.second)}
    for evaluator in (
        evaluation.EmbeddingSimilarityEvaluator(data.first, data.second, data.gold.tolist()),
        evaluation.InformationRetrievalEvaluator(queries, corpus, {name: {f"d{name[1:]}"} for name in queries}),
        evaluation.BinaryClassificationEvaluator(data.first, data.second, similar.astype(int).tolist()),
    ):
        encoder, library = (evaluator(model) for model in models)
        gap = max(abs(encoder[name] - library[name]) for name in library)
        line(f"{type(evaluator).__name__} ({len(library)})", encoder[evaluator.primary_metric],
             library[evaluator.primary_metric], gap)


def search(models: tuple[Any, Any], data: Any) -> None:
    hits = [util.semantic_search(model.encode(data.first[:200], convert_to_tensor=True),
                                  model.encode(data.second, convert_to_tensor=True), top_k=10) for model in models]
    ids, scores = ([[[hit[key] for hit in row] for row in one] for one in hits] for key in ("corpus_id", "score"))
    same = np.mean(np.array(ids[0]) == np.array(ids[1]))
    line("semantic_search, equal places of 2,000", same, 1.0, np.abs(np.subtract(*scores)).max())


def on_mteb(models: tuple[Any, Any], data: Any) -> None:
    from datasets import Dataset, DatasetDict

    scores = []
    for model in (to_mteb(models[0]), models[1]):
        with undisturbed() as mteb:
            task = mteb.get_task("STSBenchmark")
            columns = {"sentence1": data.first, "sentence2": data.second, "score": data.gold}
            task.dataset, task.data_loaded = DatasetDict(test=Dataset.from_dict(columns)), True
            done = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
        scores.append({name: value for name, value in done.task_results[0].scores["test"][0].items()
                      if isinstance(value, float)})
    gap = max(abs(scores[0][name] - scores[1][name]) for name in scores[1])
    line(f"mteb STSBenchmark ({len(scores[1])})", *(one["cosine_spearman"] for one in scores), gap)


def adapter(base: type) -> Callable[..., Any]:
    """BERTopic and KeyBERT know a SentenceTransformer by its class, and replace what is none by a model of their own
    without a word: any other encoder goes in by their BaseEmbedder."""

    class Backend(base):  # type: ignore[misc]
        def embed(self, documents: list[str], verbose: bool = False) -> Any:
            return self.embedding_model.encode(documents, show_progress_bar=verbose, batch_size=self.batch)

        batch = 32

    return Backend


def topics(models: tuple[Any, Any], texts: list[str]) -> None:
    from bertopic import BERTopic
    from bertopic.backend import BaseEmbedder
    from umap import UMAP

    reducers = {"PCA": lambda: PCA(5, random_state=3),
                "UMAP": lambda: UMAP(n_neighbors=15, n_components=5, min_dist=0.0, metric="cosine", random_state=3)}
    other = adapter(BaseEmbedder)(models[1])
    other.batch = 7
    for name, reducer in reducers.items():
        models_by_name = {"stsbench": adapter(BaseEmbedder)(models[0]), "library": models[1], "library, batches of 7": other}
        labels = {who: BERTopic(embedding_model=model, umap_model=reducer(), min_topic_size=10).fit_transform(texts)[0]
                  for who, model in models_by_name.items()}
        for who in ("stsbench", "library, batches of 7"):
            agreement = adjusted_rand_score(labels[who], labels["library"])
            line(f"BERTopic by {name}, {who}: topics, 1 - agreement", len(set(labels[who])), len(set(labels["library"])),
                 1 - agreement)


def keywords(models: tuple[Any, Any], texts: list[str]) -> None:
    from keybert import KeyBERT
    from keybert.backend import BaseEmbedder

    encoder, library = (KeyBERT(model).extract_keywords(" ".join(texts[:40]), top_n=8)
                     for model in (adapter(BaseEmbedder)(models[0]), models[1]))
    same = np.mean([one[0] == two[0] for one, two in zip(encoder, library, strict=True)])
    line("KeyBERT, equal keywords of 8", same, 1.0, max(abs(a[1] - b[1]) for a, b in zip(encoder, library, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--pairs", type=int, help="of STS-B, the first ones; default: all")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    data = load_data("stsb/test", data_dir=asked.data_dir, sample=asked.data_dir is None)
    data = data.keep(np.arange(len(data)) < (asked.pairs or len(data)))
    models = (load_encoder(asked.model, device="cpu"),
              SentenceTransformer(asked.model, device="cpu", model_kwargs={"dtype": torch.float32}))
    texts = list(dict.fromkeys(data.texts))
    print(f"{'':44} {'stsbench':>10} {'library':>10} {'gap':>10}")
    gap = float(np.abs(models[0].encode(texts) - models[1].encode(texts)).max())
    line(f"vectors of {len(texts)} texts", 0, 0, gap)
    evaluators(models, data)
    search(models, data)
    on_mteb(models, data)
    for program in (topics, keywords):
        try:
            program(models, texts[:1200])
        except ImportError as error:
            print(f"{program.__name__}: {error}")


if __name__ == "__main__":
    main()
