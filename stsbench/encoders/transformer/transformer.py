"""Any transformers model as an encoder: each text tokenised once, sorted, packed, and nothing cut or made up unseen."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Progress
from stsbench.encoders.forward import batching
from stsbench.encoders.forward.checkpoint import (
    load_model,
    load_tokenizer,
    position_limit,
    tokenizer_digest,
)
from stsbench.encoders.forward.pooling import STATES, check_pooler, pool
from stsbench.encoders.prompt.prompt import Prompt, spec_options
from stsbench.encoders.prompt.template import Template, parse_template
from stsbench.encoders.prompt.tokenise import Tokeniser
from stsbench.encoders.transformer.exported import encoder_digest
from stsbench.encoders.transformer.parts import check_ends, choose_dense, choose_device, choose_packed, choose_text_cnn
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
        full_stop: bool = False,
        prompt: Prompt | None = None,
        stored: bool = False,
    ) -> None:
        """Load a folder or a Hub id.

        max_length: tokens, special ones included, at most and by default the model's position limit; batch_tokens:
        tokens a batch (default 1,024 on a CPU, 32,768 on a GPU); engine: "packed", "padded" or "auto" (packed where
        supported); name: what the spec shows, by default `path_or_id`; prefix: a stored prompt before each sentence;
        full_stop: put one behind texts that end in none of . ? " '; prompt: for the pooler mask, instead of template and
        full_stop; stored: it is the folder's own, whose tensors the digest of the weights covers.
        Raises EncoderError, one line, for whatever a user can put right.
        """
        from stsbench.encoders.transformer.find import resolve

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
        settings = _settings(prompt, self.name, pooler, template is not None or full_stop)
        filled = None if prompt else parse_template(template, tokenizer.mask_token, pooler == "mask", prefix or "")
        limit = self._assemble(
            model, tokenizer, pooler, dense, head, filled, max_length, batch_tokens, engine, normalize, prompt, full_stop
        )
        weights = encoder_digest(folder, pooler, settings if stored else None)
        if prompt is not None and not stored and (values := prompt.digest()):
            weights = hashlib.sha256(f"{weights} {values}".encode()).hexdigest()
        self.spec = EncoderSpec(
            name=self.name, kind="transformers", weights=weights, tokenizer=tokenizer_digest(folder), pooler=pooler,
            template=template if prompt is None else prompt.template, prefix=prefix or None, max_length=limit,
            dtype=dtype, normalize=normalize, options=spec_options(settings, full_stop),
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
        prompt: Prompt | None = None,
    ) -> TransformerEncoder:
        """The encoder of a model in memory that may be changed, and is read anew, between two uses.

        dense: Linear(d, d) of pooler "cls+dense", tanh follows it; text_cnn: the TextCNN of pooler "text_cnn"; prompt: of
        pooler "mask". The model stays on its device, and keeps its modes, its gradients and its tokenizer; random states
        are not touched. Nothing is cached: no digest could be.
        """
        from functools import partial

        from stsbench.encoders.forward.borrowed import borrowed

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
        settings = _settings(prompt, name, pooler, False)
        filled = None if prompt else parse_template(None, own.mask_token, pooler == "mask")
        limit = encoder._assemble(
            model, own, pooler, head, text_cnn, filled, max_length, batch_tokens, "auto", normalize, prompt, False
        )
        learned = [part for part in (dense, text_cnn) if part is not None] + list(prompt.modules() if prompt else ())
        encoder._guard = partial(borrowed, model, *learned)
        encoder.cacheable = False
        encoder.spec = EncoderSpec(
            name=name, kind="transformers", weights="live", pooler=pooler, max_length=limit,
            template=None if prompt is None else prompt.template, dtype=str(model.dtype).removeprefix("torch."),
            normalize=normalize, options=spec_options(settings, False),
        )
        return encoder

    def _assemble(
        self, model: Any, tokenizer: Any, pooler: str, dense: Callable[[Tensor], Tensor] | None, text_cnn: Any,
        filled: Template | None, max_length: int | None, batch_tokens: int | None, engine: str, normalize: bool,
        prompt: Prompt | None, full_stop: bool,
    ) -> int | None:  # fmt: skip
        """Everything but the spec, whose length limit is returned. filled: the template, None with a prompt."""
        import torch

        limit, shift = position_limit(model, tokenizer), 0 if prompt is None else prompt.shift
        limit = None if limit is None else limit - shift
        if max_length is not None and limit is not None and max_length > limit:
            left = f"that its prefix leaves of {limit + shift} " if shift else ""
            raise EncoderError(f"--max-length {max_length} is more than the {limit} {left}positions of {self.name}")
        limit = limit if max_length is None else max_length
        self.model, self.pooler, self.dense, self.normalize = model, pooler, dense, normalize
        self.text_cnn = text_cnn
        self.width = int(model.config.hidden_size if text_cnn is None else text_cnn.vector_width)
        self.device = next(model.parameters()).device
        self.prompt: Prompt | None = None
        self.packed = choose_packed(engine, model, self.name)
        if prompt is None:
            assert filled is not None
            self.tokeniser: Any = Tokeniser(tokenizer, limit, filled, full_stop)
        else:
            from stsbench.encoders.prompt.prompted import placed, tokeniser
            from stsbench.encoders.prompt.template import TokenTemplate

            self.template = TokenTemplate(tokenizer, prompt.template, self.name)
            self.prompt = placed(prompt, model, self.name)
            self.tokeniser = tokeniser(tokenizer, self.template, prompt, limit)
            self.packed &= prompt.bottlenecks is None  # they hook into the model's own pass
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        self.budget = batch_tokens or _BUDGET.get(self.device.type, 8192)
        self._guard: Callable[[], AbstractContextManager[None]] = torch.inference_mode
        return limit

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """float32 (n, d) vectors of n texts and which were cut. A vector moves by less than 1e-5 with its company."""
        vectors = np.zeros((len(texts), self.width), dtype=np.float32)
        truncated = np.zeros(len(texts), dtype=np.bool_)
        with self._guard(), self._adapted():
            forward = self._forward()
            for start in range(0, len(texts), _CHUNK):
                part = slice(start, min(len(texts), start + _CHUNK))
                ids, truncated[part] = self.tokeniser(texts[part])
                vectors[part] = self._chunk(forward, texts[part], ids, progress)
        return Encoded(vectors, truncated)

    def _adapted(self) -> AbstractContextManager[None]:
        if self.prompt is None or self.prompt.bottlenecks is None:
            return nullcontext()
        from stsbench.encoders.prompt.bottlenecks import attached

        return attached(self.model, self.prompt.bottlenecks, 0)

    def _forward(self) -> Any:
        """One run's pass: ids, groups and STATES to states, or with a prompt ids, groups and marks to vectors."""
        from stsbench.encoders.forward.packed import PackedForward
        from stsbench.encoders.forward.padded import PaddedForward

        forward = PackedForward(self.model) if self.packed else PaddedForward(self.model, self.pad)
        if self.prompt is None:
            return forward
        from stsbench.encoders.prompt.prompted import PromptedVectors

        return PromptedVectors(self.prompt, self.template, forward, self.model)

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
            if self.prompt is not None:
                vectors = forward(ids, groups, marks)
            else:
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


def _settings(prompt: Prompt | None, name: str, pooler: str, more: bool) -> dict[str, Any] | None:
    """The prompt's settings. EncoderError: another pooler, or a template or a full stop given beside it."""
    if prompt is None:
        return None
    if pooler != "mask" or more:
        raise EncoderError(f"{name}: a prompt has the pooler mask, and a template and a full stop of its own")
    return prompt.settings()
