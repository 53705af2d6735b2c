"""A masked-LM head that is applied to chosen positions only, the way back to transformers' own class, and a frozen masked
language model that fills chosen places of a text with words of its own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.checkpoint import first_line, quiet
from stsbench.errors import EncoderError, StsbenchError
from stsbench.losses.tokens import count_guesses, masked_lm
from stsbench.training.modules.backbone import Backbone, load_another
from stsbench.training.modules.edits import IGNORED

# What stands between hidden states and logits in transformers' *ForMaskedLM classes: attributes, applied one after another.
_CHAINS = (
    ("cls",),  # BERT, MobileBERT, RoFormer, NomicBERT ...
    ("lm_head",),  # RoBERTa, XLM-RoBERTa, MPNet, CamemBERT ...
    ("predictions",),  # ALBERT
    ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),  # DistilBERT
    ("generator_predictions", "generator_lm_head"),  # ELECTRA, ConvBERT
    ("head", "decoder"),  # ModernBERT
)
_PLACES = 1024  # that get vocabulary logits at a time: 125 MB with BERT's vocabulary, whatever the batch


class LMHead(nn.Module):
    """(m, d) hidden states -> (m, V) logits, with the modules of a transformers *ForMaskedLM class."""

    def __init__(self, parts: dict[str, nn.Module], decoder: str, architecture: Any, stored: bool, name: str) -> None:
        """parts: the chain, in order; decoder: the path of its output layer; stored: whether the checkpoint `name` holds
        it."""
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.decoder_path = decoder
        self.architecture = architecture
        self.stored, self.name = stored, name

    @property
    def decoder(self) -> Any:
        """Return the output layer, whose weight is (V, embedding width)."""
        return self.parts.get_submodule(self.decoder_path)

    def forward(self, hidden: Tensor) -> Tensor:
        for part in self.parts.values():
            hidden = part(hidden)
        return hidden

    def loss(self, states: Tensor, labels: Tensor, guesses: Tensor | None = None) -> tuple[Tensor, int]:
        """Return `losses.masked_lm` over the positions that have a label, and how many these are: only they get logits.

        states: (n, L, d); labels: (n, L), IGNORED elsewhere; guesses: of `count_guesses`.
        """
        chosen = (labels != IGNORED).nonzero(as_tuple=True)  # a GPU is waited for once
        logits, targets = self(states[chosen]), labels[chosen]
        if guesses is not None:
            count_guesses(guesses, logits, targets)
        return masked_lm(logits, targets), len(targets)

    @classmethod
    def load(cls, folder: Path, model: Any, name: str, tied: bool, causal: bool = False) -> LMHead:
        """Return the head that `folder` stores, or a new one where it stores none, for `model`, the encoder loaded from
        there. causal: that of a causal LM will do, where there is no masked one. A stored head is trained where the
        embeddings are.

        A new one has random weights as transformers draws them (N(0, initializer_range^2), biases 0) before an output
        layer that holds the word embeddings. tied: the output layer is the encoder's embedding parameter itself, unless
        the checkpoint stores different numbers for the two; else always a parameter of its own, which starts as a copy.
        EncoderError, one line: no masked-LM class, a head not known here, half a head.
        """
        whole, missing = _load_whole(folder, model, name, causal)
        chain, path = _chain(whole, model, name)
        lacking = {key for key in missing if not key.startswith(f"{whole.base_model_prefix}.")}
        _one_bias(whole, path, lacking)
        head = cls({part: getattr(whole, part) for part in chain}, path, type(whole), not lacking, name)
        names = {key for key, _ in head.parts.named_parameters() if not key.startswith(f"{path}.")}
        if lacking and not names <= lacking:
            raise EncoderError(f"{name} stores half a masked-LM head: it lacks {min(lacking)}; give it all of it, or none")
        _check(head, whole, name)
        embeddings = model.get_input_embeddings().weight
        shared = lacking or head.decoder.weight is whole.get_input_embeddings().weight
        head.requires_grad_(bool(lacking) or embeddings.requires_grad).to(embeddings.device)
        if shared:
            head.decoder.weight = embeddings if tied else nn.Parameter(embeddings.detach().clone())
        head.train(model.training)
        return head


def as_masked_lm(model: Any, head: LMHead) -> Any:
    """Return transformers' *ForMaskedLM module around the encoder `model` and `head`, for `save_pretrained`.

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


def _load_whole(folder: Path, model: Any, name: str, causal: bool) -> tuple[Any, set[str]]:
    """Return the folder's *ForMaskedLM, or *ForCausalLM, in float32, and the names of weights that the checkpoint lacks."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
    )

    kind: Any = AutoModelForMaskedLM
    if type(model.config) not in MODEL_FOR_MASKED_LM_MAPPING:
        if not causal or type(model.config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            hint = "take a BERT-like model"
            if type(model.config) in MODEL_FOR_CAUSAL_LM_MAPPING:
                hint += ", or with mlm options.predict previous"
            raise EncoderError(f"{name}: transformers has no masked LM for {model.config.model_type}; {hint}")
        kind = AutoModelForCausalLM
    try:
        with quiet():
            whole, info = kind.from_pretrained(
                folder, dtype=torch.float32, output_loading_info=True, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # safetensors, torch and transformers each have their own kinds
        raise EncoderError(f"cannot load the masked-LM head of {name}: {first_line(error)}") from error
    return whole.eval(), set(info["missing_keys"])


def _chain(whole: Any, model: Any, name: str) -> tuple[tuple[str, ...], str]:
    """Return the entry of _CHAINS that is all of `whole` beside its encoder, and the path of the output layer in it."""
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
    """Raise EncoderError unless the head after the encoder gives the logits of the whole: another step between them would
    show."""
    ids = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        expected = whole(input_ids=ids).logits[0]
        hidden = getattr(whole, whole.base_model_prefix)(input_ids=ids).last_hidden_state[0]
        same = torch.allclose(head(hidden), expected, rtol=1e-4, atol=1e-4)
    if not same:
        raise EncoderError(f"{name}: {type(whole).__name__} does more than its head between hidden states and logits")


class Generator(nn.Module):
    """A masked LM with the encoder's vocabulary. Nothing in it is ever trained, and nothing it does has a gradient."""

    words: Tensor  # the ids that are tokens

    def __init__(
        self, backbone: Backbone, model: str | None, mode: Literal["train", "eval"], option: str = "options.generator"
    ) -> None:
        """model: a masked LM as `backbone_folder` takes it; None: the encoder's own checkpoint, as it is stored.

        mode: "train": its dropout is on whenever this module is in train mode, "eval": never. option: what errors call the
        setting. Raises StsbenchError, one line, for another vocabulary, no mask token or no stored masked-LM head.
        """
        super().__init__()
        self.backbone, self.digest = load_another(model, backbone, option)
        self.name, self.mode = self.backbone.name, mode
        tokenizer = self.backbone.tokenizer
        known = tokenizer.get_vocab()
        if known != backbone.tokenizer.get_vocab():
            raise StsbenchError(
                f"{option} {self.name} must share the vocabulary of {backbone.name}, and it does not: name "
                "another masked LM, or null for the encoder's own checkpoint"
            )
        if tokenizer.mask_token_id is None:
            raise StsbenchError(
                f"a masked LM needs a mask token, and the tokenizer of {self.name} has none: take another backbone"
            )
        if tokenizer.mask_token_id != backbone.tokenizer.mask_token_id:
            raise StsbenchError(f"{option} {self.name} must have the mask token of {backbone.name}, and it does not")
        self.head = LMHead.load(self.backbone.folder, self.backbone.model, self.name, tied=True)
        if not self.head.stored:
            raise StsbenchError(
                f"{self.name} stores no masked-LM head, so its words would be random: name a masked LM with the same "
                f"vocabulary in {option}, or train a head first (stsbench train mlm)"
            )
        rows = len(self.head.decoder.weight)  # some may only pad the table to a round number: no token has their ids
        self.register_buffer("words", torch.tensor(sorted(id for id in known.values() if id < rows)), persistent=False)
        self.requires_grad_(False).train()

    def train(self, mode: bool = True) -> Generator:
        """With the mode "eval" stay in eval mode, whatever the method around it does."""
        super().train(mode and self.mode == "train")
        return self

    def fill(
        self, ids: Tensor, mask: Tensor, chosen: Tensor, *, sampling: bool = False, forbidden: Sequence[int] = ()
    ) -> Tensor:
        """Return (n, L) `ids` with another token at the chosen places, all guessed at once from `ids` as they are.

        ids, mask: (n, L), the mask 1 on real tokens; chosen: (n, L) bool, real tokens only. The token is the likeliest one,
        or drawn from the softmax by torch's generator of that device; never one of `forbidden`, and never an id without a
        token. Rows without a chosen place are not computed.
        """
        rows = chosen.any(1).nonzero().squeeze(1)
        if not len(rows):
            return ids
        words = self.words
        if forbidden:
            words = words[~torch.isin(words, torch.tensor(list(forbidden), device=words.device))]
        filled = ids.clone()
        with torch.no_grad():
            hidden = self.backbone(ids[rows], mask[rows])[0][chosen[rows]]
            filled[chosen] = torch.cat([self._tokens(part, words, sampling) for part in hidden.split(_PLACES)])
        return filled

    def _tokens(self, hidden: Tensor, words: Tensor, sampling: bool) -> Tensor:
        """Return (m, d) -> (m,) of the ids `words`."""
        logits = self.head(hidden)
        if len(words) < logits.shape[1]:
            logits = logits[:, words]
        if not sampling:
            return words[logits.argmax(1)]
        # torch.multinomial draws a number for each word of the vocabulary, five times the work on a CPU
        below = logits.softmax(1, dtype=torch.float32).cumsum(1)
        drawn = torch.rand(len(below), 1, device=below.device) * below[:, -1:]
        return words[torch.searchsorted(below, drawn, right=True).squeeze(1).clamp_(max=len(words) - 1)]
