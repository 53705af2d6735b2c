"""A user's own queries, corpus and relevance judgements: tab-separated files, or BEIR's layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from stsbench.data.sets.lines import numbered_lines, without_end
from stsbench.data.sets.readers import json_object, number_of
from stsbench.data.sets.sets import RetrievalSet, path_name
from stsbench.errors import DataError

Texts = dict[str, str]  # id -> text, in file order
_HEADER = ("query-id", "corpus-id")  # how BEIR's judgements begin


def read_relevance(folder: Path) -> RetrievalSet:
    """The set in `folder`, with text version "own"; its id is "own:" and the folder's name, never a path.

    Either queries.tsv and corpus.tsv (id, tab, text) with relevance.tsv (query id, tab, corpus id, optionally tab, score),
    where every query needs a relevant text; or BEIR's queries.jsonl and corpus.jsonl (_id, text, title) with
    qrels/test.tsv or qrels.tsv, where queries of other splits are left out with a warning. A text is relevant if its
    score is above 0. A corpus text with the id and the text of a query is that query itself and never counts as retrieved.
    Raises DataError naming file and row.
    """
    name = path_name(folder)
    layouts = [suffix for suffix in (".tsv", ".jsonl") if (folder / f"queries{suffix}").is_file()]
    if len(layouts) != 1:
        which = "both" if layouts else "neither"
        raise DataError(f"{folder} must hold queries.tsv (your own files) or queries.jsonl (BEIR's layout): it has {which}")
    beir = layouts == [".jsonl"]
    texts = _texts_jsonl if beir else _texts_tsv
    queries, corpus = texts(folder / f"queries{layouts[0]}"), texts(folder / f"corpus{layouts[0]}")
    judged = _judgements(folder) if beir else folder / "relevance.tsv"
    position = {key: place for place, key in enumerate(corpus)}
    relevant = _relevance(judged, queries, position)
    without = [key for key, places in relevant.items() if not places]
    if without and (not beir or len(without) == len(queries)):
        raise DataError(f"{judged}: no relevant text for query {without[0]!r} ({len(without)} of {len(queries)} queries)")
    warnings = [f"{len(without)} of {len(queries)} queries have no relevant text in {judged.name}: left out"]
    kept = [key for key in queries if relevant[key]]
    query_positions = [_query_position(key, queries[key], corpus, position, relevant[key]) for key in kept]
    return RetrievalSet(
        id=f"own:{name}", task=name, text_version="own", origin=str(folder), warnings=tuple(warnings if without else ()),
        queries=tuple(queries[key] for key in kept), corpus=tuple(corpus.values()),
        relevant=tuple(tuple(sorted(relevant[key])) for key in kept), query_positions=tuple(query_positions),
    )  # fmt: skip


def _query_position(key: str, text: str, corpus: Texts, position: dict[str, int], relevant: set[int]) -> int:
    place = position[key] if corpus.get(key) == text else -1
    return -1 if place in relevant else place


_HEADERS = {(id, text) for id in ("id", "_id", "qid", "query_id", "pid", "docid", "doc_id", "corpus_id")
            for text in ("text", "query", "passage", "document", "sentence")}  # fmt: skip


def _collect(path: Path, parse: Callable[[str, int], tuple[str, str]]) -> Texts:
    texts: Texts = {}
    for number, line in numbered_lines(path):
        key, text = parse(without_end(line), number)
        if key in texts:
            raise DataError(f"{path}:{number}: id {key!r} occurs twice")
        if not key or not text.strip():
            raise DataError(f"{path}:{number}: the {'text' if key else 'id'} is empty")
        texts[key] = text.strip()
    if not texts:
        raise DataError(f"{path} is empty")
    return texts


def _texts_tsv(path: Path) -> Texts:
    def parse(line: str, number: int) -> tuple[str, str]:
        key, text = _cells(line, path, number, (2,), "id, tab, text")
        if number == 1 and (key.strip().lower(), text.strip().lower()) in _HEADERS:
            raise DataError(f"{path}:1: a header line: leave it out, the first line is the first text")
        return key.strip(), text

    return _collect(path, parse)


def _texts_jsonl(path: Path) -> Texts:
    def parse(line: str, number: int) -> tuple[str, str]:
        item = json_object(line, path, number)
        key, text, title = item.get("_id"), item.get("text"), item.get("title") or ""
        if type(key) not in (str, int) or not isinstance(text, str) or not isinstance(title, str):
            raise DataError(f"{path}:{number}: expected the fields _id and text, and perhaps title, as texts")
        return str(key).strip(), f"{title.strip()} {text.strip()}".strip()  # BEIR embeds title, space, text

    return _collect(path, parse)


def _judgements(folder: Path) -> Path:
    files = [path for path in (folder / "qrels" / "test.tsv", folder / "qrels.tsv") if path.is_file()]
    if len(files) != 1:
        raise DataError(f"{folder} must hold one of qrels/test.tsv and qrels.tsv: it has {'both' if files else 'neither'}")
    return files[0]


def _relevance(path: Path, queries: Texts, position: dict[str, int]) -> dict[str, set[int]]:
    """Query id -> positions of its relevant texts, for every query."""
    relevant: dict[str, set[int]] = {key: set() for key in queries}
    judged: set[tuple[str, str]] = set()
    for number, line in numbered_lines(path):
        cells = _cells(without_end(line), path, number, (2, 3), "query id, tab, corpus id, and perhaps a tab and a score")
        query, text = cells[0].strip(), cells[1].strip()
        if number == 1 and (query, text) == _HEADER:
            continue
        if query not in relevant:
            raise DataError(f"{path}:{number}: no query has the id {query!r}")
        if text not in position:
            raise DataError(f"{path}:{number}: no corpus text has the id {text!r}")
        if (query, text) in judged:
            raise DataError(f"{path}:{number}: {query!r} and {text!r} are judged twice")
        judged.add((query, text))
        if len(cells) == 2 or _score(cells[2], path, number) > 0:
            relevant[query].add(position[text])
    return relevant


def _cells(line: str, path: Path, number: int, wanted: tuple[int, ...], shape: str) -> list[str]:
    cells = line.split("\t")
    if len(cells) not in wanted:
        raise DataError(f"{path}:{number}: expected {shape}; found {len(cells)} column{'s' if len(cells) > 1 else ''}")
    return cells


def _score(text: str, path: Path, number: int) -> float:
    if not math.isfinite(score := number_of(text, f"{path}:{number}")):
        raise DataError(f"{path}:{number}: the score {text!r} is not a number")
    return score
