"""Any transformers model as an encoder: each text tokenised once, sorted, packed, and nothing cut or made up unseen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders import batching
from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Progress
from stsbench.encoders.checkpoint import (
    load_model,
    load_tokenizer,
    position_limit,
    tokenizer_digest,
)
from stsbench.encoders.exported import encoder_digest
from stsbench.encoders.parts import check_ends, choose_dense, choose_device, choose_packed, choose_text_cnn
from stsbench.encoders.pooling import STATES, check_pooler, pool
from stsbench.encoders.template import Template, parse_template
from stsbench.encoders.tokenise import Tokeniser
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("float32", "bfloat16")
_CHUNK = 32_768  # texts tokenised, sorted and copied back at a time: bounds memory on corpora of millions
_BUDGET = {"cpu": 1024, "cuda": 32_768}  # tokens a batch: a CPU wants its caches, a GPU wants work


class TransformerEncoder(Encoder):
    """A BERT-like (packed) or any other (padded) transformers encoder with one of POOLERS."""

    def __init__(
        self,
        path_or_id: str | Path,
        *,
        pooler: str,
        template: str | None = None,
        max_length: int | None = None,
        dtype: str = "float32",
        device: str | None = None,
        batch_tokens: int | None = None,
        engine: str = "auto",
        offline: bool = False,
        name: str | None = None,
        prefix: str | None = None,
        normalize: bool = False,
    ) -> None:
        """Load a folder or a Hub id.

        max_length: tokens, special ones included, at most and by default the model's position limit; batch_tokens:
        tokens a batch (default 1,024 on a CPU, 32,768 on a GPU); engine: "packed", "padded" or "auto" (packed where
        supported); name: what the spec shows, by default `path_or_id`; prefix: a stored prompt before each sentence.
        Raises EncoderError, one line, for whatever a user can put right.
        """
        from stsbench.encoders.hub import resolve

        self.name = name or str(path_or_id)
        check_pooler(pooler, self.name)
        if dtype not in DTYPES:
            raise EncoderError(f"--dtype {dtype} is unknown (there are {', '.join(DTYPES)})")
        if batch_tokens is not None and batch_tokens < 1:
            raise EncoderError(f"--batch-tokens must be positive, not {batch_tokens}")
        folder = path_or_id if isinstance(path_or_id, Path) else resolve(path_or_id, offline)
        place = choose_device(device)
        model, missing = load_model(folder, self.name, dtype)
        tokenizer = load_tokenizer(folder, self.name)
        model = model.to(place)
        dense = choose_dense(model, missing, folder, self.name) if pooler == "cls+dense" else None
        head = choose_text_cnn(model, tokenizer, folder, self.name) if pooler == "text_cnn" else None
        filled = parse_template(template, tokenizer.mask_token, pooler == "mask", prefix or "")
        limit = self._assemble(model, tokenizer, pooler, dense, head, filled, max_length, batch_tokens, engine, normalize)
        self.spec = EncoderSpec(
            name=self.name, kind="transformers", weights=encoder_digest(folder, pooler),
            tokenizer=tokenizer_digest(folder), pooler=pooler, template=template, prefix=prefix or None, max_length=limit,
            dtype=dtype, normalize=normalize,
        )

    @classmethod
    def from_parts(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        pooler: str,
        dense: Any = None,
        text_cnn: Any = None,
        max_length: int | None = None,
        name: str,
        batch_tokens: int | None = None,
        normalize: bool = False,
    ) -> TransformerEncoder:
        """The encoder of a model in memory that may be changed, and is read anew, between two uses.

        dense: Linear(d, d) of pooler "cls+dense", tanh follows it; text_cnn: the TextCNN of pooler "text_cnn". The model
        stays on its device, and keeps its modes, its gradients and its tokenizer; random states are not touched. Nothing is
        cached: no digest could be.
        """
        from functools import partial

        from stsbench.encoders.borrowed import borrowed

        check_pooler(pooler, name)
        if (dense is None) == (pooler == "cls+dense"):
            raise EncoderError(f"{name}: pooler cls+dense and a dense layer go together")
        if (text_cnn is None) == (pooler == "text_cnn"):
            raise EncoderError(f"{name}: pooler text_cnn and a TextCNN go together")
        encoder = cls.__new__(cls)
        encoder.name = name
        # A copy: a call with truncation=True leaves it switched on in the tokenizer, which would cut texts here, unseen.
        own = copy.deepcopy(tokenizer) if getattr(tokenizer, "is_fast", False) else tokenizer
        head = None if dense is None else lambda first: dense(first).tanh()
        if text_cnn is not None:
            check_ends(own, name)
        filled = parse_template(None, own.mask_token, pooler == "mask")
        limit = encoder._assemble(model, own, pooler, head, text_cnn, filled, max_length, batch_tokens, "auto", normalize)
        encoder._guard = partial(borrowed, model, *(part for part in (dense, text_cnn) if part is not None))
        encoder.cacheable = False
        encoder.spec = EncoderSpec(
            name=name, kind="transformers", weights="live", pooler=pooler, max_length=limit,
            dtype=str(model.dtype).removeprefix("torch."), normalize=normalize,
        )
        return encoder

    def _assemble(
        self, model: Any, tokenizer: Any, pooler: str, dense: Callable[[Tensor], Tensor] | None, text_cnn: Any,
        filled: Template, max_length: int | None, batch_tokens: int | None, engine: str, normalize: bool,
    ) -> int | None:
        """Everything but the spec, whose length limit is returned."""
        import torch

        limit = position_limit(model, tokenizer)
        if max_length is not None and limit is not None and max_length > limit:
            raise EncoderError(f"--max-length {max_length} is more than the {limit} positions of {self.name}")
        limit = limit if max_length is None else max_length
        self.model, self.pooler, self.dense, self.normalize = model, pooler, dense, normalize
        self.text_cnn = text_cnn
        self.width = int(model.config.hidden_size if text_cnn is None else text_cnn.vector_width)
        self.device = next(model.parameters()).device
        self.tokeniser = Tokeniser(tokenizer, limit, filled)
        self.packed = choose_packed(engine, model, self.name)
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        self.budget = batch_tokens or _BUDGET.get(self.device.type, 8192)
        self._guard: Callable[[], AbstractContextManager[None]] = torch.inference_mode
        return limit

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """float32 (n, d) vectors of n texts and which were cut. A vector moves by less than 1e-5 with its company."""
        vectors = np.zeros((len(texts), self.width), dtype=np.float32)
        truncated = np.zeros(len(texts), dtype=np.bool_)
        with self._guard():
            forward = self._forward()
            for start in range(0, len(texts), _CHUNK):
                part = slice(start, min(len(texts), start + _CHUNK))
                ids, truncated[part] = self.tokeniser(texts[part])
                vectors[part] = self._chunk(forward, texts[part], ids, progress)
        return Encoded(vectors, truncated)

    def _forward(self) -> Any:
        if self.packed:
            from stsbench.encoders.packed import PackedForward

            return PackedForward(self.model)
        from stsbench.encoders.padded import PaddedForward

        return PaddedForward(self.model, self.pad)

    def _chunk(
        self, forward: Any, texts: Sequence[str], ids: list[list[int]], progress: Progress | None
    ) -> NDArray[np.float32]:
        """(n, d) vectors of one chunk: one copy to the device, one back, no wait between batches."""
        import torch

        lengths = np.array([len(row) for row in ids], dtype=np.int64)
        order = batching.longest_first(lengths)
        order = order[lengths[order] > 0]  # a text without a token keeps its zero vector
        empty = len(lengths) - len(order)
        lengths = lengths[order]
        result = np.zeros((len(ids), self.width), dtype=np.float32)
        if progress and empty:
            progress(empty)
        if not len(order):
            return result
        tokens = self._to_device(torch.from_numpy(batching.flatten(ids, order)))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        marks = None
        if self.pooler == "mask":
            inside = np.array([self.tokeniser.mark(ids[i], texts[i]) for i in order.tolist()], dtype=np.int64)
            marks = self._to_device(torch.from_numpy(inside + starts[:-1]))
        parts: list[Tensor] = []
        done = 0
        while done < len(lengths):
            stop = batching.batch_end(lengths, done, self.budget)
            first, groups = int(starts[done]), batching.groups(lengths[done:stop])
            batch_marks = None if marks is None else marks[done:stop] - first
            vectors = self._attempt(forward, tokens[first:int(starts[stop])], groups, batch_marks)
            if vectors is None:
                continue  # out of memory: the same texts again, under half the budget
            parts.append(vectors)
            if progress and self.device.type == "cpu":
                progress(stop - done)
            done = stop
        result[order] = torch.cat(parts).cpu().numpy()
        if progress and self.device.type != "cpu":  # there a batch has only been queued when the loop goes on
            progress(len(order))
        return result

    def _attempt(self, forward: Any, ids: Tensor, groups: batching.Groups, marks: Tensor | None) -> Tensor | None:
        """(n, d) vectors of one batch, or None after the token budget has been halved for want of memory."""
        import torch

        try:
            states = forward(ids, groups, STATES[self.pooler])
            vectors = pool(self.pooler, states, groups, marks, self.dense, self.text_cnn)
            return torch.nn.functional.normalize(vectors, dim=1) if self.normalize else vectors
        except torch.OutOfMemoryError as error:
            if sum(texts for texts, _ in groups) == 1:
                raise EncoderError(
                    f"{self.name}: a single text of {len(ids)} tokens does not fit into memory; use --max-length"
                ) from error
        except IndexError as error:  # a pooler's layer, or a token id, that the model does not have
            raise EncoderError(f"{self.name}: {error}") from error
        self.budget = max(1, min(self.budget, len(ids)) // 2)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def _to_device(self, values: Tensor) -> Tensor:
        if self.device.type != "cuda":
            return values.to(self.device)
        return values.pin_memory().to(self.device, non_blocking=True)
