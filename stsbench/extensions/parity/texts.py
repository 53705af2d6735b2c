"""The texts that both encoders read: the package's probe texts, by kind, or a user's own.

Each kind makes one fault visible: long texts truncation, pairs in upper and lower case lower-casing, spelled-out special
tokens how a tokenizer reads these, scripts and accents another tokenizer. All texts were written for this purpose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, cycle, islice
from pathlib import Path

from stsbench.data.own.table import is_table
from stsbench.data.own.texts import Texts
from stsbench.encoders.interface import checked_texts
from stsbench.errors import StsbenchError

OWN = "own"  # the kind of a user's texts
# Words in each long text, chosen such that each usual limit lies close to some text's length, by words and by bytes.
LENGTHS = (20, 26, 34, 44, 54, 64, 76, 88, 100, 112, 126, 150, 180, 215, 260, 320, 380, 420, 460, 520, 700)
_STORY = (
    "Nobody had opened the lock keeper's house since the flood of the previous spring, and the key turned only at a "
    "third attempt. Inside it smelt of wet paper; a calendar on the wall still showed the second week of April. Ida put "
    "her lamp on the table, counted the drawers, and began with the lowest one, because people hide things where they "
    "have to kneel. She found receipts for coal, a broken compass, four letters without stamps and a list of ships, "
    "each name but one crossed out. While she read, the wind pushed a branch against the window again and again, as if "
    "someone wanted to come in. At noon the harbour clerk arrived with bread, pears and questions; he asked who paid "
    "for the search and what would happen to the archive if nothing turned up. She answered the first question with a "
    "number and the second with a shrug. Later they carried the boxes to the cart, tied a blue cloth over them and "
    "followed the towpath north, past the mill, two empty barges and a field of flax that nobody would harvest this "
    "year. "
)
TEXTS: dict[str, tuple[str, ...]] = {
    "short": (
        "Rain.", "yes", "Open the window", "A heron waits.", "tax form", "Who called?", "seven", "the",
        "Two kettles whistle.",
        "Not today, thanks.",
    ),
    "sentence": (
        "The ferry leaves from the northern pier at a quarter past six.",
        "My neighbour repairs old radios and gives them away.",
        "If the dough sticks to your fingers, add a spoonful of flour.",
        "Three engineers disagreed about the cause of the vibration.",
        "She does not believe that the contract was ever signed.",
        "The contract was signed, she believes, before anyone read it.",
        "A cyclist overtakes a tram on the wet bridge.",
        "A tram overtakes a cyclist on the wet bridge.",
        "How long does it take to charge the battery completely?",
        "Interest rates rose for the fourth time since January.",
        "The committee postponed its decision until the auditors had reported.",
        "Please send the invoice to our office in the old customs house.",
    ),
    "case": (
        "THE LAST TRAIN IS LATE", "the last train is late", "The Last Train Is Late", "US markets", "us markets",
        "Polish furniture", "polish furniture", "iPhone repairs in SoHo", "NASA and the EU", "MiXeD CaSe",
    ),
    "numbers": (
        "1,024.50", "3.14159 is close to 22/7", "On 2024-02-29 at 07:05 UTC", "Call 0049 30 1234567",
        "-40 \u00b0C is -40 \u00b0F",
        "20 % of 1e6 is 2\u00d710\u2075", "0 1 2 3 4 5 6 7 8 9", "Section 12.4(b), page 1187",
    ),
    "code": (
        "def area(r): return 3.14159 * r ** 2", "SELECT name FROM ports WHERE depth_m >= 12 ORDER BY name;",
        "for (int i = 0; i < n; ++i) { sum += a[i]; }", '{"id": 17, "tags": ["a", "b"], "ok": true}',
        "https://example.org/path?q=two+words&lang=en#top", "<div class=\"note\">Hello &amp; welcome</div>",
        "C:\\temp\\notes.txt", "snake_case_name and camelCaseName",
    ),
    "languages": (
        "Der Zug nach M\u00fcnchen f\u00e4hrt heute von Gleis drei.", "Le caf\u00e9 au coin ferme \u00e0 onze heures.",
        "\u00bfD\u00f3nde est\u00e1 la biblioteca del ni\u00f1o?", "O comboio chegou com duas horas de atraso.",
        "W\u0142\u00f3czka le\u017cy pod \u0142\u00f3\u017ckiem.",
        "\u0413\u0434\u0435 \u043d\u0430\u0448\u0430 \u0441\u0442\u0430\u043d\u0446\u0438\u044f?",
        "\u4eca\u5929\u4e0b\u5348\u6e2f\u53e3\u6709\u96fe\u3002",
        "\u6628\u65e5\u306f\u96e8\u304c\u964d\u308a\u307e\u3057\u305f\u3002",
        "\ub0b4\uc77c \ub9cc\ub098\uc694.",
        "\u0645\u062a\u0649 \u064a\u0641\u062a\u062d \u0627\u0644\u0633\u0648\u0642\u061f",
        "\u05d4\u05e8\u05db\u05d1\u05ea \u05de\u05d0\u05d7\u05e8\u05ea",
        "\u092c\u093e\u0930\u093f\u0936 \u0939\u094b \u0930\u0939\u0940 \u0939\u0948\u0964",
        "\u0e1d\u0e19\u0e15\u0e01\u0e2b\u0e19\u0e31\u0e01", "Na\u00efve r\u00e9sum\u00e9s",
        "Nai\u0308ve re\u0301sume\u0301s",
        "\u0130stanbul'da ya\u011fmur ya\u011f\u0131yor",
    ),
    "emoji": (
        "\U0001f642", "Good job \U0001f44d\U0001f3fd", "\U0001f469\u200d\U0001f52c in the lab", "\u2764\ufe0f vs <3",
        "\U0001f1eb\U0001f1ee flag",
    ),
    "special tokens": (
        "[CLS] first [SEP] second", "a [MASK] sentence", "<s> start </s> end", "<mask> and <pad>", "[PAD] [UNK]",
        "<|endoftext|> behind it", "one </s>", "<|im_start|>user",
    ),
    "blanks": (
        "", " ", "  two  blanks  ", "a tab\there", "one line\nanother line\n", "no\u00a0break", "zero\u200bwidth",
        "\u3000wide\u3000",
        " leading", "trailing ",
    ),
    "marks": (
        "...", "?!", "\u201cquoted\u201d \u2014 with dashes\u2026", "a/b\\c|d", "(((nested)))",
        "\uff21\uff22\uff23 \ufb01 \u00bd \u2122",
    ),
    "long": tuple(
        " ".join(islice(cycle(_STORY.split()), 17 * number, 17 * number + words)) for number, words in enumerate(LENGTHS)
    ),
    "no blanks": ("donaudampfschifffahrtsgesellschaftskapit\u00e4n", "x" * 300, "ab" * 40, "\u6f22" * 120),
}


@dataclass(frozen=True)
class ProbeTexts:
    """n distinct texts, the kind of each, and their source in words."""

    texts: tuple[str, ...]
    kinds: tuple[str, ...]
    source: str

    @property
    def digest(self) -> str:
        """Return sha256 over the texts in their order."""
        return hashlib.sha256("\0".join(self.texts).encode()).hexdigest()

    @classmethod
    def load(cls, texts: str | Path | Iterable[str] | None) -> ProbeTexts:
        """Return probe texts. texts: a file with one text per line, a table with a column of texts, an iterable, or None for
        the package's. Raises StsbenchError where there is no text or the file is unreadable."""
        if texts is None:
            kinds, probes = zip(*((kind, text) for kind, group in TEXTS.items() for text in group), strict=True)
            return cls(probes, kinds, f"the {len(probes)} texts of the package")
        listed = dict.fromkeys(
        chain.from_iterable(Texts(str(texts), None if is_table(Path(texts)) else 0).chunks(1024))
        if isinstance(texts, str | Path) else checked_texts(texts))
        if not listed:
            raise StsbenchError(f"{texts if isinstance(texts, str | Path) else 'texts'}: there is no text to compare by")
        source = Path(texts).name if isinstance(texts, str | Path) else "a program's texts"
        return cls(tuple(listed), (OWN,) * len(listed), f"{len(listed):,} distinct texts of {source}")
