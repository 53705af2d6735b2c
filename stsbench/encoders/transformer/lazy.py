"""The kind `transformers`. Its spec is known before its weights are loaded: what is all in the cache needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stsbench.encoders.base import Encoded, Encoder, EncoderOptions, Progress
from stsbench.encoders.transformer.config import EncoderConfig, digests, resolve_config
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    from stsbench.encoders.transformer.transformer import TransformerEncoder


class LazyEncoder(Encoder):
    """A TransformerEncoder that is loaded at the first text that has to be encoded."""

    def __init__(self, config: EncoderConfig, options: EncoderOptions) -> None:
        """options: where and in which batches it runs; all else is in `config`, which states the positions."""
        self.config, self.options = config, options
        self.spec, self.notes = config.spec(config.positions), config.notes
        self._built: TransformerEncoder | None = None

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """`minilm`, a folder, a training run or a Hub id; loaded at once where only the model can tell its positions."""
        config = resolve_config(argument, options)
        if config.pooler is None:
            from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder

            return SentenceTransformerEncoder(config, options.device)
        return _transformer(config, options) if config.positions is None else cls(config, options)

    @property
    def built(self) -> TransformerEncoder:
        """The encoder itself. EncoderError where its vectors would be cached under another encoder's fingerprint."""
        if self._built is None:
            encoder, config = _transformer(self.config, self.options), self.config
            if encoder.spec != self.spec:
                raise EncoderError(
                    f"the config.json of {config.name} misstates its positions: the model cuts texts at "
                    f"{encoder.spec.max_length} tokens instead of {self.spec.max_length}"
                )
            assert config.folder is not None and config.pooler is not None
            if digests(config.folder, config.pooler, config.prompt) != (config.weights, config.tokenizer):
                raise EncoderError(f"{config.name} changed while it was being loaded: start again")
            self._built = encoder
        return self._built

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Vectors of n distinct texts."""
        return self.built.run(texts, progress)


def _transformer(config: EncoderConfig, options: EncoderOptions) -> TransformerEncoder:
    from stsbench.encoders.transformer.parts import load_parts
    from stsbench.encoders.transformer.transformer import TransformerEncoder

    return TransformerEncoder(config, load_parts(config, options.device), batch_tokens=options.batch_tokens)
