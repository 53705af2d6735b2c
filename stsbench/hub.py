"""The Hugging Face Hub: where it is, whether it may be asked, and what its client raises, as one line each."""

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
    """Raise `error_class` for whatever the client raises while it fetches the repository `name`.

    absent: where there is no such repository; no_revision: where it has no such revision; unreachable: what to raise where
    it is not in the cache and the Hub cannot be asked.
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
        if hasattr(error, "snapshot_path"):  # the cache has it, and knows that it lacks some of its files
            raise type(unreachable)(f"{unreachable}: {' '.join(str(error).split())}") from error
        raise unreachable from error
    except Exception as error:  # its other failures come from several libraries: HTTP, sockets, files
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise error_class(f"cannot fetch {name} from the Hub: {reason}") from error


@contextmanager
def no_downloads(offline: bool) -> Iterator[None]:
    """Fetch nothing in the block if `offline`: for readers that are not told, such as a protocol's own."""
    token = _OFFLINE.set(offline or _OFFLINE.get())
    try:
        yield
    finally:
        _OFFLINE.reset(token)


def downloads_are_off(offline: bool) -> bool:
    """Return whether nothing may be fetched: --offline, a block of `no_downloads`, or the Hub client's $HF_HUB_OFFLINE."""
    return offline or _OFFLINE.get() or os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def hub_endpoint() -> str:
    """Return the Hub's address; $HF_ENDPOINT replaces https://huggingface.co, as in huggingface_hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
