"""Pages of the command line, one a command: mkdocs-click writes them from click's own objects, which load no torch."""

from __future__ import annotations

import re
from importlib.metadata import entry_points

from stsbench.cli.main import _COMMANDS, _GROUP

_ENDS = (
    "`stsbench --version` prints the version. `--debug`, anywhere, shows tracebacks. Exit codes: 0 done, 1 failed, 2 wrong "
    "usage, 3 finished with some tasks failed, 130 after Ctrl-C, 143 after SIGTERM."
)


def pages() -> dict[str, tuple[str, str]]:
    """Site path -> (title, Markdown)."""
    made, rows = {}, ""
    of_extensions = {point.name: (point.value, point.load().short_help) for point in sorted(entry_points(group=_GROUP))}
    for name, (target, line) in {**_COMMANDS, **of_extensions}.items():
        module, _, attribute = target.partition(":")
        settings = {"module": module, "command": attribute, "prog_name": f"stsbench {name}", "style": "table", "depth": 0}
        block = "".join(f"    :{key}: {value}\n" for key, value in settings.items())
        made[f"cli/{name}.md"] = (name, f"::: mkdocs-click\n{block}")
        rows += f"| [`stsbench {name}`]({name}.md) | {line.partition(' | ')[2]} |\n"
    index = f"# Command line\n\n| command | what it does |\n| --- | --- |\n{rows}\n{_ENDS}\n"
    return {"cli/index.md": ("All commands", index), **made}


def without_missing(html: str) -> str:
    """Empty cells where an option has no default: mkdocs-click prints click's marks for it."""
    return re.sub(r"<td>(?:None|(?:<code>)?Sentinel\.UNSET(?:</code>)?)</td>", "<td></td>", html)
