"""The closed word lists of the rules, English, written for this package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Groups = Mapping[str, tuple[str, ...]]  # word -> the words of its group, itself included
Phrases = dict[tuple[str, ...], tuple[str, ...]]  # words of a phrase -> replacements; () keeps the phrase unchanged


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _groups(lines: str) -> Groups:
    groups = [tuple(line.split()) for line in lines.strip().splitlines()]
    return {word: group for group in groups for word in group}


def _both_ways(lines: str) -> Phrases:
    """Return the phrases of lines "a / b, c / d": a becomes b, b becomes a."""
    table: Phrases = {}
    for line in lines.strip().splitlines():
        for pair in line.split(","):
            one, other = (side.strip() for side in pair.split("/"))
            table[tuple(one.split())], table[tuple(other.split())] = (other,), (one,)
    return table


def _one_way(lines: str) -> Phrases:
    """Return the phrases of lines "a > b / c": a becomes b or c; "a >": a stays."""
    table: Phrases = {}
    for line in lines.strip().splitlines():
        one, _, others = line.partition(">")
        table[tuple(one.split())] = tuple(other.strip() for other in others.split("/") if other.strip())
    return table


def _swaps(groups: Iterable[tuple[str, ...]]) -> Phrases:
    return {(word,): tuple(other for other in group if other != word) for group in groups for word in group}


# Common nouns: a word is replaced by another of its line, of which no two are synonyms or hypernyms of each other.
NOUNS = _groups("""
man woman
men women
boy girl
boys girls
father mother
brother sister
husband wife
king queen
dog cat horse cow pig rabbit monkey tiger elephant sheep goat
dogs cats horses cows pigs rabbits monkeys tigers elephants goats
car bus train boat bicycle airplane motorcycle
cars buses trains boats bicycles airplanes motorcycles
guitar piano flute violin trumpet drum harp
guitars pianos flutes violins trumpets drums harps
onion potato tomato carrot cucumber banana apple lemon egg
onions potatoes tomatoes carrots cucumbers bananas apples lemons eggs
football basketball baseball tennis golf hockey rugby
beach forest desert kitchen garden street school church hospital
water milk beer wine coffee juice
bread cheese meat rice butter
hat shirt jacket shoe
hats shirts jackets shoes
table chair bed desk bench
tables chairs beds desks benches
doctor teacher soldier farmer lawyer
doctors teachers soldiers farmers lawyers
river lake mountain
rivers lakes mountains
knife spoon fork
book newspaper letter
books newspapers letters
""")

# Names, in their usual case.
NAMES = _groups("""
China Russia India Japan France Germany Italy Spain Iran Iraq Syria Egypt Israel Pakistan Brazil Mexico Canada
Chinese Russian Indian Japanese French German Italian Spanish Iranian Iraqi Syrian Egyptian Israeli Pakistani Brazilian
London Paris Berlin Moscow Beijing Tokyo Baghdad Kabul Cairo Rome Madrid Chicago Boston Houston Seattle
Africa Europe Asia Australia
John Peter David Michael Robert James William Thomas
Mary Anna Sarah Susan Elizabeth Laura Karen Julia
""")
NAME_BEFORE = _words("north south east west new saint san los las northern southern eastern western prince king queen")

NUMBER_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90,
}
LARGE_NUMBERS = _words("hundred thousand million billion dozen hundreds thousands millions billions dozens")

QUANTIFIERS = _both_ways("""
more than / less than, at least / at most, always / never, everyone / no one, everybody / nobody, everything / nothing
everywhere / nowhere, many / few, more / fewer, often / rarely, increasingly / decreasingly
""") | _one_way("""
all > some / no
all of > some of / none of
all the > some of the / none of the
all over >
at all >
after all >
above all >
first of all >
each > no
each other >
every > no
every other >
some > no / all
some of > none of / all of
most of > few of / none of
half of > all of / none of
several > no / all
none of > all of
sometimes > never / always
usually > rarely
someone > no one / everyone
somebody > nobody / everybody
once more >
more or less >
no more >
any more >
many more >
how many >
as many >
a few > many
few of > most of
entirely > partly
completely > partly
nearly all > few
almost all > few
""")

_UNITS = ("seconds", "minutes", "hours", "days", "weeks", "months", "years", "decades", "centuries")
_PERIODS = ("night", "week", "weekend", "month", "summer", "winter", "year", "season", "decade", "century")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)
WORDS_TOO = frozenset({"March", "May"})  # also common words, in texts without capitals and at the start of a sentence
CALENDAR: Phrases = _swaps([DAYS, MONTHS])  # in their usual case
TIMES: Phrases = (
    _swaps([("yesterday", "today", "tomorrow"), ("morning", "afternoon", "evening"), _UNITS])
    | _both_ways("before / after, earlier / later, early / late, previously / subsequently, once / twice")
    | {("last", period): (f"next {period}",) for period in _PERIODS}
    | {("next", period): (f"last {period}",) for period in _PERIODS}
    | _one_way("""
    sooner or later >
    at once >
    once again >
    the day after >
    the day before >
    after all >
    look after >
    looks after >
    looking after >
    looked after >
    named after >
    no later >
    """)
)

ANTONYMS: Phrases = (
    _swaps([("red", "blue", "green", "yellow", "purple", "pink"), ("laughing", "crying"), ("smiling", "frowning")])
    | _both_ways("""
    big / small, old / young, black / white, tall / short, wide / narrow, thick / thin, heavy / lightweight, full / empty
    happy / sad, rich / poor, fast / slow, quickly / slowly, loud / quiet, loudly / quietly, clean / dirty, wet / dry
    good / bad
    better / worse, best / worst, strong / weak, stronger / weaker, high / low, higher / lower, highest / lowest
    larger / smaller
    bigger / tinier, largest / smallest, easy / difficult, safe / dangerous, possible / impossible, legal / illegal
    true / false
    guilty / innocent, positive / negative, alive / dead, asleep / awake, male / female, indoor / outdoor, indoors / outdoors
    inside / outside, above / below, near / far from, in front of / behind, upstairs / downstairs, upwards / downwards
    open / closed, opens / closes, opening / closing, opened / shut, enters / leaves, entering / leaving, entered / departed
    pushing / pulling, pushes / pulls, pushed / pulled, sitting / standing, sits / stands, sat / stood
    buy / sell, buys / sells, buying / selling, bought / sold, win / lose, wins / loses, winning / losing, won / lost
    rise / fall, rises / falls, rising / falling, rose / fell, risen / fallen, increase / decrease, increases / decreases
    increased / decreased, increasing / decreasing, accept / reject
    accepts / rejects, accepted / rejected, agree / disagree, agrees / disagrees, agreed / disagreed, support / oppose
    supports / opposes, supported / opposed, success / failure, succeeded / failed, remember / forget, love / hate
    loves / hates
    allow / forbid, allows / forbids, allowed / forbidden, confirms / denies, confirmed / denied, strengthens / weakens
    with a / without a, with an / without an, ally / enemy, allies / enemies, friend / foe, friends / foes, peace / war
    beautiful / ugly, expensive / cheap, correct / wrong, similar / different, ancient / modern, polite / rude
    arrive / depart
    """)
    | _one_way("""
    large > small
    tiny > huge
    huge > tiny
    dark > bright
    bright > dark
    hot > cold
    cold > hot
    hot dog >
    hot dogs >
    old man >
    years old >
    year old >
    months old >
    how old >
    how high >
    how tall >
    high school >
    best friend >
    white house >
    black market >
    in the open >
    """)
)

# For the rules that keep the meaning.
CONTRACTED_NOT = {
    "isn't": "is", "aren't": "are", "wasn't": "was", "weren't": "were", "don't": "do", "doesn't": "does", "didn't": "did",
    "hasn't": "has", "haven't": "have", "hadn't": "had", "can't": "can", "cannot": "can", "couldn't": "could",
    "won't": "will", "wouldn't": "would", "shouldn't": "should", "mustn't": "must",
}
NOT_CONTRACTED = {verb: short for short, verb in CONTRACTED_NOT.items() if short != "cannot"}
ENDINGS = {"'re": "are", "'m": "am", "'ll": "will", "'ve": "have"}  # without the ambiguous 's and 'd
PRONOUN_VERBS = {
    "i": {"am": "'m", "will": "'ll", "have": "'ve"},
    **{pronoun: {"are": "'re", "will": "'ll", "have": "'ve"} for pronoun in ("you", "we", "they")},
    **{pronoun: {"is": "'s", "will": "'ll"} for pronoun in ("he", "she", "it")},
    **{pronoun: {"is": "'s"} for pronoun in ("there", "that", "who", "what")},
}
KEYS = {  # a key of a US keyboard -> those beside it in its row
    letter: "".join(row[max(at - 1, 0) : at] + row[at + 1 : at + 2])
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm") for at, letter in enumerate(row)
}

# Function words and participles.
BE = frozenset({"is", "are", "was", "were"})
MODALS = frozenset({"can", "could", "will", "would", "should", "must"})
HAVE = frozenset({"has", "have", "had"})
AUXILIARIES = BE | MODALS | HAVE | {"do", "does", "did"}
PARTICIPLES = _words("been become begun broken brought built come done found given gone grown had held kept known left lost "
                     "made met paid put said seen sent shown sold spent taken told won written")
NEGATIVE = _words("not no never none nobody nothing nowhere neither nor cannot without") | set(CONTRACTED_NOT)
ARTICLES = frozenset({"a", "an"})
DETERMINERS = _words("a an the one this that his her its their our my your another")
RELATIVE = _words("who which that what where when if while because although")
LINKS = _words("""
    about above across after against along among and around as at because before behind below beneath beside between but by
    down during for from if in inside into near of off on onto or out outside over past since than that through to toward
    towards under until up upon when where which while who with within without
""")
LISTED = frozenset(
    word.lower() for table in (NOUNS, NAMES, NUMBER_WORDS, AUXILIARIES, DETERMINERS, LINKS, NEGATIVE) for word in table
) | {word.lower() for table in (QUANTIFIERS, TIMES, CALENDAR, ANTONYMS) for words in table for word in words}
