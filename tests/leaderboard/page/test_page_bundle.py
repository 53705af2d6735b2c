"""The committed bundle is that of the sources, asks for nothing elsewhere and keeps the licences of what is in it; colours
can be read, light and dark: contrast ratios by the formula of WCAG 2.2."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from stsbench.leaderboard.page.site import PAGE
from stsbench.leaderboard.records.paths import BUNDLE

WEB = BUNDLE.parent


def text(name: str) -> str:
    return (BUNDLE / name).read_text("utf-8")


def test_the_bundle_was_made_of_these_sources() -> None:
    """`make web` brings it up to date, and writes the same digest (build.mjs)."""
    digest = hashlib.sha256()
    sources = sorted(path.relative_to(WEB).as_posix() for path in (WEB / "src").rglob("*") if path.is_file())
    for name in ("build.mjs", "package-lock.json", "package.json", *sources):
        digest.update(f"{name}\0".encode() + (WEB / name).read_bytes() + b"\0")
    for name in ("board.js", "charts.js", "grid.js", "board.css"):
        assert f"sources sha256:{digest.hexdigest()}" in text(name), (
            f"{name} is stale: run `make web` and commit what it wrote"
        )
    assert text("index.html") == (WEB / "src/index.html").read_text("utf-8")
    assert sorted(path.name for path in BUNDLE.iterdir()) == sorted(PAGE)


def test_the_policy_takes_nothing_inline_and_nothing_from_elsewhere() -> None:
    html = text("index.html")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    rules = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
    assert rules["default-src"] == "'none'" and rules["script-src"] == rules["style-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'" and "unsafe" not in policy[1]
    assert re.findall(r"<script[^>]*>", html) == ['<script defer src="board.js">', '<script defer src="index.js">']
    assert "<style" not in html and not re.search(r"\s(?:style|on\w+)=", html)
    assert not re.search(r'<(?!a )[^>]*(?:src|href)="(?:https?:)?//', html)
    assert "url(" not in text("board.css") and "@import" not in text("board.css")


def test_the_pages_own_code_takes_no_markup_and_asks_for_nothing() -> None:
    for path in (WEB / "src").rglob("*.js"):
        forbidden = re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|\bfetch\(|XMLHttp|Function\(",
            path.read_text("utf-8"),
        )
        assert not forbidden, f"{path.name}: {forbidden}"


def test_every_package_in_the_bundle_has_its_licence() -> None:
    packages = json.loads((WEB / "package.json").read_text("utf-8"))["dependencies"]
    notices = text("LICENSES.txt")
    for name, version in packages.items():
        assert re.search(rf"^{re.escape(name)} {re.escape(version)} \((?:MIT|ISC)\)\n\n", notices, re.MULTILINE)
    heads = re.findall(r"^(\S+) \d[\w.]* \(([^)]+)\)$", notices, re.MULTILINE)
    assert len(heads) > 10 and {licence for _, licence in heads} <= {"MIT", "ISC", "BSD-3-Clause", "Apache-2.0"}
    assert notices.count("Copyright") >= len(heads) - 2
    hosts = set(re.findall(r'"resolved": "https?://([^/"]+)', (WEB / "package-lock.json").read_text("utf-8")))
    assert hosts <= {"registry.npmjs.org"}  # and no machine of ours


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
    lines = tuple(colours[f"line-{i}"] for i in range(1, 9))
    assert _contrast("#000000", "#ffffff") == pytest.approx(21) and len(colours) == 17
    for path in (BUNDLE.parent / "src").rglob("*.css"):
        rest = re.sub(r"--[\w-]+: light-dark\([^)]*\);", "", path.read_text("utf-8"))
        assert not re.search(r":[^{};]*#[0-9a-f]{3}", rest), f"{path.name}: a colour that this test does not know"
    for ground in ("bg", "band"):
        for ink in ("ink", "muted", "accent", "warn", "good"):
            assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        for edge in (colours["edge"], *lines):
            assert _contrast(edge, colours[ground]) >= 3, (edge, ground)
