"""Retrieval runs in the formats of TREC, ranx and mteb, scored by relevance judgements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.data.own.table import named_columns
from stsbench.data.sets.lines import numbered_lines
from stsbench.data.sets.readers import parse_score
from stsbench.errors import DataError
from stsbench.extensions.results.items import ItemScores
from stsbench.metrics.ranking import average_precision, ndcg, precision, recall, reciprocal_rank
from stsbench.parsing import read_json

Ranking = Mapping[str, Mapping[str, float]]  # query -> document -> score or relevance
_HEADERS = (("query-id", "corpus-id", "score"), ("q_id", "doc_id", "score"))  # BEIR's, ranx's


def read_ranking(path: Path) -> tuple[Ranking, str]:
    """Return query -> document -> score of a TREC run, JSON or Parquet, and the run's name. Raises DataError naming file and
    line."""
    if path.suffix in (".gz", ".lz4"):
        raise DataError(f"{path} is packed: save it as TREC, JSON or Parquet")
    if path.suffix == ".json":
        return _read_json(path), path.stem
    if path.suffix == ".parquet":
        return _read_table(path, _HEADERS[1]), path.stem
    ranking: dict[str, dict[str, float]] = {}
    tag = path.stem
    for location, fields in _fields(path, 6, "QUERY Q0 DOCUMENT RANK SCORE TAG"):
        query, _, document, _, score, tag = fields
        _add(ranking, query, document, parse_score(score, location), location)
    return ranking, tag


def read_relevance(path: Path) -> Ranking:
    """Return query -> document -> relevance from TREC qrels, JSON, or a table with BEIR's header. Raises DataError."""
    if path.suffix == ".json":
        return _read_json(path)
    first = [] if path.suffix == ".parquet" else next(iter(numbered_lines(path)), (0, ""))[1].split()
    if path.suffix in (".tsv", ".csv", ".parquet") and not (len(first) == 4 and first[3].lstrip("-").isdigit()):
        return _read_table(path, _HEADERS[0])
    ranking: dict[str, dict[str, float]] = {}
    for location, (query, _, document, relevance) in _fields(path, 4, "QUERY 0 DOCUMENT RELEVANCE"):
        _add(ranking, query, document, parse_score(relevance, location), location)
    return ranking


def score_ranking(model: str, task: str, ranking: Ranking, relevance: Ranking, source: str) -> ItemScores:
    """Return the retrieval metrics of each query that has a relevant document; a query without results scores 0.

    Documents with equal scores are ranked by name in descending order, as by trec_eval. Raises DataError where no query
    is judged.
    """
    judged = {query: {name: gain for name, gain in its.items() if gain > 0} for query, its in relevance.items()}
    judged = {query: its for query, its in judged.items() if its}
    if not judged.keys() & ranking.keys():
        raise DataError(f"{source}: the judgements name none of its queries, such as {next(iter(ranking), 'none')!r}")
    ranks, query, gains = list[float](), list[int](), list[float]()
    for number, (name, its) in enumerate(judged.items()):
        scored = ranking.get(name, {})
        order = {document: at for at, (_, document) in
                 enumerate(sorted(((score, document) for document, score in scored.items()), reverse=True), 1)}
        for document, gain in its.items():
            ranks.append(order.get(document, np.inf))
            query.append(number)
            gains.append(gain)
    rank, numbers = np.array(ranks), np.array(query, np.int64)
    values = {
        "ndcg@10": ndcg(rank, numbers, np.array(gains), 10), "map": average_precision(rank, numbers),
        "mrr": reciprocal_rank(rank, numbers), "recall@10": recall(rank, numbers, 10),
        "recall@100": recall(rank, numbers, 100), "precision@10": precision(rank, numbers, 10),
    }
    return ItemScores(model, task, list(judged), {metric: its.tolist() for metric, its in values.items()})


def is_ranking(value: Any) -> bool:
    """Return whether a value is query -> document -> number."""
    return isinstance(value, dict) and bool(value) and all(
        isinstance(its, dict) and all(isinstance(score, int | float) for score in its.values()) for its in value.values()
    )


def _read_json(path: Path) -> Ranking:
    value = read_json(path, DataError)
    if not is_ranking(value):
        raise DataError(f"{path}: no object of queries, each an object of documents with a number")
    return {query: {name: float(score) for name, score in its.items()} for query, its in value.items()}


def _read_table(path: Path, header: tuple[str, ...]) -> Ranking:
    ranking: dict[str, dict[str, float]] = {}
    for location, row in named_columns(path, header):
        query, document, value = (row[name] for name in header)
        _add(ranking, str(query), str(document), parse_score(value, location), location)
    return ranking


def _fields(path: Path, count: int, form: str) -> list[tuple[str, list[str]]]:
    rows = []
    for number, line in numbered_lines(path):
        fields = line.split()
        if fields and len(fields) != count:
            raise DataError(f"{path}:{number}: {len(fields)} columns instead of {count}: {form}")
        if fields:
            rows.append((f"{path}:{number}", fields))
    return rows


def _add(ranking: dict[str, dict[str, float]], query: str, document: str, score: float, location: str) -> None:
    if document in ranking.setdefault(query, {}):
        raise DataError(f"{location}: {query} has the document {document} twice")
    ranking[query][document] = score
