"""JSON for programs, to a file or to stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stsbench.cli.output.messages import echo
from stsbench.files import atomic_write


def write_json(value: Any, target: str) -> None:
    """Write `value` to the file `target`, or to stdout for "-"; in ASCII, which every console can encode."""
    text = json.dumps(value, indent=1)
    if target == "-":
        echo(text)
        return
    with atomic_write(Path(target)) as stream:
        stream.write(text + "\n")
