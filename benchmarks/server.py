"""`openai:NAME` against a server on this machine: how much faster 16 requests at a time are than one, and what a kill costs.

    python benchmarks/server.py

The server takes 200 ms for each answer, however many it gives at a time, as a service far away does; its vectors are made of
the texts' digests (tests/support/embedding_server.py). The first part encodes 4,000 texts without a cache. The second starts
`stsbench eval` on 2,000 pairs of its own, kills it (SIGKILL) after 90 answers, starts it again, and counts which texts the
server was sent twice.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from stsbench import load_encoder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from embedding_server import serving


def rates(seconds: float, count: int) -> None:
    """Print seconds and ratio for several numbers of requests at a time."""
    texts, first = [f"text number {i}" for i in range(count)], 0.0
    for requests in (1, 4, 16):
        with serving() as server:
            encoder = load_encoder("openai:hash", base_url=server.url, requests=requests)
            server.seconds = seconds
            start, busy = time.perf_counter(), time.process_time()
            encoder.encode(texts)
            wall, used = time.perf_counter() - start, time.process_time() - busy
        first = first or wall
        print(f"--requests {requests}: {wall:.2f} s, {first / wall:.1f} times as fast as one; processor {used:.2f} s, the "
              "server's included", flush=True)


def killed(seconds: float, pairs: int, after: int) -> None:
    """Print what the server was sent twice because of a kill."""
    with tempfile.TemporaryDirectory() as folder, serving(seconds=seconds) as server:
        file = Path(folder) / "own.tsv"
        file.write_text("".join(f"sentence {i}\tanother sentence {i}\t{i % 6}\n" for i in range(pairs)), "utf-8")
        command = [
            sys.executable, "-m", "stsbench", "eval", "--model", "openai:hash", "--base-url", server.url,
            "--protocol", f"sts:{file}", "--resamples", "0", "--output", str(Path(folder) / "run"),
        ]
        environment = {**os.environ, "STSBENCH_CACHE": folder}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(server.asked) < after and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        time.sleep(1)  # what was under way is answered
        before = len(server.asked)
        done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
        print("".join(line + "\n" for line in done.stderr.splitlines() if "requests" in line or "error" in line), end="")
        sent = Counter(text for body in server.asked for text in body["input"] if "sentence" in text)
    twice = sum(count > 1 for count in sent.values())
    print(f"killed after {before} requests, {len(server.asked) - before} when it went on; {len(sent):,} of {2 * pairs:,} "
          f"texts were sent, {twice:,} of them twice")


def main() -> None:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.2, help="that an answer takes")
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--kill-after", type=int, default=90)
    asked = parser.parse_args()
    rates(asked.seconds, asked.texts)
    killed(asked.seconds / 4, asked.pairs, asked.kill_after)


if __name__ == "__main__":
    main()
