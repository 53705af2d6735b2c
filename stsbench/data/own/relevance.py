"""A user's own queries, corpus and relevance judgements: tab-separated files, or BEIR's layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from stsbench.config import shown
from stsbench.data.sets.lines import check_no_nul, check_text, numbered_lines, without_end
from stsbench.data.sets.readers import json_object, number_of
from stsbench.data.sets.sets import RetrievalSet, named_by_content, path_name
from stsbench.errors import DataError

Texts = dict[str, str]  # id -> text, in file order
Grades = dict[str, list[tuple[int, float]]]  # query id -> (position in the corpus, grade) of its relevant texts
_JUDGEMENTS = ("qrels/test.tsv", "qrels.tsv", "qrels/test.txt", "qrels.txt")


def read_relevance(folder: Path) -> RetrievalSet:
    """The set in `folder`, with text version "own"; its task is the folder's name, never a path, its id a digest.

    Either queries.tsv and corpus.tsv (id, tab, text) with relevance.tsv, or BEIR's queries.jsonl and corpus.jsonl (_id,
    text, title) with one of _JUDGEMENTS. Judgements are query id, corpus id and perhaps a score, with tabs between, or
    TREC's four columns; a text is relevant if its score is above 0, and the score is its grade. As trec_eval does, a
    relevant text that is not in the corpus counts as not found, and judgements of other queries are left out; so are queries
    without relevant text. A warning says so.

    A query itself is never counted as retrieved, unless it is judged relevant: the text of the query's own id (BEIR's rule),
    or where no text has that id, those that equal the query, with or without their title. Raises DataError naming file and
    row.
    """
    name = path_name(folder)
    layouts = [suffix for suffix in (".tsv", ".jsonl") if _unpacked(folder / f"queries{suffix}").is_file()]
    if len(layouts) != 1:
        which = "both" if layouts else "neither"
        raise DataError(f"{folder} must hold queries.tsv (your own files) or queries.jsonl (BEIR's layout): it has {which}")
    beir = layouts == [".jsonl"]
    texts = _texts_jsonl if beir else _texts_tsv
    queries, _ = texts(folder / f"queries{layouts[0]}", False)
    corpus, untitled = texts(_unpacked(folder / f"corpus{layouts[0]}"), True)
    judged = _judgements(folder) if beir else folder / "relevance.tsv"
    position = {key: index for index, key in enumerate(corpus)}
    relevant, warnings = _relevance(judged, queries, position)
    kept = [key for key in queries if relevant[key]]
    if not kept:
        reason = f"; {warnings[0]}" if warnings else ""
        raise DataError(f"{judged}: no relevant text for query {next(iter(queries))!r}, nor for any other{reason}")
    if len(kept) < len(queries):
        count = len(queries) - len(kept)
        warnings.append(f"{count} of {len(queries)} queries have no relevant text in {judged.name}: left out")
    graded = any(grade != 1 for key in kept for _, grade in relevant[key])
    hidden, notes = _hidden({key: queries[key] for key in kept}, corpus, untitled, position, relevant)
    return named_by_content(RetrievalSet(
        id="", task=name, text_version="own", origin=str(folder), warnings=tuple(warnings),
        queries=tuple(queries[key] for key in kept), corpus=tuple(corpus.values()),
        relevant=tuple(tuple(index for index, _ in relevant[key]) for key in kept), hidden=hidden, notes=notes,
        grades=tuple(tuple(grade for _, grade in relevant[key]) for key in kept) if graded else (),
    ))


def _hidden(
    queries: Texts, corpus: Texts, untitled: Texts, position: dict[str, int], relevant: Grades
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """The positions of each query itself, and a line that says by which rule they were found, and how many."""
    same: dict[str, list[int]] = {}
    for key, text in corpus.items():
        for form in {text, untitled[key]}:
            same.setdefault(form, []).append(position[key])
    hidden: list[tuple[int, ...]] = []
    by_id = by_text = 0
    for key, text in queries.items():
        indices = [position[key]] if key in position else same.get(text, [])
        counted = {index for index, _ in relevant[key]}
        hidden.append(tuple(index for index in indices if index not in counted))
        if key in position:
            by_id += len(hidden[-1])
        else:
            by_text += len(hidden[-1])
    counts = [f"{by_id} by id (the query's own id, BEIR's rule)"] * (by_id > 0)
    counts += [f"{by_text} by text (no corpus text has the query's id)"] * (by_text > 0)
    what = "corpus texts that are a query itself and not counted for it: "
    return tuple(hidden), ((what + ", ".join(counts),) if counts else ())


_HEADERS = {(id, text) for id in ("id", "_id", "qid", "query_id", "pid", "docid", "doc_id", "corpus_id")
            for text in ("text", "query", "passage", "document", "sentence")}


def _collect(path: Path, parse: Callable[[str, int], tuple[str, str, str]], empty: bool) -> tuple[Texts, Texts]:
    """id -> text, and id -> text without its title. empty: whether a text may be, as a document's."""
    texts: Texts = {}
    untitled: Texts = {}
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        key, title, text = (part.strip() for part in parse(without_end(line), number))
        if key in texts:
            raise DataError(f"{path}:{number}: id {key!r} occurs twice")
        whole = f"{title} {text}".strip()  # BEIR embeds title, space, text
        if not key or not (whole or empty):
            raise DataError(f"{path}:{number}: the {'text' if key else 'id'} is empty")
        check_text(key + whole, f"{path}:{number}", "the text")
        check_no_nul(key + whole, f"{path}:{number}", "the text")
        texts[key], untitled[key] = whole, text
    if not texts:
        raise DataError(f"{path} is empty")
    return texts, untitled


def _texts_tsv(path: Path, empty: bool) -> tuple[Texts, Texts]:
    def parse(line: str, number: int) -> tuple[str, str, str]:
        key, text = _cells(line, path, number, (2,), "id, tab, text")
        if number == 1 and (key.strip().lower(), text.strip().lower()) in _HEADERS:
            raise DataError(f"{path}:1: a header line: leave it out, the first line is the first text")
        return key, "", text

    return _collect(path, parse, empty)


def _texts_jsonl(path: Path, empty: bool) -> tuple[Texts, Texts]:
    def parse(line: str, number: int) -> tuple[str, str, str]:
        item = json_object(line, path, number)
        key, text, title = item.get("_id"), item.get("text"), item.get("title") or ""
        if type(key) not in (str, int) or not isinstance(text, str) or not isinstance(title, str):
            raise DataError(f"{path}:{number}: expected the fields _id and text, and perhaps title, as texts")
        return str(key), title, text

    return _collect(path, parse, empty)


def _judgements(folder: Path) -> Path:
    files = [folder / name for name in _JUDGEMENTS if _unpacked(folder / name).is_file()]
    if len(files) != 1:
        which = f"both {files[0].name} and {files[1].name}" if files else "neither"
        splits = sorted(f"qrels/{path.name}" for path in (folder / "qrels").glob("*"))
        hint = f"; of {', '.join(splits)} copy the split to measure, as tab-separated text, to {folder / 'qrels.tsv'}"
        raise DataError(f"{folder} must hold one of {' and '.join(_JUDGEMENTS[:2])}: it has {which}"
                        + (hint if splits and not files else ""))
    return files[0]


def _unpacked(path: Path) -> Path:
    """`path`; DataError where only its compressed form is there."""
    packed = path.with_name(f"{path.name}.gz")
    if packed.is_file() and not path.exists():
        raise DataError(f"{packed} is gzip-compressed, not plain text: unpack it first")
    return path


def _relevance(path: Path, queries: Texts, position: dict[str, int]) -> tuple[Grades, list[str]]:
    """Query id -> position of each relevant text, below 0 for one that is not in the corpus, and its grade, for every query;
    and warnings."""
    relevant: dict[str, list[tuple[int, float]]] = {key: [] for key in queries}
    judged: dict[tuple[str, str], float] = {}
    strangers, absent, again = list[str](), list[str](), list[str]()
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        cells = _judgement(without_end(line), path, number)
        query, text = cells[0].strip(), cells[1].strip()
        if number == 1 and _is_header(cells, queries):
            continue
        score = _score(cells[2], path, number) if len(cells) > 2 else 1.0
        if (query, text) in judged:
            if (earlier := judged[query, text]) != score:
                raise DataError(f"{path}:{number}: {query!r} and {text!r} are judged twice, {earlier:g} and {score:g}")
            again.append(f"{path}:{number}: {query!r} and {text!r} are judged twice, the same both times")
            continue
        judged[query, text] = score
        if query not in relevant:
            strangers.append(f"{path}:{number}: no query has the id {query!r}")
        elif score > 0:
            if text not in position:
                absent.append(f"{path}:{number}: no corpus text has the id {text!r}")
            relevant[query].append((position.get(text, -1), score))
    if not judged:
        raise DataError(f"{path} holds no judgement: write query id, tab, corpus id, and perhaps a tab and a score")
    warnings = [f"{lines[0]} ({len(lines)} such judgements): {meaning}" for lines, meaning in
                ((strangers, "left out, as by trec_eval"), (absent, "counted as not found, as by trec_eval"),
                 (again, "counted once")) if lines]
    return {key: sorted(graded) for key, graded in relevant.items()}, warnings


def _judgement(line: str, path: Path, number: int) -> list[str]:
    """Query id, corpus id and perhaps a score; of TREC's four columns (query, iteration, text, score) all but the second."""
    cells = line.split("\t") if "\t" in line else line.split()
    if len(cells) == 4:
        return [cells[0], cells[2], cells[3]]
    shape = "query id, tab, corpus id, and perhaps a tab and a score, or TREC's four columns"
    return _cells("\t".join(cells), path, number, (2, 3), shape)


def _is_header(cells: list[str], queries: Texts) -> bool:
    """Whether a first line names columns, as BEIR's does: query-id, corpus-id, score."""
    if cells[0].strip() in queries:
        return False
    if len(cells) == 2:
        return cells[0].strip().lower().replace("_", "-") in ("query-id", "qid", "query")
    try:
        float(cells[2])
    except ValueError:
        return True
    return False


def _cells(line: str, path: Path, number: int, wanted: tuple[int, ...], shape: str) -> list[str]:
    cells = line.split("\t")
    if len(cells) not in wanted:
        raise DataError(f"{path}:{number}: expected {shape}; found {len(cells)} column{'s' if len(cells) > 1 else ''}")
    return cells


def _score(text: str, path: Path, number: int) -> float:
    if not math.isfinite(score := number_of(text, f"{path}:{number}")):
        raise DataError(f"{path}:{number}: the score {shown(text)} is not a finite number")
    return score
