"""The ends of an interval, and its words in a table."""


def ends(row):
    return row.low, row.high


def in_words(row):
    return "" if row.low is None else f"{row.value:.2f} [{row.low:.2f}, {row.high:.2f}]"
