"""Numbers in sentences."""

from stsbench.wording import counted


def test_one_is_singular():
    assert [counted(number, "text") for number in (0, 1, 2, 12345)] == ["0 texts", "1 text", "2 texts", "12,345 texts"]
