"""Any of our encoders as a model of the package mteb: `mteb.evaluate(to_mteb("minilm"), tasks)`."""

from __future__ import annotations

from typing import Any

from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder
from stsbench.encoders.mteb.serve import MtebEncoder as MtebEncoder
from stsbench.encoders.mteb.serve import model_meta as model_meta
from stsbench.encoders.mteb.serve import model_name as model_name
from stsbench.encoders.mteb_import import undisturbed as undisturbed


def to_mteb(model: Any) -> MtebEncoder:
    """`model`, whatever load_encoder takes, as one of mteb's own: `mteb.evaluate(to_mteb(model), tasks)`.

    Prompts and similarity are those that the model's author stores, as mteb has them of a SentenceTransformer. Every text is
    encoded once, whatever the tasks; an encoder itself, which mteb takes as well, encodes it anew for each task. mteb's
    result cache knows both by their fingerprint; one that has none is never answered from there. Errors as load_encoder's.

    >>> from stsbench import to_mteb
    >>> to_mteb("lexical:token-set").mteb_model_meta.name
    'stsbench/lexical-token-set'
    """
    return MtebEncoder(Embed(load_encoder(model).identified()))
