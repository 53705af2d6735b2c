"""Loading of a transformers folder's model, with an error wherever weights would be random or dropped."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stsbench.encoders.base import TokenTable
from stsbench.encoders.forward.identity import weight_files
from stsbench.encoders.forward.model import cast, set_dropout
from stsbench.encoders.model_folder import check_settings, read_settings
from stsbench.errors import EncoderError

# Weights that change none of an encoder's states: the pooler, heads of language modelling on the last layer, and tables that
# the model computes itself.
_HARMLESS = re.compile(
    r"(^|\.)(pooler|cls\.predictions|cls\.seq_relationship|lm_head|lm_loss|lm_predictions|mask_predictions|predictions"
    r"|sop_classifier|pred_layer|vocab_transform|vocab_layer_norm|vocab_projector|discriminator_predictions"
    r"|generator_predictions|generator_lm_head)(\.|$)|(^|\.)(position_ids|token_type_ids|inv_freq|masked_bias)$"
    r"|^(head\.(dense|norm)|decoder|model\.decoder)\."
)
# Encoder-decoders whose encoder is a model of its own in transformers, so that a folder may hold no decoder.
_ENCODERS = {"t5", "mt5", "umt5"}
_NUMBERS_A_BYTE, _NUMBERS_MISSING = 4, 1 << 25  # weights quantised to two bits; numbers of a pooler that was not stored


def load_model(
    folder: Path, name: str, dtype: str, dropout: float | None = None, trust_remote_code: bool = False,
    base: Path | None = None, device_map: Any = None,
) -> tuple[Any, set[str]]:
    """Return the encoder in eval mode with `dtype` weights, and the names of weights that the checkpoint lacks.

    An encoder-decoder gives its encoder; a PEFT adapter is loaded with the model in its folder, or with the one that it
    names. EncoderError: an unknown architecture, code that is not trusted, broken files, a missing weight outside the pooler
    (transformers would initialise it at random and only log a line), or one that the model has no place for (it would be
    dropped). dropout: the rate, on hidden states and on attention, in the place of the config's; base: the folder of the
    model that an adapter without one builds on, in the revision that it names; device_map: as from_pretrained has it, for a
    model that accelerate spreads over several devices.
    """
    import torch

    check_code(folder, name, trust_remote_code)
    if device_map is not None:
        return _spread(folder, name, dtype, trust_remote_code, device_map)
    with loading(folder, name):
        # float32 first: transformers would otherwise keep a half-precision checkpoint's own type
        model, missing = _load(folder, name, trust_remote_code, dropout, base, dtype=torch.float32)
    return cast(model.eval(), getattr(torch, dtype)).requires_grad_(False), missing


def _spread(folder: Path, name: str, dtype: str, trust: bool, device_map: Any) -> tuple[Any, set[str]]:
    """Return a model on several devices, never as a whole in float32, for which memory may not suffice. Parts without room
    are kept on the disk."""
    import torch

    if (folder / "adapter_config.json").is_file():
        raise EncoderError(f"--device auto: {name} has an adapter, which is not spread: merge it into its model")
    offload = tempfile.TemporaryDirectory(prefix="stsbench-offload-")
    how = {"device_map": device_map, "dtype": getattr(torch, dtype), "offload_folder": offload.name}
    with loading(folder, f"{name} by --device auto"):
        model, missing = _load(folder, name, trust, None, None, **how)
    model.offload_folder = offload  # deleted with the model
    return model.eval().requires_grad_(False), missing


def load_token_table(folder: Path, name: str, which: str, trust_remote_code: bool = False) -> TokenTable:
    """Return the table by which a folder's language model decodes its states ("output") or reads tokens ("input").

    EncoderError, one line: transformers has no language model of this architecture, it decodes other states than those that
    are encoded, an adapter changes it, or the folder stores no output embedding and its config.json ties it to no other.
    """
    check_code(folder, name, trust_remote_code)
    if (folder / "adapter_config.json").is_file():
        raise EncoderError(f"{name} has a PEFT adapter: merge it into the weights, its {which} embedding is read from them")
    with loading(folder, name):
        model, missing = _load_language_model(folder, name, trust_remote_code)
    table = model.get_output_embeddings() if which == "output" else model.get_input_embeddings()
    if table is None:
        raise EncoderError(f"{name}: {type(model).__name__} has no {which} embedding")
    weight = next(f"{path}.weight" for path, module in model.named_modules() if module is table)
    if weight in missing:
        files = ", ".join(path.name for path in weight_files(folder))
        raise EncoderError(f"{folder / files} holds no {weight}, and config.json does not tie it to the input embedding: "
                           "there is no output embedding")
    tied = which == "output" and table.weight is model.get_input_embeddings().weight
    notes = (f"{name}: {weight} is the input embedding, to which config.json ties it",) if tied else ()
    return TokenTable(weight, table.weight.detach().float().numpy(), notes)


def _load_language_model(folder: Path, name: str, trust: bool) -> tuple[Any, set[str]]:
    """Return the masked or causal language model in the type that is stored, and the names of weights that the folder
    lacks."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
    )

    from stsbench.torch_random import seeded

    with quiet(), seeded():
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust)
        if getattr(config, "is_encoder_decoder", False):
            raise EncoderError(f"{name} is an encoder-decoder: its output embedding decodes the decoder's states, which are "
                               "not encoded here")
        declared = getattr(config, "auto_map", None) or {}
        kinds = ((AutoModelForMaskedLM, MODEL_FOR_MASKED_LM_MAPPING), (AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING))
        kind = next((kind for kind, known in kinds if type(config) in known or kind.__name__ in declared), None)
        if kind is None:
            raise EncoderError(f"{name}: transformers has no language model of the architecture {config.model_type}, and so "
                               "no output embedding")
        model, info = kind.from_pretrained(
            folder, config=config, dtype="auto", output_loading_info=True, local_files_only=True, trust_remote_code=trust
        )
    return model, set(info["missing_keys"])


def check_weights(folder: Path, name: str, trust_remote_code: bool = False) -> set[str]:
    """Return the names of weights of the pooler that a transformers folder lacks.

    EncoderError unless every other stored weight has a place in the model, and the reverse. For models that another
    library loads. Only names and shapes are read.
    """
    try:
        return _load(folder, name, trust_remote_code, None, None, device_map="meta")[1]
    except EncoderError:
        raise
    except Exception:  # the library that loads the model reports other faults
        return set()


def _load(
    folder: Path, name: str, trust: bool, dropout: float | None, base: Path | None, **how: Any
) -> tuple[Any, set[str]]:
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

    check_settings(folder)
    adapter = read_settings(folder / "adapter_config.json")
    if adapter:
        _check_adapter(folder, name)
    whole = (folder / "config.json").is_file()
    if not whole and not adapter:
        raise EncoderError(f"{name} is not a model folder: it holds no config.json")
    source = folder if whole or base is None else base  # where the model's weights are
    if whole or base is not None:
        check_settings(source)
        weight_files(source)
    with quiet():
        config = AutoConfig.from_pretrained(
            adapter["base_model_name_or_path"] if not whole and base is None else source, local_files_only=True,
            trust_remote_code=trust,
        )
        if dropout is not None:
            set_dropout(config, dropout, name)
        kind = AutoModelForTextEncoding if config.model_type in _ENCODERS else AutoModel
        if whole or base is not None:
            _check_size(kind, config, source, trust)
        model, info = kind.from_pretrained(
            source, config=config, output_loading_info=True, local_files_only=True, trust_remote_code=trust, **how
        )
        if source != folder:
            added = model.load_adapter(str(folder))
            info = {key: {*keys, *getattr(added, key, ())} for key, keys in info.items() if key.endswith("_keys")}
    missing, unexpected = set(info["missing_keys"]), set(info["unexpected_keys"])
    if adapter.get("use_dora"):
        loaded = _load_magnitudes(model, folder)
        missing, unexpected = missing - loaded, unexpected - {key.removesuffix(".weight") for key in loaded}
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
        if not hasattr(model, "get_input_embeddings"):  # not an encoder-decoder, so this is its list of layers
            kind_name = type(model).__name__
            raise EncoderError(f"{folder}/config.json: is_encoder_decoder is true, and a {kind_name} has no decoder")
        missing = {key for key in missing if not key.startswith("decoder.")}
    if made_up := sorted(key for key in missing if not key.startswith("pooler.")):
        raise EncoderError(
            f"{name} lacks {len(made_up)} of its weights, e.g. {made_up[0]}: they would be random numbers"
        )
    if dropped := sorted(key for key in unexpected if not _HARMLESS.search(key)):
        raise EncoderError(
            f"{name} stores {len(dropped)} weights that {type(model).__name__} has no place for, e.g. {dropped[0]}: its "
            "vectors would not be its author's; convert the checkpoint to the architecture that config.json names"
        )
    if info["mismatched_keys"]:
        raise EncoderError(f"{name}: the weight {min(map(str, info['mismatched_keys']))} has not the shape of its model's")
    return model, missing


def _load_magnitudes(model: Any, folder: Path) -> set[str]:
    """Load the magnitudes of a DoRA adapter (Liu et al. 2024), which transformers leaves out; return their names."""
    from peft import set_peft_model_state_dict
    from peft.utils import load_peft_weights

    stored = {key.removeprefix("base_model.model."): value for key, value in load_peft_weights(str(folder), "cpu").items()}
    left = set(set_peft_model_state_dict(model, stored).missing_keys)
    return {key for key, _ in model.named_parameters() if "lora_magnitude_vector" in key} - left


def _check_size(kind: Any, config: Any, source: Path, trust: bool) -> None:
    """Raise EncoderError for a config.json whose model is larger than its files of weights: transformers would fill the
    memory with random numbers before it reports missing weights."""
    import torch

    bytes_stored = sum(path.stat().st_size for path in weight_files(source))
    try:
        with torch.device("meta"):
            model = kind.from_config(copy.deepcopy(config), trust_remote_code=trust)
    except Exception:  # from_pretrained will report what is wrong with it
        return
    numbers = sum(weight.numel() for weight in model.parameters())
    if numbers > _NUMBERS_A_BYTE * bytes_stored + _NUMBERS_MISSING:
        raise EncoderError(
            f"{source / 'config.json'}: the sizes are of a model with {numbers:,} weights, and its files hold "
            f"{bytes_stored:,} bytes: they are another model's, or cut short"
        )


def _check_adapter(folder: Path, name: str) -> None:
    """Raise EncoderError where transformers would ignore a PEFT adapter, or make up weights of the model in its folder."""
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise EncoderError(f"{name} has a PEFT adapter (adapter_config.json), and peft is not installed") from error
    if not (folder / "config.json").is_file():
        return
    weight_files(folder)  # an error names this folder, not the temporary one
    # from_pretrained reports on the adapter's weights only: those of the model are checked in a copy without the adapter
    with tempfile.TemporaryDirectory() as temporary:
        for path in folder.iterdir():
            if not path.name.startswith("adapter_"):
                (Path(temporary) / path.name).symlink_to(path.resolve())
        check_weights(Path(temporary), name)


def check_code(folder: Path, name: str, trusted: bool) -> None:
    """Raise EncoderError for a folder whose model or tokenizer is its own code, unless that is trusted or not needed.

    transformers runs its own class where it has one for the model_type, as sentence-transformers does.
    """
    code = code_not_run(folder, trusted)
    if code is None:
        return
    from transformers import CONFIG_MAPPING

    if read_settings(folder / "config.json").get("model_type") not in CONFIG_MAPPING:
        raise EncoderError(
            f"{name} declares code of its own ({code}): read it, then give --trust-remote-code to run it"
        )


def code_not_run(folder: Path, trusted: bool) -> str | None:
    """Return "auto_map: FILE.CLASS" where a folder declares its own code and it is not `trusted`, so not run; else None."""
    declared = read_settings(folder / "config.json").get("auto_map")
    declared = declared or read_settings(folder / "tokenizer_config.json").get("auto_map")
    if trusted or not declared:
        return None
    return f"auto_map: {next(iter(declared.values())) if isinstance(declared, dict) else declared}"


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress transformers' load reports and progress bars in the block: this package checks what matters in them."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    if level != logging.ERROR:  # setting a level takes half a millisecond, even the same one
        logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if level != logging.ERROR:
            logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


@contextmanager
def loading(folder: Path, name: str) -> Iterator[None]:
    """Turn any error in the block into an EncoderError of one line: safetensors, torch and transformers each have their own
    kinds of errors."""
    try:
        yield
    except EncoderError:
        raise
    except Exception as error:
        raise EncoderError(f"cannot load {name}: {_at_fault(folder)}{first_line(error)}") from error


def _at_fault(folder: Path) -> str:
    """Return "FILE: " for the first .safetensors file that cannot be opened, else "": the libraries' errors name none."""
    from safetensors import safe_open

    for path in sorted(folder.rglob("*.safetensors")):
        try:
            with safe_open(path, "pt"):
                continue
        except Exception:
            return f"{path.relative_to(folder).as_posix()}: "
    return ""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message that is not blank, with the next one if it ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines and lines[0].endswith(":") else next(iter(lines), type(error).__name__)
