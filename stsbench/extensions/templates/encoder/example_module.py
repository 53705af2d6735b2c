"""What the encoder does: here it counts hashed character n-grams."""

import hashlib
import zlib
from pathlib import Path

import numpy as np

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.errors import EncoderError


class Example(Encoder):
    """Counts of hashed character n-grams, `--model example-name:SIZE`."""

    usage = "example-name:SIZE"

    def __init__(self, argument):
        """Read what stands after the colon of --model. The spec names everything that changes a vector."""
        if not argument.isdecimal() or int(argument) < 1:
            raise EncoderError(f"example-name:{argument}: expected a number of characters, e.g. example-name:3")
        self.size = int(argument)
        code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        self.spec = EncoderSpec(
            name=f"example-name:{argument}", kind="example-name", weights=code, options={"size": self.size},
        )

    def run(self, texts, progress=None):
        """Return float32 vectors (n, 512) of n different texts, in their order."""
        vectors = np.zeros((len(texts), 512), dtype=np.float32)
        for row, text in enumerate(texts):
            for start in range(max(1, len(text) - self.size + 1)):
                vectors[row, zlib.crc32(text[start : start + self.size].encode()) % 512] += 1
        if progress:
            progress(len(texts))
        return Encoded(vectors, truncated=np.zeros(len(texts), dtype=bool))
