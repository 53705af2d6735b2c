"""Pooling: one vector for each text from the hidden states of its tokens.

Every pooler works on packed tokens: the (tokens, d) states of a batch, text after text, texts of equal length together,
so that a group is a (texts, length, d) view and its mean needs no mask. CLS and SEP count in the means, as in SimCSE's
evaluation.py (specs/senteval.md, section 2) and in sentence-transformers.

Torch is imported only inside functions: poolers can be listed, and the learned pooler of a folder can be recognised, without
it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.encoders.forward.batching import Groups
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
    "text_cnn": (-1,),  # learned convolutions of SARCSE (encoders/forward/token_pooler.py)
    "mean_cnn": (-1,),  # the mean over tokens of IS-BERT's learned convolutions (encoders/forward/token_pooler.py)
}
POOLERS: tuple[str, ...] = tuple(STATES)
MEAN_PADDED = "mean_padded:N"  # as lists of poolers have it; N is a number of positions (encoders/forward/passes.py)
_MEAN_PADDED = re.compile(r"mean_padded:([1-9][0-9]{0,5})")


@dataclass(frozen=True)
class TokenPoolerKind:
    """The names of a learned pooler over tokens in recipes, folders and messages."""

    pooler: str  # the name among POOLERS, and of its settings in a recipe's backbone
    title: str  # in messages; a model folder keeps it in N_TITLE
    module: str  # its type in modules.json
    drops_ends: bool = False  # leaves out the first and the last token, so these have to be special


KINDS = {
    kind.pooler: kind
    for kind in (
        TokenPoolerKind(
            "text_cnn", "TextCNN", "stsbench.encoders.transformer.text_cnn_module.TextCNNPooling", drops_ends=True
        ),
        TokenPoolerKind("mean_cnn", "MeanCNN", "stsbench.encoders.transformer.token_pooling_module.MeanCNNPooling"),
    )
}
FILES = ("config.json", "model.safetensors")


def is_class(kind: str, name: str) -> bool:
    """Return whether a type in modules.json is this package's class `name`, in whichever module a version kept it."""
    return kind.startswith("stsbench.") and kind.rpartition(".")[2] == name.rpartition(".")[2]


def kind_of_module(module: str) -> TokenPoolerKind | None:
    """Return the learned pooler of a type in modules.json, None for another type."""
    return next((kind for kind in KINDS.values() if is_class(module, kind.module)), None)


def token_pooler_folder(folder: Path) -> tuple[TokenPoolerKind, Path] | None:
    """Return the learned pooler that modules.json of a model folder names, and its folder; None for none. EncoderError: its
    files are missing."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    try:
        modules = json.loads(path.read_text("utf-8"))
        kinds = ((kind_of_module(module["type"]), folder / module["path"]) for module in modules)
        kind, home = next(((kind, home) for kind, home in kinds if kind is not None), (None, folder))
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise EncoderError(f"cannot read {path}: {error!r}") from error
    if kind is None:
        return None
    for name in FILES:
        if not (home / name).is_file():
            raise EncoderError(f"{folder} lacks the {kind.title} that its modules.json promises ({home.name}/{name})")
    return kind, home


def stored_token_pooler(folder: Path, pooler: str, name: str) -> Path:
    """Return the folder of the learned pooler of the model `name`. EncoderError: it has none, a new one would be random."""
    stored, kind = token_pooler_folder(folder), KINDS[pooler]
    if stored is None or stored[0] != kind:
        raise EncoderError(
            f"--pooler {pooler}: {name} stores no {kind.title}, and it is learned: train one with backbone.pooler={pooler}, "
            "or choose another pooler"
        )
    return stored[1]


def padded_length(name: str | None) -> int | None:
    """Return N of the pooler mean_padded:N, the mean over all N positions of a text that is cut at N tokens and padded to
    N, the states of the padding counted (Mirror-BERT's `mean`); None for every other pooler."""
    match = _MEAN_PADDED.fullmatch(name or "")
    return int(match[1]) if match else None


def check_pooler(name: str | None, model: str) -> str:
    """Return `name` if it is a pooler; EncoderError listing the poolers if it is None, suggesting the nearest otherwise."""
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
    """Return float32 (n, d) vectors of one batch.

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
    return means[0] if len(means) == 1 else (means[0] + means[1]) / 2  # equal to the mean of the averaged states


def _weighted(group: Tensor) -> Tensor:
    """Return (n, d) means of (n, L, d) states in which the first token counts once, the second twice, and so on."""
    weights = group.new_ones(group.shape[1]).float().cumsum(0)
    return (group.float() * weights[:, None]).sum(1) / weights.sum()


def _map(state: Tensor, groups: Groups, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `reduce` over every (texts, length, d) part of the packed (tokens, d) state, concatenated to (n, d)."""
    parts = [reduce(part) for part in views(state, groups)]
    if len(parts) == 1:
        return parts[0]
    import torch

    return torch.cat(parts)


def views(state: Tensor, groups: Groups) -> Iterator[Tensor]:
    """Yield the (texts, length, ...) views of packed (tokens, ...) rows, one a group."""
    start = 0
    for texts, length in groups:
        stop = start + texts * length
        yield state[start:stop].unflatten(0, (texts, length))
        start = stop
