"""What editors and type checkers see of all extensions that come with stsbench together. Nothing imports it at run time."""

from __future__ import annotations

from stsbench.encoders.options import CoreArguments
from stsbench.extensions.decoders.options import DecoderArguments
from stsbench.extensions.server.options import ServerArguments


class EncoderArguments(CoreArguments, DecoderArguments, ServerArguments, total=False):
    """Options of an encoder, as arguments of a function."""
