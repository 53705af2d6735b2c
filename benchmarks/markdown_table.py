"""Lines of a Markdown table, each shown as soon as it is known."""

from __future__ import annotations

import sys


def line(*cells: object) -> None:
    sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    sys.stdout.flush()
