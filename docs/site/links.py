"""Relative links, which lead to files of the repository, as links of the site: the same Markdown works on both."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

# Code first: what looks like a link there stays as it is.
_PARTS = re.compile(
    r"^(?P<fence>```|~~~).*?^(?P=fence)[^\n]*$|^    [^\n]*$|`[^`\n]*`"
    r"|(?<=\]\()<?(?P<link>[^)<>\s]+)>?(?=\))",
    re.MULTILINE | re.DOTALL,
)


def site_path(path: Path, root: Path, elsewhere: Mapping[str, str]) -> str | None:
    """Where the site has a file of the repository: what lies in docs/ keeps its place; None where it has no such page.

    elsewhere: files that are pages in another place, repository path -> site path.
    """
    name = path.relative_to(root).as_posix()
    if name in elsewhere:
        return elsewhere[name]
    return name.removeprefix("docs/") if name.startswith("docs/") and path.is_file() else None


def rewrite(text: str, source: Path, page: str, root: Path, elsewhere: Mapping[str, str], repository: str) -> str:
    """The Markdown of `source` with links for the page at the site path `page`.

    Files without a page become links to `repository`. A link to a missing file stays, and the build names it.
    """

    def link(match: re.Match[str]) -> str:
        target = match["link"]
        if target is None or re.match(r"[a-z]+:|#", target):
            return match[0]
        name, hash_, fragment = target.partition("#")
        path = Path(os.path.normpath(source.parent / name))
        if not path.exists() or not path.is_relative_to(root):
            return match[0]
        there = site_path(path, root, elsewhere)
        if there is None:
            kind = "tree" if path.is_dir() else "blob"
            return f"{repository}/{kind}/main/{path.relative_to(root).as_posix()}{hash_}{fragment}"
        return os.path.relpath(there, Path(page).parent) + hash_ + fragment

    return _PARTS.sub(link, text)
