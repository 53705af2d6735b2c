"""Echo embeddings: the text stands twice, and only its second copy is pooled."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from stsbench.extensions.decoders.base import Preset, PresetOptions
from stsbench.extensions.decoders.reading import PresetReading
from stsbench.settings import setting


class EchoOptions(PresetOptions):
    """Of `echo`."""

    pooling: Literal["mean", "last"] = setting("mean", "over the second copy, or its last position", "README, by checkpoint")
    instruction: str = setting(
        "Retrieve semantically similar text", "the task, in the form `released` alone", "README; the text is mteb's for STS"
    )


class Echo(Preset):
    """Every pooled token has seen the whole text, although attention looks back only."""

    name = "echo"
    sentence = "The text stands twice, and the mean is taken over its second copy, whose tokens have seen all of it"
    source = "Springer et al. 2024, arXiv 2402.15449"
    Options: ClassVar[type[PresetOptions]] = EchoOptions
    forms: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "released": {}, "released-last": {"pooling": "last"}}

    def reading(self) -> PresetReading:
        asked = self.options
        if self.form == "paper":
            template = "Rewrite the following paragraph: {}. The rewritten paragraph: {}"
            return PresetReading(self.spelled, (template,), pooler=asked.pooling, over="copy", layer=asked.layer)
        parts = ("{bos}Instruct:", f"{asked.instruction},", "\nQuery:", "{}", "\nQuery again:", "{}", "{eos}")
        return PresetReading(
            self.spelled, ("".join(parts),), pooler=asked.pooling, over="copy", layer=asked.layer, segments=parts
        )
