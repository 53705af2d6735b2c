"""`cross-encoder:FOLDER`: a cross-encoder, which reads both texts of a pair together, and similarity by its scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench.encoders.base import Encoder
from stsbench.encoders.model_folder import read_settings
from stsbench.encoders.similarity import Compared
from stsbench.errors import EncoderError
from stsbench.extensions.pair_scorers.folder import PairModel

if TYPE_CHECKING:
    from pathlib import Path

_ACTIVATIONS = "torch.nn.modules."  # a folder's other names would be called, too
_WITHOUT_LIMIT = 1_000_000


class CrossEncoder(PairModel):
    """A sequence classifier with one label; its activation is the folder's, by default the sigmoid."""

    usage = "cross-encoder:FOLDER: a model that reads two texts together and scores the pair (extra st)"
    kind = "cross-encoder"
    text_similarities = ("cross-encoder", "symmetric-cross-encoder")

    def open(self, folder: Path, how: dict[str, Any]) -> Any:
        """Return the library's CrossEncoder. Raises EncoderError for another model, several labels, or missing weights."""
        from sentence_transformers import CrossEncoder as Library
        from transformers import AutoModelForSequenceClassification

        settings = read_settings(folder / "config.json")
        architecture = (settings.get("architectures") or ["none"])[0]
        if not str(architecture).endswith("ForSequenceClassification"):
            raise EncoderError(f"{self.name} is no sequence classifier (architecture {architecture})")
        # where the library stores it and stored it before; it passes over what it does not trust without an error
        stored = [read_settings(folder / "config_sentence_transformers.json").get("activation_fn"),
                  (settings.get("sentence_transformers") or {}).get("activation_fn"),
                  settings.get("sbert_ce_default_activation_function")]
        activation = next(filter(None, stored), _ACTIVATIONS)
        if not how["trust_remote_code"] and not str(activation).startswith(_ACTIVATIONS):
            raise EncoderError(f"{self.name}: its activation_fn {activation} is none of torch's: --trust-remote-code runs "
                               "it")
        self.check_stored(AutoModelForSequenceClassification, folder, how["trust_remote_code"])
        model = Library(str(folder), **how)
        if model.num_labels != 1:
            labels = ", ".join(map(str, model.config.id2label.values()))
            raise EncoderError(f"{self.name} has {model.num_labels} labels ({labels}), and a similarity is one number: "
                               "choose a cross-encoder of one label")
        return model

    def described(self) -> dict[str, Any]:
        """Return the activation's name."""
        return {"activation": type(self.model.activation_fn).__name__}

    def compare(self, first: Sequence[str], second: Sequence[str]) -> Compared:
        """Return the scores of n pairs after the activation, each pair read in the given order."""
        pairs = list(zip(first, second, strict=True))
        limit, prompt = self.limit("query") or _WITHOUT_LIMIT, self.model.prompts.get(self.model.default_prompt_name) or ""
        whole = [prompt + text for text in first]  # as the library puts it
        lengths = [len(ids) for ids in self.model.tokenizer(whole, list(second), verbose=False)["input_ids"]]
        values = self._watched(lambda: self.model.predict(pairs, show_progress_bar=False))
        return Compared(np.asarray(values, np.float64), np.array(lengths) > limit)


def compare(encoder: Encoder, first: Sequence[str], second: Sequence[str]) -> Compared:
    """Return a cross-encoder's scores of n pairs in the given order. Raises EncoderError for another encoder."""
    if not isinstance(encoder, CrossEncoder):
        raise EncoderError(f"--similarity cross-encoder is for --model cross-encoder:FOLDER, and {encoder.spec.name} is "
                           "none")
    return encoder.compare(first, second)


def compare_both_ways(encoder: Encoder, first: Sequence[str], second: Sequence[str]) -> Compared:
    """Return the mean of the scores of n pairs in both orders."""
    one, other = compare(encoder, first, second), compare(encoder, second, first)
    return Compared((one.values + other.values) / 2, one.cut | other.cut)
