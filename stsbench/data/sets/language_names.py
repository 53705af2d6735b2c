"""The languages of mteb's sets in words: "Korean", "English and German"."""

from __future__ import annotations

from stsbench.data.sets.languages import BY_ID

SEVERAL = "All languages"  # of a set whose parts have one each
# ISO 639: two letters where the standard has them, three elsewhere, as the sets name their parts.
NAMES = {
    "afr": "Afrikaans", "amh": "Amharic", "ar": "Arabic", "arb": "Standard Arabic", "arq": "Algerian Arabic",
    "ary": "Moroccan Arabic", "de": "German", "en": "English", "eng": "English", "es": "Spanish", "fr": "French",
    "hau": "Hausa", "hin": "Hindi", "ind": "Indonesian", "it": "Italian", "ja": "Japanese", "kin": "Kinyarwanda",
    "ko": "Korean", "mar": "Marathi", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "tel": "Telugu",
    "tr": "Turkish", "zh": "Chinese",
}
# The sets of a language whose plain mean is somebody's average: of Chinese CoSENT's (the preset `zh`).
AVERAGED = {"Chinese": ("ATEC", "BQ", "LCQMC", "PAWSX", "STS-B-zh")}


def language_of(set_id: str, subset: str | None = None) -> str:
    """The language of one of `LANGUAGES`, or of a subset of it, in words; of two languages both, in alphabetical order.

    "" for any other set, and for a subset that is not named by its language; SEVERAL for a whole set of several.

    >>> language_of("korsts/test"), language_of("sts17/test", "ko-ko"), language_of("sts17/test", "nl-en")
    ('Korean', 'Korean', 'Dutch and English')
    >>> language_of("sts17/test"), language_of("stsb/test")
    ('All languages', '')
    """
    item = BY_ID.get(set_id)
    if item is None:
        return ""
    if subset is None and item.subsets > 1:
        return SEVERAL
    codes = set((item.code if item.subsets == 1 else subset or "").split("-"))
    return " and ".join(sorted({NAMES[code] for code in codes})) if codes <= NAMES.keys() else ""
