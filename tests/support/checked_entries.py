"""A board's entries with each record's scores recomputed, without a board around them."""

from dataclasses import replace

from stsbench.leaderboard.records.entries import check_seeds, checked_run, read_entries


def load_entries(folder):
    """Every entry below `folder` (a board's measured/), by name. StsbenchError, naming the file, for what does not hold."""
    entries = [replace(entry, runs=tuple(map(checked_run, entry.runs)), prompts=tuple(map(checked_run, entry.prompts)))
               for entry in read_entries(folder)]
    check_seeds(entries)
    return entries
