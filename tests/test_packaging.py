"""What pip installs is what lies in the folders."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]


def test_every_package_is_listed():
    core = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "stsbench").rglob("*.py")}
    outer = {
        ".".join(("stsbench", *path.parent.relative_to(ROOT).parts))
        for name in ("protocols", "methods", "leaderboard") for path in (ROOT / name).rglob("*.py")
    }  # fmt: skip
    assert sorted(SETTINGS["packages"]) == sorted(core | outer)


def test_every_method_brings_its_card_and_recipes():
    data = SETTINGS["package-data"]
    for folder in sorted(path for path in (ROOT / "methods").iterdir() if (path / "__init__.py").is_file()):
        spaces = ["spaces/*.yaml"] if (folder / "spaces").is_dir() else []
        assert data[f"stsbench.methods.{folder.name}"] == ["card.md", "recipes/*.yaml", *spaces]


def test_every_package_has_an_init():
    for name in SETTINGS["packages"]:
        parts = name.split(".")
        folder = ROOT.joinpath(*(parts[1:] if parts[1:2] and parts[1] in ("protocols", "methods", "leaderboard") else parts))
        assert (folder / "__init__.py").is_file(), name
