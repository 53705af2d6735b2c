"""From the hidden states of a batch to one vector a text.

Every pooler works on packed tokens: the (tokens, d) states of a batch, text after text, texts of equal length together,
so that a group is a (texts, length, d) view and its mean needs no mask. CLS and SEP count in the means, as in SimCSE's
evaluation.py (specs/senteval.md, section 2) and in sentence-transformers.

Torch is reached only through the tensors themselves, so that the names below can be listed without importing it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from stsbench.encoders.forward.batching import Groups
from stsbench.encoders.forward.token_pooler_files import KINDS
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    from torch import Tensor

LAST = -1  # the last layer's output behind the model's final norm, as transformers has it in hidden_states[-1]
# the hidden states that each pooler reads: 0 the embedding output, 1 the first layer's, -1 the last layer's
STATES: dict[str, tuple[int, ...]] = {
    "cls": (-1,),
    "cls+dense": (-1,),  # through the checkpoint's own dense + tanh, e.g. BERT's pooler_output
    "mean": (-1,),
    "cls_avg": (-1,),  # half of cls and half of mean: AnglE's `cls_avg`
    "first_last:embeddings": (0, -1),  # "first-last avg." in the papers, and evaluation.py before commit 206d7ae
    "first_last:layer1": (1, -1),  # evaluation.py since that commit
    "last2": (-2, -1),
    "max": (-1,),
    "last": (-1,),  # the last token's, special ones included
    "weighted_mean": (-1,),  # token i of n counts i times (Muennighoff 2022, SGPT, section 4.1)
    "mask": (-1,),  # the vector at the template's [MASK]
    "text_cnn": (-1,),  # convolutions learned with the model (encoders/forward/text_cnn.py), as SARCSE has them
    "mean_cnn": (-1,),  # others, whose mean over the tokens is taken (encoders/forward/mean_cnn.py): IS-BERT's
}
POOLERS: tuple[str, ...] = tuple(STATES)
MEAN_PADDED = "mean_padded:N"  # as lists of poolers have it; N is a number of positions (encoders/forward/padded.py)
_MEAN_PADDED = re.compile(r"mean_padded:([1-9][0-9]{0,5})")


def padded_length(name: str | None) -> int | None:
    """N of the pooler mean_padded:N, the mean over all N positions of a text that is cut at N tokens and padded to N, the
    states of the padding counted (Mirror-BERT's `mean`); None for every other pooler."""
    match = _MEAN_PADDED.fullmatch(name or "")
    return int(match[1]) if match else None


def check_pooler(name: str | None, model: str) -> str:
    """`name` if it is a pooler; EncoderError listing the poolers if it is None, suggesting the nearest otherwise."""
    every = (*POOLERS, MEAN_PADDED)
    if name is None:
        raise EncoderError(f"{model} stores no pooler: choose one with --pooler ({', '.join(every)})")
    if name not in STATES and padded_length(name) is None:
        near = difflib.get_close_matches(name, every, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise EncoderError(f"--pooler {name} is unknown{hint} (there are {', '.join(every)})")
    return name


def pool(
    name: str,
    states: Sequence[Tensor],
    groups: Groups,
    marks: Tensor | None = None,
    dense: Callable[[Tensor], Tensor] | None = None,
    token_pooler: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """float32 (n, d) vectors of one batch.

    states: the (tokens, d) hidden states named by STATES[name], in that order; groups: runs of equal length;
    marks: (n,) rows of the mask tokens, for `mask`; dense: (n, d) -> (n, d), for `cls+dense`; token_pooler: a learned one,
    (n, L, d) and a mask (n, L) -> (n, its own width), for the poolers of that kind.
    """
    if name == "mask":
        if marks is None:
            raise ValueError("the mask pooler needs marks")
        return states[0].index_select(0, marks).float()
    if name == "cls":
        return _map(states[0], groups, lambda group: group[:, 0]).float()
    if name == "cls+dense":
        if dense is None:
            raise ValueError("the cls+dense pooler needs dense")
        return dense(_map(states[0], groups, lambda group: group[:, 0])).float()
    if name in KINDS:
        if token_pooler is None:
            raise ValueError(f"the {name} pooler needs token_pooler")
        import torch

        head = token_pooler  # whole texts of one length: nothing is padded
        return _map(states[0], groups, lambda group: head(group, group.new_ones(group.shape[:2], dtype=torch.long))).float()
    if name == "last":
        return _map(states[0], groups, lambda group: group[:, -1]).float()
    if name == "weighted_mean":
        return _map(states[0], groups, _weighted)
    if name == "max":
        return _map(states[0], groups, lambda group: group.amax(1)).float()
    if name == "cls_avg":
        return _map(states[0], groups, lambda group: (group[:, 0].float() + group.float().mean(1)) / 2)
    means = [_map(state, groups, lambda group: group.float().mean(1)) for state in states]
    return means[0] if len(means) == 1 else (means[0] + means[1]) / 2  # the mean of averages is the average's mean


def _weighted(group: Tensor) -> Tensor:
    """(n, d) means of (n, L, d) states in which the first token counts once, the second twice, and so on."""
    weights = group.new_ones(group.shape[1]).float().cumsum(0)
    return (group.float() * weights[:, None]).sum(1) / weights.sum()


def _map(state: Tensor, groups: Groups, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """`reduce` over every (texts, length, d) part of the packed (tokens, d) state, concatenated to (n, d)."""
    parts = [reduce(part) for part in views(state, groups)]
    if len(parts) == 1:
        return parts[0]
    import torch

    return torch.cat(parts)


def views(state: Tensor, groups: Groups) -> Iterator[Tensor]:
    """The (texts, length, ...) views of packed (tokens, ...) rows, one a group."""
    start = 0
    for texts, length in groups:
        stop = start + texts * length
        yield state[start:stop].unflatten(0, (texts, length))
        start = stop
