"""A protocol declares itself: nothing outside protocols/ knows one by name, but for what is listed here, with the reason."""

import re
from pathlib import Path

import pytest
from core_protocols import core_protocols
from source_facts import ROOT, facts, tree

PACKAGE, FLAG, STAGE = "the package mteb", "the flag of STS labels", "a stage of the method"
ALLOWED = {  # file or folder -> the strings that may stand there, None for any, and why
    "stsbench/registry.py": ({"sts"}, "what is measured by default"),
    "stsbench/data/sets/sets.py": ({"mteb:"}, PACKAGE),
    "stsbench/data/fetch/mteb.py": ({"mteb"}, PACKAGE),
    "stsbench/encoders/options.py": ({"mteb"}, PACKAGE),
    "stsbench/encoders/prompt": ({"mteb"}, PACKAGE),
    "leaderboard/imports": ({"mteb"}, PACKAGE),
    "stsbench/cli/show.py": ({"sts:all", "transfer"}, "what papers print of a recipe"),
    "stsbench/training/engine/selection.py": ({"transfer"}, "development data that papers choose checkpoints by"),
    "stsbench/training/recipes/sections.py": ({"sts:", "pairs:"}, "pairs of one's own that choose checkpoints"),
    "leaderboard/entry_commands.py": ({"sts"}, FLAG),
    "leaderboard/api.py": ({"sts"}, FLAG),
    "leaderboard/records/publications.py": ({"sts"}, FLAG),
    "leaderboard/ranks/board.py": ({"sts"}, FLAG),
    "leaderboard/records/entries.py": ({"sts"}, FLAG),
    "leaderboard/findings": ({"transfer", "sts:all"}, "tabs of one page's table"),
    "leaderboard/identify": (None, "it asks which of the literature's settings a printed row has"),
    "leaderboard/reproduce": (None, "it asks which commands measure what papers print"),
    "methods/sbert": ({"sts"}, STAGE),
}


def named_in(source, path):
    """"path:line: name" of each protocol that a file names without being allowed to."""
    protocol = re.compile(rf"(?:{'|'.join(core_protocols())})(?::\S*)?")
    words = {"pairs", "triplets"}  # by themselves, words of the language
    allowed = [words for place, (words, _) in ALLOWED.items() if Path(path).is_relative_to(place)]
    return [f"{path}:{line}: {value}" for line, value in facts(source).strings if protocol.fullmatch(value)
            and value not in words and not any(some is None or value in some for some in allowed)]


def test_nothing_outside_protocols_names_one():
    files = [file for file in tree() if not file.startswith(("protocols/", "stsbench/extensions/"))]
    assert len(files) > 300
    named = [name for file in files for name in named_in(tree()[file], file)]
    assert not named, "let the protocol declare it (stsbench/evaluation/protocol.py): " + "; ".join(named)


@pytest.mark.parametrize("planted", ['"sts:mean"', '"retrieval:"', '{"geometry": 1}'])
def test_a_planted_name_is_found(planted):
    assert len(named_in(f"PLANTED = {planted}\n", "leaderboard/records/admission.py")) == 1


def test_what_is_allowed_is_there():
    """An entry of the list that nothing needs any more would hide what comes later."""
    for place, (words, reason) in ALLOWED.items():
        path = ROOT / place
        if place.startswith("leaderboard/") and not path.suffix and not path.exists():
            continue  # an extension of the board, which .ci/fence takes out
        there = {value for file, text in tree().items() if Path(file).is_relative_to(place)
                 for _, value in facts(text).strings}
        assert reason and (words is None or words <= there), place
