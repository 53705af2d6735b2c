"""What the Hugging Face Hub's client raises, as one line each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stsbench.errors import StsbenchError


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
