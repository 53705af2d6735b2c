"""PromptEOL: the last position behind "means in one word", with or without demonstrations."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar

from stsbench.data.fetch.sources import training_text
from stsbench.errors import EncoderError
from stsbench.extensions.decoders.base import Preset, PresetOptions, PromptOptions
from stsbench.extensions.decoders.prompts import PROMPTEOL
from stsbench.extensions.decoders.reading import Demonstration, PresetReading
from stsbench.parsing import read_text
from stsbench.settings import setting

_MOST_BYTES = 1_000_000  # of a file of demonstrations


class PromptEOLOptions(PromptOptions):
    """Of `prompteol`."""

    template: str = setting(PROMPTEOL, "what stands around a text, and around a demonstration", "evaluation.py, README")
    demonstrations: str | None = setting(
        None, "a file of demonstrations, also one in train/ of the data folder, a line each: the sentence, a tab, its word",
        "run_icl.sh; in the paper one of 300, by STS-B dev",
    )


class PromptEOL(Preset):
    """The vector at the last position of `This sentence : "X" means in one word:"`."""

    name = "prompteol"
    sentence = 'The last position of a prompt that asks for one word: This sentence : "X" means in one word:"'
    source = "Jiang et al. 2023, arXiv 2307.16645"
    Options: ClassVar[type[PresetOptions]] = PromptEOLOptions
    # the paper prints the template without the blank before the first colon, and no clean-up
    forms: ClassVar[dict[str, dict[str, Any]]] = {
        "released": {}, "paper": {"template": PROMPTEOL.replace(" :", ":", 1), "clean_up": "none"},
    }

    def reading(self) -> PresetReading:
        asked = self.options
        if asked.template.count("{}") != 1:
            raise EncoderError(f"--preset {self.name}: template {asked.template!r} must hold {{}} exactly once")
        shots = [] if asked.demonstrations is None else read_demonstrations(_located(asked.demonstrations))
        return PresetReading(
            self.spelled, (asked.template,), asked.clean_up, layer=asked.layer,
            shots="".join(f'{asked.template.replace("{}", sentence)}{word}".' for sentence, word in shots),
            demonstrations=tuple(Demonstration(word, _sha256(sentence)) for sentence, word in shots),
        )


def read_demonstrations(path: Path) -> list[tuple[str, str]]:
    """(sentence, word) of each line. EncoderError, one line naming file and row: not a sentence, a tab and a word."""
    shots = []
    for number, line in enumerate(read_text(path, _MOST_BYTES, EncoderError).splitlines(), 1):
        sentence, tab, word = line.partition("\t")
        if not tab or not sentence.strip() or not word.strip() or "\t" in word:
            raise EncoderError(f"{path}:{number}: a demonstration is a sentence, a tab and its word")
        shots.append((sentence, word.strip()))
    if not shots:
        raise EncoderError(f"{path} holds no demonstration: a line each, the sentence, a tab and its word")
    return shots


def _located(file: str) -> Path:
    """The file of that name, else the one in train/ of $STSBENCH_DATA or the user's data."""
    path = Path(file)
    return path if path.is_file() else training_text(file, offline=True)[0] or path


def _sha256(sentence: str) -> str:
    return hashlib.sha256(sentence.encode()).hexdigest()
