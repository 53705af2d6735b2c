"""What a CUDA machine makes of stsbench, in one command and under ten minutes: `make gpu`, or `python benchmarks/gpu`.

Every method ten steps in float32, bf16 and fp16 against float32 on the CPU; `eval` on the device against the CPU; families
of models without padding against each text alone; encoding and training against sentence-transformers on the same device,
and their share of its matrix-product rate; peak memory; two processes with NCCL where there are two devices. One report,
report.json and report.md, in --output. Each part runs in processes of its own, so that what fails ends nothing else; the
exit code is 1 where something failed. --cpu is the dry run: the same code on small sizes, without a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import write_report
from setting import PARTS, Setting

LIMIT = {"cuda": 570, "cpu": 3600}  # seconds for all parts
_FOLDER = Path(__file__).resolve().parent


def run_part(part: str, setting: Setting, left: float) -> list[dict[str, Any]]:
    """The rows of one part. Its process is started again for what is left behind a row that it died at: an error on a GPU
    makes everything after it fail in the same process."""
    rows: list[dict[str, Any]] = []
    names, end = setting.names(part), time.monotonic() + left
    while names:
        command = [sys.executable, str(_FOLDER), "--part", part, "--setting", setting.to_json(), "--names", ",".join(names)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, end - time.monotonic()))
            out, why = done.stdout, _last(done.stderr)
        except subprocess.TimeoutExpired as late:
            out, why = _text(late.stdout), f"not done within the {LIMIT[setting.device]} s of all parts"
        fresh = [json.loads(line) for line in out.splitlines() if line.startswith('{"part"')]
        rows += fresh
        names = names[len(fresh) :]
        if names and (not fresh or fresh[-1]["status"] != "failed"):  # it died without a word on this one
            rows.append({"part": part, "name": names.pop(0), "status": "failed", "why": why or "the process ended"})
        if time.monotonic() > end:
            rows += [{"part": part, "name": name, "status": "failed", "why": "no time was left"} for name in names]
            break
    return rows


def one_part(part: str, setting: Setting, names: list[str]) -> None:
    """Measure in this process: a line of JSON for each name, until one fails."""
    module = __import__(PARTS[part])
    for name in names:
        began = time.perf_counter()
        try:
            row = module.measure(name, setting)
        except Exception as error:
            import traceback

            traceback.print_exc()
            row = {"status": "failed", "why": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}", "ended": True}
        seconds = round(time.perf_counter() - began, 1)
        print(json.dumps({"part": part, "name": name, **row, "took": seconds}), flush=True)
        if row.get("ended"):
            return


def main() -> int:
    """0 where nothing failed, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="the dry run")
    parser.add_argument("--data-dir", type=Path, help="STS data for `eval` and the texts; default: the package's sample")
    parser.add_argument("--output", type=Path, default=Path("build/gpu"))
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--setting", help=argparse.SUPPRESS)
    parser.add_argument("--names", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        one_part(args.part, Setting.from_json(args.setting), args.names.split(","))
        return 0
    if stray := [part for part in args.parts.split(",") if part not in PARTS]:
        parser.error(f"--parts {stray[0]}: there are {', '.join(PARTS)}")
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="stsbench-gpu-") as work:
        setting = Setting.make(args.cpu, args.data_dir, Path(work))
        for part in args.parts.split(","):
            fresh = run_part(part, setting, LIMIT[setting.device] - (time.monotonic() - began))
            for row in fresh:
                print(f"{row['status']:8}{part}: {row['name']}" + (f": {row['why']}" if row.get("why") else ""), flush=True)
            rows += fresh
        write_report(args.output, setting, rows, time.monotonic() - began)
    failed = sum(row["status"] == "failed" for row in rows)
    print(f"{len(rows)} measured, {failed} failed, {time.monotonic() - began:.0f} s: {args.output / 'report.md'}")
    return int(failed > 0)


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


def _text(out: bytes | str | None) -> str:
    return out.decode(errors="replace") if isinstance(out, bytes) else out or ""


if __name__ == "__main__":
    sys.exit(main())
