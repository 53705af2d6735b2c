"""Encoders, from text to vectors: their base class (base), loading by name (load), and the kinds that come with stsbench.

    from stsbench.encoders import load_encoder

    vectors = load_encoder("bert-base-uncased", pooler="cls").encode(["A text."])

light: kinds without torch; transformer: all others; prompt: prompts and templates; forward: passes and poolers; cache:
vectors kept on disk. The names are imported on first use, so that light encoders load no torch.
"""

from stsbench.registry import lazy_names

NAMES = {  # module -> its public names
    "base": ("Encoded", "Encoder", "EncoderOptions", "EncoderSpec"), "load": ("load_encoder",),
    "stsbench.encoders.cache.cache": ("EmbeddingCache",), "stsbench.encoders.cache.embed": ("Embed",),
    "stsbench.encoders.transformer.config": ("EncoderConfig",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, NAMES)
