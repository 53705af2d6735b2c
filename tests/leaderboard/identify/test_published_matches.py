"""Numbers alone name the published rows that hold them."""

import random

import pytest

from stsbench import identify
from stsbench.leaderboard.identify.published import published_matches
from stsbench.leaderboard.records.publications import load_publications


def test_a_row_is_found_by_what_it_prints():
    printed = [row for publication in load_publications() for row in publication.rows if any(row.scores)]
    for row in random.Random(0).sample(printed, 30):
        cells = [(name, score) for name, score in zip(row.heading.columns, row.scores, strict=True) if score is not None]
        bare = " ".join(f"{score:.{row.printed_decimals}f}" for _, score in cells)
        assert row.id in [found["row"] for found in published_matches(bare).rows]


def test_the_row_that_others_copied_is_the_first():
    found = identify("76.25")
    assert found.rows[0]["row"] == "simcse:5:7" and found.rows[0]["aggregation"] == "all"
    assert {row["row"] for row in found.rows} >= {"diffaug:1:5", "diffcse:1:9"} and "simcse:5:7" in str(found)
    assert [row["row"] for row in identify("SICK-R=72.23,Avg=76.25").rows[:1]] == ["simcse:5:7"]


def test_a_number_is_found_under_its_own_name_only():
    with pytest.raises(Exception, match="no published row"):
        identify("STS12=76.25,STS13=76.25")
