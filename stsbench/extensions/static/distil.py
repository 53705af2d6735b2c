"""`stsbench.distil_static`: distil a transformer to a static model by model2vec, and write it with its provenance."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stderr
from dataclasses import dataclass, fields
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import regex

from stsbench.config import checked_options
from stsbench.display.markup import card_text
from stsbench.encoders.base import Encoder, EncoderOptions
from stsbench.encoders.forward.checkpoint import first_line
from stsbench.encoders.load import load_encoder
from stsbench.encoders.options import spelled
from stsbench.encoders.post.source import FitTexts, read_texts
from stsbench.encoders.transformer.exported import Exported, write_exported
from stsbench.encoders.transformer.lazy import LazyEncoder
from stsbench.errors import StsbenchError, UsageError, warning_log
from stsbench.extensions.static.options import READ, StaticOptions
from stsbench.files import new_folder
from stsbench.options import takes

if TYPE_CHECKING:
    from stsbench.extensions.arguments import EncoderArguments

_POOLING = {"mean": "mean", "cls": "first", "last": "last", "cls+dense": "pooler"}  # in model2vec's words


@dataclass(frozen=True, kw_only=True)
class DistilOptions(EncoderOptions, StaticOptions):
    """All options of `distil_static` besides the folder."""


@takes(EncoderOptions, StaticOptions, without=["model"])
def distil_static(
    model: str | Path, output: str | Path, *, dimensions: int = 256, sif: float = 1e-4, remove: str = r"\[unused\d+\]",
    vocabulary: str | Path | None = None, words: int | None = None, **encoder: Unpack[EncoderArguments],
) -> Encoder:
    """Write a table of a transformer's vectors of single tokens as a static model, as `stsbench distil-static` does.

    model: a transformer by its Hub id or folder, or a run of `train`. output: a new folder, which model2vec and
    sentence-transformers load, too. dimensions: principal components that are kept. sif: A of the weight A / (A + p) of a
    token, p by Zipf's law; 0 for none. remove: a regular expression of tokens to leave out. vocabulary: a file of words to
    add, one a line; with `words` of texts, so many of whose commonest words are added. Of the options of `load_encoder`
    those that say which model it is, how it pools and where it computes.

    Returns the encoder that the folder holds. Nothing is printed. Raises StsbenchError, one line: `output` is there, the
    model is no transformer with one of the poolers mean, cls, cls+dense and last, or model2vec cannot distil it.

    >>> import stsbench
    >>> encoder = stsbench.distil_static("minilm", "static", dimensions=64, remove=".{4}")  # tokens of three letters: quick
    >>> encoder.encode("A cat is big").shape
    (64,)
    """
    options = checked_options(
        DistilOptions, "distil_static", model=os.fspath(model) if isinstance(model, os.PathLike) else model,
        dimensions=dimensions, sif=sif, remove=remove, vocabulary=vocabulary, words=words, **encoder,
    )
    distil_model(options, Path(output), warning_log())
    return load_encoder(Path(output), device=options.device, offline=options.offline)


def distil_model(options: DistilOptions, output: Path, log: Callable[[str], None], bar: bool = False) -> None:
    """Distil the transformer `options.model` to `output`, a new folder, which appears whole or not at all.

    Its config.json says under `distilled` what it was made of. bar: show model2vec's. Raises StsbenchError as
    `distil_static` does.
    """
    try:
        import model2vec.version
        from model2vec.distill import distill_from_model
    except ImportError as error:
        raise StsbenchError(f"distil-static needs model2vec: pip install 'stsbench[static]' ({error})") from error
    with new_folder(output) as building:  # first, as its errors should come before minutes of encoding
        encoder = _transformer(options)
        texts = None if options.vocabulary is None else read_texts(options.vocabulary)
        words = texts and _words(texts, options.words)
        name, model = Path(encoder.spec.name).name, copy.copy(encoder.parts.model)
        model.name_or_path = os.curdir  # of a model that is no path model2vec asks the Hub for the language
        try:
            with nullcontext() if bar else redirect_stderr(StringIO()):
                made = distill_from_model(
                    model, encoder.parts.tokenizer, vocabulary=words,
                    device=str(encoder.device), pca_dims=options.dimensions, sif_coefficient=options.sif or None,
                    token_remove_pattern=options.remove or None, quantize_to="float32",
                    pooling=_POOLING[encoder.built.pooler],
                )
        except Exception as error:  # of a tokenizer, too, that it does not know
            raise StsbenchError(f"model2vec cannot distil {encoder.spec.name}: {first_line(error)}") from error
        count = len(made.embedding)
        if count <= options.dimensions:
            raise StsbenchError(f"--dimensions {options.dimensions}: there are no more than {count} tokens: name fewer")
        facts = {
            "model": name, "fingerprint": encoder.spec.fingerprint(), "pooler": encoder.built.pooler,
            **{entry.name: getattr(options, entry.name) for entry in fields(StaticOptions)},
            "vocabulary": texts and texts.name, "model2vec": model2vec.version.__version__,
        }
        made.config |= {"tokenizer_name": name, "distilled": facts}
        # model2vec's 512 would stay in tokenizer.json, by which sentence-transformers cuts texts without a word
        del made.config["max_length"]
        made.max_length = None
        made.save_pretrained(building)
        (building / "README.md").write_text(_card({**facts, "tokens": f"{count:,}"}), "utf-8")
        traits = encoder.traits
        if traits.trained_on or traits.training_overlap:
            lineage = Exported(None, trained_on=traits.trained_on, training_overlap=traits.training_overlap)
            write_exported(building, lineage)
    for line in encoder.notes:
        log(line)
    log(f"{output}: {count:,} tokens of {encoder.spec.name}, {options.dimensions} numbers each")


def _words(texts: FitTexts, count: int | None) -> list[str]:
    """Return the lines of a file of words; with a count its so many commonest words and runs of other signs, in lower case:
    the vocabulary of tokenlearn's code, which is 56,000 for MinishLab's models of 32 million numbers."""
    sides = [texts.side(side, range(texts.items)) for side in range(texts.sides)]
    if count is None:
        return sides[0]
    counts = Counter(word for side in sides for text in side for word in regex.findall(r"\w+|[^\w\s]+", text.lower()))
    return [word for word, _ in counts.most_common(count)]


def _transformer(options: DistilOptions) -> LazyEncoder:
    """Return the encoder whose tokens are encoded. StsbenchError, one line: tokens alone are not what it encodes."""
    for entry in fields(EncoderOptions):
        if entry.name not in READ and getattr(options, entry.name) != entry.default:
            raise UsageError(f"{spelled(entry.name)} has no effect: a static model is of tokens alone; leave it out")
    encoder = load_encoder(options.model, options)
    name = encoder.spec.name
    if not isinstance(encoder, LazyEncoder):
        what = "post-processed" if encoder.spec.post else f"run by {encoder.engine or encoder.spec.kind}"
        raise StsbenchError(f"{name} is {what}, and a static model is made of a transformer alone: name one, or a --pooler")
    if encoder.built.pooler not in _POOLING:
        raise StsbenchError(f"{name} pools by {encoder.built.pooler}: choose a --pooler ({', '.join(_POOLING)})")
    if encoder.spec.prefix is not None or encoder.config.prompts:
        raise StsbenchError(f"{name} reads texts behind a prompt, and a static model has none: give --prompt ''")
    if options.dimensions > encoder.built.width:
        raise StsbenchError(f"--dimensions {options.dimensions}: the vectors of {name} have {encoder.built.width} numbers")
    return encoder


def _card(facts: Mapping[str, object]) -> str:
    """Return README.md of the folder."""
    return "\n".join([
        "---\nlibrary_name: model2vec\n---\n", f"# A static copy of {card_text(facts['model'])}\n",
        "A table of tokens' vectors, distilled by `stsbench distil-static`; a text is the mean of its tokens.\n",
        "| what | value |", "| --- | --- |", *(f"| {key} | {card_text(value)} |" for key, value in facts.items()), "",
        "To measure:\n", "```sh\nstsbench eval --model PATH\n```\n", "model2vec gives the same vectors:\n",
        '```python\nfrom model2vec import StaticModel\n\nvectors = StaticModel.from_pretrained("PATH").encode(texts)\n```\n',
    ])
