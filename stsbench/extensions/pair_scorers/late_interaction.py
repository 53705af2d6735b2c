"""MaxSim: each token of one text against the nearest token of the other (Khattab & Zaharia 2020, ColBERT, section 3.3); and
`multi-vector:FOLDER`, models that are trained for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoder, Traits
from stsbench.encoders.model_folder import read_settings
from stsbench.encoders.similarity import Compared
from stsbench.encoders.traits import ROLES
from stsbench.encoders.transformer.declared import ROLE_PROMPTS
from stsbench.errors import EncoderError
from stsbench.extensions.pair_scorers.folder import PairModel

if TYPE_CHECKING:
    from pathlib import Path

Tokens = NDArray[np.float32]  # (tokens, d) of one text
_PAIRS = 256  # whose token vectors are held at a time; none are cached


class MultiVector(PairModel):
    """A folder that sentence-transformers or PyLate declares as multi-vector; the first text of a pair is the query."""

    usage = "multi-vector:FOLDER: a model with a vector a token, compared by MaxSim (extra st)"
    kind = "multi-vector"
    text_similarities = ("maxsim", "meanmaxsim", "symmetric-maxsim")

    def open(self, folder: Path, how: dict[str, Any]) -> Any:
        """Return the library's MultiVectorEncoder. Raises EncoderError for a folder with another kind of model."""
        from sentence_transformers import MultiVectorEncoder

        declared = read_settings(folder / "config_sentence_transformers.json").get("model_type")
        if declared not in ("MultiVectorEncoder", "ColBERT"):
            raise EncoderError(f"{self.name} is not declared as multi-vector (model_type {declared}): another encoder is "
                               "compared by --similarity maxsim under its own name")
        if not (folder / "modules.json").is_file():
            raise EncoderError(f"{self.name} has no modules.json: its projection would be random")
        model = MultiVectorEncoder(str(folder), **how)
        if (folder / "config.json").is_file() and model.transformers_model is not None:
            self.check_stored(type(model.transformers_model), folder, how["trust_remote_code"], unread="pooler.")
        if model.similarity_fn_name != "maxsim":
            self.traits = Traits(similarity=model.similarity_fn_name)
        return model

    def limit(self, role: str) -> int | None:
        """Return the most tokens of a text in the role, else the tokenizer's limit."""
        first = self.model[0]
        expansion = getattr(first, "query_expansion", None) if role == "query" else None
        if expansion is not None and expansion["strategy"] == "fixed":  # to which a query is filled up, or cut
            return int(expansion["length"])
        return getattr(first, f"{role}_length", None) or super().limit(role)

    def token_vectors(self, texts: Sequence[str], role: str = "query") -> tuple[list[Tokens], NDArray[np.bool_]]:
        """Return the vectors that the model scores of texts in a role, as long as they come, and which texts were cut."""
        encode = getattr(self.model, f"encode_{role}")
        vectors = self._watched(lambda: encode(list(texts), convert_to_numpy=True, show_progress_bar=False))
        limit, prompts = self.limit(role), self.model.prompts
        names = [name for name in ROLE_PROMPTS[role] if name in prompts] or [self.model.default_prompt_name]
        whole = [(prompts.get(names[0]) or "") + text for text in texts]
        lengths = [len(ids) for ids in self.model.tokenizer(whole, verbose=False)["input_ids"]]
        cut = np.array([limit is not None and length > limit for length in lengths])
        return [rows.astype(np.float32) for rows in vectors], cut  # sums in float16 would have ties


Read = dict[str, tuple[Tokens, bool]]  # text -> its token vectors, and whether it was cut


def _compare_tokens(
    mean: bool, both_ways: bool, encoder: Encoder, first: Sequence[str], second: Sequence[str]
) -> Compared:
    """Return MaxSim of n pairs, its sum or its mean over the tokens of the first text, the query; or the mean of that and
    of the second text as the query."""
    values, cut = np.zeros(len(first)), np.zeros(len(first), dtype=np.bool_)
    for start in range(0, len(first), _PAIRS):
        rows = slice(start, start + _PAIRS)
        queries, documents = _sides(encoder, first[rows], second[rows], both_ways)
        for row, (a, b) in enumerate(zip(first[rows], second[rows], strict=True), start):
            orders = [(a, b), (b, a)] if both_ways else [(a, b)]
            values[row] = np.mean([_maxsim(queries[one][0], documents[other][0], mean) for one, other in orders])
            cut[row] = any(queries[one][1] or documents[other][1] for one, other in orders)
    return Compared(values, cut)


def _maxsim(query: Tokens, document: Tokens, mean: bool) -> float:
    """Return the sum over the query's tokens of the largest product with one of the document's; 0 without tokens."""
    if not len(query) or not len(document):
        return 0.0
    nearest = (query @ document.T).max(axis=1)
    return float(nearest.mean() if mean else nearest.sum())


def _sides(encoder: Encoder, first: Sequence[str], second: Sequence[str], both_ways: bool) -> tuple[Read, Read]:
    """Return texts as queries and as documents: as a multi-vector model gives them; of any other encoder, which reads both
    alike, each token's vector with the length 1."""
    every = list(dict.fromkeys([*first, *second]))
    if isinstance(encoder, MultiVector):
        asked = (every, every) if both_ways else tuple(list(dict.fromkeys(side)) for side in (first, second))
        queries, documents = (dict(zip(texts, zip(*encoder.token_vectors(texts, role), strict=True), strict=True))
                              for texts, role in zip(asked, ROLES, strict=True))
        return queries, documents
    vectors, cut = encoder.token_vectors(every)
    units = [rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in vectors]
    read = dict(zip(every, zip(units, cut.tolist(), strict=True), strict=True))
    return read, read


maxsim = partial(_compare_tokens, False, False)
mean_maxsim = partial(_compare_tokens, True, False)
symmetric_maxsim = partial(_compare_tokens, True, True)
