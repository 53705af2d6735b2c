"""From `--model` to an encoder: the embedded default, a folder or a Hub id, with its stored or the given pooler."""

from __future__ import annotations

import re
from pathlib import Path

from stsbench.encoders.base import Encoder, EncoderSpec
from stsbench.encoders.checkpoint import tokenizer_digest
from stsbench.encoders.exported import encoder_digest, read_exported, stored_text_cnn
from stsbench.encoders.lazy import LazyEncoder, stated_limit
from stsbench.encoders.pooling import check_pooler
from stsbench.encoders.prompt import spec_options
from stsbench.errors import EncoderError

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = ["*.json", "*.txt", "*.model", "*.bpe", "*.safetensors"]
_OLD_FILES = [*_FILES, "*.bin"]  # only where a repository has no safetensors: they would double the download
_OTHERS = ["onnx/*", "openvino/*", "*/onnx/*", "*/openvino/*", "*.msgpack", "tf_model*", "checkpoint-*/*"]


def load_transformer(
    name: str,
    *,
    pooler: str | None,
    template: str | None,
    max_length: int | None,
    dtype: str,
    device: str | None,
    batch_tokens: int | None,
    offline: bool,
    full_stop: bool | None = None,
) -> Encoder:
    """The encoder called `name`: `minilm`, a transformers or sentence-transformers folder, or a Hub id.

    What a folder stores wins; `pooler` overrides it; neither is an EncoderError that lists the poolers. A template
    takes the place of a stored prompt, and of an exported model's own prompt (template, prefix and all) a pooler does, too:
    the encoder's notes say so. full_stop: whether one is put behind a text; None: as the folder stores it, else not.
    """
    from stsbench.encoders.sentence_transformer import SentenceTransformerEncoder, read_modules

    if pooler is not None:
        check_pooler(pooler, name)  # before anything is downloaded
    normalize, prefix, prompt = False, None, None
    notes: tuple[str, ...] = ()
    if name == "minilm":
        from stsbench.encoders.minilm import find_minilm

        folder, pooler, normalize = find_minilm(), pooler or "mean", True
    else:
        folder = resolve(name, offline)
        trained = read_exported(folder)
        if trained is not None:  # by stsbench: its poolers and its lengths, and never two descriptions of one model
            prompt = trained.prompt if pooler is None and template is None else None
            if trained.prompt is not None and pooler == "mask" and template is None:
                raise EncoderError(f"{name} stores a prompt: leave --pooler out to use it, or give a --template with it")
            if prompt is not None and full_stop is not None:
                prompt = {**prompt, "full_stop": full_stop}
            if trained.prompt is not None and prompt is None:
                given = "--template" if pooler is None else "--pooler"
                notes = (f"{given} sets the prompt that {name} was trained with aside: the model is tested without it",)
            pooler, max_length = pooler or trained.pooler, max_length or trained.max_length
        elif (folder / "modules.json").is_file():
            stored = read_modules(folder)
            prefix = stored.prefix if template is None else None
            if pooler is None and stored.pooler is None:
                if stray := "--template" if template is not None else "--full-stop" if full_stop else None:
                    raise EncoderError(f"{stray}: {name} runs its own modules; choose a --pooler with it")
                return SentenceTransformerEncoder(
                    folder, name=name, max_length=max_length, dtype=dtype, device=device, prefix=prefix
                )
            if stored.transformer is None:
                raise EncoderError(f"--pooler {pooler}: {name} has no transformers model to pool over")
            folder, pooler, normalize = stored.transformer, pooler or stored.pooler, stored.normalize
    pooler = check_pooler(pooler, name)
    if pooler == "mask" and template is None and prompt is None:
        raise EncoderError("--pooler mask needs a --template that holds [MASK]")
    if pooler == "text_cnn":
        stored_text_cnn(folder, name)
    source = folder

    def build() -> Encoder:
        from stsbench.encoders.prompt_file import read_prompt
        from stsbench.encoders.transformer import TransformerEncoder

        return TransformerEncoder(
            source, pooler=pooler, template=template, max_length=max_length, dtype=dtype, device=device,
            batch_tokens=batch_tokens, name=name, prefix=prefix, normalize=normalize,
            full_stop=bool(full_stop) and prompt is None,
            prompt=None if prompt is None else read_prompt(source, prompt), stored=prompt is not None,
        )

    limit = stated_limit(folder)
    if limit is not None and prompt is not None:
        limit -= prompt["shift"]
    if limit is None or (max_length is not None and max_length > limit):
        encoder = build()  # which also says what is wrong with the length
        encoder.notes = notes
        return encoder
    spec = EncoderSpec(
        name=name, kind="transformers", weights=encoder_digest(folder, pooler, prompt),
        tokenizer=tokenizer_digest(folder), pooler=pooler, template=template if prompt is None else prompt["template"],
        prefix=prefix or None, max_length=max_length or limit, dtype=dtype, normalize=normalize,
        options=spec_options(prompt, bool(full_stop)),
    )
    lazy = LazyEncoder(spec, build)
    lazy.notes = notes
    return lazy


def resolve(name: str, offline: bool = False) -> Path:
    """The folder that `name` stands for; Hub ids are downloaded, or found in the Hub cache when `offline`.

    A training run stands for the model that it kept. EncoderError, one line: no such folder, no model in it, a training
    that kept none yet, not a Hub id, not in the cache, not on the Hub.
    """
    folder = trained_model(Path(name).expanduser())
    if folder.is_dir():
        if not any((folder / file).is_file() for file in ("config.json", "modules.json")):
            raise EncoderError(f"{name} is no model folder: it holds no config.json")
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
        raise EncoderError(f"{name} on the Hub is no model: it holds no config.json")
    return folder
