"""Catalog of the known data sets: files with digests, counts, languages, licence, citation and source."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from stsbench.errors import DataError
from stsbench.parsing import SafeLoader
from stsbench.registry import names, resolve

FURTHER = "stsbench.data_sources"  # entry points: functions that return name -> a set that an extension fetches


@dataclass(frozen=True)
class HubFile:
    """A file in a data set repository on the Hub, at a fixed revision."""

    repo: str  # "mteb/sts12-sts"
    revision: str  # a commit
    file: str  # "test.jsonl.gz"


@dataclass(frozen=True)
class Entry:
    """Catalog entry of one set in one text version. `files` maps paths below a data folder to sha256, "" if unknown."""

    id: str  # "sts12/test"
    task: str  # "STS12"
    kind: str  # the reader: "sts-year", "stsb", "sick", "raw", or for labels "classes", "sst", "trec", "mrpc", "sick-e"
    split: str
    text_version: str  # "senteval" or "raw"
    counts: Mapping[str, int]  # items per subset, split or (kind "classes") class, in the official order
    total: int
    licence: str
    citation: str
    sources: tuple[str, ...]
    files: Mapping[str, str]
    digest: str = ""  # DataSet.digest, "" where unknown
    hub: HubFile | None = None  # source of a raw text's single file


@dataclass(frozen=True)
class TrainingText:
    """A file of training text that several papers use. rows: of the published file."""

    name: str  # "nli_for_simcse.csv"
    rows: int
    licence: str
    citation: str
    hub: HubFile

    @property
    def path(self) -> str:
        """Return the file's path below a data folder."""
        return f"train/{self.name}"


@dataclass(frozen=True)
class Catalog:
    """Entries by (id, text version), the archive of SentEval's files, the documents (licences) beside the data, and training
    texts by name."""

    archive: HubFile
    entries: Mapping[tuple[str, str], Entry]
    documents: Mapping[str, str]
    training: Mapping[str, TrainingText]

    @property
    def files(self) -> dict[str, str]:
        """Return path below a data folder -> sha256 for every file of SentEval's text, documents included."""
        known: dict[str, str] = {}
        for item in self.entries.values():
            if item.text_version == "senteval":
                known.update(item.files)
        return known | dict(self.documents)


@cache
def catalog() -> Catalog:
    """Return the catalog shipped with the package, read once."""
    raw: dict[str, Any] = yaml.load(
        (Path(__file__).resolve().parents[1] / "catalog.yaml").read_text(encoding="utf-8"),
        Loader=SafeLoader,
    )
    sets = [_entry(item, raw["licences"], raw["citations"]) for item in raw["sets"]]
    texts = [TrainingText(**{**item, "hub": HubFile(**item["hub"])}) for item in raw["training"]]
    return Catalog(
        HubFile(**raw["archive"]), {(item.id, item.text_version): item for item in sets}, raw["documents"],
        {text.name: text for text in texts},
    )


def entries(text_version: str | None = None) -> tuple[Entry, ...]:
    """Return every entry in catalog order, or those of one text version."""
    return tuple(item for item in catalog().entries.values() if text_version in (None, item.text_version))


def list_data() -> list[str]:
    """Return the ids of the catalog's sets, for `load_data`.

    >>> import stsbench
    >>> "stsb/test" in stsbench.list_data()
    True
    """
    return list(dict.fromkeys(item.id for item in entries()))


def entry(set_id: str, text_version: str = "senteval") -> Entry:
    """Return the entry of a set. Raises DataError, with the nearest name, for an unknown id or text version."""
    known = catalog().entries.get((set_id, text_version))
    if known is not None:
        return known
    versions = [item.text_version for item in entries() if item.id == set_id]
    if versions:
        raise DataError(f"{set_id} has no text version {text_version!r}: it has {', '.join(versions)}")
    names = list_data()
    near = difflib.get_close_matches(set_id.lower(), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
    raise DataError(f"no data set is called {set_id!r}; {hint}")


def _entry(item: dict[str, Any], licences: dict[str, str], citations: dict[str, str]) -> Entry:
    hub = item.get("hub")
    return Entry(
        id=item["id"], task=item["task"], kind=item["kind"], split=item["split"], text_version=item["view"],
        counts=item["counts"], total=item["total"], licence=licences[item["licence"]],
        citation=citations[item["citation"]], sources=tuple(item["sources"]), files=item["files"],
        digest=item.get("digest", ""), hub=HubFile(**hub) if hub else None,
    )


@cache
def further_sources() -> Mapping[str, Any]:
    """Return name -> set that an extension fetches, with attributes `id`, made from its content, `title`, `about`,
    `protocol`, `rows`, `licence`, `citation`, `codes` of the languages in whose tables it appears, and `fetch`."""
    return {name: source for point in names(FURTHER) for name, source in resolve(FURTHER, point)().items()}


def further_source(set_id: str) -> Any:
    """Return the set with this id that an extension fetches; None for any other id."""
    return next((source for source in further_sources().values() if source.id == set_id), None)


def set_title(set_id: str, name: str) -> str:
    """Return the title of a set in tables: the title of a set that an extension fetches, for any other set `name`."""
    source = further_source(set_id)
    return source.title if source else name


def hub_revision(set_id: str, text_version: str, known: bool, n: int) -> str | None:
    """Return the Hub commit whose data equal this set, with all n pairs; None for any other set or text version."""
    if text_version != "raw" or not known or set_id not in {item.id for item in entries("raw")}:
        return None
    item = entry(set_id, "raw")
    return item.hub.revision if item.hub and n == item.total else None


@dataclass(frozen=True)
class MtebPairs:
    """Scored pairs that are read through mteb's definition of the task, which names repository, revision and columns.

    task: the task's name in stsbench; id: of the set, with the split after the slash; name: mteb's name of the task;
    repository: on the Hub, at the revision that mteb pins; pairs, subsets: their numbers in that split, by the statistics of
    mteb 2.26; languages: for `stsbench list data`; code: ISO 639 code of a set in one language.
    """

    task: str
    id: str
    name: str
    repository: str
    pairs: int
    subsets: int
    languages: str
    licence: str = "not stated by mteb"
    code: str = ""

    @property
    def split(self) -> str:
        """Return mteb's name of the split, `test` where the task has such a split."""
        return self.id.partition("/")[2]


LANGUAGES = (
    MtebPairs("STS17", "sts17/test", "STS17", "mteb/sts17-crosslingual-sts", 5346, 11,
              "ko, ar, es, en, and en with ar, de, tr, es, fr, it, nl"),
    MtebPairs("STS22.v2", "sts22.v2/test", "STS22.v2", "mteb/sts22-crosslingual-sts", 3958, 18,
              "ar, de, en, es, fr, it, pl, ru, tr, zh; 8 language pairs"),
    MtebPairs("SemRel24STS", "semrel24/test", "SemRel24STS", "mteb/SemRel24STS", 7498, 12,
              "afr, amh, arb, arq, ary, eng, hau, hin, ind, kin, mar, tel"),
    MtebPairs("STSBenchmarkMultilingualSTS", "stsb-multi/test", "STSBenchmarkMultilingualSTS", "mteb/stsb_multi_mt",
              13790, 10,
              "STS-B in en, and by machine in de, es, fr, it, nl, pl, pt, ru, zh"),
    MtebPairs("JSTS", "jsts/validation", "JSTS", "mteb/JSTS", 1457, 1, "ja", "CC BY-SA 4.0", code="ja"),
    MtebPairs("KorSTS", "korsts/test", "KorSTS", "dkoterwa/kor-sts", 1376, 1, "ko", "CC BY-SA 4.0", code="ko"),
    MtebPairs("ATEC", "atec/test", "ATEC", "C-MTEB/ATEC", 20000, 1, "zh, labels 0 and 1", code="zh"),
    MtebPairs("BQ", "bq/test", "BQ", "C-MTEB/BQ", 10000, 1, "zh, labels 0 and 1", code="zh"),
    MtebPairs("LCQMC", "lcqmc/test", "LCQMC", "C-MTEB/LCQMC", 12500, 1, "zh, labels 0 and 1", code="zh"),
    MtebPairs("PAWSX", "pawsx-zh/test", "PAWSX", "mteb/PAWSX", 2000, 1, "zh, labels 0 and 1", code="zh"),
    MtebPairs("STS-B-zh", "stsb-zh/test", "STSB", "mteb/STSB", 1361, 1, "zh", code="zh"),
    MtebPairs("BIOSSES", "biosses/test", "BIOSSES", "mteb/biosses-sts", 100, 1, "en, biomedical", code="en"),
    MtebPairs("STSBenchmark.v2", "stsb.v2/test", "STSBenchmark.v2", "mteb/STSBenchmarkv2", 1362, 1,
              "en, STS-B without duplicate pairs", code="en"),
)
_FOLDERS = tuple(f"{item.repository}/" for item in LANGUAGES)
BY_ID = {item.id: item for item in LANGUAGES}


def copied_files(root: Path) -> list[str]:
    """Return the files of the repositories of LANGUAGES in a data folder, as paths below the folder."""
    paths = (path for item in LANGUAGES for path in sorted((root / item.repository).rglob("*")) if path.is_file())
    return [name for path in paths if is_copied(name := path.relative_to(root).as_posix())]


def is_copied(name: str) -> bool:
    """Return whether a path below a data folder is a file of a repository of LANGUAGES, and not of the Hub client's cache.

    >>> is_copied("mteb/JSTS/data/validation.parquet"), is_copied("mteb/JSTS/.cache/x"), is_copied("downstream/x")
    (True, False, False)
    """
    return name.startswith(_FOLDERS) and not any(part.startswith(".") for part in name.split("/"))


SEVERAL = "All languages"  # the language of a set whose subsets are in different languages
# ISO 639 codes as the sets name their subsets, with two letters where the standard has them, else with three.
NAMES = {
    "afr": "Afrikaans", "amh": "Amharic", "ar": "Arabic", "arb": "Standard Arabic", "arq": "Algerian Arabic",
    "ary": "Moroccan Arabic", "de": "German", "en": "English", "eng": "English", "es": "Spanish", "fr": "French",
    "hau": "Hausa", "hin": "Hindi", "ind": "Indonesian", "it": "Italian", "ja": "Japanese", "kin": "Kinyarwanda",
    "ko": "Korean", "mar": "Marathi", "nl": "Dutch", "pan": "Punjabi", "pl": "Polish", "pt": "Portuguese", "ru": "Russian",
    "tel": "Telugu", "tr": "Turkish", "zh": "Chinese",
}
# Language -> the sets whose mean is an established average: for Chinese that of CoSENT (the preset `zh`).
AVERAGED = {"Chinese": ("ATEC", "BQ", "LCQMC", "PAWSX", "STS-B-zh")}


def set_language(set_id: str, subset: str | None = None) -> str:
    """Return the language, in words, of a set of `LANGUAGES` or one that an extension fetches, or of a subset of it; both
    languages, in alphabetical order, of cross-lingual pairs.

    Returns "" for any other set, and for a subset not named by its language; SEVERAL for a whole set in several languages.

    >>> set_language("korsts/test"), set_language("sts17/test", "ko-ko"), set_language("sts17/test", "nl-en")
    ('Korean', 'Korean', 'Dutch and English')
    >>> set_language("sts17/test"), set_language("stsb/test")
    ('All languages', '')
    """
    if set_id in BY_ID:
        number, code = BY_ID[set_id].subsets, BY_ID[set_id].code
    elif (source := further_source(set_id)) is not None and source.codes:
        number, code = len(source.codes), source.codes[0]
    else:
        return ""
    if subset is None and number > 1:
        return SEVERAL
    codes = set((code if number == 1 else subset or "").split("-"))
    return " and ".join(sorted({NAMES[code] for code in codes})) if codes <= NAMES.keys() else ""


def path_in(root: Path, name: str) -> Path:
    """Return the path of a catalog file below `root`, which may also be the `downstream` folder itself."""
    inside = root / name.removeprefix("downstream/")
    return inside if not (root / "downstream").is_dir() and inside.exists() else root / name
