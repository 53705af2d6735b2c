"""Rules by which released code changes a text before it stands in a template, by name."""

from __future__ import annotations

from collections.abc import Callable

from stsbench.encoders.prompt.template import with_full_stop


def _prompteol(text: str) -> str:
    """A full stop behind a text that ends in none of . ? " ', then every " becomes ', then a final ? becomes a full stop."""
    text = with_full_stop(text).replace('"', "'")
    return f"{text[:-1]}." if text.endswith("?") else text


CLEAN_UPS: dict[str, Callable[[str], str]] = {
    "none": lambda text: text,
    "full_stop": with_full_stop,  # PromptBERT's evaluation.py
    "prompteol": _prompteol,  # evaluation.py of kongds/scaling_sentemb, and of all that follow it
}
