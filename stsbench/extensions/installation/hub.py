"""Can models and data be fetched? One request to the Hub, which waits for seconds, not minutes."""

from __future__ import annotations

import http.client
import os
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from stsbench.data.fetch.download import hub_url
from stsbench.data.sets.catalog import catalog

_OFF = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Hub:
    """state: "reached", "unreachable", or "not asked"; detail: in how long, or why not."""

    endpoint: str
    state: str
    detail: str


def ask_hub(offline: bool = False, timeout: float = 4.0) -> Hub:
    """Ask for the head of the file that `stsbench data fetch` begins with, at $HF_ENDPOINT or the Hub itself.

    timeout: seconds, looking up the name included. Nothing is asked where `offline` or $HF_HUB_OFFLINE says so.
    """
    url = hub_url(catalog().archive)
    endpoint = url.partition("/datasets/")[0]
    if offline or os.environ.get("HF_HUB_OFFLINE", "").lower() in _OFF:
        return Hub(endpoint, "not asked", "--offline" if offline else "$HF_HUB_OFFLINE is set")
    if not url.startswith(("http://", "https://")):
        return Hub(endpoint, "unreachable", "HF_ENDPOINT must start with http:// or https://")
    answers: list[tuple[str, str]] = []
    # A thread, because no timeout of urllib's bounds the look-up of a name; it does not keep the process alive.
    asking = threading.Thread(target=lambda: answers.append(_asked(url, timeout)), daemon=True)
    asking.start()
    asking.join(timeout + 0.5)
    return Hub(endpoint, *(answers[0] if answers else ("unreachable", f"no answer within {timeout:g} s")))


def _asked(url: str, timeout: float) -> tuple[str, str]:
    began = time.monotonic()
    request = urllib.request.Request(url, headers={"User-Agent": "stsbench", "Range": "bytes=0-0"})
    try:
        with urllib.request.urlopen(request, timeout=timeout):
            return "reached", f"answered in {time.monotonic() - began:.1f} s"
    except urllib.error.HTTPError as error:
        error.close()
        return "unreachable", f"it answers HTTP {error.code} {error.reason}"
    except urllib.error.URLError as error:
        slow = isinstance(error.reason, TimeoutError)
        return "unreachable", f"no answer within {timeout:g} s" if slow else f"no connection ({error.reason})"
    except TimeoutError:
        return "unreachable", f"no answer within {timeout:g} s"
    except (OSError, http.client.HTTPException) as error:
        return "unreachable", f"no connection ({error or type(error).__name__})"
