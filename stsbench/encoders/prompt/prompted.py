"""Encoding with a trained Prompt: the tokens of texts, and the vectors of a packed batch at the template's mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from stsbench.encoders.forward.batching import Groups, KeyValues, Soft
from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import (
    Tokeniser,
    TokenTemplate,
    first_position,
    parse_template,
    template_positions,
    with_full_stop,
)
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    from torch import Tensor


class SplicedTokeniser:
    """Tokenises texts alone and puts them between the template's tokens; called as Tokeniser (encoders/prompt/template.py).

    Used for the text "pieces", and where words are learned, since these need every token of the template.
    """

    def __init__(
        self, template: TokenTemplate, prompt: Prompt, limit: int | None, limit_name: str = "--max-length"
    ) -> None:
        self.template, self.prompt = template, prompt
        room = None if limit is None else limit - template.length
        if room is not None and room < 1:
            raise EncoderError(
                f"{limit_name} {limit} leaves no token for the sentence: the {template.length} around it fill it"
            )
        self.limit = min((size for size in (room, prompt.pieces) if size is not None), default=None)

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Return token ids of n texts, and which of them were cut: bool (n,)."""
        read = [with_full_stop(text, self.prompt.full_stop) for text in texts]
        rows = self.template.pieces(read) if self.prompt.text == "inside" else self.template.alone(read)
        cut = np.array([self.limit is not None and len(row) - 2 > self.limit for row in rows], dtype=np.bool_)
        kept = [[row[0], *row[1:-1][: self.limit], row[-1]] for row in rows]
        return [row.tolist() for row in self.template.wrap(kept)], cut

    def mark(self, ids: Sequence[int], text: str) -> int:
        """Return the index of the template's mask token in `ids`."""
        return self.template.mask_index(len(ids))


class PromptedVectors:
    """The forward pass of a prompted encoder, to be built anew after the weights have changed.

    The vectors of the template alone (denoising) are computed once for each number of tokens that occurs.
    """

    def __init__(
        self, prompt: Prompt, template: TokenTemplate | None, forward: Callable[..., list[Tensor]], model: Any
    ) -> None:
        """forward: a PackedForward or PaddedForward of `model`, which is in eval mode. template: None where nothing is
        learned and nothing subtracted."""
        self.prompt, self.template, self.forward = prompt, template, forward
        self.device = next(model.parameters()).device
        self.base = prompt.shift + (first_position(model) if prompt.start == "own" else 0)
        self.prefixes: tuple[KeyValues | None, ...] = prompt.prefixes or (None,)
        self.tables: list[dict[int, Tensor]] = [{} for _ in self.prefixes]

    def __call__(self, ids: Tensor, groups: Groups, marks: Tensor) -> Tensor:
        """Return float32 (n, d) vectors of a packed batch. ids: (tokens,); groups: runs of equal length; marks: (n,) rows
        of the mask tokens."""
        prompt, rows = self.prompt, self._rows(ids, groups)
        soft = rows is not None or bool(prompt.prefixes) or prompt.shift > 0
        head: Callable[[Tensor], Tensor] = prompt.head or torch.nn.Identity()
        by_prefix = []
        for prefix, table in zip(self.prefixes, self.tables, strict=True):
            more = (Soft(rows=rows, vectors=prompt.words, prefix=prefix, shift=prompt.shift),) if soft else ()
            vectors = self.forward(ids, groups, (-1,), *more)[0].index_select(0, marks).float()
            alone = self._alone(groups, prefix, table) if prompt.denoise else None
            if alone is not None and prompt.each:
                by_prefix.append(head(vectors) - head(alone))
            else:
                by_prefix.append(head(vectors if alone is None else vectors - alone))
        return by_prefix[0] if len(by_prefix) == 1 else torch.stack(by_prefix).mean(0)

    def _alone(self, groups: Groups, prefix: KeyValues | None, table: dict[int, Tensor]) -> Tensor:
        """Return (n, d) vectors of the template alone, one for each text of the batch, by its number of tokens."""
        assert self.template is not None
        length = self.template.length
        # not below 0: a tokenizer may join the sentence's first token with the template's last
        counts = [max(0, tokens - length) for _, tokens in groups]
        if lacking := sorted({count for count in counts if count not in table}):
            ids = torch.tensor([*self.template.before, *self.template.after], device=self.device)
            alone: Groups = [(len(lacking), length)]
            split = len(self.template.before)
            positions = template_positions(torch.tensor(lacking), split, length, self.base, self.prompt.positions)
            packed = ids.repeat(len(lacking))
            soft = Soft(
                positions=positions.flatten().to(self.device), rows=self._rows(packed, alone), vectors=self.prompt.words,
                prefix=prefix,
            )
            state = self.forward(packed, alone, (-1,), soft)[0].unflatten(0, (len(lacking), length))
            table.update(zip(lacking, state[:, self.template.mask_index(length)].float(), strict=True))
        return torch.cat([table[count].expand(texts, -1) for count, (texts, _) in zip(counts, groups, strict=True)])

    def _rows(self, ids: Tensor, groups: Groups) -> Tensor | None:
        """Return (tokens,) the learned word of each token of a packed batch, -1 for none; None without learned words."""
        if self.prompt.words is None or self.template is None:
            return None
        runs = ids.split([texts * tokens for texts, tokens in groups])
        rows = (run.view(size) for run, size in zip(runs, groups, strict=True))
        return torch.cat([self.template.words(block, torch.ones_like(block)).flatten() for block in rows])


def placed(prompt: Prompt, model: Any, name: str) -> Prompt:
    """Return the prompt with its tensors on the model's device and in its type; heads stay float32, as pooled vectors are.

    EncoderError, one line, for tensors that do not fit the model `name`.
    """
    weight = model.get_input_embeddings().weight
    width = model.config.hidden_size
    for prefix in prompt.prefixes:
        shape = (model.config.num_hidden_layers, prefix.keys.shape[1], width)
        if wrong := [tuple(part.shape) for part in (prefix.keys, prefix.values) if tuple(part.shape) != shape]:
            raise EncoderError(f"{name}: a prefix of shape {wrong[0]}, and this model's are {shape}")
    if prompt.words is not None and prompt.words.shape[1] != width:
        raise EncoderError(f"{name}: learned words of width {prompt.words.shape[1]}, and the model's is {width}")
    return replace(
        prompt,
        head=None if prompt.head is None else prompt.head.to(weight.device),
        words=None if prompt.words is None else prompt.words.to(weight),
        prefixes=tuple(KeyValues(pair.keys.to(weight), pair.values.to(weight)) for pair in prompt.prefixes),
        bottlenecks=None if prompt.bottlenecks is None else prompt.bottlenecks.to(weight.device, weight.dtype),
    )


def tokeniser(
    tokenizer: Any, template: TokenTemplate | None, prompt: Prompt, limit: int | None, limit_name: str = "--max-length"
) -> Tokeniser | SplicedTokeniser:
    """Return the tokeniser of a prompt: of the filled template, or of the sentence alone, which is put between the
    template's tokens.

    template: None where the last token is pooled, not a mask. EncoderError: there are more or fewer learned words than
    tokens of the template, or the limit leaves no token for the sentence.
    """
    if template is None:
        return Tokeniser(tokenizer, limit, parse_template(prompt.template, None, False), prompt.full_stop, limit_name)
    if prompt.words is not None and len(prompt.words) != len(template.word_ids):
        raise EncoderError(
            f"{template.name}: {len(prompt.words)} learned words for the {len(template.word_ids)} of {prompt.template!r}"
        )
    if prompt.text == "pieces" or prompt.words is not None:
        return SplicedTokeniser(template, prompt, limit, limit_name)
    filled = parse_template(prompt.template, tokenizer.mask_token, True)
    return Tokeniser(tokenizer, limit, filled, prompt.full_stop, limit_name)
