"""Masked language models: a masked-LM head for chosen positions, its conversion to transformers' *ForMaskedLM classes, and
DiffCSE's generator, a frozen masked LM that replaces chosen tokens of a text."""

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

# The modules between hidden states and logits in transformers' *ForMaskedLM classes: attributes, applied one after another.
_CHAINS = (
    ("cls",),  # BERT, MobileBERT, RoFormer, NomicBERT ...
    ("lm_head",),  # RoBERTa, XLM-RoBERTa, MPNet, CamemBERT ...
    ("predictions",),  # ALBERT
    ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),  # DistilBERT
    ("generator_predictions", "generator_lm_head"),  # ELECTRA, ConvBERT
    ("head", "decoder"),  # ModernBERT
)
_PLACES = 1024  # positions whose vocabulary logits are computed at a time, to need 125 MB with BERT's vocabulary


class LMHead(nn.Module):
    """A masked-LM head, (m, d) hidden states -> (m, V) logits, with the modules of a transformers *ForMaskedLM class."""

    def __init__(self, parts: dict[str, nn.Module], decoder: str, architecture: Any, stored: bool, name: str) -> None:
        """Make a head of modules `parts`, in order. decoder: the path of the output layer; stored: whether the checkpoint
        `name` holds the head."""
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
        """Return `losses.masked_lm` over the positions with a label, and their number. Only they get logits.

        states: (n, L, d); labels: (n, L), IGNORED at positions without a label; guesses: as for `count_guesses`.
        """
        chosen = (labels != IGNORED).nonzero(as_tuple=True)  # indices, as each use of a mask would wait for a GPU
        logits, targets = self(states[chosen]), labels[chosen]
        if guesses is not None:
            count_guesses(guesses, logits, targets)
        return masked_lm(logits, targets), len(targets)

    @classmethod
    def load(cls, folder: Path, model: Any, name: str, tied: bool, causal: bool = False) -> LMHead:
        """Return the head in `folder`, or a new head if it has none, for `model`, the encoder from this folder. causal:
        whether a causal LM's head is accepted if there is no masked LM. A stored head is trainable if the embeddings are.

        A new head has random weights as transformers draws them (N(0, initializer_range^2), biases 0) before an output
        layer that holds the word embeddings. tied: whether the output layer is the encoder's embedding parameter, unless
        the checkpoint stores different numbers for the two; else it is a parameter of its own, which starts as a copy.
        Raises EncoderError, one line, without a masked-LM class, and for a head that is unknown or incomplete.
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
    """Return transformers' *ForMaskedLM module with the encoder `model` and `head`, for `save_pretrained`.

    It shares their weights. Its config states whether the output layer is the embedding; that of `model` is unchanged.
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
    except Exception as error:  # safetensors, torch and transformers raise errors of their own
        raise EncoderError(f"cannot load the masked-LM head of {name}: {first_line(error)}") from error
    return whole.eval(), set(info["missing_keys"])


def _chain(whole: Any, model: Any, name: str) -> tuple[tuple[str, ...], str]:
    """Return the entry of _CHAINS that names all modules of `whole` but its encoder, and the path of the output layer."""
    prefix = whole.base_model_prefix
    rest = {key for key, part in whole.named_children() if key != prefix and not isinstance(part, nn.CrossEntropyLoss)}
    chain = next((chain for chain in _CHAINS if set(chain) == rest), None)
    if chain is None or type(getattr(whole, prefix, None)) is not type(model):
        raise EncoderError(f"{name}: the masked-LM head of {type(whole).__name__} is not known here; take a BERT-like one")
    output = whole.get_output_embeddings()
    return chain, next(path for path, module in whole.named_modules() if module is output)


def _one_bias(whole: Any, path: str, lacking: set[str]) -> None:
    """Make the output layer's bias a single parameter if transformers has two names for it; take both out of `lacking`.

    Without tied embeddings transformers does not use the second, and DDP does not accept a parameter without gradient.
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
    """Raise EncoderError unless encoder and head give the logits of the whole model, which may have further steps between
    the two."""
    ids = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        expected = whole(input_ids=ids).logits[0]
        hidden = getattr(whole, whole.base_model_prefix)(input_ids=ids).last_hidden_state[0]
        same = torch.allclose(head(hidden), expected, rtol=1e-4, atol=1e-4)
    if not same:
        raise EncoderError(f"{name}: {type(whole).__name__} does more than its head between hidden states and logits")


class Generator(nn.Module):
    """A frozen masked LM with the encoder's vocabulary, which replaces tokens (DiffCSE's generator). Nothing has a
    gradient."""

    words: Tensor  # the ids that have a token

    def __init__(
        self, backbone: Backbone, model: str | None, mode: Literal["train", "eval"], option: str = "options.generator"
    ) -> None:
        """Load `model`, a masked LM as `backbone_folder` takes it; None: the encoder's own checkpoint, as it is stored.

        mode: "train": dropout is on whenever this module is in train mode, "eval": never. option: the setting's name in
        errors. Raises StsbenchError, one line, for another vocabulary, no mask token or no stored masked-LM head.
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
        rows = len(self.head.decoder.weight)  # the last rows may pad the table to a round number, without tokens
        self.register_buffer("words", torch.tensor(sorted(id for id in known.values() if id < rows)), persistent=False)
        self.requires_grad_(False).train()

    def train(self, mode: bool = True) -> Generator:
        """Set train or eval mode; with the mode "eval" the generator always stays in eval mode."""
        super().train(mode and self.mode == "train")
        return self

    def fill(
        self, ids: Tensor, mask: Tensor, chosen: Tensor, *, sampling: bool = False, forbidden: Sequence[int] = ()
    ) -> Tensor:
        """Return `ids` (n, L) with predicted tokens at the chosen positions, all predicted at once from `ids`.

        ids, mask: (n, L), the mask 1 on real tokens; chosen: (n, L) bool, real tokens only. The token is the most likely,
        or, with `sampling`, drawn from the softmax by torch's generator of the device; never one of `forbidden` or an id
        without a token. Rows without a chosen position are not computed.
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
        """Return (m,) predicted tokens, among the ids `words`, from hidden states (m, d)."""
        logits = self.head(hidden)
        if len(words) < logits.shape[1]:
            logits = logits[:, words]
        if not sampling:
            return words[logits.argmax(1)]
        # torch.multinomial draws a number for each word of the vocabulary, five times the work on a CPU
        below = logits.softmax(1, dtype=torch.float32).cumsum(1)
        drawn = torch.rand(len(below), 1, device=below.device) * below[:, -1:]
        return words[torch.searchsorted(below, drawn, right=True).squeeze(1).clamp_(max=len(words) - 1)]
