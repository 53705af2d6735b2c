"""Canary files: a few texts with an encoder's vectors, to check later whether the encoder still gives the same vectors."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from stsbench.encoders.load import load_encoder
from stsbench.errors import EncoderError
from stsbench.evaluation.announce import described_encoder
from stsbench.evaluation.provenance import provenance
from stsbench.evaluation.records import now
from stsbench.extensions.parity.options import encoder_options
from stsbench.extensions.parity.parity import compare_encoders, encoded
from stsbench.extensions.parity.result import Parity
from stsbench.extensions.parity.texts import ProbeTexts
from stsbench.files import atomic_write

_ABOUT = "about"  # the archive's array that describes the encoder, as JSON


def make_canary(
    model: Any, path: str | Path, *, texts: Any = None, options: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """Write the vectors of `model` for the package's some 118 probe texts, or for `texts`, with a description of the model.

    model, options: as for `load_encoder`, options only for a name; path: an .npz file, which `vectors:FILE` reads, too;
    texts: as for `parity`. Returns the path. Raises StsbenchError where the model has no finite vector for a text.

    >>> from stsbench.extensions.parity.canary import check_canary, make_canary
    >>> path = make_canary("lexical:char-ngrams", "canary.npz", texts=["a small boat", "two boats"])
    >>> check_canary("lexical:char-ngrams", path).verdict
    'equal'
    """
    probe = ProbeTexts.load(texts)
    encoder = load_encoder(model, encoder_options(model, options)) if isinstance(model, str) else load_encoder(model)
    encoder.ready()
    vectors, reason = encoded(encoder, probe.texts)
    if reason is not None:
        raise EncoderError(f"no canary is written: {reason}")
    about = {"encoder": described_encoder(encoder), "source": probe.source, "created": now().isoformat(),
             "versions": provenance()["versions"]}
    content = io.BytesIO()
    np.savez_compressed(content, texts=np.array(probe.texts), vectors=vectors.astype(np.float32), about=json.dumps(about))
    with atomic_write(Path(path), "wb") as stream:
        stream.write(content.getvalue())
    return Path(path)


def check_canary(
    model: Any, path: str | Path, *, options: Mapping[str, Any] = MappingProxyType({}), tolerance: str = "float32",
    why: bool = True, log: Callable[[str], None] = lambda line: None,
) -> Parity:
    """Return the comparison of `model` as it is now (A) with the vectors that `make_canary` wrote (B): whether they are
    equal, and if not, why.

    options, tolerance, why: as for `parity`. Raises StsbenchError for a file that is not a canary.
    """
    about, texts = _read(Path(path))
    log(f"the canary {path} is of {about['created'][:10]}: {about['encoder']}")
    probe = None if tuple(texts) == ProbeTexts.load(None).texts else texts
    return compare_encoders(model, f"vectors:{path}", probe, options, {}, log, tolerance=tolerance, why=why, protocols=None,
                            tasks=None)


def _read(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return json.loads(str(archive[_ABOUT])), archive["texts"].tolist()
    except OSError as error:
        raise EncoderError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, EOFError):
        raise EncoderError(f"{path} is no canary: stsbench canary make MODEL FILE writes one") from None
