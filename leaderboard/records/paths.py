"""Where the board's code, and the files shipped with it, are."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]
PUBLISHED = _HERE / "published"
REPRODUCTIONS = _HERE / "reproductions"
TEMPLATES = _HERE / "templates"
EXPECTED = _HERE / "expected.yaml"
