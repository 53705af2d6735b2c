"""The function `identify`, the part it shares with the command `stsbench identify`, and the reading of `--model`."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.config import checked_options
from stsbench.encoders.base import Encoder
from stsbench.errors import EncoderError, StsbenchError, UsageError, warning_log
from stsbench.evaluation.options import EvalOptions
from stsbench.notebook import in_notebook, start_bar
from stsbench.options import SetOptions

from .numbers import Numbers, read_numbers, refuse_impossible, resolved
from .observed import known_tasks, observed, run_folders
from .published import PublishedMatches, published_matches
from .report import Identification
from .search import search

if TYPE_CHECKING:
    from stsbench.evaluation.api import StartProgress

_TAKES = (
    "give a folder with a run's records, a folder of such folders, or what `stsbench eval --model` takes: a model folder, a "
    "Hub id, minilm, lexical:token-set, lexical:tfidf, vectors:FILE.npz, words:GLOVE.txt or python:module:callable"
)
Log = Callable[[str], None]
Figure = float | str | None  # a score, as text to keep the zeros at its end; None for one that is not printed
Published = str | Path | Mapping[str, Figure] | Sequence[Figure]


def source(model: str, pooler: str | None) -> str | Encoder:
    """Return the encoder to measure for `model`, which is not a run folder; a transformer's name is returned unchanged.

    Raises StsbenchError if `model` is not a model, EncoderError if an encoder of another kind cannot be loaded.
    """
    from stsbench.encoders.load import kinds, load_encoder

    kind, colon, _ = model.partition(":")
    path = Path(model).expanduser()
    if colon and (kind in kinds() or not path.exists()):
        return load_encoder(model, pooler=pooler)
    if why := _not_a_model(model, path):
        raise StsbenchError(f"--model {model} is neither a run folder nor a model: {why}; {_TAKES}")
    return model


def _not_a_model(model: str, path: Path) -> str:
    """Return why `model` is not a model; "" where it may be one. Raises EncoderError where minilm is not installed."""
    from stsbench.encoders.transformer.find import find_minilm, resolve

    if path.is_dir():
        if any((path / file).is_file() for file in ("config.json", "modules.json")):
            return ""
        return "the folder holds no record (nor does one at most two levels below it), and no config.json"
    if path.exists():
        return "it is a file"
    if model == "minilm":
        find_minilm()
        return ""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        resolve(model, offline=True)
        return ""
    except EncoderError as error:
        if not isinstance(error.__cause__, LocalEntryNotFoundError):
            return "no such folder, and not a Hub id either"
    try:
        HfApi().model_info(model, timeout=10)
    except GatedRepoError:
        return ""  # the error of loading it says what to do
    except (RepositoryNotFoundError, HFValidationError):
        return "no such folder, and no such model on the Hub"
    except Exception as error:  # the client's other failures come from several libraries: HTTP, sockets
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return f"no such folder, not in the Hub cache, and the Hub cannot be asked ({reason})"
    return ""


def identify(
    numbers: Published, model: Any = None, *, pooler: str | Sequence[str] | None = None, data_dir: str | Path | None = None,
    sample: bool = False, output: str | Path | None = None,
) -> Identification | PublishedMatches:
    """Return the protocol settings under which a model's observations give published numbers, as `stsbench identify`.

    numbers: {"STS12": 72.37, "STS-B": 82.03}; or seven scores in the order STS12 STS13 STS14 STS15 STS16 STS-B SICK-R; or
    what the command takes: text, the id of a published row ("simcse:B.2:2"), a .json, .csv or .yaml file. All printed digits
    are compared; floats, which lose the zeros at their end, count as having as many digits as the longest of them.
    model: a run folder, a folder of run folders, a Result of `evaluate`, or a model as for `evaluate`, which is measured
    first; or a list of these. With None, the published rows that contain the numbers are returned. pooler, data_dir, sample:
    for models that are measured first; each of several poolers is a setting. output: a folder to keep their runs in.

    Each task that failed gives a StsbenchWarning. Raises StsbenchError for numbers that are not understood, for a `model`
    that is neither run nor model, and for records that were edited.

    >>> import stsbench
    >>> stsbench.identify({"STS-B": 9.48}, "lexical:token-set", sample=True)
    <Identification: reproduced, 6 settings compared; print it for them>
    """
    if model is None:
        return published_matches(as_text(numbers))
    log = warning_log()

    def heard(line: str) -> None:
        log(f"warning: {line}" if line.startswith(("failed: ", "left out: ")) else line)

    models = list(model) if isinstance(model, list | tuple) else [model]
    poolers = () if pooler is None else (pooler,) if isinstance(pooler, str) else tuple(pooler)
    with tempfile.TemporaryDirectory() as temporary:
        return identified(
            as_text(numbers), models, poolers, checked_options(SetOptions, "identify", data_dir=data_dir, sample=sample),
            Path(temporary if output is None else output), log=heard, progress=start_bar if in_notebook() else None,
        )


def as_text(numbers: Published) -> str:
    """Return the numbers as text in the form of the command line."""
    if isinstance(numbers, str | Path):
        return str(numbers)
    values = list(numbers.values() if isinstance(numbers, Mapping) else numbers)
    digits = max((len(repr(float(value)).partition(".")[2]) for value in values if isinstance(value, float)), default=0)
    figures = [_format_number(value, digits) for value in values]
    if isinstance(numbers, Mapping):
        return ",".join(f"{name}={figure}" for name, figure in zip(numbers, figures, strict=True))
    return " ".join(figures)


def _format_number(value: Figure, digits: int) -> str:
    """Return a figure as text, "-" for None. A float gets `digits` decimals, since it has lost the zeros at its end."""
    if isinstance(value, float) and "e" not in repr(float(value)):
        return f"{value:.{digits}f}"
    return "-" if value is None else str(value)


def identified(
    numbers: str, models: Sequence[Any], poolers: Sequence[str], where: SetOptions, output: Path, *, log: Log,
    command: Sequence[str] = (), progress: StartProgress | None = None,
) -> Identification:
    """Return the result of `identify`. output: the folder for the runs of models that are measured first; command: stated
    in their records; log: called with a line for each failure, omission and new run."""
    if not models:
        raise StsbenchError("identify needs a model, or runs of one")
    published = read_numbers(numbers)
    named = [_as_text(model) for model in models]
    runs = [run_folders(Path(model).expanduser()) if isinstance(model, str) else [] for model in named]
    for value, option in ((poolers, "--pooler"), (where.data_dir, "--data-dir"), (where.sample, "--sample")):
        if value and all(runs):
            raise UsageError(f"{option} does not apply to run folders: their observations are used as they are")
    if not all(runs):
        published = resolved(published, known_tasks([]))  # refuses unknown tasks before models are measured
        if not any(runs):  # only runs can have a score above 100 (of geometry): models are not measured on geometry here
            refuse_impossible(published)
    first = next(iter(poolers), None)
    sources = [source(model, first) if isinstance(model, str) and not its else model
               for model, its in zip(named, runs, strict=True)]
    folders = []
    for at, its in enumerate(runs):
        name = named[at] if isinstance(named[at], str) else f"model-{at + 1}"
        folders += its or [
            _measured(name, published, log, progress, model=sources[at], output=output / _run_name(name), pooler=pooler,
                      data_dir=where.data_dir, sample=where.sample, command=list(command))
            for pooler in poolers or (None,)
        ]
    observations = observed(dict.fromkeys(folder.resolve() for folder in folders), log)
    return Identification(search(resolved(published, known_tasks(observations)), observations), tuple(observations))


def _as_text(model: Any) -> Any:
    """Return a path, or the run folder of a result, as text; anything else unchanged."""
    folder = getattr(model, "folder", model)
    return str(folder) if isinstance(folder, str | Path) else model


def _run_name(model: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", Path(model).name or model).strip("-.")[:40] or "model"
    return f"{datetime.now():%Y%m%d-%H%M%S}-{slug}"


def _measured(name: str, numbers: Numbers, log: Log, progress: StartProgress | None, **options: Any) -> Path:
    """Measure a model on the tasks of `numbers` under the default protocols that score them, and return the run folder."""
    from stsbench.evaluation.api import run
    from stsbench.evaluation.protocol import kinds

    tasks = {task.partition("/")[0] for task in numbers.items}
    protocols = {name: kinds()[name]({}) for name in ("sts", "regression", "transfer")}
    known = {task for protocol in protocols.values() for task in protocol.tasks()}
    if other := sorted(tasks - known - {"Avg"}):
        raise StsbenchError(
            f"{name} cannot be measured on {', '.join(other)} here: measure it with `stsbench eval` and name its run folder"
        )
    if "Avg" in tasks:
        protocol = "transfer" if tasks & set(protocols["transfer"].tasks()) else "sts"
        tasks = (tasks - {"Avg"}) | set(protocols[protocol].averaged)
    if "SICK-R" in tasks:
        tasks.add("SICK-R-MTEB")
    chosen = [name for name, protocol in protocols.items() if tasks & set(protocol.tasks())]
    asked = checked_options(EvalOptions, "identify", protocols=chosen, tasks=sorted(tasks), **options)
    result = run(asked, log=log, progress=progress)
    for task, reason in result.failures.items():
        log(f"failed: {task}: {reason}")
    if not result.records:
        raise StsbenchError(f"no task could be scored with {name}")
    log(f"run: {result.folder}")
    return result.folder
