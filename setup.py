"""What pyproject.toml cannot say: the packages, which are every folder with an __init__.py, and the description.

On a package index the README's relative links lead nowhere: there they are absolute, at the tag of the version.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent
OUTER = ("protocols", "methods", "leaderboard")  # folders beside stsbench/ that are packages below it
_LINK = re.compile(r"(!?)(\[[^\]\n]*\]\()(?![a-z]+:|#)([^)\s]+)")  # image or not, its text, its target


def description(readme: str, repository: str, version: str) -> str:
    """Return the README with absolute links into the repository, at its tag vVERSION; pictures as files, not as pages."""
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def absolute(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        if image:
            svg = "?sanitize=true" if target.endswith(".svg") else ""  # without it GitHub serves an SVG as plain text
            return f"!{text}{raw}/v{version}/{target}{svg}"
        return f"{text}{repository}/blob/v{version}/{target}"

    return _LINK.sub(absolute, readme)


def packages(root: Path) -> dict[str, str]:
    """Return package -> its folder, below `root`."""
    inits = [path.relative_to(root) for top in ("stsbench", *OUTER) for path in sorted((root / top).rglob("__init__.py"))]
    folders = [path.parent.parts for path in inits]
    return {".".join(parts if parts[0] == "stsbench" else ("stsbench", *parts)): "/".join(parts) for parts in folders}


if __name__ == "__main__":
    from setuptools import setup

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    setup(
        long_description=description(
            (ROOT / "README.md").read_text("utf-8"), project["urls"]["Repository"], project["version"]
        ),
        long_description_content_type="text/markdown",
        packages=[*packages(ROOT)],
    )
