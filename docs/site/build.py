"""Build the site, put a board below it and check it: what `make site` and the workflow run.

    python docs/site/build.py [--board DIR] [--output DIR]

Every warning of MkDocs is an error. Then LinkChecker follows the links of the built pages, the board's index.html too, and
no page may load a script, a style, a font or a picture from another host. Exit code 1 and a line each for what is wrong.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What a browser loads without a click: sources, stylesheets and icons, url(...) and @import of styles.
_TAGS = re.compile(r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\ssrc=[\"']?((?:https?:)?//[^\"'\s>]+)|"
                   r"<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect|dns-prefetch|modulepreload))"
                   r"[^>]*?\shref=[\"']?((?:https?:)?//[^\"'\s>]+)", re.IGNORECASE)
_STYLES = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


def foreign(site: Path) -> list[str]:
    """`FILE: address` for everything that a page or a style of `site` loads from another host."""
    lines = []
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        text = path.read_text("utf-8")
        matches = (_TAGS if path.suffix == ".html" else _STYLES).finditer(text)
        lines += [f"{path.relative_to(site)}: {match[1] or match[match.lastindex or 1]}" for match in matches]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--board", type=Path, help="A built board, which becomes leaderboard/ of the site.")
    parser.add_argument("--output", type=Path, default=ROOT / "build/site")
    options = parser.parse_args()
    output: Path = options.output.resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", str(output)]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        return 1
    board: Path = output / "leaderboard"
    if options.board:
        shutil.copytree(options.board, board)
    else:
        board.mkdir()
        text = "<!doctype html><title>Leaderboard</title><p>Built without the board: see `make site`.\n"
        (board / "index.html").write_text(text, "utf-8")
    lines = foreign(output)
    for line in lines:
        print(f"loaded from another host: {line}", file=sys.stderr)
    checker = [str(Path(sys.executable).with_name("linkchecker")), "--no-status", "--no-warnings", "--threads=1"]
    ignored = ["--ignore-url=^https?:", "--ignore-url=^mailto:"]  # other hosts are not asked
    broken = subprocess.run([*checker, *ignored, str(output / "index.html")], check=False)
    return int(bool(lines or broken.returncode))


if __name__ == "__main__":
    sys.exit(main())
