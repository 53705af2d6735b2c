"""What an encoder or its post-processing was fitted on, as `fitted_on` in a spec says it: ID@DIGEST, or ID+ID@DIGEST."""

from __future__ import annotations

STATE = "post_state"  # in a spec's options: the digest of what the fitting of a post-processing found


def fitted_sets(fitted_on: object) -> tuple[str, ...]:
    """The ids of the sets, or the file's name; () where nothing was fitted."""
    return tuple(str(fitted_on).partition("@")[0].split("+")) if fitted_on else ()


def is_transductive(fitted_on: object, set_id: str) -> bool:
    """Whether the very texts of a set were fitted on, alone or with the other splits of its data."""
    return set_id in fitted_sets(fitted_on)
