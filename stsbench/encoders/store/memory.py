"""Memory that is free, but not the system's."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_back() -> None:
    """Return freed memory to the system, where the C library is glibc.

    A forward pass allocates and frees blocks of a thousand sizes, and oneDNN keeps a kernel for each shape in between. What
    is free between those glibc keeps: resident memory grew by .8 MiB every 32,768 texts, and what was in use hardly did.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
