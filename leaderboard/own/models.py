"""Measurement of several models on a user's data, with a board of them and the choice of the best."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stsbench.config import read_yaml
from stsbench.display.table import Document
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError, UsageError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.own_data import data_protocols, fitting_options
from stsbench.evaluation.records import Record
from stsbench.evaluation.rescore import score
from stsbench.evaluation.result import Result
from stsbench.evaluation.tables import encoder_in_words
from stsbench.files import sha256_file
from stsbench.leaderboard import api as leaderboard
from stsbench.registry import names, resolve
from stsbench.wording import without_paths

KINDS = {"transformers": "transformer", "sentence-transformers": "transformer"}


@dataclass(frozen=True)
class OwnBoard:
    """The result of `measure_models`. page: the file to open; choice: the result of `stsbench.choose`, None for a single
    model or without that extension; results: a `Result` for each model, in their order, then of those that the board had
    on these data."""

    page: Path
    choice: Any
    results: tuple[Result, ...]

    def document(self) -> Document:
        """Return what `choose` prints, or the result of the first model where there is no choice."""
        made: Document = self.choice.document() if self.choice is not None else self.results[0].document()
        return made


def measure_models(
    models: str | Sequence[str], data: str | Path, *, output: str | Path = "board", title: str | None = None,
    columns: str | Mapping[str, str] | None = None, cost: bool = True, offline: bool = False,
    log: Callable[[str], None] | None = None,
) -> OwnBoard:
    """Measure models and their cost on data of your own, and write a board with a page that opens from its folder.

    data: a file whose columns determine the protocol, a folder of queries and corpus, or either after the protocol's name,
    as in "pairs:tickets.csv". output: the board's folder; models with a run in it are not measured again. title: of the
    page, by default the data's name. columns, offline: as for `evaluate`. cost: also measure speed and memory, which takes
    some seconds per model. log: called with a line before each model. Raises StsbenchError for data that fit no protocol
    or several, and where `evaluate` would.

    >>> from stsbench import leaderboard
    >>> rows = ["sentence1,sentence2,label", "a cat,the cat,1", "a dog,rain,0", "rain,some rain,1", "snow,a car,0"]
    >>> _ = open("mine.csv", "w").write("\\n".join(rows))
    >>> made = leaderboard.measure_models(["lexical:tfidf", "lexical:token-set"], "mine.csv", cost=False)
    >>> made.page.as_posix(), [round(result["mine.csv"], 1) for result in made.results]
    ('board/site/index.html', [100.0, 100.0])
    """
    models = [models] if isinstance(models, str) else models
    if not models:
        raise UsageError("name one model or more")
    if not isinstance(data, str | Path):
        raise StsbenchError(f"data must be a file or a folder, or either behind a protocol, not a {type(data).__name__}: "
                            "write it to a file, whose runs a board can show again")
    if twice := sorted({model for model in models if list(models).count(model) > 1}):
        raise UsageError(f"{twice[0]} is named twice")
    protocol, folder, tell = named_data(str(data)), Path(output), log or (lambda line: None)
    options = {name: value for name, value in (("columns", columns), ("cost", cost), ("offline", offline)) if value}
    if title is not None and (folder / "board.yaml").is_file():
        raise UsageError(f"--title {title}: {folder} is there, and {folder / 'board.yaml'} holds its title")
    path, new = Path(protocol.partition(":")[2]), not (folder / "board.yaml").is_file()
    if new:
        leaderboard.init(folder, title=title or path.name)
    try:
        content = _content(protocol, path, columns)
        results = [_measured(model, protocol, content, folder, options, tell) for model in models]
        results += [score(run) for run in sorted(folder.glob(f"runs/*-{content}"))
                    if run.name not in {result.folder.name for result in results}]
    except Exception:
        if new and not any(folder.glob("runs/*")):  # a new board without a run is of no use
            shutil.rmtree(folder)
        raise
    leaderboard.build(folder)
    able = len(results) > 1 and "choose" in names("stsbench.functions")
    choice = resolve("stsbench.functions", "choose")([result.folder for result in results]) if able else None
    return OwnBoard(folder / "site" / "index.html", choice, tuple(results))


def named_data(data: str) -> str:
    """Return the protocol and path of a user's data as in `--protocol`: "pairs:tickets.csv". Raises StsbenchError where the
    data fit no protocol, or several."""
    if data.partition(":")[0] in data_protocols():
        return data
    path = Path(data)
    if not path.exists():
        raise StsbenchError(f"--data {data}: no such file or folder")
    fitting = fitting_options(path)
    if len(fitting) != 1:
        options = "; ".join(option for _, option in fitting).replace("--protocol", "--data")
        which = f"write one of {options}" if fitting else (
            f"its columns are for no protocol: name one, as in --data sts:{data}, to be told which columns it wants")
        raise StsbenchError(f"--data {data}: {which}")
    return f"{fitting[0][0]}:{data}"


def _measured(
    model: str, protocol: str, content: str, folder: Path, options: dict[str, Any], tell: Callable[[str], None]
) -> Result:
    """Return a model's result, measured unless its run is in the board's folder, and add the run to the board.

    An entry is named by the model and its fingerprint, a run also by its data's digest: after further training of the model,
    or edits of the data, the name differs and it is measured again.
    """
    encoder = load_encoder(model, offline=options.get("offline", False))
    name = re.sub(r"[^a-z0-9]+", "-", without_paths(model).lower()).strip("-")[:60] or "model"
    entry = f"{name}-{encoder.spec.fingerprint()[:8]}"
    run = folder / "runs" / f"{entry}-{content}"
    if run.exists():
        tell(f"{model}: {run} is there already")
        result = score(run)
    else:
        tell(f"{model}: measuring")
        result = evaluate(model, protocol, output=run, **options)
    if not result.records:
        shutil.rmtree(run, ignore_errors=True)  # so that the next call measures it again
        raise StsbenchError(f"{model}: {'; '.join(result.failed_lines())}")
    known = (folder / "measured" / entry).exists()
    leaderboard.add(run, entry, board=folder, **({} if known else _about(result.records[0], folder)))
    return result


def _content(protocol: str, path: Path, columns: str | Mapping[str, str] | None) -> str:
    """Return eight hex digits of a digest of protocol and data: the bytes of its files, and the columns that are read."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digests = [f"{file.relative_to(path.parent)} {sha256_file(file)}" for file in files]
    parts = [*digests, protocol.partition(":")[0], str(columns)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _about(record: Record, folder: Path) -> dict[str, Any]:
    """Return the description of a new entry; if its method's name is taken, digits of the fingerprint are added to it."""
    kind, method = str(record.encoder.spec.get("kind") or ""), encoder_in_words(record)[:60]
    taken = [read_yaml(path)["method"] for path in (folder / "measured").glob("*/entry.yaml")]
    if method in taken:
        method = f"{method} ({record.encoder.fingerprint[:8]})"
    return {"method": method, "backbone": KINDS.get(kind, kind) or "encoder", "setting": "unknown"}
