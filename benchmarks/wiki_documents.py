"""Documents of the Wikipedia sentences: what DeCLUTR and CMLM are trained on in zoo.yaml.

    python benchmarks/wiki_documents.py --data-dir ../shared/data --output runs/wiki_docs.txt

train/wiki_sentences.txt holds a sentence a line. Its first 11,893 lines are whole articles in their order, titles and
headings among them. A document begins at each line that is a title or a heading: short, with a capital or a digit first,
ending without punctuation, and followed by a line that ends with some. A blank line goes before it; nothing is left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

LINES = 11_893  # of articles in their order; behind them the sentences are single ones
ENDS = ".?!:;,"
LONGEST = 6  # words of a title


def documents(lines: list[str]) -> list[list[str]]:
    """The lines of each document, in their order."""
    split: list[list[str]] = [[]]
    for line, following in zip(lines, [*lines[1:], None], strict=True):
        if following is not None and is_title(line, following):
            split.append([])
        split[-1].append(line)
    return [document for document in split if document]


def is_title(line: str, following: str) -> bool:
    """Whether a document begins with this line, by itself and the line behind it."""
    text, after = line.strip(), following.strip()
    if not text or text[-1] in ENDS or len(text.split()) > LONGEST:
        return False
    return (text[0].isupper() or text[0].isdigit()) and bool(after) and after[-1] in ENDS


def main() -> None:
    """Read the sentences, write the documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    source = options.data_dir / "train" / "wiki_sentences.txt"
    if not source.is_file():
        sys.exit(f"there is no file {source}: name the folder that holds train/ with --data-dir")
    from stsbench.files import atomic_write

    split = documents(source.read_text("utf-8").split("\n")[:LINES])
    with atomic_write(options.output) as stream:
        stream.write("\n\n".join("\n".join(document) for document in split) + "\n")
    sys.stdout.write(f"{options.output}: {len(split):,} documents\n")


if __name__ == "__main__":
    main()
