"""The methods by which other libraries call an encoder, with the names and argument order of SentenceTransformer.

An argument that cannot be honoured raises an error of one line. `Encoder` (stsbench/encoders/base.py) inherits from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from stsbench.encoders.similarity import all_similarities, pair_similarities
from stsbench.encoders.traits import ROLES, Traits
from stsbench.errors import EncoderError
from stsbench.notebook import start_bar
from stsbench.registry import Suggesting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Texts = str | Iterable[str]


class Settings(TypedDict, total=False):
    """Arguments of `encode` that do not change the type of what it returns, an array or a tensor."""

    batch_size: int
    show_progress_bar: bool | None
    output_value: Literal["sentence_embedding"]
    precision: Literal["float32"] | None
    device: str | torch.device | None
    normalize_embeddings: bool
    truncate_dim: int | None
    pool: None
    chunk_size: None


def checked_texts(texts: Any) -> list[str]:
    """Return an iterable of strings (a list, a generator, a numpy array, a pandas column) as a list, in its order.

    EncoderError, one line: it is a single string or bytes, whose characters would become texts; it has no order, or more
    than one dimension; or an element, named by its row, is not a string or holds a lone surrogate.
    """
    kind = type(texts).__name__
    if isinstance(texts, str | bytes | bytearray):
        raise EncoderError(f"texts is one {kind}, whose characters would be encoded: put it into a list")
    if isinstance(texts, Mapping | Set) or getattr(texts, "ndim", 1) != 1 or not isinstance(texts, Iterable):
        raise EncoderError(f"texts is a {kind}, not a sequence of strings: give a list, or one column of a table")
    listed = list(texts)
    for row, text in enumerate(listed):
        if type(text) is not str:
            if not isinstance(text, str):
                shown = repr(text) if len(repr(text)) <= 60 else repr(text)[:57] + "..."
                raise EncoderError(f"texts[{row}] (row {row}, counted from 0) is {' '.join(shown.split())}, of type "
                                   f"{type(text).__name__}, not a string: leave it out, or make it a str")
            listed[row] = str(text)  # numpy.str_ and the like
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                half = f"half a character (a lone surrogate, {text[error.start]!a}) at {error.start}"
                raise EncoderError(f"texts[{row}] (row {row}, counted from 0) holds {half}: repair it") from error
    return listed


class Interface(Suggesting):
    """SentenceTransformer's methods and properties, computed by an encoder's `run` and `for_role`."""

    spec: Any
    dimension: int | None
    traits: Traits
    run: Any
    for_role: Any
    of_call: Any
    meant: ClassVar = {"dim": "dimension", "embed": "encode", "predict": "encode", **dict.fromkeys(
        ("save", "save_pretrained", "push_to_hub"), "SentenceTransformer(FOLDER), whose methods these are")}

    def __dir__(self) -> list[str]:
        """Return the names that users call, without those that only the package itself uses."""
        return sorted({*dir(Interface), "dimension", "for_role", "run", "spec", "traits", "with_prompt"})

    @property
    def prompts(self) -> Mapping[str, str]:
        """Return the prompts of the model, name -> text, as sentence-transformers' attribute of this name."""
        return self.traits.prompts

    @property
    def similarity_fn_name(self) -> str:
        """Return the name of the similarity by which the model's author compares vectors, as in sentence-transformers."""
        return self.traits.similarity

    @overload
    def encode(
        self, inputs: Texts, prompt_name: str | None = ..., prompt: str | None = ..., *, convert_to_tensor: Literal[True],
        convert_to_numpy: bool = ..., **settings: Unpack[Settings],
    ) -> Tensor: ...

    @overload
    def encode(
        self, inputs: Texts, prompt_name: str | None = ..., prompt: str | None = ..., batch_size: int = ...,
        show_progress_bar: bool | None = ..., output_value: Literal["sentence_embedding"] = ...,
        precision: Literal["float32"] | None = ..., convert_to_numpy: Literal[True] = ...,
        convert_to_tensor: Literal[False] = ..., device: str | torch.device | None = ..., normalize_embeddings: bool = ...,
        truncate_dim: int | None = ..., pool: None = ..., chunk_size: None = ...,
    ) -> NDArray[np.float32]: ...

    @overload
    def encode(
        self, inputs: Texts, prompt_name: str | None = ..., prompt: str | None = ..., *, convert_to_numpy: bool = ...,
        convert_to_tensor: bool = ..., **settings: Unpack[Settings],
    ) -> Any: ...

    @overload
    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, task_metadata: Any, hf_split: str, hf_subset: str,
        prompt_type: Any = ..., **settings: Any,
    ) -> NDArray[np.float32]: ...

    def encode(
        self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None, batch_size: int = 32,
        show_progress_bar: bool | None = None, output_value: Any = "sentence_embedding", precision: Any = "float32",
        convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None,
        normalize_embeddings: bool = False, truncate_dim: int | None = None, pool: Any = None, chunk_size: Any = None,
        *, sentences: Any = None, **task: Any,
    ) -> Any:
        """Return float32 (n, d) vectors of any n texts, each distinct one computed once; of a single string its vector (d,).

        inputs: a string, or any iterable of strings (a list, a generator, a numpy array, a column of pandas); `sentences` is
        its older name. prompt_name: one of `prompts`; prompt: text before each input, "" for none; default: the prompt that
        the model's author stores. show_progress_bar: True shows one. normalize_embeddings: scale vectors to length 1.
        truncate_dim: how many numbers of each vector are kept, before normalising. convert_to_tensor: return a tensor on
        `device`; convert_to_numpy=False: a list of tensors. batch_size changes no vector and is ignored: batches are made
        by tokens (`batch_tokens` of load_encoder). Lexical encoders return scipy CSR.

        mteb calls it with batches of texts and task_metadata, hf_split, hf_subset and prompt_type: float32 (n, d), dense,
        with the prompts that mteb's rules name (`to_mteb`).

        EncoderError as `checked_texts`, and for what is refused: token embeddings, other precisions, another device than the
        encoder's, several processes, a prompt that this encoder cannot put before a text.

        >>> from stsbench import load_encoder
        >>> def lengths(texts):
        ...     return [[len(text), 1] for text in texts]
        >>> load_encoder(lengths).encode(["four", "seven"])
        array([[4., 1.],
               [5., 1.]], dtype=float32)
        """
        if "task_metadata" in task:
            return _served(self).encode(inputs, **task)
        if task:
            raise TypeError(f"encode got an unexpected keyword argument '{min(task)}'")
        return _encoded(
            self, None, inputs if sentences is None else sentences, prompt_name, prompt, convert_to_numpy, convert_to_tensor,
            batch_size=batch_size, show_progress_bar=show_progress_bar, output_value=output_value, precision=precision,
            device=device, normalize_embeddings=normalize_embeddings, truncate_dim=truncate_dim, pool=pool,
            chunk_size=chunk_size,
        )

    @overload
    def encode_query(
        self, inputs: Texts, prompt_name: str | None = ..., prompt: str | None = ..., *, convert_to_tensor: Literal[True],
        convert_to_numpy: bool = ..., **settings: Unpack[Settings],
    ) -> Tensor: ...

    @overload
    def encode_query(
        self, inputs: Texts, prompt_name: str | None = ..., prompt: str | None = ..., *, convert_to_numpy: Literal[False],
        convert_to_tensor: Literal[False] = ..., **settings: Unpack[Settings],
    ) -> Any: ...

    @overload
    def encode_query(
        self, inputs: Texts, prompt_name: str | None = ..., prompt: str | None = ..., *,
        convert_to_numpy: Literal[True] = ..., convert_to_tensor: Literal[False] = ..., **settings: Unpack[Settings],
    ) -> NDArray[np.float32]: ...

    def encode_query(
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, *, convert_to_numpy: bool = True,
        convert_to_tensor: bool = False, **settings: Unpack[Settings],
    ) -> Any:
        """Return the vectors of queries, as `encode`, with the prompt "query" of the model's author unless one is given."""
        return _encoded(self, "query", inputs, prompt_name, prompt, convert_to_numpy, convert_to_tensor, **settings)

    @overload
    def encode_document(
        self, inputs: Texts, prompt_name: str | None = ..., prompt: str | None = ..., *, convert_to_tensor: Literal[True],
        convert_to_numpy: bool = ..., **settings: Unpack[Settings],
    ) -> Tensor: ...

    @overload
    def encode_document(
        self, inputs: Texts, prompt_name: str | None = ..., prompt: str | None = ..., *, convert_to_numpy: Literal[False],
        convert_to_tensor: Literal[False] = ..., **settings: Unpack[Settings],
    ) -> Any: ...

    @overload
    def encode_document(
        self, inputs: Texts, prompt_name: str | None = ..., prompt: str | None = ..., *,
        convert_to_numpy: Literal[True] = ..., convert_to_tensor: Literal[False] = ..., **settings: Unpack[Settings],
    ) -> NDArray[np.float32]: ...

    def encode_document(
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, *, convert_to_numpy: bool = True,
        convert_to_tensor: bool = False, **settings: Unpack[Settings],
    ) -> Any:
        """Return the vectors of documents, as `encode`, with the prompt "document" unless one is given."""
        return _encoded(self, "document", inputs, prompt_name, prompt, convert_to_numpy, convert_to_tensor, **settings)

    @property
    def device(self) -> torch.device:
        """Return the device on which the vectors are computed."""
        import torch

        return torch.device("cpu")

    @property
    def max_seq_length(self) -> int | None:
        """Return the largest number of tokens read of a text, special ones included; None for no limit."""
        length: int | None = self.spec.max_length
        return length

    def get_sentence_embedding_dimension(self) -> int | None:
        """Return the width of the vectors; None where it is not known before any is computed."""
        return self.dimension

    def get_embedding_dimension(self) -> int | None:
        """Return the width of the vectors, by the method's name in sentence-transformers since version 5."""
        return self.dimension

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return float32 (n, m) similarities of each of n to each of m vectors (`similarity_fn_name`); distances negated.

        Both arguments: (n, d) arrays, tensors, lists of them or scipy CSR; (d,) counts as one row. Texts are encoded first.
        """
        first, second = self._embedded(embeddings1, embeddings2)
        return all_similarities(first, second, self.similarity_fn_name)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return float32 (n,) similarities of row i of the first to row i of the second; arguments as of `similarity`."""
        first, second = self._embedded(embeddings1, embeddings2)
        return pair_similarities(first, second, self.similarity_fn_name)

    def _embedded(self, *sides: Any) -> list[Any]:
        """Return the sides with texts encoded, all in one call, as a lexical vocabulary may grow from call to call."""
        texts: list[list[str]] = [[side] if isinstance(side, str) else [*side] for side in sides if _are_texts(side)]
        vectors: Any = self.encode([text for its in texts for text in its]) if texts else []
        ends = np.cumsum([len(its) for its in texts])
        parts = iter(vectors[end - len(its) : end] for its, end in zip(texts, ends, strict=True))
        return [next(parts) if _are_texts(side) else side for side in sides]

    @property
    def mteb_model_meta(self) -> Any:
        """Return mteb's ModelMeta, as that of `to_mteb`; mteb's result cache finds the encoder by it."""
        return _served(self).mteb_model_meta

    @property
    def model_card_data(self) -> _NoCard:
        """Return an object that takes the metrics of sentence-transformers' evaluators, and drops them."""
        return _NoCard()


def _are_texts(side: Any) -> bool:
    return isinstance(side, str) or (isinstance(side, list | tuple) and bool(side) and isinstance(side[0], str))


def _served(encoder: Interface) -> Any:
    """Return the encoder as mteb calls it, made anew for each call, so that no vector of an earlier state is used."""
    from stsbench import to_mteb  # from the package, since its module, encoders/cache/mteb.py, imports this one

    return to_mteb(encoder)


class _NoCard:
    def set_evaluation_metrics(self, *metrics: Any) -> None:
        """Do nothing: model cards are written from runs of stsbench."""


def _encoded(
    encoder: Interface, role: str | None, inputs: Any, prompt_name: str | None, prompt: str | None, convert_to_numpy: bool,
    convert_to_tensor: bool, **settings: Unpack[Settings],
) -> Any:
    single = isinstance(inputs, str)
    listed = [str(inputs)] if single else checked_texts(inputs)
    _refuse(encoder, settings)
    reads = _with_prompt(encoder, role, prompt_name, prompt)
    vectors = _finished(reads.spec.name, _vectors(reads, listed, bool(settings.get("show_progress_bar"))), settings)
    if not convert_to_tensor and convert_to_numpy:
        if issparse(vectors):
            return vectors.toarray()[0] if single else vectors
        return vectors[0] if single else vectors
    if issparse(vectors):
        raise EncoderError(f"{encoder.spec.name} gives sparse vectors, and no tensor: leave convert_to_tensor and "
                           "convert_to_numpy out, and call .toarray() on what encode gives")
    import torch

    tensor = torch.from_numpy(vectors).to(reads.device)
    if single:
        return tensor[0]
    return tensor if convert_to_tensor else list(tensor)


def _vectors(encoder: Interface, texts: list[str], bar: bool) -> Any:
    distinct = list(dict.fromkeys(texts))
    vectors = encoder.run(distinct, start_bar(len(distinct)) if bar and distinct else None).vectors
    if len(distinct) == len(texts):
        return encoder.of_call(vectors)
    row = {text: i for i, text in enumerate(distinct)}
    return encoder.of_call(vectors[[row[text] for text in texts]])


def _refuse(encoder: Interface, settings: Settings) -> None:
    """Raise EncoderError for an argument of sentence-transformers that no encoder honours, TypeError for an unknown one."""
    if unknown := sorted(settings.keys() - Settings.__annotations__.keys()):
        raise TypeError(f"encode got an unexpected keyword argument '{unknown[0]}'")
    name, output, precision = encoder.spec.name, settings.get("output_value"), settings.get("precision")
    if settings.get("batch_size", 1) < 1:
        raise EncoderError(f"batch_size must be a positive integer, not {settings['batch_size']}")
    if output != "sentence_embedding" and "output_value" in settings:
        raise EncoderError(f"output_value={output!r}: {name} gives one vector a text: leave output_value out, or load the "
                           "model with sentence-transformers for its tokens")
    if precision not in (None, "float32"):
        raise EncoderError(f"precision={precision!r}: {name} gives float32: leave precision out, and quantise what encode "
                           "gives (sentence_transformers.util.quantize_embeddings)")
    if settings.get("pool") is not None or settings.get("chunk_size") is not None:
        raise EncoderError("pool and chunk_size have no effect: leave them out")
    device: Any = settings.get("device")
    if device is None:
        return
    import torch

    if isinstance(device, list | tuple):
        raise EncoderError("encode computes on one device, that of the encoder: leave device out")
    here = encoder.device
    try:
        asked = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise EncoderError(f"device={device!r} is no device of torch") from error
    if asked.type != here.type or asked.index not in (None, here.index or 0):  # "cuda" is any CUDA device
        again = f"load_encoder(..., device={str(device)!r})"
        raise EncoderError(f"device={str(device)!r}: {encoder.spec.name} is on {here}; {again} puts it elsewhere")


def _with_prompt(encoder: Interface, role: str | None, prompt_name: str | None, prompt: str | None) -> Interface:
    """Return the encoder for texts of a role, or with a prompt before them; `prompt` overrides `prompt_name`."""
    if prompt is None and prompt_name is not None:
        if prompt_name not in encoder.prompts and prompt_name not in ROLES:
            known = ", ".join(encoder.prompts) or "none"
            name = encoder.spec.name
            raise EncoderError(f"prompt_name={prompt_name!r}: {name} stores no such prompt (its prompts: {known})")
        prompt = encoder.prompts.get(prompt_name, "" if encoder.prompts else None)
    if role is None and prompt is None:
        return encoder
    other: Interface = encoder.for_role(role, prompt)
    if prompt is not None and (other.spec.prefix or "") != prompt:
        raise EncoderError(f"prompt={prompt!r}: {encoder.spec.name} puts no prompt before a text: write it into the texts")
    return other


def _finished(name: str, vectors: Any, settings: Settings) -> Any:
    """Return float32 (n, d) vectors, dense or CSR, truncated and then normalised, in sentence-transformers' order."""
    size, width = settings.get("truncate_dim"), vectors.shape[1]
    if size is not None:
        if not 0 < size <= max(width, 1):
            raise EncoderError(f"truncate_dim={size}: the vectors of {name} have {width} numbers")
        vectors = vectors[:, :size]
    if settings.get("normalize_embeddings"):
        if issparse(vectors):
            from sklearn.preprocessing import normalize

            return normalize(vectors)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    return vectors
