"""What makes the suite quick and repeatable: no search for garbage among all that is imported, the longest files first, and
hypothesis' examples the same every time."""

from __future__ import annotations

import gc

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)  # the same examples every time
settings.load_profile("repeatable")

# their seconds are those of processes, browsers and whole trainings, so the number of their tests tells nothing
LONG = (
    "test_training_resume", "test_page_browser", "test_cli_train", "test_training_processes", "test_diffcse_processes",
    "test_diffcse_runs", "test_promptbert_runs", "test_promptbert_processes", "test_sarcse_runs", "test_recipes_promptbert",
    "test_recipes_diffaug", "test_stages", "test_stage_settings", "test_stage_seeds", "test_semi", "test_all_protocols",
    "test_diffcse_ablations",
)  # fmt: skip


def pytest_configure(config):
    """Each process of pytest-xdist takes the next file of the order below; its own order is by the number of tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONG)))


def pytest_collection_finish():
    """A training looks for garbage twice: a quarter of a second each time once torch and transformers are imported."""
    gc.collect()
    gc.freeze()
