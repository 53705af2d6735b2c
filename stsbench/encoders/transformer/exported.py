"""The file stsbench.json of a trained model's folder: settings that sentence-transformers' files cannot hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.encoders.forward.identity import files_digest, weight_files
from stsbench.encoders.forward.pooling import check_pooler, is_class
from stsbench.encoders.options import spelled
from stsbench.encoders.post.chain import SETTINGS as POST_SETTINGS
from stsbench.encoders.post.chain import TENSORS as POST_TENSORS
from stsbench.encoders.prompt.prompt import PROMPT_FILE, checked_settings, fits_pooler
from stsbench.encoders.prompt.reading import READINGS
from stsbench.errors import EncoderError
from stsbench.parsing import read_json_object
from stsbench.registry import names

if TYPE_CHECKING:
    from stsbench.encoders.base import EncoderOptions
    from stsbench.encoders.prompt.prompt import PromptSettings

FILE = "stsbench.json"
HEAD = ("pooler.dense.weight", "pooler.dense.bias")  # names of a kept head's weights, as of BERT's own pooler
PROMPT = "stsbench.encoders.transformer.prompt_module.PromptEncoding"  # a prompted encoder's type in modules.json
_TYPES = {"pooler": (str, type(None)), "max_length": (int, type(None)), "method": (str, type(None)),
          "recipe": (str, type(None)), "normalize": (bool,)}
_COUNTS = {"texts", "exact", "normalised", "rows"}  # fields of stsbench.encoders.traits.SharedTexts
_END_OF = {"last": "last token"}  # pooler -> the token of the template that is pooled
_SETTINGS = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")


@dataclass(frozen=True)
class Exported:
    """The settings of stsbench.json: how a trained model encodes, and what it was trained on."""

    pooler: str | None  # None: modules.json says how to encode, and this file only what it was trained on
    max_length: int | None = None  # tokens, special ones included; None: the model's position limit
    method: str | None = None
    recipe: str | None = None
    prompt: dict[str, Any] | None = None  # Prompt.settings(); its tensors are in prompt.safetensors
    normalize: bool = False  # vectors of length 1, before a post-processing
    post: bool = False  # the vectors go through post.json and post.safetensors (stsbench/encoders/post/chain.py)
    trained_on: tuple[str, ...] = ()  # the test data whose sentences were among the training text: "sts12", ...
    training_overlap: tuple[Mapping[str, Any], ...] = ()  # what each training text shares with which test sets


def layout_digest(folder: Path, prompt: dict[str, Any] | None = None) -> str:
    """Return sha256 over the sentence-transformers files of a folder and its modules, without the transformers model.

    prompt: a prompted encoder's settings; they and prompt.safetensors are then part of the digest.
    """
    parts = [path for path in sorted(folder.glob("[0-9]*_*/*")) if path.is_file()]
    names = (*_SETTINGS, PROMPT_FILE) if prompt is not None else _SETTINGS
    digest = files_digest([*(folder / name for name in names if (folder / name).is_file()), *parts])
    if prompt is None:
        return digest
    return hashlib.sha256(f"{digest} {json.dumps(prompt, sort_keys=True)}".encode()).hexdigest()


def _layout(folder: Path, exported: Exported) -> str:
    """Return the layout digest of a folder, with the files of a post-processing, where there is one."""
    digest = layout_digest(folder, exported.prompt)
    if not exported.post:
        return digest
    files = [path for name in (POST_SETTINGS, POST_TENSORS) if (path := folder / name).is_file()]
    return hashlib.sha256(f"{digest} {files_digest(files)}".encode()).hexdigest()


def write_exported(folder: Path, exported: Exported) -> None:
    """Write stsbench.json into a folder that is complete otherwise.

    A prompted encoder has format 2, so that older versions of stsbench do not read it as a model with a template alone. A
    post-processed one has format 3, so that older versions do not leave the post-processing out.
    """
    settings = asdict(exported)
    number = 3 if exported.post else 1 if exported.prompt is None else 2
    if number == 1:
        del settings["prompt"]
    if number < 3:
        del settings["normalize"], settings["post"]
    if not exported.trained_on:
        del settings["trained_on"]
    if not exported.training_overlap:
        del settings["training_overlap"]
    stored = {"format": number, **settings, "layout": _layout(folder, exported)}
    (folder / FILE).write_text(json.dumps(stored, indent=2) + "\n", "utf-8")


def read_exported(folder: Path) -> Exported | None:
    """Return the settings of stsbench.json; None without the file, and where the sentence-transformers files are no longer
    those written with it: who changed them (a prompt, another training) described the model anew. EncoderError for a broken
    file.

    A prompted encoder that sentence-transformers saved again, or whose prompt was changed, is still described by its own
    module's settings, which both libraries read; EncoderError where modules.json adds modules to it.
    """
    if not (folder / FILE).is_file():
        return None
    exported, layout = read_with_layout(folder)
    if layout == _layout(folder, exported) and exported.pooler is not None:
        return exported
    if exported.post:
        return None
    if exported.prompt is None or not _prompted_modules(folder):
        return None
    return replace(exported, method=None, recipe=None)


def read_with_layout(folder: Path) -> tuple[Exported, str]:
    """Return the settings of stsbench.json, and the layout digest stored with them. EncoderError for a broken file."""
    path = folder / FILE
    try:
        stored = read_json_object(path, EncoderError)
        if stored.get("format", 1) not in (1, 2, 3):
            raise EncoderError(f"{path} was written by a newer stsbench (format {stored['format']}): update stsbench")
        if lacking := [key for key in ("format", "pooler", "max_length", "method", "recipe", "layout") if key not in stored]:
            raise EncoderError(f"{path} has no {lacking[0]}: it is not as stsbench wrote it")
        prompted = stored["format"] == 2 or (stored["format"] == 3 and stored["prompt"] is not None)
        prompt = checked_settings(stored["prompt"]) if prompted else None
        exported = Exported(
            stored["pooler"], stored["max_length"], stored["method"], stored["recipe"], prompt,
            trained_on=tuple(stored.get("trained_on", ())),
            training_overlap=tuple(map(_checked_overlap, stored.get("training_overlap", ()))),
        )
        if stored["format"] == 3:
            exported = replace(exported, normalize=stored["normalize"], post=True)
        for key, kinds in _TYPES.items():
            if type(value := getattr(exported, key)) not in kinds:
                raise ValueError(f"{key} {value!r}")
        if not all(isinstance(name, str) for name in exported.trained_on):
            raise ValueError(f"trained_on {stored['trained_on']!r}")
        if exported.max_length is not None and exported.max_length < 1:
            raise ValueError(f"max_length {exported.max_length!r}")
        if prompt is not None and not fits_pooler(prompt, str(exported.pooler)):
            raise ValueError(f"a prompt for the pooler {exported.pooler}")
        layout = stored["layout"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise EncoderError(f"cannot read {path}: {error!r}") from error
    try:
        if exported.pooler is not None:
            check_pooler(exported.pooler, str(path))
    except EncoderError as error:
        raise EncoderError(f"{path}: {error}") from error
    return exported, layout


def _checked_overlap(text: Any) -> Mapping[str, Any]:
    """Return the stored overlap of a training text with test sets. ValueError, KeyError or TypeError: it has another
    form."""
    counted = all(counts.keys() == _COUNTS and {*map(type, counts.values())} == {int} for counts in text["shared"].values())
    named = isinstance(text["none"], list) and all(isinstance(name, str) for name in [text["text"], *text["none"]])
    if not counted or not named:
        raise ValueError(f"training_overlap {text!r}")
    return dict(text)


def read_trained_on(folder: Path) -> tuple[str, ...]:
    """Return the test data whose sentences a folder's weights were trained on, even if other files were changed since.
    EncoderError for a broken stsbench.json."""
    return read_with_layout(folder)[0].trained_on if (folder / FILE).is_file() else ()


def read_training_overlap(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """Return what a folder's training texts share with test sets; () where no training wrote it."""
    return read_with_layout(folder)[0].training_overlap if (folder / FILE).is_file() else ()


def template_notes(folder: Path, name: str, options: EncoderOptions, prompt: PromptSettings) -> tuple[str, ...]:
    """Return a warning, one line, where a folder was trained with a template and is read without it: that is another model.

    name, options: what the user asked for; prompt: what the encoder is read with. EncoderError for a broken stsbench.json.
    """
    exported = read_with_layout(folder)[0] if (folder / FILE).is_file() else None
    if exported is None or (stored := exported.prompt) is None:
        return ()
    if prompt.trained:
        if prompt.full_stop == stored["full_stop"]:
            return ()
        flag = "--full-stop" if options.full_stop else "--no-full-stop"
        return (f"warning: {flag} changes the rule by which {name} puts a full stop behind a text: this is not the model "
                "that was trained",)
    asked = ((name, getattr(options, name)) for name in (*names(READINGS), "pooler", "template"))
    where = _END_OF.get(exported.pooler or "", "mask")
    how = next((f"{spelled(name)} {value!r}" for name, value in asked if value is not None), f"the files beside {FILE}")
    return (
        f"warning: {how}: {name} was trained to be read at the {where} of {stored['template']!r}. Read otherwise it is "
        f"another model than was trained: these are not the scores of {name}; leave the option out for those",
    )


def _prompted_modules(folder: Path) -> bool:
    """Return whether modules.json still names the prompted encoder. EncoderError, one line: it adds other modules, or there
    is a default prompt."""
    path = folder / "modules.json"
    if not path.is_file():
        return False
    try:
        types = [module["type"] for module in json.loads(path.read_text("utf-8"))]
        settings = folder / "config_sentence_transformers.json"
        default = json.loads(settings.read_text("utf-8")).get("default_prompt_name") if settings.is_file() else None
    except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise EncoderError(f"{folder}: cannot read its sentence-transformers modules: {error!r}") from error
    if not types or not is_class(types[0], PROMPT):
        return False
    if len(types) > 1 or default:
        more = f"the default prompt {default!r}" if default else types[1].rsplit(".", 1)[-1]
        raise EncoderError(f"{folder} adds {more} to a prompted encoder: only sentence-transformers reads it so")
    return True


def stored_head(folder: Path) -> Any:
    """Return the Linear(d, d) head that training kept, for models without a pooler layer that could load it; else None."""
    exported = read_exported(folder)
    if exported is None or exported.pooler != "cls+dense":
        return None
    import torch
    from safetensors import safe_open

    head_weights = {}
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as stored:
            for key in stored.keys():  # noqa: SIM118 (not a mapping)
                if key.endswith(HEAD):  # inside a masked-LM model the name starts with the encoder's
                    head_weights[key.rsplit(".", 1)[1]] = stored.get_tensor(key)
    if head_weights.keys() != {"weight", "bias"}:
        raise EncoderError(f"{folder} lacks the head that its {FILE} promises (pooler.dense)")
    head = torch.nn.Linear(head_weights["weight"].shape[1], head_weights["weight"].shape[0], device="meta")
    head.load_state_dict(head_weights, assign=True)
    return head.requires_grad_(False)
