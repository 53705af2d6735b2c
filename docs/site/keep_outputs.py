"""The outputs of `make notebooks` into docs/notebooks, where they are committed, without what differs from run to run.

    make notebooks && .venv/bin/python docs/site/keep_outputs.py

Left out are bars and warnings, and what stands beside a table or a picture for programs that can show neither: its text,
which may hold a path, and its SVG, where there is a PNG.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ("text/html", "text/markdown", "image/png")


def kept(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What of a cell's outputs is committed."""
    chosen: list[dict[str, Any]] = []
    for output in outputs:
        if "data" in output:
            data = {kind: value for kind, value in output["data"].items() if kind in SHOWN} or output["data"]
            if "<progress" in "".join(data.get("text/html", "")):
                continue
            output = {"data": data, "metadata": output["metadata"], "output_type": "display_data"}
        elif output.get("name") != "stdout":
            continue
        elif chosen and chosen[-1].get("name") == "stdout":  # a bar stood between them
            chosen[-1]["text"] = [*chosen[-1]["text"], *output["text"]]
            continue
        chosen.append(output)
    return chosen


def main() -> None:
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        ran = ROOT / "build/notebooks" / path.name
        book, run = (json.loads(one.read_text("utf-8")) for one in (path, ran))
        made = {cell["id"]: cell["outputs"] for cell in run["cells"] if "outputs" in cell}
        for cell in book["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"] = kept(made[cell["id"]])
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
