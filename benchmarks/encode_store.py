"""What `stsbench encode` takes: memory at 1, 5 and 10 million texts, a kill and the way on, two processes against one.

    python benchmarks/encode_store.py --part memory --texts 10000000 --folder BIG
    python benchmarks/encode_store.py --part processes --texts 200000 --folder BIG

The model is a random BERT of 2 layers, 32 wide, and the sentences are synthetic: reading, tokenising and writing are then a
large part of the work, as they would not be of a real model. `memory` samples the resident memory of the process (and the
part of it that no file backs), kills it with SIGKILL past the middle, runs the same command again to the end, and compares
the store's rows with vectors that the encoder gives in memory. `processes` takes turns: one process, two, one, two, with as
many threads a process as the environment says (OMP_NUM_THREADS, RAYON_NUM_THREADS: the tokenizer's); processor seconds are
those of all processes, children included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

WORDS = [
    "the", "a", "one", "old", "young", "small", "red", "green", "blue", "cold", "bright", "man", "woman", "child", "dog",
    "bird", "horse", "house", "river", "garden", "street", "reads", "sees", "finds", "follows", "carries", "paints", "opens",
    "walks", "sleeps", "sings", "near", "under", "behind", "with", "without", "and", "while", "today",
]
MARKS = (1_000_000, 5_000_000, 10_000_000)
POLL = 1.0  # seconds between two looks at the process


def tiny_model(folder: Path) -> Path:
    """A random BERT, 2 layers, 32 wide, with a word tokenizer."""
    if (folder / "config.json").is_file():
        return folder
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", 1), ("[SEP]", 2)]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]",
        mask_token="[MASK]", model_max_length=64,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(
        BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, initializer_range=0.3, **shape)
    ).save_pretrained(folder)
    return folder


def sentences(path: Path, count: int) -> Path:
    """So many lines of 4 to 20 words."""
    if path.is_file() and path.stat().st_size:
        return path
    rng = np.random.default_rng(0)
    halves = [" ".join(rng.choice(WORDS, rng.integers(2, 11))) for _ in range(20_000)]
    with path.open("w", encoding="utf-8") as stream:
        for start in range(0, count, 100_000):
            pairs = rng.integers(0, len(halves), (min(100_000, count - start), 2)).tolist()
            stream.write("".join(f"{halves[i]} {halves[j]}\n" for i, j in pairs))
    return path


def command(model: Path, source: Path, store: Path, processes: int = 1) -> list[str]:
    return [sys.executable, "-m", "stsbench", "encode", "--model", str(model), "--pooler", "mean", "--batch-tokens", "8192",
            "--input", str(source), "--output", str(store), "--processes", str(processes)]


def resident(pid: int) -> tuple[float, float, float]:
    """MiB: the most resident so far, resident now without files, processor seconds."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    return (*(int(status[name].split()[0]) / 1024 for name in ("VmHWM", "RssAnon")), seconds)


def rows_of(store: Path) -> int:
    """Texts of the shards that are whole, but for the last one's size."""
    shards = store / "shards"
    return 32_768 * sum(1 for path in shards.iterdir() if not path.name.startswith(".")) if shards.is_dir() else 0


def watched(arguments: list[str], store: Path, kill_at: int | None) -> bool:
    """Run, and print memory at the marks; with kill_at, SIGKILL when so many texts are there. Returns whether it ended."""
    began, marks = time.monotonic(), [mark for mark in MARKS if mark > rows_of(store)]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    last = (0.0, 0.0, 0.0)
    while process.poll() is None:
        try:
            last = resident(process.pid)
        except (OSError, KeyError, ValueError):
            break
        rows = rows_of(store)
        if marks and rows >= marks[0]:
            show(f"{marks.pop(0):,} texts", last, began)
        if kill_at is not None and rows >= kill_at:
            process.send_signal(signal.SIGKILL)
            process.wait()
            show(f"killed at about {rows:,} texts", last, began)
            return False
        time.sleep(POLL)
    errors = process.communicate()[1]
    show("at the end", last, began)
    if process.returncode:
        raise SystemExit(errors)
    print(errors.strip().splitlines()[-1])
    return True


def show(what: str, numbers: tuple[float, float, float], began: float) -> None:
    peak, anonymous, seconds = numbers
    print(f"{what}: peak {peak:.0f} MiB resident, now {anonymous:.0f} MiB without files; {seconds:.0f} processor seconds, "
          f"{time.monotonic() - began:.0f} s of wall clock", flush=True)


def check(model: Path, source: Path, store: Path, texts: int) -> None:
    """Rows here and there against the encoder's vectors in memory."""
    from stsbench.encoders import load_encoder
    from stsbench.extensions.stores.vectors import VectorStore

    opened = VectorStore(store)
    assert len(opened) == texts, (len(opened), texts)
    rows = np.unique(np.linspace(0, texts - 1, 2000).astype(np.int64))
    wanted, lines = set(rows.tolist()), []
    with source.open(encoding="utf-8") as stream:
        lines = [line.strip() for number, line in enumerate(stream) if number in wanted]
    assert opened.texts(rows) == lines
    vectors = load_encoder(str(model), pooler="mean").encode(lines)
    difference = float(np.abs(opened.rows(rows) - vectors).max())
    print(f"{len(rows):,} rows compared with vectors in memory: they differ by {difference:.1e} at most")


def memory(folder: Path, texts: int, kill: bool) -> None:
    model, source = tiny_model(folder / "model"), sentences(folder / f"{texts}.txt", texts)
    store = folder / f"store-{texts}"
    print(f"{texts:,} texts, {source.stat().st_size / 1e6:,.0f} MB")
    if kill:
        watched(command(model, source, store), store, kill_at=texts * 11 // 20)
    watched(command(model, source, store), store, kill_at=None)
    check(model, source, store, texts)


def processes(folder: Path, texts: int, rounds: int) -> None:
    model, source = tiny_model(folder / "model"), sentences(folder / f"{texts}.txt", texts)
    digests, taken = {}, {1: [], 2: []}
    for _ in range(rounds):
        for count in (1, 2):
            store = folder / f"processes-{count}"
            shutil.rmtree(store, ignore_errors=True)
            taken[count].append(timed(command(model, source, store, count), store, count))
            shards = json.loads((store / "manifest.json").read_text())["shards"]
            digests[count] = [shard["files"]["vectors.npy"]["sha256"] for shard in shards]
            wall, busy, steady = taken[count][-1]
            print(f"{count} process(es): {wall:.1f} s, {busy:.1f} processor seconds; once started {steady:.1f} us a text",
                  flush=True)
    one, two = np.array(taken[1]), np.array(taken[2])
    names = {0: "wall clock, one over two", 2: "the same once started", 1: "processor seconds, one over two"}
    for column, what in names.items():
        ratios = one[:, column] / two[:, column]
        print(f"{what}: {np.median(ratios):.2f} ({ratios.min():.2f}, {ratios.max():.2f})")
    print(f"equal files: {digests[1] == digests[2]}")


def timed(arguments: list[str], store: Path, count: int) -> tuple[float, float, float]:
    """Seconds of wall clock and of processor; and microseconds a text from when each process has written a shard."""
    began, started, last = time.monotonic(), None, None
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        now = rows_of(store), time.monotonic()
        if last is None or now[0] != last[0]:
            last = now
            started = now if started is None and now[0] >= count * 32_768 else started
        time.sleep(POLL / 10)
    if process.returncode or started is None or last[0] <= started[0]:
        raise SystemExit(f"exit code {process.returncode}, or too few texts: take more")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = usage.ru_utime + usage.ru_stime - timed.before
    timed.before += busy
    return time.monotonic() - began, busy, 1e6 * (last[1] - started[1]) / (last[0] - started[0])


timed.before = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["memory", "processes"], required=True)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--kill", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, required=True, help="of the texts and stores, which stay there")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.part == "memory":
        memory(args.folder, args.texts, args.kill)
    else:
        processes(args.folder, args.texts, args.rounds)


if __name__ == "__main__":
    main()
