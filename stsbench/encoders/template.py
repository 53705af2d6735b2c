"""A prompt around the sentence: `{}` or `[X]` stands for the sentence, `[MASK]` or `{mask}` for the mask token."""

from __future__ import annotations

from dataclasses import dataclass

from stsbench.errors import EncoderError

_SENTENCE = ("{}", "[X]")
_MASK = ("[MASK]", "{mask}")


@dataclass(frozen=True)
class Template:
    """What stands before and after the sentence, with the model's own mask token filled in."""

    before: str = ""
    after: str = ""
    mask_last: bool = True  # the template's mask stands behind the sentence, so it is the last one of the text
    has_mask: bool = False

    def fill(self, text: str) -> str:
        """The text that is tokenised."""
        return self.before + text + self.after


def parse_template(
    template: str | None, mask_token: str | None, needs_mask: bool, prefix: str = "", option: str = "--template"
) -> Template:
    """Read `template`; `prefix` (a stored prompt) goes directly before the sentence; option: what errors call it.

    EncoderError: no or several places for the sentence or the mask, a mask for a tokenizer that has none, or no mask
    where the pooler needs one.
    """
    if template is None:
        if needs_mask:
            raise EncoderError("--pooler mask needs --template, e.g. 'This sentence : \"{}\" means [MASK] .'")
        return Template(before=prefix)
    places = [(template.find(mark), mark) for mark in _SENTENCE if mark in template]
    if len(places) != 1 or template.count(places[0][1]) != 1:
        raise EncoderError(f"{option} {template!r} must hold {{}} or [X] for the sentence exactly once")
    at, mark = places[0]
    before, after = template[:at], template[at + len(mark):]
    masks = [sum(side.count(mask) for mask in _MASK) for side in (before, after)]
    if needs_mask and sum(masks) != 1:
        raise EncoderError(f"{option} {template!r} must hold [MASK] or {{mask}} exactly once for --pooler mask")
    if sum(masks):
        if not mask_token:
            raise EncoderError(f"{option} {template!r}: this model's tokenizer has no mask token")
        for mask in _MASK:
            before, after = before.replace(mask, mask_token), after.replace(mask, mask_token)
    return Template(before + prefix, after, mask_last=masks[1] > 0, has_mask=sum(masks) > 0)


def with_full_stop(text: str) -> str:
    """`text` with a full stop behind it, unless it is empty or ends in . ? " or ' (PromptBERT's evaluation.py)."""
    return text if not text or text[-1] in ".?\"'" else text + "."
