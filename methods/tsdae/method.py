"""TSDAE (Wang, Reimers and Gurevych 2021): a decoder reconstructs a sentence from the vector of its damaged copy.

The authors' library splits and joins words with nltk. Here regular expressions do so, in the manner of the Penn Treebank.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stsbench.data.text.tokens import cutting
from stsbench.encoders.forward.checkpoint import quiet
from stsbench.errors import StsbenchError
from stsbench.losses.tokens import masked_lm
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views
from stsbench.training.api.method import Method, Needs
from stsbench.training.modules.backbone import Backbone, load_another
from stsbench.training.modules.masked_lm import LMHead

from .options import TSDAEOptions

_CROSS = "crossattention"  # part of the names of weights that only the decoder has
_IDLE = (f"{_CROSS}.self.query.", f"{_CROSS}.self.key.")
_ENDING = r"(?:n['’]t|['’](?:s|m|d|ll|re|ve))(?!\w)"  # a contraction's ending: don't is do and n't
_MARKS = r";@#$%&?!…–—\"“”«»()\[\]{}<>"  # never part of a word
_CLOSING_STOP = r"\.[\"'”’)\]}>]*\s*\Z"  # the full stop that ends the text
_PIECE = re.compile(
    rf"{_ENDING}|\.{{2,}}|-{{2,}}"
    # a word: up to a mark, an ending, a comma or colon that no digit follows, a quote at its end, the last full stop
    rf"|(?!['‘])(?:(?!{_ENDING}|\.{{2,}}|-{{2,}}|[,:](?!\d)|['’](?!\w)|{_CLOSING_STOP})[^\s{_MARKS}])+"
    r"|\S",
    re.IGNORECASE,
)
_TO_THE_LEFT = re.compile(rf"{_ENDING}|[,:;.?!%…”»)\]}}>]|\.{{2,}}|['’]", re.IGNORECASE)
_TO_THE_RIGHT = re.compile(r"[$#“«(\[{<]")


class TSDAE(Method):
    """The loss is the mean over all tokens of -log p(token | tokens before it, vector of the damaged sentence)."""

    Options = TSDAEOptions
    options: TSDAEOptions

    def __init__(self, backbone: Backbone, options: TSDAEOptions) -> None:
        """Create the decoder. backbone: with its `folder` and `name`. Raises StsbenchError, one line, for a pooler with
        weights of its own or a model without a decoder in transformers."""
        super().__init__(backbone, options)
        if backbone.head is not None:
            raise StsbenchError(
                f"tsdae's decoder reads a vector of the encoder's width, and {backbone.pooler} has its own: set "
                "backbone.pooler to cls, mean or max"
            )
        self.decoder = Decoder(backbone, options)

    @classmethod
    def needs(cls, options: TSDAEOptions) -> Needs:
        """Return the needs: plain sentences, which have no negatives."""
        return Needs(negatives=False)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence with words or sub-words deleted, drawn anew for each batch, and the whole sentence."""
        return Views([self._damaged(rows, rng), self._targets(rows)])

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return reconstruction, the mean cross-entropy over all tokens of the sentences but their first."""
        n = len(batch)
        vectors = self.backbone.pooled(batch.ids[:n], batch.mask[:n])
        ids, counted = batch.ids[n:], self._target_mask(batch)
        labels = ids[:, 1:][counted.nonzero(as_tuple=True)]
        logits = self.decoder(vectors, ids[:, :-1], counted)
        return {"reconstruction": Term(masked_lm(logits, labels), len(labels))}

    def view_vectors(self, batch: Batch) -> None:
        """Return None, as no two vectors are compared."""
        return None

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return reconstruction, the number of tokens that the decoder predicts."""
        return {"reconstruction": int(self._target_mask(batch).sum())}

    def inputs(self) -> dict[str, str]:
        """Return the decoder's digest, if it is not the encoder's checkpoint."""
        return {} if self.decoder.digest is None else {"decoder": self.decoder.digest}

    def _damaged(self, rows: Examples, rng: np.random.Generator) -> Ragged:
        options = self.options
        if options.unit == "subword":
            special = np.array(self.backbone.tokenizer.all_special_ids)
            return [damaged_ids(np.asarray(ids), special, options.delete, rng) for ids in rows.ids("sentence")]
        texts = [damaged(text, options.delete, options.detokenise, rng) for text in rows.texts("sentence")]
        return self.backbone.tokenise(texts)

    def _targets(self, rows: Examples) -> Ragged:
        """Return the sentences as token ids of the decoder's tokenizer."""
        if self.decoder.reads_as_encoder:
            return rows.ids("sentence")
        return self.decoder.tokenise(rows.texts("sentence"))

    def _target_mask(self, batch: Batch) -> Tensor:
        """Return bool (n, L - 1), whether the next position has a token of the sentence."""
        return batch.mask[len(batch) :, 1:].bool()


class Decoder(nn.Module):
    """transformers' own causal model of the backbone's architecture, with cross-attention, and its language-model head.

    The cross-attention starts from transformers' random weights. Its softmax over a single key is always 1, so that queries
    and keys have neither effect nor gradient, and are not trained.
    digest: of the decoder's checkpoint, if it is not the encoder's.
    """

    def __init__(self, backbone: Backbone, options: TSDAEOptions) -> None:
        """Build the decoder. With options.tie, it uses the encoder's own parameters for all weights that both have. Raises
        StsbenchError, one line, for an architecture without such a decoder, or another width."""
        super().__init__()
        self.digest: str | None = None
        source = backbone if options.decoder is None else self._load(backbone, options.decoder)
        self.tokenizer, self.max_length = source.tokenizer, source.max_length
        self.reads_as_encoder = source.tokenizer.get_vocab() == backbone.tokenizer.get_vocab()
        self.model, others = _with_cross_attention(source)
        _take(self.model, source, options.tie)
        self.model.train(source.model.training)
        self.head = LMHead.load(source.folder, self.model, source.name, tied=True)
        if others != {*self.head.parts}:
            raise StsbenchError(_refusal(source, "another head as a causal than as a masked language model"))
        for name, weight in self.model.named_parameters():
            if any(part in name for part in _IDLE):
                weight.requires_grad_(False)

    def forward(self, vectors: Tensor, ids: Tensor, chosen: Tensor) -> Tensor:
        """Return (m, V) logits for the token after each of the m chosen positions.

        vectors: (n, d), one for each text, with their gradient; ids: (n, L), padded right, so that no chosen position
        attends to padding; chosen: (n, L) bool.
        """
        states: Tensor = self.model(
            input_ids=ids, attention_mask=None, encoder_hidden_states=vectors.unsqueeze(1), use_cache=False
        ).last_hidden_state
        logits: Tensor = self.head(states[chosen.nonzero(as_tuple=True)])  # waits for a GPU once
        return logits

    def tokenise(self, texts: list[str]) -> list[list[int]]:
        """Return the texts' token ids by the decoder's tokenizer, with special tokens, cut at the backbone's max_length."""
        with cutting(self.tokenizer, self.max_length) as encode:
            return encode(texts)[0]

    def _load(self, backbone: Backbone, name: str) -> Backbone:
        dropout = getattr(backbone.model.config, "hidden_dropout_prob", None)  # backbone.dropout applies to both models
        other, self.digest = load_another(name, backbone, "options.decoder", dropout)
        if other.width != backbone.width:
            raise StsbenchError(
                f"options.decoder {name} has the width {other.width}, and {backbone.name} {backbone.width}: its "
                "cross-attention reads the encoder's vector, so name a model of the same width"
            )
        return other


def _with_cross_attention(backbone: Backbone) -> tuple[Any, set[str]]:
    """Return the backbone's architecture as a causal model with random weights, and the names of the other modules (the
    head) of its language model."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    encoder: Any = backbone.model
    config = copy.deepcopy(encoder.config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise StsbenchError(_refusal(backbone, "no causal language model"))
    config.is_decoder, config.add_cross_attention, config.use_cache = True, True, False
    with quiet():
        whole = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model: Any = getattr(whole, whole.base_model_prefix, None)
    if type(model) is not type(encoder) or not any(_CROSS in name for name, _ in model.named_parameters()):
        raise StsbenchError(_refusal(backbone, "no cross-attention in its causal language model"))
    others = {name for name, _ in whole.named_children() if name != whole.base_model_prefix}
    device = next(encoder.parameters()).device
    return model.to(device), others


def _take(model: Any, backbone: Backbone, tie: bool) -> None:
    """Set the decoder's weights to the backbone's parameters (`tie`) or to copies of them. StsbenchError if names differ."""
    weights = dict(backbone.model.named_parameters())
    names = [path for path, _ in model.named_parameters() if _CROSS not in path]
    if stray := min({*names} ^ {path for path in weights if not path.startswith("pooler.")}, default=None):
        if any(".base_layer." in path for path in weights):
            raise StsbenchError(
                f"tsdae's decoder starts from the encoder's weights, and {backbone.name} has adapters between them: set "
                "options.decoder to a model without, and tie to false, or leave out backbone.lora"
            )
        raise StsbenchError(_refusal(backbone, f"another causal language model than encoder ({stray})"))
    for path in names:
        owner, _, attribute = path.rpartition(".")
        if tie:
            setattr(model.get_submodule(owner), attribute, weights[path])
        else:
            getattr(model.get_submodule(owner), attribute).data.copy_(weights[path].data)


def _refusal(backbone: Backbone, why: str) -> str:
    kind = backbone.model.config.model_type
    return f"tsdae has no decoder for {backbone.name}: transformers has {why} for {kind}; take a BERT or RoBERTa"


class Piece(NamedTuple):
    """A word, the ending of a contraction, or a mark. side: the neighbour that it joins without a blank, "" for neither."""

    text: str
    side: Literal["left", "right", ""]


def pieces(text: str) -> list[Piece]:
    """Return the words and marks of a text, in their order; [] for a blank text.

    >>> [piece.text for piece in pieces('He said: "I don\\'t know 3.5 of them."')]
    ['He', 'said', ':', '"', 'I', 'do', "n't", 'know', '3.5', 'of', 'them', '.', '"']
    """
    return [Piece(match[0], _side(text, match)) for match in _PIECE.finditer(text)]


def joined(pieces: Sequence[Piece], detokenise: Literal["treebank-like", "join"]) -> str:
    """Return the pieces as a text. treebank-like: spaced as written English; join: with a blank between any two.

    >>> joined(pieces("( I don't know, )"), "treebank-like"), joined(pieces("(I don't know,)"), "join")
    ("(I don't know,)", "( I do n't know , )")
    """
    if detokenise == "join":
        return " ".join(piece.text for piece in pieces)
    text, before = "", ""
    for number, piece in enumerate(pieces):
        blank = "" if number == 0 or piece.side == "left" or before == "right" else " "
        text, before = text + blank + piece.text, piece.side
    return text


def keep(count: int, delete: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the indices of the `count` items that are kept, rising: each with probability 1 - delete; if none is left, one
    item drawn uniformly. [] for count 0."""
    kept = np.flatnonzero(rng.random(count) >= delete)
    return kept if len(kept) or not count else rng.integers(count, size=1)


def damaged(
    text: str, delete: float, detokenise: Literal["treebank-like", "join"], rng: np.random.Generator
) -> str:
    """Return the text with words deleted at random; a text without words is returned as it is."""
    every = pieces(text)
    return joined([every[index] for index in keep(len(every), delete, rng)], detokenise) if every else text


def damaged_ids(
    ids: NDArray[np.int32], special: NDArray[np.int64], delete: float, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return `ids` (L,) with ordinary tokens deleted at random. special: ids of special tokens, which are kept."""
    stays = np.isin(ids, special)
    ordinary = np.flatnonzero(~stays)
    stays[ordinary[keep(len(ordinary), delete, rng)]] = True
    return ids[stays]


def _side(text: str, match: re.Match[str]) -> Literal["left", "right", ""]:
    piece = match[0]
    if piece in ('"', "'", "‘"):  # opening or closing, by the neighbouring characters
        after, before = text[match.end() : match.end() + 1], text[: match.start()][-1:]
        opens = bool(after.strip()) and (not before.strip() or before in "([{<")
        return "right" if opens else "left" if before.strip() else ""
    if _TO_THE_LEFT.fullmatch(piece):
        return "left"
    return "right" if _TO_THE_RIGHT.fullmatch(piece) else ""
