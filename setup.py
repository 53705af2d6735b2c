"""What pyproject.toml cannot say: on a package index the README's relative links lead nowhere, so the built description has
them absolute, at the tag of its version. Everything else is in pyproject.toml.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent
_LINK = re.compile(r"(!?)(\[[^\]\n]*\]\()(?![a-z]+:|#)([^)\s]+)")  # image or not, its text, its target


def description(readme: str, repository: str, version: str) -> str:
    """The README with absolute links into the repository, at its tag vVERSION; pictures as files, not as pages."""
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def absolute(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        if image:
            svg = "?sanitize=true" if target.endswith(".svg") else ""  # without it GitHub serves an SVG as plain text
            return f"!{text}{raw}/v{version}/{target}{svg}"
        return f"{text}{repository}/blob/v{version}/{target}"

    return _LINK.sub(absolute, readme)


if __name__ == "__main__":
    from setuptools import setup

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    setup(
        long_description=description(
            (ROOT / "README.md").read_text("utf-8"), project["urls"]["Repository"], project["version"]
        ),
        long_description_content_type="text/markdown",
    )
