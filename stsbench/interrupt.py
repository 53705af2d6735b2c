"""SIGTERM, which a cluster's scheduler and `timeout` send, ends a command as Ctrl-C does: what was done is kept."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


def stop_on_sigterm() -> None:
    """From now on the first SIGTERM raises Terminated in the main thread. Later ones are ignored: `timeout` sends two, and
    the second would end what the first made the command write.
    """

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    if threading.current_thread() is threading.main_thread():  # elsewhere Python sets no handler
        signal.signal(signal.SIGTERM, stop)


def exit_code(error: BaseException) -> int:
    """128 plus the signal's number, as shells have it: 143 for SIGTERM, 130 for Ctrl-C."""
    causes = (error, error.__cause__, error.__context__)  # click wraps what it catches
    return 128 + (signal.SIGTERM if any(isinstance(cause, Terminated) for cause in causes) else signal.SIGINT)
