"""Does the death of a node lose anything, or give it twice? Two nodes of a Ray on this machine, one of them killed.

    python benchmarks/killed_nodes.py [--texts 20000] [--model minilm]

Eight jobs of `stsbench run --ray`, evaluations and trainings that wait for one another, and `stsbench encode --ray` of
invented texts, on two nodes of a processor each. While they work the second node is killed by SIGKILL, the processes of Ray
and of its jobs, and nothing replaces it; another time nothing is killed. Printed: seconds, what the report says of repeated
jobs, and which files are not, but for times, those of one process with one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
PLAN = """
output: out
defaults: {sample: true, offline: true, device: cpu, dtype: float32, seeds: [1, 2], set: {selection.every: 2}}
train:
  a: {method: simcse, backbone: tiny, data: text.txt, max_steps: 6}
  b: {method: simcse, backbone: job:a, data: text.txt, max_steps: 6}
eval:
  e: {model: [job:b, lexical:token-set, lexical:tfidf], protocols: sts}
"""
TIMES = rb'"?(started|created|seconds|sentences_per_second)"?: [^,}\n]+'


def main() -> None:
    """Print what happened; exit code 1 unless all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--model", default="minilm")
    options = parser.parse_args()
    # At Ray's niceness, 15, workers starve on a busy machine.
    os.environ |= {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0", "HF_DEACTIVATE_ASYNC_LOAD": "1"}
    folder = Path(tempfile.mkdtemp(prefix="killed-nodes-"))
    os.environ["STSBENCH_CACHE"] = str(folder / "cache")
    import tiny_models
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 200_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    draw = random.Random(0)
    texts = "\n".join(" ".join(draw.choices(tiny_models.WORDS, k=draw.randint(3, 28))) for _ in range(options.texts))
    for name in ("alone", "two", "killed"):
        (folder / name).mkdir()
        tiny_models.build(folder / name / "tiny", pooler=False)
        (folder / name / "plan.yaml").write_text(PLAN, "utf-8")
        (folder / name / "text.txt").write_text("\n".join(tiny_models.sentences(200, longest=9)) + "\n", "utf-8")
        (folder / name / "texts.txt").write_text(texts + "\n", "utf-8")
    encode = ["encode", "--model", options.model, "--device", "cpu", "--input", "texts.txt", "--output", "out-texts",
              "--shard-size", str(max(1, options.texts // 20))]
    fine, seconds = True, dict[str, float]()
    for what, words, done in (("plan", ["run", "plan.yaml"], "out/*/train.json"), ("encode", encode, "out-texts/shards/0*")):
        for name in ("alone", "two", "killed"):
            second = None if name == "alone" else cluster.add_node(**node)
            ray = [] if second is None else ["--ray", cluster.address]
            ended = threading.Event()
            killer = threading.Thread(target=kill, args=(second, folder / name, done, ended))
            if name == "killed":
                killer.start()
            began = time.monotonic()
            run = subprocess.run([sys.executable, "-m", "stsbench", *words, *ray], cwd=folder / name, capture_output=True,
                                 text=True, encoding="utf-8")
            seconds[name] = time.monotonic() - began
            ended.set()
            if second is not None and name != "killed":
                cluster.remove_node(second)
            differ = [path for path in files(folder / "alone") if not equal(folder / "alone" / path, folder / name / path)]
            differ += [path for path in files(folder / name) if not (folder / "alone" / path).exists()]
            fine &= run.returncode == 0 and not differ
            ends = f"exit code {run.returncode}, {seconds[name]:.0f} s"
            print(f"{what}, {name}: {ends}; other than alone: {', '.join(map(str, differ)) or 'nothing'}")
            print("".join(f"  {line}\n" for line in (run.stderr + run.stdout).splitlines()
                          if re.search(r"again|; try \d|rror|failed", line)), end="", flush=True)
        print(f"{what}: two nodes {seconds['alone'] / seconds['two']:.2f} times as fast as one process")
    cluster.shutdown()
    sys.exit(0 if fine else 1)


def kill(node: object, folder: Path, done: str, ended: threading.Event) -> None:
    """Kill a node's processes, once a result is there and it works on what needs one, or on another shard."""
    raylet = node.all_processes["raylet"][0].process.pid
    while not ended.wait(0.2):
        tree = [raylet]
        for pid in tree:
            tree += [int(child) for task in Path(f"/proc/{pid}/task").glob("*") for child in
                     (task / "children").read_text("ascii").split()]
        names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in tree]
        if any(folder.glob(done)) and any(b"\0--backbone\0out/" in name or b"ray::compute" in name for name in names):
            time.sleep(1)
            for pid in tree:
                with contextlib.suppress(ProcessLookupError):  # Ray's workers end with their raylet
                    os.kill(pid, signal.SIGKILL)
            return


def files(folder: Path) -> list[Path]:
    """Results below a folder: no locks and notes, and nothing of how a training went on its way."""
    among = [*folder.glob("out/[!.]*/**/*"), *folder.glob("out-texts/**/*")]
    return sorted(path.relative_to(folder) for path in among if path.is_file() and "checkpoints" not in path.parts
                  and path.name not in (".lock", "log.jsonl", "begun.json"))


def equal(one: Path, other: Path) -> bool:
    """Whether two files hold the same but for times."""
    if not other.exists() or filecmp.cmp(one, other, shallow=False):
        return other.exists()
    if one.suffix == ".parquet":
        from stsbench.evaluation.run_file import load_records

        both = ["\n".join(record.model_dump_json() for _, record in load_records(path.parent)).encode()
                for path in (one, other)]
    else:
        both = [path.read_bytes() for path in (one, other)]
    return re.sub(TIMES, b"", both[0].replace(b":", b": ")) == re.sub(TIMES, b"", both[1].replace(b":", b": "))


if __name__ == "__main__":
    main()
