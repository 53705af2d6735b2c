"""Numbers in sentences."""

from stsbench.wording import counted, sized


def test_one_is_singular():
    assert [counted(number, "text") for number in (0, 1, 2, 12345)] == ["0 texts", "1 text", "2 texts", "12,345 texts"]


def test_sizes_have_two_digits_or_three():
    sizes = {0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 9_949: "9.9 kB", 9_951: "10 kB", 999_499: "999 kB",
             999_500: "1.0 MB", 17_400_000: "17 MB", 1_850_000_000: "1.9 GB", 5 * 10**15: "5,000 TB"}
    assert {count: sized(count) for count in sizes} == sizes
