"""Small copies of the Hub's repositories of mteb's STS tasks, laid out as those are, with invented texts in many scripts."""

import json
from pathlib import Path

import numpy as np

from stsbench.data.sets.catalog import LANGUAGES

WORDS = {  # scripts with and without spaces between words, from the right, with vowel signs, wider than others
    "latin": ["cat", "dog", "house", "river", "runs", "sleeps", "green", "small", "old", "day"],
    "arabic": ["قطة", "كلب", "بيت", "نهر", "يجري", "ينام", "أخضر", "صغير", "قديم", "يوم"],
    "hangul": ["고양이", "개", "집", "강", "달린다", "잔다", "초록", "작은", "오래된", "날"],
    "devanagari": ["बिल्ली", "कुत्ता", "घर", "नदी", "दौड़ता", "सोता", "हरा", "छोटा", "पुराना", "दिन"],
    "ethiopic": ["ድመት", "ውሻ", "ቤት", "ወንዝ", "ይሮጣል", "ይተኛል", "አረንጓዴ", "ትንሽ", "አሮጌ", "ቀን"],
    "ideographs": ["猫", "狗", "房子", "河", "跑", "睡", "绿色", "小", "老", "天"],
    "kana": ["ねこ", "いぬ", "いえ", "かわ", "はしる", "ねむる", "みどり", "ちいさい", "ふるい", "ひ"],
    "wide": ["ｃａｔ", "ｄｏｇ", "ｈｏｕｓｅ", "ｒｉｖｅｒ", "ｒｕｎ", "ｏｌｄ", "ｄａｙ"],
}
PAIRS = 14


def rows(seed, task):
    """Scored pairs in one script after another; labels 0 and 1 where the task's scores are those."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(PAIRS):
        name = list(WORDS)[(seed + number) % len(WORDS)]
        between = "" if name in ("ideographs", "kana") else " "
        one, other = (between.join(rng.choice(WORDS[name], size)) for size in rng.integers(2, 7, 2))
        score = round(float(rng.uniform(task.min_score, task.max_score)), 2)
        if task.metadata.name in ("ATEC", "BQ", "LCQMC", "PAWSX"):
            score = number % 2
        made.append({task.column_names[0]: one, task.column_names[1]: other, "score": score})
    return made


def write(root, item, only=()):
    """The files of a task's repository below `root`, in every split that mteb scores, and mteb's task on them. only: the
    subsets that are there, () for all."""
    import mteb

    task = mteb.get_task(item.name)
    folder = root / task.metadata.dataset["path"]
    several = len(task.hf_subsets) > 1
    configs = []
    for number, subset in enumerate(task.hf_subsets):
        if only and subset not in only:
            continue
        for split in task.eval_splits:
            part = rows(100 * number + len(split), task)
            if several and task.fast_loading:
                part = [{**row, "lang": subset} for row in part]
            file = folder / (f"{subset}/{split}" if several else split)
            file.parent.mkdir(parents=True, exist_ok=True)
            if item.name == "JSTS":
                import polars

                polars.DataFrame(part).write_parquet(f"{file}.parquet")
            else:
                lines = (json.dumps(row, ensure_ascii=False) for row in part)
                Path(f"{file}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
            configs.append((subset, split, f"{subset}/{split}.jsonl"))
    if several:
        (folder / "README.md").write_text(_card(configs, task.fast_loading), "utf-8")
    local = {**task.metadata.dataset, "path": str(folder), "cache_dir": str(root / "cache")}
    task.metadata = task.metadata.model_copy(update={"dataset": local})
    task._eval_splits = [item.split]
    return task


def _card(configs, together):
    """The card that names a repository's configurations: one of all subsets, or one for each."""
    lines = ["---", "configs:"]
    for name in ["default"] if together else list(dict.fromkeys(subset for subset, _, _ in configs)):
        lines += [f"- config_name: {name}", "  data_files:"]
        for split in dict.fromkeys(split for _, split, _ in configs):
            lines += [f"  - split: {split}", "    path:"]
            lines += [f"    - {file}" for subset, of, file in configs if of == split and (together or subset == name)]
    return "\n".join([*lines, "---", ""])


ITEMS = {item.task: item for item in LANGUAGES}
