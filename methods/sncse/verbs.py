"""Negation of English sentences by lists of verbs, where spaCy and its parser are not installed.

It differs from the released rule: without a parse it negates the first finite verb that it recognises, not the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_AUXILIARIES = _words("am is was were are can could will would shall should may must might")
_HAVE = {"has": "does", "have": "do", "had": "did"}
_DO = frozenset(("do", "does", "did"))
_SUBJECTS = _words("i you he she it we they who which that there this these those what")
_BARE_SUBJECTS = _words("i you we they")  # subjects whose verb has the base form
_NO_SUBJECTS = _words(
    "a an the in on at of for from to by with as and or but after before during since until when while where if although "
    "though because his her its their our my your this these those some many most several all both "
    "two three four five six seven eight nine ten"
)
# base, third person, past tense, participle. The past tenses in _STRONG are no adjectives (not `the died man`), so that
# they are verbs even without a subject.
_STRONG = """
become becomes became become|begin begins began begun|break breaks broke broken|choose chooses chose chosen
come comes came come|do does did done|draw draws drew drawn|drive drives drove driven|eat eats ate eaten
fall falls fell fallen|fly flies flew flown|forget forgets forgot forgotten|give gives gave given|go goes went gone
grow grows grew grown|know knows knew known|ride rides rode ridden|rise rises rose risen|run runs ran run
see sees saw seen|sing sings sang sung|speak speaks spoke spoken|steal steals stole stolen|swim swims swam swum
take takes took taken|throw throws threw thrown|undergo undergoes underwent undergone|wear wears wore worn
write writes wrote written|agree agrees agreed agreed|appear appears appeared appeared|arrive arrives arrived arrived
belong belongs belonged belonged|compete competes competed competed|consist consists consisted consisted
die dies died died|exist exists existed existed|graduate graduates graduated graduated|happen happens happened happened
last lasts lasted lasted|occur occurs occurred occurred|participate participates participated participated
refer refers referred referred|remain remains remained remained|seem seems seemed seemed
"""
_WEAK = """
attend attends attended attended|base bases based based|bring brings brought brought
build builds built built|buy buys bought bought|call calls called called|catch catches caught caught
contain contains contained contained|continue continues continued continued|cover covers covered covered
create creates created created|describe describes described described|direct directs directed directed
feature features featured featured|find finds found found|follow follows followed followed|form forms formed formed
found founds founded founded|get gets got got|hold holds held held|include includes included included
introduce introduces introduced introduced|join joins joined joined|keep keeps kept kept|lead leads led led
leave leaves left left|live lives lived lived|lose loses lost lost|make makes made made|marry marries married married
mean means meant meant|meet meets met met|move moves moved moved|open opens opened opened|own owns owned owned
play plays played played|produce produces produced produced|provide provides provided provided
publish publishes published published|reach reaches reached reached|receive receives received received
record records recorded recorded|release releases released released
return returns returned returned|say says said said|sell sells sold sold|send sends sent sent|serve serves served served
show shows showed showed|spend spends spent spent|stand stands stood stood|start starts started started
state states stated stated|study studies studied studied|teach teaches taught taught|tell tells told told
think thinks thought thought|use uses used used|want wants wanted wanted|win wins won won|work works worked worked
"""
_NOUNS_TOO = _words(  # third persons that are more often plural nouns: verbs only after a subject
    "bases calls covers features forms founds leads leaves lives moves plays records releases returns shows starts states "
    "uses works wins means stands runs rides falls rises draws breaks drives studies flies"
)


def _entries(table: str) -> Iterator[list[str]]:
    return (entry.split() for line in table.strip().splitlines() for entry in line.split("|"))


_BASES = {entry[0] for table in (_STRONG, _WEAK) for entry in _entries(table)}
_THIRD = {entry[1]: entry[0] for table in (_STRONG, _WEAK) for entry in _entries(table)}
_PAST = {entry[2]: entry[0] for entry in _entries(_STRONG)}
_PAST_BEHIND_SUBJECT = {entry[2]: entry[0] for entry in _entries(_WEAK)}
_PARTICIPLES = {entry[3] for table in (_STRONG, _WEAK) for entry in _entries(table)} | {"been", "had"}
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_NOT = re.compile(r"(?<!\S)not(?!\S) ?")


def negated(text: str) -> str | None:
    """Return a sentence's negation, with its spacing kept; None where it has no verb of the lists.

    If the sentence has a word `not` (in lower case, between blanks), the first one is removed. Otherwise its first finite
    verb is negated: `not` is added after a form of be, a modal, do before a verb or a pronoun, and have before a participle;
    other verbs are replaced by `does not`, `do not` or `did not` and the base form. Verbs that may be nouns or participles
    are recognised after a pronoun or a name only.

    >>> [negated(text) for text in ("She is a painter.", "He has a boat.", "It has been sold.", "A red boat.")]
    ['She is not a painter.', 'He does not have a boat.', 'It has not been sold.', None]
    """
    if match := _NOT.search(text):
        return text[: match.start()] + text[match.end() :]
    words = list(_WORD.finditer(text))
    for i, word in enumerate(words):
        form, before = word.group().lower(), words[i - 1].group() if i else ""
        support = _support(form, before, [later.group().lower() for later in words[i + 1 : i + 3]])
        if support is not None:
            return text[: word.start()] + support.replace("{}", word.group()) + text[word.end() :]
    return None


def _support(form: str, before: str, later: list[str]) -> str | None:
    """Return the replacement of the word `form`, in which {} is the word, if it is a finite verb, else None. before: the
    word before it; later: the two words after it."""
    asks_or_stresses = form in _DO and later[:1] and (later[0] in _SUBJECTS or later[0] in _BASES)
    if form in _AUXILIARIES or asks_or_stresses:
        return "{} not"
    if form in _HAVE:
        behind = later[1:] if later and later[0].endswith("ly") else later[:1]
        participle = any(word in _PARTICIPLES or word.endswith("ed") for word in behind)
        return "{} not" if participle else f"{_HAVE[form]} not have"
    subject = before.lower() in _SUBJECTS or (before[:1].isupper() and before.lower() not in _NO_SUBJECTS)
    if form in _PAST:
        return f"did not {_PAST[form]}"
    if form in _PAST_BEHIND_SUBJECT and subject:
        return f"did not {_PAST_BEHIND_SUBJECT[form]}"
    if form in _THIRD and (subject or form not in _NOUNS_TOO):
        return f"does not {_THIRD[form]}"
    return f"do not {form}" if form in _BASES and before.lower() in _BARE_SUBJECTS else None
