"""Where the licensed data lies on this machine, if anywhere: tests that need it are skipped elsewhere."""

import os
from pathlib import Path

import pytest


def real_data():
    """The folder with SentEval's downstream/: $STSBENCH_DATA, else ../shared/data beside the checkout; else skip."""
    own = os.environ.get("STSBENCH_DATA")
    folder = Path(own) if own else Path(__file__).resolve().parents[3] / "shared" / "data"
    if not (folder / "downstream").is_dir():
        pytest.skip("licensed data: set STSBENCH_DATA, or keep them in ../shared/data beside the checkout")
    return folder
