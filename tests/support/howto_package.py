"""The files of docs/how-to/adding-a-method.md, and its package as pip installs it: a plug-in's method, `plain-sbert`."""

import re
import tomllib
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "adding-a-method.md").read_text("utf-8")
FILES = dict(re.findall(r"^`([\w.-]+)`[^`]*:\n\n```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


def install(site):
    """The package in the folder `site`, which is to stand in sys.path; the folder of its code."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    code = site / "stsbench_sbert"
    (code / "recipes").mkdir(parents=True)
    (code / "__init__.py").touch()
    (code / "sbert.py").write_text(FILES["sbert.py"], "utf-8")
    (code / "recipes" / "sbert-nli.yaml").write_text(FILES["sbert-nli.yaml"], "utf-8")
    facts = site / "stsbench_sbert-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"]["stsbench.methods"].items()
    (facts / "entry_points.txt").write_text("[stsbench.methods]\n" + "".join(f"{name} = {at}\n" for name, at in points))
    return code
