"""From text to vectors: what an encoder is (base), how a name becomes one (load), and the kinds that come with stsbench.

    from stsbench.encoders import load_encoder

    vectors = load_encoder("bert-base-uncased", pooler="cls").encode(["A text."])

light: kinds without torch; transformer: all others; prompt: what stands around a text; forward: passes and poolers; cache:
vectors kept on disk. The names load on first use, so that light encoders load no torch.
"""

from stsbench.registry import lazy_names

NAMES = {  # module -> its public names
    "base": ("Encoded", "Encoder", "EncoderOptions", "EncoderSpec"), "load": ("load_encoder",),
    "stsbench.encoders.cache.cache": ("EmbeddingCache",), "stsbench.encoders.cache.embed": ("Embed",),
    "stsbench.encoders.transformer.config": ("EncoderConfig",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, NAMES)
