"""The parts of a transformer encoder, loaded and checked: model, tokenizer, learned heads, a trained prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.encoders.forward.checkpoint import check_weights, load_model, quiet
from stsbench.encoders.forward.pooling import KINDS, stored_token_pooler
from stsbench.encoders.prompt.prompt import Prompt, read_prompt
from stsbench.encoders.prompt.tokenizer import load_tokenizer
from stsbench.encoders.transformer.config import EncoderConfig
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    from torch import Tensor


SPREAD, DEVICE_MAP = "auto", "auto"  # the value of --device, and accelerate's device_map for it


@dataclass(frozen=True)
class Parts:
    """The parts of a transformer encoder, loaded from a folder, or in memory while a model is trained."""

    model: Any  # a transformers encoder, on the device that computes
    tokenizer: Any
    dense: Callable[[Tensor], Tensor] | None = None  # (n, d) -> (n, d), tanh included, for the pooler cls+dense
    token_pooler: Any = None  # a TokenPooler, for the learned poolers over tokens
    prompt: Prompt | None = None  # a trained one with its tensors, for the pooler mask


def load_parts(config: EncoderConfig, device: str | None = None, attention: str = "auto") -> Parts:
    """Return the parts of the encoder that `config` describes; attention: as in EncoderOptions.

    EncoderError, one line: a file is missing or broken, or there is no such device.
    """
    from stsbench.torch_random import seeded

    assert config.folder is not None
    torch_device = choose_device(device)
    trust = config.trust_remote_code
    trained = config.prompt.trained and config.pooler == "mask"  # for other poolers a prompt is text only
    check_bases(config)
    spread = DEVICE_MAP if device == SPREAD else None
    with seeded():
        model, missing = load_model(
            config.folder, config.name, config.dtype, trust_remote_code=trust, base=config.base, device_map=spread
        )
        if attention == "eager":
            with quiet():  # some models have no other attention
                model.set_attn_implementation("eager")
        model = model if spread else model.to(torch_device)
        tokenizer = load_tokenizer(config.folder, config.name, trust, config.base)
        return Parts(
            model, tokenizer,
            dense=choose_dense(model, missing, config.folder, config.name) if config.pooler == "cls+dense" else None,
            token_pooler=choose_token_pooler(model, tokenizer, config) if config.pooler in KINDS else None,
            prompt=read_prompt(config.folder, config.prompt.stored()) if trained else None,
        )


def check_bases(config: EncoderConfig) -> None:
    """Raise EncoderError where the model that an adapter builds on has not the weights of its architecture."""
    for base in config.sources[1:]:
        if (base / "config.json").is_file():
            check_weights(base, f"{config.name} (its base {base})", config.trust_remote_code)


def choose_device(name: str | None) -> Any:
    """Return the torch.device called `name`; by default, and for a model that is spread, the GPU where there is one.

    EncoderError: this machine has no such device.
    """
    import torch

    if name in (None, SPREAD):
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except Exception as error:  # RuntimeError, AssertionError or NotImplementedError, by the kind of device
        raise EncoderError(f"--device {name} is not available on this machine") from error
    return device


def choose_dense(model: Any, missing: set[str], folder: Path, name: str) -> Callable[[Tensor], Tensor]:
    """Return the function from (n, d) first states to (n, d) of the checkpoint's own pooler, never of a random one.

    SimCSE issues #25, #100, #208: an unconverted checkpoint with a made-up pooler is the commonest failed reproduction.
    """
    from stsbench.encoders.transformer.exported import stored_head

    if hasattr(getattr(model, "pooler", None), "dense"):
        if any(key.startswith("pooler.") for key in missing):
            raise EncoderError(f"--pooler cls+dense: {name} stores no pooler weights; use --pooler cls")
        return lambda first: model.pooler(first.unsqueeze(1))
    head = stored_head(folder)
    if head is None:
        raise EncoderError(f"--pooler cls+dense: {type(model).__name__} has no pooler layer; use --pooler cls")
    head = head.to(model.device, model.dtype)
    return lambda first: head(first).tanh()


def choose_token_pooler(model: Any, tokenizer: Any, config: EncoderConfig) -> Any:
    """Return the folder's own learned pooler in the model's dtype and on its device, never a random one."""
    from stsbench.encoders.forward.token_pooler import CLASSES

    assert config.folder is not None and config.pooler is not None
    check_ends(tokenizer, config.pooler, config.name)
    head = CLASSES[config.pooler].load(stored_token_pooler(config.folder, config.pooler, config.name))
    if head.width != model.config.hidden_size:
        raise EncoderError(
            f"--pooler {config.pooler}: the {head.kind.title} of {config.name} reads states of width {head.width}, and its "
            f"model gives {model.config.hidden_size}"
        )
    return head.to(model.device, model.dtype).eval().requires_grad_(False)


def check_token_types(tokenizer: Any, name: str) -> None:
    """Raise EncoderError for a tokenizer with several token_type_ids in one text: our forward pass gives every token type
    0."""
    if any(tokenizer("a b").get("token_type_ids", ())):
        raise EncoderError(
            f"the tokenizer of {name} gives its tokens different token_type_ids, which our forward pass does not read: "
            "store the pooler with it (sentence-transformers' modules.json), and that library runs it"
        )


def end_notes(tokenizer: Any, ids: Sequence[int], name: str) -> tuple[str, ...]:
    """Return a warning where the last token, which is pooled, is a piece of the text's last word. ids: the tokens of any
    text."""
    if tokenizer.eos_token_id is None or not ids or ids[-1] in tokenizer.all_special_ids:
        return ()
    return (f"warning: {name} pools the last token, and its tokenizer puts no {tokenizer.eos_token} behind a text: the "
            "vector is that of the last piece of its last word",)


def check_ends(tokenizer: Any, pooler: str, name: str) -> None:
    """Raise EncoderError, where `pooler` drops the first and last token, unless the tokenizer puts a special one at
    either end."""
    if not KINDS[pooler].drops_ends:
        return
    ids = tokenizer("a", padding=False, truncation=False)["input_ids"]
    special = set(tokenizer.all_special_ids)
    if tokenizer.num_special_tokens_to_add() != 2 or len(ids) < 2 or not {ids[0], ids[-1]} <= special:
        raise EncoderError(
            f"the pooler {pooler} leaves out the first and the last token, and the tokenizer of {name} does not put one "
            "special token at either end: choose another pooler"
        )
