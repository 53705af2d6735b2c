"""From text to vectors: what an encoder is (base), how a name becomes one (load), and the kinds that come with stsbench.

    from stsbench.encoders import load_encoder

    vectors = load_encoder("bert-base-uncased", pooler="cls").encode(["A text."])

light: kinds without torch; transformer: all others; prompt: what stands around a text; forward: passes and poolers; cache:
vectors kept on disk. The names load on first use, so that light encoders load no torch.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "EmbeddingCache": "stsbench.encoders.cache.cache",
    "Embed": "stsbench.encoders.cache.embed",
    "Encoded": "stsbench.encoders.base",
    "Encoder": "stsbench.encoders.base",
    "EncoderConfig": "stsbench.encoders.transformer.config",
    "EncoderOptions": "stsbench.encoders.base",
    "EncoderSpec": "stsbench.encoders.base",
    "load_encoder": "stsbench.encoders.load",
}
__all__ = [
    "Embed",
    "EmbeddingCache",
    "Encoded",
    "Encoder",
    "EncoderConfig",
    "EncoderOptions",
    "EncoderSpec",
    "load_encoder",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'stsbench.encoders' has no attribute '{name}'")
