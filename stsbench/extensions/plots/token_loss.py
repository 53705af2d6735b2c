"""The loss of each token of a text, and its weighted part: one panel per text (SARCSE, Liu et al. 2024, figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stsbench.display.style import PAGE, new_figure
from stsbench.errors import StsbenchError

TokenLosses = Sequence[tuple[str, float, float]]  # a text's tokens: spelling, loss, weight
LOSS, WEIGHTED = "#A6D4F2", "#0072B2"  # one hue: the second is a part of the first
_LETTER = 0.07  # inches, of a label at 7 points, on the wide side
_LONGEST = 70  # characters of a text above its panel


def figure(run: Path, texts: Sequence[str], method: str | None = None) -> Any:
    """Return a matplotlib figure of the losses that the method trained in `run` gives to the tokens of `texts`.

    method: FILE.py:CLASS, for a run of such a method.

    Raises StsbenchError for an unfinished training run, a method without `token_losses(texts)`, and a text without a token.
    """
    from stsbench.training.runs.finish import load_trained

    trained = load_trained(run, method=method)
    if (token_losses := getattr(trained, "token_losses", None)) is None:
        raise StsbenchError(f"the method {trained.name} has no loss token by token")
    return draw(texts, token_losses(list(texts)))


def draw(texts: Sequence[str], losses: Sequence[TokenLosses]) -> Any:
    """Return the figure, on one scale: for every token its loss, and before that loss x weight."""
    for text, tokens in zip(texts, losses, strict=True):
        if not tokens:
            raise StsbenchError(f"the text '{text}' has no token with a loss")
    most = max(map(len, losses))
    labels = [[spelling for spelling, _, _ in tokens] for tokens in losses]
    longest = max(len(label) for row in labels for label in row)
    upright = longest * _LETTER < (PAGE - 0.7) / most  # else the labels are rotated
    height = 1.5 + (0 if upright else longest * _LETTER)
    drawing = new_figure(PAGE, height * len(texts) + 0.3)
    panels = drawing.subplots(len(texts), 1, sharey=True, squeeze=False).ravel()
    for panel, text, names, tokens in zip(panels, texts, labels, losses, strict=True):
        _panel(panel, names, tokens)
        mean, counted = (sum(values) / len(tokens) for values in _heights(tokens))
        panel.set_title(f"“{_short(text)}”: mean {mean:.3g}, weighted {counted:.3g}", loc="left", parse_math=False)
        panel.set_xlim(-0.5, max(most, 8) - 0.5)  # equal bars in every panel, and a bar is never a wall
        panel.set_xticks(range(len(names)), names, rotation=0 if upright else 90, parse_math=False)
        panel.set_ylabel("loss")
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return drawing


def _panel(panel: Any, names: Sequence[str], tokens: TokenLosses) -> None:
    positions = range(len(names))
    whole, counted = _heights(tokens)
    panel.bar(positions, whole, width=0.8, color=LOSS, label="loss")
    panel.bar(positions, counted, width=0.4, color=WEIGHTED, label="loss × weight")
    panel.tick_params(axis="x", length=0)
    panel.grid(axis="y", linewidth=0.3, color="#dddddd")
    panel.set_axisbelow(True)


def _heights(tokens: TokenLosses) -> tuple[list[float], list[float]]:
    return [loss for _, loss, _ in tokens], [loss * weight for _, loss, weight in tokens]


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"
