"""What a user should know before a run: the encoder in one line, its notes, the data and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stsbench.data.sets.sets import DataSet
from stsbench.encoders.base import Encoder
from stsbench.encoders.fitted import shortened
from stsbench.encoders.prompt.prompt import described


def described_encoder(encoder: Encoder) -> str:
    """Name, pooler, what stands around a text, limit, dimension, normalisation, what runs the model, and fingerprint."""
    spec = encoder.spec
    parts = [f"encoder {spec.name}"]
    if spec.pooler is not None:
        parts.append(f"pooler {spec.pooler}")
    elif encoder.engine:
        parts.append("its own modules")
    if spec.template is not None:
        parts.append(f"template {spec.template}")
    elif encoder.engine and "prompt" not in spec.options:
        parts.append("no prompt" if spec.prefix is None else f"prompt {spec.prefix!r}")
    parts += described(spec.options)
    if spec.max_length is not None:
        parts.append(f"max length {spec.max_length}")
    if encoder.dimension is not None:
        cut = spec.options.get("truncate_dim") == encoder.dimension
        parts.append(f"{encoder.dimension} dimensions{' (cut)' if cut else ''}")
    if encoder.engine:
        before = " before the cut" if "truncate_dim" in spec.options and "rescaled" not in spec.options else ""
        # of modules that a library runs only the last is known
        not_so = "not normalised" if spec.pooler is not None else "not normalised at the end"
        parts += [f"normalised{before}" if spec.normalize else not_so, f"run by {encoder.engine}"]
    if spec.post is not None:
        parts.append(f"then {spec.post}" + (f" fitted on {shortened(spec.fitted_on)}" if spec.fitted_on else ""))
    return ", ".join([*parts, spec.dtype, f"fingerprint {spec.fingerprint()[:12]}"])


def announcement(encoder: Encoder, data: Sequence[DataSet]) -> Iterator[str]:
    """Every line on an encoder and the sets that it is measured on."""
    yield described_encoder(encoder)
    yield from encoder.notes
    if encoder.similarity:
        declared = f"{encoder.spec.name} declares the similarity {encoder.similarity}"
        yield f"{declared}; a protocol compares by its own (--similarity)"
    sets = list({each.id: each for each in data}.values())
    text_versions = ", ".join(dict.fromkeys(each.text_version for each in sets))
    items = ", ".join(f"{each.shown} {len(each)}" for each in sets)
    origins = ", ".join(dict.fromkeys(each.origin for each in sets if each.origin))
    yield f"text version {text_versions}; items: {items}; from {origins}"


def warnings_of(data: DataSet) -> list[str]:
    """What is wrong with a set, at most two lines of it; the record holds all."""
    rest = len(data.warnings) - 2
    return [*data.warnings[:2], *([f"{data.shown}: {rest} more like these, see its record"] if rest > 0 else [])]
