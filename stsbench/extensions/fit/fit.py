"""`stsbench.fit`: fit a post-processing of a model's vectors, and write both to a folder for sentence-transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from stsbench.config import checked_options
from stsbench.display.markup import card_text
from stsbench.encoders.base import Encoder, EncoderOptions, Progress
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.load import load_encoder, loaded_encoder
from stsbench.encoders.options import CacheOptions, spelled
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed, fitted_on_data
from stsbench.encoders.traits import shortened
from stsbench.encoders.transformer.exported import stored_head
from stsbench.encoders.transformer.lazy import LazyEncoder
from stsbench.errors import StsbenchError, UsageError, warning_log
from stsbench.files import new_folder
from stsbench.notebook import in_notebook, start_bar
from stsbench.options import takes
from stsbench.training.api.method import Inference
from stsbench.training.runs.export import export_model

if TYPE_CHECKING:
    from stsbench.extensions.arguments import EncoderArguments


@dataclass(frozen=True, kw_only=True)
class FitOptions(EncoderOptions, CacheOptions):
    """All options of `fit` besides the model and the texts."""

    post: str
    output: Path
    settings: Mapping[str, Any] | None = None


@takes(FitOptions, without=["model"])
def fit(
    post: str, model: Any, data: str | os.PathLike[str] | Iterable[str] | None, output: str | Path, *,
    settings: Mapping[str, Any] | None = None, cache_dir: str | Path | None = None, cache_limit: float = 20.0,
    no_cache: bool = False, **encoder: Unpack[EncoderArguments],
) -> Encoder:
    """Fit a post-processing on texts and write a model that applies it to its vectors, as `stsbench fit` does.

    post: whitening, all-but-the-top, standardise, renormalise, one of an extension, or a chain such as
    "standardise+whitening"; settings: of a single post-processing. model: a transformer by its Hub id or folder, a run of
    `train`, or what `load_encoder` returned for these. data: a list of texts; a file, .txt with one sentence per line, or
    .csv, .tsv, .jsonl of NLI pairs (both sentences); a folder of vectors; or None for a post-processing that the model's
    weights determine. output: a new folder, which sentence-transformers loads, too. cache_dir, cache_limit (GB), no_cache:
    of the cache of vectors. All others are options of `load_encoder`.

    Returns the encoder in the folder. Nothing is printed. Raises StsbenchError, one line, if `output` exists, the texts do
    not suffice, or the model cannot be written.

    >>> import stsbench
    >>> encoder = stsbench.fit("standardise", "minilm", ["A cat sleeps.", "Rain falls.", "Birds sing."], "fitted")
    >>> encoder.spec.post, encoder.encode("Snow falls.").shape
    ('standardise', (384,))
    """
    log = warning_log()
    options = checked_options(
        FitOptions, "fit", post=post, output=output, settings=settings, cache_dir=cache_dir, cache_limit=cache_limit,
        no_cache=no_cache, **encoder,
    )
    words = [f"{key}={json.dumps(value, default=str)}" for key, value in (options.settings or {}).items()]
    source = Path(data) if isinstance(data, str | os.PathLike) else data
    fit_model(
        model, options, add_settings(options.post, words), source, options.output,
        cache=EmbeddingCache.from_options(options), log=log, progress=start_bar if in_notebook() else None,
    )
    return load_encoder(
        options.output, device=options.device, batch_tokens=options.batch_tokens, attention=options.attention
    )


def add_settings(post: str, settings: Sequence[str]) -> str:
    """Return a post-processing with its settings, each SETTING=VALUE. Raises UsageError where `post` is a chain, or has
    settings already."""
    if settings and ("+" in post or ":" in post):
        raise UsageError(f"--set goes with one NAME: write the settings into the chain, as in {post}")
    return f"{post}:{','.join(settings)}" if settings else post


def fit_model(
    model: Any, options: EncoderOptions, post: str, data: Path | Iterable[str] | None, output: Path, *,
    cache: EmbeddingCache | None = None, log: Callable[[str], None] = print,
    progress: Callable[[int], Progress] | None = None,
) -> None:
    """Fit `post` on texts encoded by `model`, or on stored vectors, and write both to `output`, a new folder, atomically.

    Raises StsbenchError, one line, if `output` exists, if `model` is run by another library or has options that a folder
    cannot hold, or if the texts do not suffice.
    """
    chain = Chain.parse(post)
    if chain.needs_texts and data is None:
        raise StsbenchError(f"{post} is fitted on texts: give --data")
    if not chain.needs_texts and data is not None:
        raise StsbenchError(f"the model's own weights determine {post}: leave --data out")
    with new_folder(output) as building:  # first, as its errors should come before hours of encoding
        encoder = loaded_encoder(model, options)
        base = _native(encoder, options)
        wrapped = PostProcessed(base, chain)  # raises for a wrong dimension before the texts are read
        wrapped.use_cache(cache)
        fitted, count = (wrapped.fit_weights(), None) if data is None else fitted_on_data(wrapped, data, log, progress)
        source = str(fitted.spec.fitted_on)
        export_model(
            _inference(base), building, card=_card(base, fitted.chain, source, count), max_length=base.spec.max_length,
            normalize=base.spec.normalize, post=(fitted.chain, source), trained_on=base.traits.trained_on,
            training_overlap=base.traits.training_overlap,
        )
    for line in fitted.notes:
        log(line)
    log(f"{output}: {base.spec.name}, then {chain.spelled()}, fitted on {shortened(source)}")


def _native(encoder: Encoder, options: EncoderOptions) -> LazyEncoder:
    """Return `encoder` if a folder can hold all of it. Raises StsbenchError, one line, for any other encoder."""
    name = encoder.spec.name
    if encoder.spec.post is not None:
        raise StsbenchError(
            f"{name} is post-processed already ({encoder.spec.post}): fit a chain, such as NAME+NAME, on the model it was "
            "made of"
        )
    if not isinstance(encoder, LazyEncoder):
        raise StsbenchError(
            f"{name} is run by {encoder.engine or encoder.spec.kind}, and `stsbench fit` writes models of our own forward "
            "pass: choose a --pooler, or measure it with `stsbench eval --post`"
        )
    spec, config = encoder.spec, encoder.config
    stray = {
        "--dtype": spec.dtype != "float32", "--truncate-dim": config.truncate_dim is not None,
        "--trust-remote-code": config.trust_remote_code, "a prompt before each text": spec.prefix is not None,
        **({} if config.reading is None else {spelled(config.reading.option): True}), "--layer": config.layer is not None,
        "--template": config.prompt.template is not None and not config.prompt.trained,
        "--full-stop": config.prompt.full_stop and not config.prompt.trained, "an adapter": len(config.sources) > 1,
    }
    if what := next((option for option, there in stray.items() if there), None):
        raise StsbenchError(f"{name} with {what} cannot be written as a model: measure it with `stsbench eval --post`")
    return encoder


def _inference(encoder: LazyEncoder) -> Inference:
    """Return the parts of a loaded encoder for the export."""
    built, parts = encoder.built, encoder.parts
    dense: Any = None
    if built.pooler == "cls+dense":
        dense = getattr(getattr(built.model, "pooler", None), "dense", None)
        if dense is None and encoder.config.folder is not None:
            dense = stored_head(encoder.config.folder)
    return Inference(built.model, parts.tokenizer, built.pooler, dense, token_pooler=parts.token_pooler, prompt=built.prompt)


def _card(encoder: LazyEncoder, chain: Chain, source: str, count: int | None) -> str:
    """Return the folder's README.md. count: number of texts, None where the model's weights were used instead."""
    trust = "" if chain.affine() is not None else ", trust_remote_code=True"
    rows = {
        "model": Path(encoder.spec.name).name, "pooler": encoder.spec.pooler, "post-processing": chain.spelled(),
        "fitted on": source, **({"texts": f"{count:,}"} if count is not None else {}),
        "digest of what was found": chain.digest(),
        "vectors before it": "scaled to length 1" if encoder.spec.normalize else "as long as they come",
    }
    sources = dict.fromkeys(step.source for step in chain.steps if step.source)
    return "\n".join([
        f"# {card_text(chain.names)} of {card_text(rows['model'])}\n",
        "A sentence encoder whose vectors go through a map that was fitted, without labels, by `stsbench fit`.\n",
        "| what | value |", "| --- | --- |", *(f"| {key} | {card_text(value)} |" for key, value in rows.items()), "",
        *(f"Source: {card_text(source)}.\n" for source in sources),
        "No measured results yet. To measure:\n", "```sh\nstsbench eval --model PATH\n```\n",
        "sentence-transformers gives the same vectors, in float32:\n",
        f'```python\nfrom sentence_transformers import SentenceTransformer\n\nvectors = SentenceTransformer("PATH"{trust})'
        ".encode(texts)\n```\n",
    ])
