"""Every relative link of every Markdown page leads to a file, and its fragment to a heading."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "benchmarks", "methods", "leaderboard", "protocols", "stsbench", "tests")
LINK = re.compile(r"\]\(<?([^)<>\s]+)>?\)|(?:src|href)=\"([^\"]+)\"")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def pages(root):
    """The Markdown files of a checkout; build outputs and environments at its top, and npm's packages, do not count."""
    below = (page for folder in FOLDERS for page in (root / folder).rglob("*.md"))
    return sorted([*root.glob("*.md"), *(page for page in below if "node_modules" not in page.parts)])


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(root):
    """`page: link` for each relative link without a file or heading at its end."""
    broken = []
    for page in pages(root):
        for match in LINK.finditer(CODE.sub("", FENCE.sub("", page.read_text("utf-8")))):
            link = match[1] or match[2]
            if re.match(r"[a-z]+:", link):
                continue
            name, _, fragment = link.partition("#")
            target = (page.parent / name if name else page).resolve()
            missing = not target.exists() or (fragment and target.suffix == ".md" and fragment not in anchors(target))
            if missing:
                broken.append(f"{page.relative_to(root)}: {link}")
    return broken


def test_every_relative_link_resolves():
    assert len(pages(ROOT)) > 25  # the walk sees something
    assert broken_links(ROOT) == []


def test_every_page_of_the_docs_is_listed():
    listed = {match[1] for match in LINK.finditer((ROOT / "docs" / "README.md").read_text("utf-8"))}
    written = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert written <= listed


def test_a_planted_link_is_judged(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/other.md").write_text("# Title\n\n## Two words\n", "utf-8")
    good = ("other.md", "other.md#two-words", "#here", "<other.md>", "https://example.org/x")
    wrong = ("missing.md", "other.md#three-words", "#there", "../other.md")
    links = "\n".join(f"See [this]({link})" for link in (*good, *wrong))
    (tmp_path / "docs/page.md").write_text(f"# Here\n\n{links}, not `[that](nowhere.md)`.\n", "utf-8")
    assert broken_links(tmp_path) == [f"docs/page.md: {link}" for link in wrong]
