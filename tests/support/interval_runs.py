"""Pairs of runs whose intervals are drawn in different ways, and one without any."""

import numpy as np

from stsbench import evaluate

WORDS = ["sun", "moon", "tree", "river", "stone", "bird", "fish", "wind", "rain", "snow"]


def encoder(number):
    """Counts of letters, the second encoder's in another unit each."""
    def letters(texts):
        return np.array([[1 + text.count(letter) * (1 + number * i % 5) for i, letter in enumerate("aeinorst")]
                         for text in texts], dtype=np.float64)

    letters.fingerprint = f"letters-{number}"
    return letters


def seven(folder, number):
    settings = {"sts.resamples": 60, "sts.seed": 7}
    return evaluate(encoder(number), protocol="sts", sample=True, settings=settings, output=folder / f"run-{number}").folder


def own(folder, number, protocol):
    """A run over the user's data: triplets, whose intervals are Wilson's; or pairs that every encoder separates."""
    rng = np.random.default_rng(5)
    texts = [[" ".join(rng.choice(WORDS, 5)) + f" {i}" for i in range(40)] for _ in range(3)]
    header = "anchor\tpositive\tnegative"
    if protocol == "pairs":
        texts[2], header = ["1", "0"] * 20, "sentence1\tsentence2\tlabel"
        texts[1] = [one if label == "1" else "none of it" for one, label in zip(texts[0], texts[2], strict=True)]
    path = folder / "own.tsv"
    path.write_text("\n".join([header, *map("\t".join, zip(*texts, strict=True))]) + "\n")
    return evaluate(encoder(number), protocol=f"{protocol}:{path}", output=folder / f"run-{number}").folder


RUNS = {
    "average of another seed": lambda folder, number: seven(folder, number),
    "none": lambda folder, number: own(folder, number, "pairs"),
}


def ends(row):
    return row.low, row.high


def in_words(row):
    return "" if row.low is None else f"{row.value:.2f} [{row.low:.2f}, {row.high:.2f}]"
