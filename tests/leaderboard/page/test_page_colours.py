"""The page's colours can be read, light and dark: contrast ratios by the formula of WCAG 2.2."""

from __future__ import annotations

import re

import pytest

from stsbench.leaderboard.records.paths import BUNDLE


def _luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_contrast_is_aa(mode: int) -> None:
    css = (BUNDLE.parent / "src" / "style" / "colours.css").read_text("utf-8")
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", css)
    colours = {name: values[mode] for name, *values in pairs}
    assert _contrast("#000000", "#ffffff") == pytest.approx(21) and len(colours) == 17
    for path in (BUNDLE.parent / "src").rglob("*.css"):
        rest = re.sub(r"--[\w-]+: light-dark\([^)]*\);", "", path.read_text("utf-8"))
        assert not re.search(r":[^{};]*#[0-9a-f]{3}", rest), f"{path.name}: a colour that this test does not know"
    for ground in ("bg", "band"):
        for ink in ("ink", "muted", "accent", "warn", "good"):
            assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        for edge in ("edge", *(f"line-{i}" for i in range(1, 9))):
            assert _contrast(colours[edge], colours[ground]) >= 3, (edge, ground)
