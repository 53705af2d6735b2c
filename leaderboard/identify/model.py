"""What `identify --model` names besides runs: looked at before any data are, and before anything is downloaded."""

from __future__ import annotations

from pathlib import Path

from stsbench.encoders.base import Encoder
from stsbench.errors import EncoderError, StsbenchError

_TAKES = (
    "give a folder with a run's records, a folder of such folders, or what `stsbench eval --model` takes: a model folder, a "
    "Hub id, minilm, lexical:token-set, lexical:tfidf, vectors:FILE.npz, words:GLOVE.txt or python:module:callable"
)


def source(model: str, pooler: str | None) -> str | Encoder:
    """What to measure for `model`, which is not a run folder: the encoder itself, or a transformer's name as it stands.

    Raises StsbenchError for what is not a model, EncoderError for an encoder of another kind that cannot be made.
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
    """Why it is not a model; "" where it may be one. Raises EncoderError where minilm is not installed."""
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
        return ""  # loading it says what to do
    except (RepositoryNotFoundError, HFValidationError):
        return "no such folder, and no such model on the Hub"
    except Exception as error:  # the client's other failures come from several libraries: HTTP, sockets
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return f"no such folder, not in the Hub cache, and the Hub cannot be asked ({reason})"
    return ""
