"""lock.json: digests of files nobody could list beforehand, written at their first fetch ("trust on first use")."""

from __future__ import annotations

import json
from pathlib import Path

from stsbench.errors import DataError
from stsbench.files import atomic_write
from stsbench.parsing import parse_json

NAME = "lock.json"


def read_lock(root: Path) -> dict[str, str]:
    """Path below `root` -> sha256; empty when there is no lock. Raises DataError when it cannot be understood."""
    path = root / NAME
    try:
        digests = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}; delete it to trust the files as they are now") from error
    if not isinstance(digests, dict) or not all(isinstance(value, str) for value in digests.values()):
        raise DataError(f"{path}: expected an object of file names and sha256 digests")
    return digests


def remember(root: Path, digests: dict[str, str]) -> None:
    """Add digests of files seen for the first time; one that is already locked is never overwritten."""
    locked = read_lock(root)
    if digests.keys() - locked.keys():
        with atomic_write(root / NAME) as stream:
            json.dump(dict(sorted((digests | locked).items())), stream, indent=1)
            stream.write("\n")
