"""Sets of scored pairs in other languages and domains that mteb describes: what they are called here and there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MtebPairs:
    """Scored pairs that are read through mteb's own definition of its task, which names repository, revision and columns.

    task: what it is called here; id: of the set, with the split after the stroke; name: mteb's name of the task; repository:
    on the Hub, whose revision mteb knows; pairs, subsets: how many there are in that split, by the statistics that mteb 2.26
    ships; languages: as a list says them; code: ISO 639, of a set in one language.
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
        """mteb's name of the split: `test` where the task has one."""
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
    """The files below a data folder that are of one of these repositories, as paths below it."""
    paths = (path for item in LANGUAGES for path in sorted((root / item.repository).rglob("*")) if path.is_file())
    return [name for path in paths if is_copied(name := path.relative_to(root).as_posix())]


def is_copied(name: str) -> bool:
    """Whether a path below a data folder is a file of one of these repositories, not what the Hub's client keeps.

    >>> is_copied("mteb/JSTS/data/validation.parquet"), is_copied("mteb/JSTS/.cache/x"), is_copied("downstream/x")
    (True, False, False)
    """
    return name.startswith(_FOLDERS) and not any(part.startswith(".") for part in name.split("/"))
