"""Any of our encoders as a model of the package mteb: `mteb.evaluate(to_mteb("minilm"), tasks)`.

mteb is imported by whoever calls it; this file needs it only where it says so.
"""

from __future__ import annotations

import logging
import os
import random
import re
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from stsbench.encoders.base import EncoderSpec
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder
from stsbench.errors import ScoreError
from stsbench.metrics.similarity import paired_similarity

_SIMILARITIES = {  # a model's similarity_fn_name -> mteb's function
    "cosine": "cos_sim", "dot": "dot_score", "euclidean": "euclidean_sim",
}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


class MtebEncoder:
    """mteb's EncoderProtocol over an `Embed`: texts are encoded once each, whatever mteb asks for, and cached if it caches.

    `texts`: every distinct text asked for so far, by what read it: behind another prompt, another encoder. Prompts that the
    model's author stored are chosen as mteb chooses them for sentence-transformers; `prompted`: each that was, by the role
    it was used in.
    """

    def __init__(self, embed: Embed) -> None:
        self.embed = embed
        self.texts: dict[Embed, dict[str, None]] = {}
        self.prompted: dict[str, str] = {}
        # mteb answers from its result cache by name and revision. What an unnamed callable computes can change while
        # neither does: a revision that never comes back keeps old scores from being taken for its new ones.
        unseen = embed.spec.kind == "callable" and not embed.encoder.cacheable
        self._suffix = f"-{uuid.uuid4().hex[:12]}" if unseen else ""

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, task_metadata: Any, hf_split: str, hf_subset: str,
        prompt_type: Any = None, **settings: Any,
    ) -> Any:
        """float32 (n, d) of the n texts in the batches `inputs`, each {"text": list of str, ...}; always dense.

        Raises ScoreError for inputs without text, and for vectors that are not finite.
        """
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
        """The encoder behind the prompt that mteb's rules name for the task and the side; as it is where they name none."""
        from mteb.models.abs_encoder import get_prompt_name

        role = None if prompt_type is None else str(getattr(prompt_type, "value", prompt_type))
        stored = self.embed.encoder.prompts
        # sentence-transformers knows these two in every model, empty where nothing is stored: no default prompt then
        known = {"query": "", "document": "", **stored}
        name = get_prompt_name(known, task_metadata, prompt_type) if stored else None
        embed = self.embed.for_role(role, known.get(name) if name else None)
        if embed is not self.embed:
            self.prompted[role or "text"] = embed.spec.prefix or ""
        return embed

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """(n, m) similarities of n with m vectors, a float32 tensor, by mteb's function: the author's, else the cosine."""
        from mteb import similarity_functions

        return getattr(similarity_functions, _SIMILARITIES[self._similar])(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """(n,) similarities of n pairs, a float64 tensor: as the STS protocol computes them, so that no tie is broken."""
        import torch

        return torch.from_numpy(paired_similarity(_array(embeddings1), _array(embeddings2), self._similar))

    @property
    def _similar(self) -> str:
        stored = self.embed.encoder.similarity_fn_name
        if stored not in _SIMILARITIES:
            raise ScoreError(f"{self.embed.spec.name} declares the similarity {stored}, which mteb does not have")
        return stored

    @property
    def mteb_model_meta(self) -> Any:
        """mteb's ModelMeta; its name and revision are the key of mteb's result cache."""
        return model_meta(self.embed.spec, self.embed.dimension, self._suffix)


def to_mteb(model: Any) -> MtebEncoder:
    """`model`, whatever load_encoder takes, as one of mteb's own: `mteb.evaluate(to_mteb(model), tasks)`.

    Prompts and similarity are those that the model's author stores, as mteb has them of a SentenceTransformer. Every text is
    encoded once, whatever the tasks. mteb's result cache knows it by its fingerprint; one that has none is never answered
    from there. Errors as load_encoder's.

    >>> from stsbench import to_mteb
    >>> to_mteb("lexical:token-set").mteb_model_meta.name
    'stsbench/lexical-token-set'
    """
    return MtebEncoder(Embed(load_encoder(model).identified()))


def model_meta(spec: EncoderSpec, dimension: int, suffix: str = "") -> Any:
    """mteb's description of an encoder: name `org/model`, revision `stsbench-FINGERPRINT`. Imports mteb."""
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    return ModelMeta.create_empty(
        overwrites={
            "name": model_name(spec), "revision": f"stsbench-{spec.fingerprint()}{suffix}", "embed_dim": dimension or None,
            "max_tokens": spec.max_length, "similarity_fn_name": ScoringFunction.COSINE,
            "use_instructions": bool(spec.template or spec.prefix or spec.options.get("templates")),
        }
    )


def model_name(spec: EncoderSpec) -> str:
    """A Hub id as it is; for a folder, or another kind of encoder, `stsbench/` and its last name."""
    if spec.kind.endswith("transformers") and _HUB_ID.fullmatch(spec.name) and not Path(spec.name).exists():
        return spec.name
    return "stsbench/" + (re.sub(r"[^\w.-]+", "-", Path(spec.name).name).strip("-") or "encoder")


@contextmanager
def undisturbed() -> Iterator[Any]:
    """mteb (imported here at the latest) for the time of the block, and no trace of it after.

    Building its tasks and evaluators reseeds random, numpy and torch: their states are put back. What it prints goes to
    standard error; warnings and log lines below errors are dropped (it advises newer versions of the tasks asked for).
    """
    import torch

    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    logger = logging.getLogger("mteb")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield _imported()
    finally:
        logger.setLevel(level)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        else:  # mteb's seed waits for CUDA to begin: the one that torch was given takes its place
            torch.cuda.manual_seed_all(torch.initial_seed())


def _imported() -> Any:
    """mteb, imported without the folder that its import makes in the user's home."""
    if "mteb" in sys.modules or "MTEB_CACHE" in os.environ:
        import mteb

        return mteb
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MTEB_CACHE"] = folder
        try:
            import mteb
        finally:
            del os.environ["MTEB_CACHE"]
    # Its default cache keeps the path of that moment: a user's own call of mteb.evaluate must find the usual place.
    default = (mteb.evaluate.__kwdefaults__ or {}).get("cache")
    if isinstance(default, mteb.ResultCache):
        default.cache_path = default.default_cache_path
    return mteb


def _array(vectors: Any) -> Any:
    return vectors if issparse(vectors) else np.asarray(vectors)
