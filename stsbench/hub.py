"""The Hugging Face Hub: its address, whether downloads are allowed, and its client's errors as one line each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from stsbench.errors import StsbenchError

_OFFLINE: ContextVar[bool] = ContextVar("offline", default=False)


@contextmanager
def hub_errors(
    name: str, *, absent: str, no_revision: str, unreachable: StsbenchError,
    error_class: type[StsbenchError] = StsbenchError,
) -> Iterator[None]:
    """Raise `error_class` for all errors of the Hub's client in the block, which fetches the repository `name`.

    absent, no_revision: messages for a missing repository or revision; unreachable: the error to raise if the repository is
    not in the cache and the Hub cannot be reached.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except GatedRepoError as error:
        raise error_class(f"{name} is gated: accept its terms on the Hub and set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise error_class(no_revision) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise error_class(absent) from error
    except LocalEntryNotFoundError as error:
        if hasattr(error, "snapshot_path"):  # the repository is in the cache, but some of its files are missing
            raise type(unreachable)(f"{unreachable}: {' '.join(str(error).split())}") from error
        raise unreachable from error
    except Exception as error:  # the client passes on errors of several libraries: HTTP, sockets, files
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise error_class(f"cannot fetch {name} from the Hub: {reason}") from error


@contextmanager
def no_downloads(offline: bool) -> Iterator[None]:
    """Forbid downloads in the block if `offline`, also for code without such an argument, such as a protocol's readers."""
    token = _OFFLINE.set(offline or _OFFLINE.get())
    try:
        yield
    finally:
        _OFFLINE.reset(token)


def downloads_are_off(offline: bool) -> bool:
    """Return whether downloads are forbidden: by --offline, a block of `no_downloads`, or the client's $HF_HUB_OFFLINE."""
    return offline or _OFFLINE.get() or os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def hub_endpoint() -> str:
    """Return the Hub's address; $HF_ENDPOINT replaces https://huggingface.co, as in huggingface_hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
