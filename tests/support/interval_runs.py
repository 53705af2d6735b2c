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


def seven(folder, number, **settings):
    chosen = {f"sts.{key}": value for key, value in {"resamples": 60, **settings}.items()}
    return evaluate(encoder(number), protocol="sts", sample=True, settings=chosen, output=folder / f"run-{number}").folder


def own(folder, number, kind):
    """A run over the user's data: triplets, whose intervals are Wilson's; pairs; or pairs that every encoder separates."""
    rng = np.random.default_rng(5)
    texts = [[" ".join(rng.choice(WORDS, 5)) + f" {i}" for i in range(40)] for _ in range(3)]
    third, header = texts[2], "anchor\tpositive\tnegative"
    if kind != "triplets":
        third, header = [int(i % 2 == 0) for i in range(40)], "sentence1\tsentence2\tlabel"
        same = texts[0] if kind == "certain" else [" ".join(text.split()[:3]) for text in texts[0]]
        texts[1] = [one if label else "none of it" if kind == "certain" else other
                    for one, other, label in zip(same, texts[1], third, strict=True)]
    path = folder / "own.tsv"
    path.write_text("\n".join([header, *("\t".join(map(str, row)) for row in zip(*texts[:2], third, strict=True))]) + "\n")
    protocol = "triplets" if kind == "triplets" else "pairs"
    return evaluate(encoder(number), protocol=f"{protocol}:{path}", output=folder / f"run-{number}").folder


RUNS = {
    "average": lambda folder, number: seven(folder, number),
    "average of another seed": lambda folder, number: seven(folder, number, seed=7),
    "Pearson": lambda folder, number: seven(folder, number, metrics=["pearson"], aggregations=["mean"]),
    "a share": lambda folder, number: own(folder, number, "triplets"),
    "own pairs": lambda folder, number: own(folder, number, "pairs"),
    "none": lambda folder, number: own(folder, number, "certain"),
}


def ends(row):
    return row.low, row.high


def in_words(row):
    return "" if row.low is None else f"{row.value:.2f} [{row.low:.2f}, {row.high:.2f}]"
