"""The page with fewer bytes and the same document: without optional end tags, space between tags, quotes of plain values."""

from __future__ import annotations

import re

# What may be left out wherever the page has it: each is followed by a sibling that ends it, or by its parent's end.
_OPTIONAL = re.compile(r"</(?:td|th|tr|dt|dd)>")
_VERBATIM = re.compile(r"(<(?:style|script|pre|code)\b.*?</(?:style|script|pre|code)>)", re.DOTALL)
_BLANK = re.compile(r"\n\s*")
_AFTER_TEXTLESS = re.compile(r"\n(?=</?(?:td|th|tr|tbody|thead|table|dl|dt|dd|div|details|article|section)\b)")
_TAG = re.compile(r"<[a-z][^<>]*>")
_PLAIN_VALUE = re.compile(r"""="([^\s"'=<>`/&]+)"(?=[\s>])""")


def compact(html: str) -> str:
    """`html` as its readers see it, a fifth shorter. Elements, attributes and text stay; space at lines' ends does not."""
    parts = _VERBATIM.split(html)
    for place in range(0, len(parts), 2):
        text = _BLANK.sub("\n", _OPTIONAL.sub("", parts[place]))
        parts[place] = _TAG.sub(_unquoted, _AFTER_TEXTLESS.sub("", text))
    return "".join(parts)


def _unquoted(tag: re.Match[str]) -> str:
    return _PLAIN_VALUE.sub(r"=\1", tag[0])
