"""A masked-LM head that is applied to chosen positions only, and the way back to transformers' own class."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.checkpoint import first_line, quiet
from stsbench.errors import EncoderError

# What stands between hidden states and logits in transformers' *ForMaskedLM classes: attributes, applied one after another.
_CHAINS = (
    ("cls",),  # BERT, MobileBERT, RoFormer, NomicBERT ...
    ("lm_head",),  # RoBERTa, XLM-RoBERTa, MPNet, CamemBERT ...
    ("predictions",),  # ALBERT
    ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),  # DistilBERT
    ("generator_predictions", "generator_lm_head"),  # ELECTRA, ConvBERT
    ("head", "decoder"),  # ModernBERT
)


class LMHead(nn.Module):
    """(m, d) hidden states -> (m, V) logits, with the modules of a transformers *ForMaskedLM class."""

    def __init__(self, parts: dict[str, nn.Module], decoder: str, architecture: Any, stored: bool) -> None:
        """parts: the chain, in order; decoder: the path of its output layer; stored: the checkpoint holds the head."""
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.decoder_path = decoder
        self.architecture = architecture
        self.stored = stored

    @property
    def decoder(self) -> Any:
        """The output layer, whose weight is (V, embedding width)."""
        return self.parts.get_submodule(self.decoder_path)

    def forward(self, hidden: Tensor) -> Tensor:
        for part in self.parts.values():
            hidden = part(hidden)
        return hidden

    @classmethod
    def load(cls, folder: Path, model: Any, name: str, tied: bool) -> LMHead:
        """The head that `folder` stores, or a new one where it stores none, for `model`, the encoder loaded from there.

        A new one has random weights as transformers draws them (N(0, initializer_range^2), biases 0) before an output
        layer that holds the word embeddings. tied: the output layer is the encoder's embedding parameter itself, unless
        the checkpoint stores different numbers for the two; else always a parameter of its own, which starts as a copy.
        EncoderError, one line: no masked-LM class, a head not known here, half a head.
        """
        whole, missing = _load_whole(folder, model, name)
        chain, path = _chain(whole, model, name)
        lacking = {key for key in missing if not key.startswith(f"{whole.base_model_prefix}.")}
        _one_bias(whole, path, lacking)
        head = cls({part: getattr(whole, part) for part in chain}, path, type(whole), stored=not lacking)
        names = {key for key, _ in head.parts.named_parameters() if not key.startswith(f"{path}.")}
        if lacking and not names <= lacking:
            raise EncoderError(f"{name} stores half a masked-LM head: it lacks {min(lacking)}; give it all of it, or none")
        _check(head, whole, name)
        embeddings = model.get_input_embeddings().weight
        shared = lacking or head.decoder.weight is whole.get_input_embeddings().weight
        head.requires_grad_(True).to(embeddings.device)
        if shared:
            head.decoder.weight = embeddings if tied else nn.Parameter(embeddings.detach().clone())
        head.train(model.training)
        return head


def made_up(name: str) -> str:
    """The line that says so of a head."""
    return f"{name} stores no masked-LM head: a new one starts from random weights, its output layer from the embeddings"


def as_masked_lm(model: Any, head: LMHead) -> Any:
    """transformers' *ForMaskedLM module around the encoder `model` and `head`, for `save_pretrained`.

    It shares their weights. Its config says whether the output layer is the embedding; the encoder's is left alone.
    """
    config = copy.deepcopy(model.config)
    config.tie_word_embeddings = head.decoder.weight is model.get_input_embeddings().weight
    with torch.device("meta"):
        whole = head.architecture(config)
    setattr(whole, whole.base_model_prefix, model)
    weights = head.parts.state_dict(keep_vars=True)
    trainable = {name: weight.requires_grad for name, weight in weights.items()}
    whole.load_state_dict(weights, strict=False, assign=True)  # as trainable as what they replace
    for name, weight in weights.items():
        weight.requires_grad_(trainable[name])
    owner = whole.get_submodule(head.decoder_path.rpartition(".")[0])
    if not config.tie_word_embeddings and isinstance(getattr(owner, "bias", None), nn.Parameter):
        # save_pretrained keeps one name of a shared bias, and from_pretrained, untied, would read the other
        owner.bias = nn.Parameter(owner.bias.detach().clone())
    return whole.train(model.training)


def _load_whole(folder: Path, model: Any, name: str) -> tuple[Any, set[str]]:
    """The folder's *ForMaskedLM in float32, and the names of weights that the checkpoint lacks."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoModelForMaskedLM

    if type(model.config) not in MODEL_FOR_MASKED_LM_MAPPING:
        raise EncoderError(f"{name}: transformers has no masked LM for {model.config.model_type}; take a BERT-like model")
    try:
        with quiet():
            whole, info = AutoModelForMaskedLM.from_pretrained(
                folder, dtype=torch.float32, output_loading_info=True, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # safetensors, torch and transformers each have their own kinds
        raise EncoderError(f"cannot load the masked-LM head of {name}: {first_line(error)}") from error
    return whole.eval(), set(info["missing_keys"])


def _chain(whole: Any, model: Any, name: str) -> tuple[tuple[str, ...], str]:
    """The entry of _CHAINS that is all of `whole` beside its encoder, and the path of the output layer in it."""
    prefix = whole.base_model_prefix
    rest = {key for key, part in whole.named_children() if key != prefix and not isinstance(part, nn.CrossEntropyLoss)}
    chain = next((chain for chain in _CHAINS if set(chain) == rest), None)
    if chain is None or type(getattr(whole, prefix, None)) is not type(model):
        raise EncoderError(f"{name}: the masked-LM head of {type(whole).__name__} is not known here; take a BERT-like one")
    output = whole.get_output_embeddings()
    return chain, next(path for path, module in whole.named_modules() if module is output)


def _one_bias(whole: Any, path: str, lacking: set[str]) -> None:
    """Make the output layer's bias one parameter where transformers has two names for it, and tick both off `lacking`.

    Without tied embeddings transformers leaves the second one idle, and DDP does not accept a parameter without gradient.
    """
    owner_path = path.rpartition(".")[0]
    owner, decoder = whole.get_submodule(owner_path), whole.get_submodule(path)
    if not owner_path or not isinstance(getattr(owner, "bias", None), nn.Parameter) or decoder.bias is None:
        return
    names = {f"{owner_path}.bias", f"{path}.bias"}
    if f"{path}.bias" in lacking:
        decoder.bias = owner.bias
    owner.bias = decoder.bias
    if not names <= lacking:
        lacking -= names


def _check(head: LMHead, whole: Any, name: str) -> None:
    """EncoderError unless the head after the encoder gives the logits of the whole: another step between them would show."""
    ids = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        expected = whole(input_ids=ids).logits[0]
        hidden = getattr(whole, whole.base_model_prefix)(input_ids=ids).last_hidden_state[0]
        same = torch.allclose(head(hidden), expected, rtol=1e-4, atol=1e-4)
    if not same:
        raise EncoderError(f"{name}: {type(whole).__name__} does more than its head between hidden states and logits")
