"""The TextCNN as a module of sentence-transformers. Exported folders name it by this module."""

from __future__ import annotations

from stsbench.encoders.forward.token_pooler import TextCNN
from stsbench.encoders.transformer.token_pooling_module import TokenPooling


class TextCNNPooling(TokenPooling):
    """The pooler text_cnn."""

    pooler_class = TextCNN
