"""Reader of a user's own retrieval data: queries, corpus and relevance judgements, tab-separated or in BEIR's layout."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from stsbench.config import shorten
from stsbench.data.own.source import hub_files
from stsbench.data.own.table import Rows, arrow_rows, csv_rows
from stsbench.data.sets.lines import check_no_nul, check_text, numbered_lines, without_end
from stsbench.data.sets.readers import json_object, parse_score
from stsbench.data.sets.sets import ON_HUB, RetrievalSet, named_by_content, path_name
from stsbench.errors import DataError

Texts = dict[str, str]  # id -> text, in file order
Grades = dict[str, list[tuple[int, float]]]  # query id -> (position in the corpus, grade) of its relevant texts
_JUDGEMENTS = ("qrels/test.tsv", "qrels.tsv", "qrels/test.txt", "qrels.txt")
_RECORDS = (".csv", ".jsonl", ".json", ".parquet", ".arrow")
_SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})")
_QUERY, _TEXT = ("query-id", "qid", "query"), ("corpus-id", "docid", "doc-id", "pid", "corpus")
_ID = ("-id", "id", *_QUERY[:2], *_TEXT[:4])  # names of the column of a text's id
_WORDS = ("text", "query", "passage", "document", "sentence")  # names of the column of text
Files = dict[str, tuple[Path, ...]]  # "queries", "corpus", "qrels" -> files


def read_relevance(folder: Path) -> RetrievalSet:
    """Return the retrieval set in `folder`, or on the Hub (hf:OWNER/NAME), with text version "own"; its task is the folder's
    name, never a path, its id a digest.

    The folder holds either queries.tsv and corpus.tsv (id, tab, text) with relevance.tsv, or BEIR's queries.jsonl and
    corpus.jsonl (_id or id, text, title) with one of _JUDGEMENTS. In BEIR's layout each file may be CSV, Parquet or JSON
    lines as on the Hub: corpus.parquet, or a folder corpus/ with one or more files per split
    (test-00000-of-00002.parquet), or one that `datasets` saved. Judgements are tab-separated query id, corpus id and perhaps
    a score, TREC's four columns, or columns query-id, corpus-id and score; a text is relevant if its score, which is its
    grade, is above 0. As in trec_eval, a relevant text that is not in the corpus counts as not found, and judgements of
    unknown queries are left out; queries without a relevant text are left out, too. Each of these gives a warning.
    The corpus text that is the query itself does not count as retrieved, unless it is judged relevant: the text with the
    query's id (BEIR's rule) or, if there is none, any text that equals the query with or without its title. Raises DataError
    naming file and row.
    """
    name, origin, split, files = path_name(folder), str(folder), "", Files()
    if name.startswith(ON_HUB):
        dataset = hub_files("documents")(name)
        folder, origin, split, files = dataset.folder, dataset.origin, dataset.split, dataset.parts
    files = files or _files(folder, split)
    queries, _ = _texts(files["queries"], False)
    corpus, untitled = _texts(files["corpus"], True)
    judged = files["qrels"][0]
    position = {key: index for index, key in enumerate(corpus)}
    relevant, warnings = _relevance(files["qrels"], queries, position)
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
        id="", task=name, text_version="own", origin=origin, warnings=tuple(warnings),
        queries=tuple(queries[key] for key in kept), corpus=tuple(corpus.values()),
        relevant=tuple(tuple(index for index, _ in relevant[key]) for key in kept), hidden=hidden, notes=notes,
        grades=tuple(tuple(grade for _, grade in relevant[key]) for key in kept) if graded else (),
    ))


def _hidden(
    queries: Texts, corpus: Texts, untitled: Texts, position: dict[str, int], relevant: Grades
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Return for each query the corpus positions of the query itself, and a note on how many were found by which rule."""
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
            for text in _WORDS}


def _texts(files: Sequence[Path], empty: bool) -> tuple[Texts, Texts]:
    """Return id -> text with its title, and id -> text alone. empty: whether a text may be empty, as in a corpus."""
    texts: Texts = {}
    untitled: Texts = {}
    for location, *cells in chain.from_iterable(map(_cells_of_texts, files)):
        key, title, text = (part.strip() for part in cells)
        if key in texts:
            raise DataError(f"{location}: id {key!r} occurs twice")
        whole = f"{title} {text}".strip()  # BEIR embeds title, space, text
        if not key or not (whole or empty):
            raise DataError(f"{location}: the {'text' if key else 'id'} is empty")
        check_text(key + whole, location, "the text")
        check_no_nul(key + whole, location, "the text")
        texts[key], untitled[key] = whole, text
    if not texts:
        raise DataError(f"{files[0]} is empty")
    return texts, untitled


def _cells_of_texts(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield (location, id, title, text) for each row."""
    if path.suffix.lower() not in _RECORDS:
        for number, line in _written(path):
            key, text = _cells(line, path, number, (2,), "id, tab, text")
            if number == 1 and (key.strip().lower(), text.strip().lower()) in _HEADERS:
                raise DataError(f"{path}:1: a header line: leave it out, the first line is the first text")
            yield f"{path}:{number}", key, "", text
        return
    for location, row in _records(path):
        document = next((row[name] for name in _WORDS if name in row), None)
        identity, title = _id(row, _ID), row.get("title") or ""
        if identity is None or not isinstance(document, str) or not isinstance(title, str):
            raise DataError(f"{location}: expected the fields _id and text, and perhaps title, as texts")
        yield location, identity, title, document


def _written(path: Path) -> Iterator[tuple[int, str]]:
    return ((number, without_end(line)) for number, line in numbered_lines(path) if line.strip())


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (location, row) of a CSV, JSON lines, Parquet or Arrow file, columns in lower case with - for _."""
    kind = path.suffix.lower()
    rows: Rows
    if kind == ".csv":
        rows = csv_rows(path)
    elif kind in (".parquet", ".arrow"):
        rows = arrow_rows(path, [path])
    else:
        rows = ((f"{path}:{number}", json_object(line, path, number)) for number, line in _written(path))
    return ((location, {name.lower().replace("_", "-"): value for name, value in row.items()}) for location, row in rows)


def _id(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return a row's value in the first of these columns that it has; None for no such column or a value that is neither
    text nor integer."""
    key = next((row[name] for name in names if name in row), None)
    return str(key) if type(key) in (str, int) else None


def _files(folder: Path, split: str) -> Files:
    """Return the files of queries, corpus and qrels in a folder; split: of the judgements, "" for test or the only one."""
    two_columns = _unpacked(folder / "queries.tsv").is_file()
    groups = {part: _by_split(folder, part) for part in ("queries", "corpus", "qrels")}
    if two_columns == bool(groups["queries"]):
        which = "both" if two_columns else "neither"
        raise DataError(f"{folder} must hold queries.tsv (your own files) or queries.jsonl, .csv or .parquet (BEIR's "
                        f"layout): it has {which}")
    if two_columns:
        return {"queries": (folder / "queries.tsv",), "corpus": (_unpacked(folder / "corpus.tsv"),),
                "qrels": (folder / "relevance.tsv",)}
    groups["qrels"] = groups["qrels"] or _by_split(folder, "relevance")
    groups["corpus"] = groups["corpus"] or {"corpus": [_unpacked(folder / "corpus.jsonl")]}
    judged = _judgements(folder, split, groups["qrels"])
    split = split or _split(judged[0])
    return {part: judged if part == "qrels" else _chosen(folder, part, groups[part], split) for part in groups}


def _by_split(folder: Path, part: str) -> dict[str, list[Path]]:
    """Return the files of a part, "queries" for example, by their split, or by the part's own name."""
    _unpacked(folder / f"{part}.jsonl")
    paths = [*folder.glob(f"{part}.*"), *folder.glob(f"{part}-*"), *(folder / part).glob("*")]
    if (folder / part / "state.json").is_file():
        paths = [*(folder / part).glob("data-*.arrow")]  # without the .json files of metadata that `datasets` saves
    groups: dict[str, list[Path]] = {}
    for path in sorted(path for path in paths if path.suffix.lower() in _RECORDS and path.is_file()):
        groups.setdefault(_split(path), []).append(path)
    return groups


def _split(path: Path) -> str:
    match = _SHARD.fullmatch(path.stem)
    return match[1] if match else path.stem


def _chosen(folder: Path, part: str, groups: Mapping[str, Sequence[Path]], split: str) -> tuple[Path, ...]:
    """Return the files of a part for a split: those named after the split, those named after the part, or the only ones."""
    fitting = [name for name in dict.fromkeys((split, part)) if name in groups] or list(groups)
    if len(fitting) > 1:
        raise DataError(f"{folder}: which of {', '.join(fitting)} is its {part}? leave one there")
    files = groups[fitting[0]]
    shards = [match for path in files if (match := _SHARD.fullmatch(path.stem))]
    twice = len({(path.parent, path.suffix) for path in files}) > 1 or (not shards and len(files) > 1)
    if twice:
        raise DataError(f"{folder} holds its {part} twice, {files[0].name} and {files[-1].name}: leave one there")
    if shards and (len(shards) < len(files) or len(files) != int(shards[0][2])):
        count = int(shards[0][2])
        raise DataError(f"{folder} holds {len(files)} of its {part}'s files, and {files[0].name} is one of {count}")
    return tuple(files)


def _judgements(folder: Path, split: str, records: Mapping[str, Sequence[Path]]) -> tuple[Path, ...]:
    listed = tuple(name.replace("test", split) if split else name for name in _JUDGEMENTS)
    files = [folder / name for name in listed if _unpacked(folder / name).is_file()]
    fitting = {name: paths for name, paths in records.items() if name in (split or "test", "qrels")}
    if len(records) == 1 and not split:
        fitting = dict(records)
    names = [str(path.relative_to(folder)) for path in [*files, *(paths[0] for paths in fitting.values())]]
    if len(names) == 1:
        return tuple(files) if files else _chosen(folder, "qrels", fitting, next(iter(fitting)))
    which = f"both {names[0]} and {names[1]}" if names else "neither"
    splits = sorted(f"qrels/{path.name}" for path in (folder / "qrels").glob("*"))
    hint = f"; of {', '.join(splits)} copy the split to measure, as tab-separated text, to {folder / 'qrels.tsv'}"
    raise DataError(f"{folder} must hold one of {' and '.join(listed[:2])}: it has {which}"
                    + (hint if splits and not names else ""))


def _unpacked(path: Path) -> Path:
    """Return `path`. Raises DataError where only a compressed copy of it exists."""
    packed = path.with_name(f"{path.name}.gz")
    if packed.is_file() and not path.exists():
        raise DataError(f"{packed} is gzip-compressed, not plain text: unpack it first")
    return path


def _relevance(files: Sequence[Path], queries: Texts, position: dict[str, int]) -> tuple[Grades, list[str]]:
    """Return for every query id the (corpus position, grade) of its relevant texts, with position -1 for a text that is not
    in the corpus; and warnings."""
    relevant: dict[str, list[tuple[int, float]]] = {key: [] for key in queries}
    judged: dict[tuple[str, str], float] = {}
    strangers, absent, again = list[str](), list[str](), list[str]()
    for location, query, text, score in chain.from_iterable(_cells_of_judgements(path, queries) for path in files):
        if (query, text) in judged:
            if (earlier := judged[query, text]) != score:
                raise DataError(f"{location}: {query!r} and {text!r} are judged twice, {earlier:g} and {score:g}")
            again.append(f"{location}: {query!r} and {text!r} are judged twice, the same both times")
            continue
        judged[query, text] = score
        if query not in relevant:
            strangers.append(f"{location}: no query has the id {query!r}")
        elif score > 0:
            if text not in position:
                absent.append(f"{location}: no corpus text has the id {text!r}")
            relevant[query].append((position.get(text, -1), score))
    if not judged:
        raise DataError(f"{files[0]} holds no judgement: write query id, tab, corpus id, and perhaps a tab and a score")
    warnings = [f"{lines[0]} ({len(lines)} such judgements): {meaning}" for lines, meaning in
                ((strangers, "left out, as by trec_eval"), (absent, "counted as not found, as by trec_eval"),
                 (again, "counted once")) if lines]
    return {key: sorted(graded) for key, graded in relevant.items()}, warnings


def _cells_of_judgements(path: Path, queries: Texts) -> Iterator[tuple[str, str, str, float]]:
    """Yield (location, query id, corpus id, score) for each row."""
    if path.suffix.lower() not in _RECORDS:
        for number, line in _written(path):
            cells = _judgement(line, path, number)
            if number > 1 or not _is_header(cells, queries):
                score = _score(cells[2], f"{path}:{number}") if len(cells) > 2 else 1.0
                yield f"{path}:{number}", cells[0].strip(), cells[1].strip(), score
        return
    for location, row in _records(path):
        query, text = _id(row, _QUERY), _id(row, _TEXT)
        if query is None or text is None:
            there = ", ".join(row)
            raise DataError(f"{location}: expected the columns query-id, corpus-id, and perhaps score (there are {there})")
        yield location, query.strip(), text.strip(), _score(row["score"], location) if "score" in row else 1.0


def _judgement(line: str, path: Path, number: int) -> list[str]:
    """Return query id, corpus id and perhaps a score of a line; TREC's second column (query, iteration, text, score) is
    left out."""
    cells = line.split("\t") if "\t" in line else line.split()
    if len(cells) == 4:
        return [cells[0], cells[2], cells[3]]
    shape = "query id, tab, corpus id, and perhaps a tab and a score, or TREC's four columns"
    return _cells("\t".join(cells), path, number, (2, 3), shape)


def _is_header(cells: list[str], queries: Texts) -> bool:
    """Return whether a first line names columns, as BEIR's does: query-id, corpus-id, score."""
    if cells[0].strip() in queries:
        return False
    if len(cells) == 2:
        return cells[0].strip().lower().replace("_", "-") in ("query-id", "qid", "query")
    try:
        float(cells[2])
    except ValueError:
        return True
    return False


def _cells(line: str, path: Path, number: int, counts: tuple[int, ...], shape: str) -> list[str]:
    cells = line.split("\t")
    if len(cells) not in counts:
        raise DataError(f"{path}:{number}: expected {shape}; found {len(cells)} column{'s' if len(cells) > 1 else ''}")
    return cells


def _score(text: object, location: str) -> float:
    if not math.isfinite(score := parse_score(text, location)):
        raise DataError(f"{location}: the score {shorten(text)} is not a finite number")
    return score
