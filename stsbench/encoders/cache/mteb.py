"""An encoder with the interface that mteb calls; each text is encoded once, however many tasks hold it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from stsbench.encoders.base import Encoder, EncoderSpec
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder
from stsbench.encoders.traits import TextTask
from stsbench.errors import ScoreError
from stsbench.metrics.similarity import paired_similarity

_SIMILARITIES = {  # a model's similarity_fn_name -> mteb's function
    "cosine": "cos_sim", "dot": "dot_score", "euclidean": "euclidean_sim",
}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def to_mteb(model: Any) -> MtebEncoder:
    """Return `model`, anything that load_encoder takes, as a model of mteb: `mteb.evaluate(to_mteb(model), tasks)`.

    Prompts and similarity are those that the model's author stores, as mteb takes them from a SentenceTransformer. Each text
    is encoded once for all tasks; an Encoder, which mteb takes as well, encodes it again for each task. mteb's result cache
    finds both by their fingerprint, and never answers for a model without one. Errors are those of load_encoder.

    >>> from stsbench import to_mteb
    >>> to_mteb("lexical:token-set").mteb_model_meta.name
    'stsbench/lexical-token-set'
    """
    return MtebEncoder(Embed(load_encoder(model).identified()))


class MtebEncoder:
    """mteb's EncoderProtocol over an `Embed`: texts are encoded once each, whatever mteb asks for, and cached if it caches.

    `texts`: every distinct text so far, by the Embed that read it, of which each prompt has its own. Prompts that the
    model's author stored are chosen as mteb chooses them for sentence-transformers; `prompted`: those used so far, by the
    role of the texts.
    """

    def __init__(self, embed: Embed) -> None:
        self.embed = embed
        self.texts: dict[Embed, dict[str, None]] = {}
        self.prompted: dict[str, str] = {}
        # mteb's result cache goes by name and revision. What a callable without a fingerprint computes can change while
        # both stay: a random revision keeps its old scores from being taken for new ones.
        unseen = embed.spec.kind == "callable" and not embed.encoder.cacheable
        self._suffix = f"-{uuid.uuid4().hex[:12]}" if unseen else ""

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, task_metadata: Any, hf_split: str, hf_subset: str,
        prompt_type: Any = None, **settings: Any,
    ) -> Any:
        """Return float32 (n, d) of the n texts in the batches `inputs`, each {"text": list of str, ...}; always dense.

        Raises ScoreError for inputs without text, and for vectors that are not finite.
        """
        if (model := self._model) is not None and not model.by_prompt:  # mteb's own model may read more than the text
            read = model.for_task(_about(task_metadata)).for_role(_role(prompt_type))
            self._note(read, prompt_type)
            about = {"task_metadata": task_metadata, "hf_split": hf_split, "hf_subset": hf_subset}
            return model.encode_batches(inputs, prompt_type=prompt_type, **about, **settings)
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise ScoreError(f"{task_metadata.name} gives {', '.join(batch)} to encode, not text")
            texts += batch["text"]
        embed = self._embed(task_metadata, prompt_type)
        if problem := embed.unusable(texts):
            raise ScoreError(problem)
        self.texts.setdefault(embed, {}).update(dict.fromkeys(texts))
        vectors = embed(texts)
        return vectors.toarray() if issparse(vectors) else vectors

    def _embed(self, task_metadata: Any, prompt_type: Any) -> Embed:
        """Return the Embed of the texts of a task and a role; a prompt other than the encoder's default is noted in
        `prompted`."""
        role, embed = _role(prompt_type), self.embed.for_task(_about(task_metadata))
        embed = embed if role is None else embed.for_role(role)
        if embed.spec.prefix != self.embed.identity.prefix:
            self._note(embed.encoder, prompt_type)
        return embed

    def _note(self, encoder: Encoder, prompt_type: Any) -> None:
        self.prompted[_role(prompt_type) or "text"] = encoder.spec.prefix or ""

    @property
    def _model(self) -> Any:
        """Return the encoder if it is one of mteb's own models, else None."""
        encoder = self.embed.encoder
        return encoder if hasattr(encoder, "encode_batches") else None

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return (n, m) similarities of n with m vectors, a float32 tensor, by mteb's function: the author's, else the
        cosine."""
        from mteb import similarity_functions

        if self._model is not None:
            return self._model.model.similarity(embeddings1, embeddings2)
        return getattr(similarity_functions, _SIMILARITIES[self._similar])(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return (n,) similarities of n pairs, a float64 tensor: as the STS protocol computes them, so that no tie is
        broken."""
        import torch

        if self._model is not None:
            return self._model.model.similarity_pairwise(embeddings1, embeddings2)
        return torch.from_numpy(paired_similarity(_array(embeddings1), _array(embeddings2), self._similar))

    @property
    def _similar(self) -> str:
        stored = self.embed.encoder.traits.similarity
        if stored not in _SIMILARITIES:
            raise ScoreError(f"{self.embed.spec.name} declares the similarity {stored}, which mteb does not have")
        return stored

    @property
    def mteb_model_meta(self) -> Any:
        """Return mteb's ModelMeta; its name and revision are the key of mteb's result cache."""
        return model_meta(self.embed.identity, self.embed.dimension, self._suffix)


def model_meta(spec: EncoderSpec, dimension: int, suffix: str = "") -> Any:
    """Return mteb's description of an encoder: name `org/model`, revision `stsbench-FINGERPRINT`. Imports mteb."""
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    return ModelMeta.create_empty(
        overwrites={
            "name": model_name(spec), "revision": f"stsbench-{spec.fingerprint()}{suffix}", "embed_dim": dimension or None,
            "max_tokens": spec.max_length, "similarity_fn_name": ScoringFunction.COSINE,
            "use_instructions": bool(spec.template or spec.prefix or spec.options.get("prompts")),
        }
    )


def model_name(spec: EncoderSpec) -> str:
    """Return mteb's own name of the model, or its Hub id; for a folder or another kind of encoder `stsbench/` and the last
    part of its name."""
    if "model" in spec.options:
        return str(spec.options["model"])
    if spec.kind.endswith("transformers") and _HUB_ID.fullmatch(spec.name) and not Path(spec.name).exists():
        return spec.name
    return "stsbench/" + (re.sub(r"[^\w.-]+", "-", Path(spec.name).name).strip("-") or "encoder")


def _about(task_metadata: Any) -> TextTask:
    return TextTask() if task_metadata is None else TextTask(task_metadata.name, task_metadata.type, task_metadata)


def _role(prompt_type: Any) -> str | None:
    return None if prompt_type is None else str(getattr(prompt_type, "value", prompt_type))


def _array(vectors: Any) -> Any:
    return vectors if issparse(vectors) else np.asarray(vectors)
