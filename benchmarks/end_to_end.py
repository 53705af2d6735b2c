"""What a user waits for: whole evaluations and trainings, by stsbench, by mteb and by SimCSE's code, each a process.

    git clone https://github.com/princeton-nlp/SimCSE
    python benchmarks/end_to_end.py --data ../shared/data --simcse SimCSE --models minilm,MODELS/all-mpnet-base-v2

- `sts`: seven tasks, or --sts's, by `stsbench eval`, by `mteb.evaluate` on the same pairs, and as SimCSE's evaluation.py
  computes them, with the SentEval of its repository (all splits, repeats included, batches of 128 in its order).
- `transfer`: --transfer's tasks by `stsbench eval --protocol transfer` and by that SentEval, ten folds. SentEval asks for
  CUDA; without it, its `.cuda()` returns what it is called on.
- `retrieval`: the first caption of --queries photos, whose four others are relevant among all, by
  `stsbench eval --protocol retrieval:FOLDER` and by mteb's evaluator of retrieval tasks.
- `train`: --steps of unsupervised SimCSE: benchmarks/train.py, whose loops it runs.

Each side starts from nothing: imports, loading, an empty cache. Minutes are of wall clock, memory is the peak resident
size, the ratio is the peer's minutes by ours. The scores say whether both sides computed the same.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from markdown_table import line

HERE = Path(__file__).resolve().parent
SIDES = {"sts": ("stsbench", "mteb", "simcse"), "transfer": ("stsbench", "simcse"), "retrieval": ("stsbench", "mteb")}
STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness")


def named(tasks: str) -> str:
    """Return SentEval's names of tasks as stsbench's."""
    return tasks.replace("STSBenchmark", "STS-B").replace("SICKRelatedness", "SICK-R")


def main() -> None:
    """Read the options, run every part of every model, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--simcse", type=Path, help="a clone of princeton-nlp/SimCSE; without it, its sides are left out")
    parser.add_argument("--models", default="minilm")
    parser.add_argument("--parts", default="sts,transfer,retrieval,train")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sts", default=",".join(STS), help="tasks by SentEval's names")
    parser.add_argument("--transfer", default="CR,MRPC,TREC")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps({"score": PEERS[args.side](args)}))
        return
    line("part", "model", "side", "minutes", "ratio", "peak MiB", "score")
    line("---", "---", "---", "---:", "---:", "---:", "---:")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        captions = next((args.data / "flickr30k").glob("*.token"), None)
        if captions:
            write_retrieval(captions, work / "captions", args.queries)
        for model in args.models.split(","):
            for part in args.parts.split(","):
                if part == "train":
                    show_training(model, args, work)
                else:
                    show_part(part, model, args, work)


def show_part(part: str, model: str, args: argparse.Namespace, work: Path) -> None:
    """Run each side of a part once, one after another, and print a line for each."""
    first = 0.0
    for side in SIDES[part]:
        if side == "simcse" and args.simcse is None:
            continue
        output = work / f"{part}-{side}-{Path(model).name}"
        if side == "stsbench":
            protocol = f"retrieval:{work / 'captions'}" if part == "retrieval" else part
            # SimCSE's evaluation leaves vectors as long as they come, and the probe learns other weights from unit vectors.
            tasks = {"transfer": ["--no-normalize", "--tasks", args.transfer],
                     "sts": ["--tasks", named(args.sts)]}.get(part, [])
            command = [str(Path(sys.executable).with_name("stsbench")), "eval", "--model", model, "--protocol", protocol,
                       *tasks, "--output", str(output), "--cache", str(work / f"cache-{output.name}")]
        else:
            command = [sys.executable, __file__, "--side", f"{part} {side}", "--models", model_path(model),
                       "--data", str(args.data.resolve()), "--transfer", args.transfer, "--sts", args.sts]
            command += ["--simcse", str(args.simcse.resolve())] if side == "simcse" else []
        seconds, mib, printed = run(command, args, work)
        first = first or seconds
        score = our_score(part, output) if side == "stsbench" else json.loads(printed.splitlines()[-1])["score"]
        line(part, Path(model).name, side, f"{seconds / 60:.2f}", f"{seconds / first:.2f}", f"{mib:.0f}", f"{score:.2f}")


def run(command: list[str], args: argparse.Namespace, work: Path) -> tuple[float, float, str]:
    """Return a process's seconds, its peak resident size in MiB, and what it printed; ends where it fails."""
    threads = {name: str(args.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")}
    environment = os.environ | threads | {
        "STSBENCH_DATA": str(args.data.resolve()), "STSBENCH_CACHE": str(work / "cache"), "HF_HUB_OFFLINE": "1",
        "MTEB_CACHE": str(work / "mteb"), "TOKENIZERS_PARALLELISM": "true",
    }
    start = time.perf_counter()
    with (work / "out").open("w+") as out, (work / "err").open("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, cwd=work)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if os.waitstatus_to_exitcode(status):
            err.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{err.read()[-2000:]}")
        out.seek(0)
        return seconds, usage.ru_maxrss / 1024, out.read()


def show_training(model: str, args: argparse.Namespace, work: Path) -> None:
    """Print the seconds of --steps by each of train.py's loops."""
    command = [sys.executable, str(HERE / "train.py"), "--model", model_path(model), "--steps", str(args.steps), "--rounds",
               "1", "--threads", str(args.threads), "--trainer", "--json", str(work / "train.json"),
               "--data", str(args.data.resolve() / "train" / "wiki_sentences.txt")]
    run(command, args, work)
    rows = {row["side"]: row for row in json.loads((work / "train.json").read_text())["rows"]}
    for side, row in rows.items():
        ratio = row["seconds"] / rows["ours"]["seconds"]
        line("train", Path(model).name, side.replace("ours", "stsbench"), f"{row['seconds'] / 60:.2f}", f"{ratio:.2f}",
             f"{row['mib']:.0f}", f"{row['losses'][-1]:.4f}")


def model_path(model: str) -> str:
    """Return a folder that every library reads."""
    if Path(model).is_dir():
        return str(Path(model).resolve())
    from stsbench.encoders.transformer.find import find_minilm

    return str(find_minilm())


def our_score(part: str, run_folder: Path) -> float:
    """Return the mean over tasks of the run's main figure: Spearman (all), accuracy, or nDCG@10."""
    with (run_folder / "scores.csv").open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if not row["subset"]]
    metric = {"sts": "spearman", "transfer": "accuracy", "retrieval": "ndcg@10"}[part]
    values = [float(row["value"]) for row in rows if row["metric"] == metric and row["aggregation"] in ("", "all")]
    return sum(values) / len(values)


def write_retrieval(captions: Path, folder: Path, photos: int) -> None:
    """Write the first captions as queries and the others of all photos up to `photos` times five as corpus."""
    folder.mkdir()
    groups: dict[str, list[str]] = {}
    for row in captions.read_text(encoding="utf-8").splitlines():
        key, text = row.split("\t")
        groups.setdefault(key.split("#")[0], []).append(text)
    chosen = list(groups.items())[:5 * photos]
    with (folder / "queries.tsv").open("w") as queries, (folder / "corpus.tsv").open("w") as corpus, \
            (folder / "relevance.tsv").open("w") as relevance:
        for number, (_, texts) in enumerate(chosen):
            if number < photos:
                queries.write(f"q{number}\t{texts[0]}\n")
            for position, text in enumerate(texts[1:]):
                corpus.write(f"c{number}-{position}\t{text}\n")
                if number < photos:
                    relevance.write(f"q{number}\tc{number}-{position}\n")


def sts_by_mteb(args: argparse.Namespace) -> float:
    """Return the mean of mteb's main scores over the seven tasks, on the pairs that SimCSE scores."""
    import mteb
    from datasets import Dataset, DatasetDict

    sys.path.insert(0, str(HERE / "encode"))
    import texts

    tasks = []
    for name, pairs in texts.read_tasks(args.data / "downstream")[1].items():
        if name not in named(args.sts).split(","):
            continue
        task = mteb.get_task({"STS-B": "STSBenchmark"}.get(name, name))
        first, second, gold = zip(*pairs, strict=True)
        columns = {"sentence1": list(first), "sentence2": list(second), "score": list(gold)}
        task.dataset, task.data_loaded = DatasetDict({task.eval_splits[0]: Dataset.from_dict(columns)}), True
        tasks.append(task)
    return mteb_mean(args, tasks)


def retrieval_by_mteb(args: argparse.Namespace) -> float:
    """Return mteb's nDCG@10 on the captions, in the place of a task's own documents."""
    import mteb
    from datasets import Dataset

    folder = Path("captions")
    queries, corpus, relevance = (
        [row.split("\t") for row in (folder / f"{name}.tsv").read_text(encoding="utf-8").splitlines()]
        for name in ("queries", "corpus", "relevance")
    )
    judged: dict[str, dict[str, int]] = {}
    for query, document in relevance:
        judged.setdefault(query, {})[document] = 1
    task = mteb.get_task("SciFact")
    sets = {name: Dataset.from_dict({"id": [row[0] for row in rows], "text": [row[1] for row in rows]})
            for name, rows in (("queries", queries), ("corpus", corpus))}
    task.dataset = {"default": {task.eval_splits[0]: {**sets, "relevant_docs": judged, "top_ranked": None}}}
    task.data_loaded = True
    return mteb_mean(args, [task])


def mteb_mean(args: argparse.Namespace, tasks: list[Any]) -> float:
    """Return 100 times the mean main score of tasks that hold their data."""
    import mteb
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    model = SentenceTransformer(args.models, device="cpu", model_kwargs={"dtype": torch.float32})
    done = mteb.evaluate(model, tasks, cache=None, co2_tracker=False, show_progress_bar=False)
    scores = [entry["main_score"] for result in done.task_results for rows in result.scores.values() for entry in rows]
    if len(scores) != len(tasks):
        raise SystemExit(f"mteb has {len(scores)} scores of {len(tasks)} tasks: {done.exceptions}")
    return 100 * sum(scores) / len(scores)


def by_simcse(args: argparse.Namespace, tasks: tuple[str, ...]) -> dict[str, Any]:
    """Return SentEval's results as SimCSE's evaluation.py asks for them (mode test), with mean pooling."""
    import inspect

    import torch
    from transformers import AutoModel, AutoTokenizer

    vars(inspect).setdefault("getargspec", inspect.getfullargspec)  # SentEval's optimisers ask for it; Python 3.11 has none
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.path.insert(0, str(args.simcse / "SentEval"))
    import senteval
    from senteval.tools.classifier import MLP

    if not torch.cuda.is_available():
        torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self  # type: ignore[method-assign, assignment]
        MLP.__init__.__defaults__ = (*MLP.__init__.__defaults__[:-1], True)  # cudaEfficient: it asks for no device
    model = AutoModel.from_pretrained(args.models, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.models)

    def batcher(_: Any, batch: list[list[str]]) -> Any:
        inputs = tokenizer([" ".join(words) for words in batch], return_tensors="pt", padding=True)
        with torch.no_grad():
            states = model(**inputs).last_hidden_state
        weights = inputs["attention_mask"].unsqueeze(-1)
        return ((states * weights).sum(1) / weights.sum(1)).numpy()

    parameters = {"task_path": str(args.data), "usepytorch": True, "kfold": 10, "classifier": {
        "nhid": 0, "optim": "adam", "batch_size": 64, "tenacity": 5, "epoch_size": 4,
    }}
    return {task: senteval.engine.SE(parameters, batcher).eval(task) for task in tasks}


def sts_by_simcse(args: argparse.Namespace) -> float:
    """Return the mean Spearman (all) of --sts's tasks."""
    results = by_simcse(args, tuple(args.sts.split(",")))
    values = [result["all"]["spearman"]["all"] if task.startswith("STS1") else result["test"]["spearman"].correlation
              for task, result in results.items()]
    return 100 * sum(values) / len(values)


def transfer_by_simcse(args: argparse.Namespace) -> float:
    """Return the mean accuracy of --transfer's tasks."""
    results = by_simcse(args, tuple(args.transfer.split(",")))
    return float(sum(result["acc"] for result in results.values()) / len(results))


PEERS = {"sts mteb": sts_by_mteb, "sts simcse": sts_by_simcse, "transfer simcse": transfer_by_simcse,
         "retrieval mteb": retrieval_by_mteb}


if __name__ == "__main__":
    main()
