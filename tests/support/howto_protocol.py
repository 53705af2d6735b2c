"""The code of docs/how-to/adding-a-protocol.md, and its package as pip installs it: a plug-in's protocols, `sts-top` and
`sts-top-own`."""

import re
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path

from stsbench import registry

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "adding-a-protocol.md").read_text("utf-8")
NAMES = ("sts-top", "sts-top-own")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@contextmanager
def installed(site, patch):
    """The package in the folder `site`, known to stsbench within the context."""
    codes, (project,) = blocks("python"), blocks("toml")
    facts = site / "sts_top-1.0.dist-info"
    facts.mkdir(parents=True)
    for code in codes:  # each begins with its name
        (site / code.partition("\n")[0].removeprefix("# ")).write_text(code, "utf-8")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: sts-top\nVersion: 1.0\n")
    points = tomllib.loads(project)["project"]["entry-points"]
    lines = [line for group, names in points.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    patch.syspath_prepend(str(site))
    registry._points.cache_clear()
    try:
        yield
    finally:
        registry._points.cache_clear()
        for name in ("sts_top", "sts_top_own"):
            sys.modules.pop(name, None)
