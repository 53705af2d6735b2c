"""The folder that a model's name stands for: a folder, a training run, or a Hub id, downloaded or in the Hub cache."""

from __future__ import annotations

import re
from pathlib import Path

from stsbench.errors import EncoderError

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = ["*.json", "*.txt", "*.model", "*.bpe", "*.safetensors"]
_OLD_FILES = [*_FILES, "*.bin"]  # only where a repository has no safetensors: they would double the download
_OTHERS = ["onnx/*", "openvino/*", "*/onnx/*", "*/openvino/*", "*.msgpack", "tf_model*", "checkpoint-*/*"]


def resolve(name: str, offline: bool = False) -> Path:
    """The folder that `name` stands for; Hub ids are downloaded, or found in the Hub cache when `offline`.

    A training run stands for the model that it kept. EncoderError, one line: no such folder, no model in it, a training
    that kept none yet, not a Hub id, not in the cache, not on the Hub.
    """
    folder = trained_model(Path(name).expanduser())
    if folder.is_dir():
        if not any((folder / file).is_file() for file in ("config.json", "modules.json")):
            raise EncoderError(f"{name} is not a model folder: it holds no config.json")
        return folder
    if folder.is_file() or name.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(name):
        raise EncoderError(f"--model {name}: no such folder, and not a Hub id either")
    return _download(name, offline)


def trained_model(folder: Path) -> Path:
    """RUN/best for the folder RUN of a training, any other folder as it is. EncoderError: no best yet, several seeds."""
    if (folder / "config.json").is_file():
        return folder
    if seeds := sorted(path.parent for path in folder.glob("seed-*/recipe.yaml")):
        raise EncoderError(f"{folder} holds one training for each seed: choose one, e.g. {seeds[0]}")
    if not (folder / "recipe.yaml").is_file():
        return folder
    if not (folder / "best" / "config.json").is_file():
        raise EncoderError(f"{folder} has no trained model yet: the training has not finished (go on with --resume)")
    return folder / "best"


def _download(name: str, offline: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    def fetch(patterns: list[str]) -> Path:
        return Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns=_OTHERS, local_files_only=offline))

    try:
        folder = fetch(_FILES)
        if not any(folder.rglob("*.safetensors")):
            folder = fetch(_OLD_FILES)
    except GatedRepoError as error:
        raise EncoderError(f"{name} is gated: accept its terms on the Hub and set HF_TOKEN") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise EncoderError(f"--model {name}: no such folder, and no such model on the Hub") from error
    except LocalEntryNotFoundError as error:
        why = "and --offline forbids fetching it" if offline else "and the Hub cannot be reached"
        raise EncoderError(f"--model {name}: no such folder, not in the Hub cache, {why}") from error
    except Exception as error:  # the client's other failures come from several libraries: HTTP, sockets, files
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise EncoderError(f"cannot fetch {name} from the Hub: {reason}") from error
    if not any((folder / file).is_file() for file in ("config.json", "modules.json")):
        raise EncoderError(f"{name} on the Hub is not a model: it holds no config.json")
    return folder
