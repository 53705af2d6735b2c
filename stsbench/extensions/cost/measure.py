"""Measure the cost of an encoder: speed, latency, memory, parameters and bytes per vector.

It is measured on fixed texts, without the cache. A speed depends on the machine, device, number of threads and other load:
it is recorded with them, and compared only where they are equal. The texts are invented, as long as those of STS (5 to 27
words, 12 on average). A change of the texts needs a new PROBE (stsbench/evaluation/records.py), as speeds depend on them.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from stsbench.encoders.base import Encoder
from stsbench.evaluation.records import PROBE, Cost, Machine
from stsbench.processes import cores, forget_peak, peak_since
from stsbench.wording import counted, sized

NAMES = (
    "Anna", "Peter", "Maria", "John", "Laura", "David", "Sarah", "Paul", "Emma", "Mark", "Julia", "Simon", "Clara",
    "Thomas", "Helen", "Martin", "Alice", "George", "Nina", "Frank", "Lucy", "Henry", "Diana", "Victor", "Rose",
    "Oscar", "Irene", "Daniel", "Ruth", "Adam", "Vera", "Robert", "Grace", "Samuel", "Eva", "Walter", "Jane",
    "Philip", "Marie", "Edward", "Ella", "Stephen", "Kate", "Richard", "Olivia", "Michael", "Amy", "Charles",
    "Sophie", "William", "Linda", "James", "Carol", "Andrew", "Susan", "Joseph", "Karen", "Arthur", "Nancy",
    "Patrick", "Judith", "Gregory", "Monica", "Leo",
)
# Each block of eight has short, medium and long texts, so that any number of blocks has the same average length.
TEMPLATES = (
    "{} is peeling an orange.",
    "{} rides a horse downhill.",
    "{} is tuning an old guitar.",
    "{} cut the bread while the soup boiled.",
    "{} told reporters that the bridge would open in May.",
    "Two dogs chase {} across a field that is white with snow.",
    "{} said on Tuesday that the company would close its oldest mill and move two hundred jobs north.",
    "Before the storm reached the coast, {} and eleven neighbours had carried every boat from the beach to the church, "
    "where they covered them with tarpaulins, ropes and stones.",
    "{} is feeding a goat.",
    "A cat watches {} eat.",
    "{} paints a fence dark green.",
    "{} lost both matches on the first day.",
    "The mayor and {} opened a library beside the station.",
    "{} climbed the ladder slowly because the third rung had been broken.",
    "According to {}, prices of wheat rose by four percent in March after a dry and unusually warm winter.",
    "The judge ordered {} to return the paintings within thirty days, although the museum had argued for years that nobody "
    "could prove where they had been kept.",
    "{} is slicing a cucumber.",
    "Nobody believes what {} wrote.",
    "{} plays chess with a child.",
    "A train to {} was late again yesterday.",
    "{} explains how a lake freezes from the top down.",
    "Three women and {} are waiting for a bus in the rain.",
    "{} has agreed to sell the vineyard to a group of farmers who have rented parts of it since spring.",
    "When the lights went out, {} asked the audience to stay seated, walked to the piano in the dark and played until the "
    "engineers had found the fault.",
    "{} jumps over a puddle.",
    "{} did not sign it.",
    "The baby laughs at {} loudly.",
    "{} sold more tickets than any other singer.",
    "A helicopter brought {} and the injured climber to hospital.",
    "{} is standing on a wooden stage and holds a silver trumpet.",
    "Police are looking for a driver who hit {} on the ring road and left without stopping to help.",
    "{} wrote in the report that the river had risen faster than expected, that the pumps had failed twice, and that the "
    "upper villages were warned too late.",
    "{} mixes flour with water.",
    "{} won by two points.",
    "A man throws {} a ball.",
    "{} folds a letter and seals the envelope.",
    "The talks between {} and the union ended without result.",
    "{} waters the plants on the balcony every evening after the news.",
    "The minister thanked {} for a plan that would cut waiting times in clinics by half within five years.",
    "Although {} had never sailed before, the crew let her steer through the narrow channel between the islands, where the "
    "wind drops every evening about six o'clock.",
    "{} is washing a bicycle.",
    "The dog follows {} home.",
    "{} sings while the others dance.",
    "{} bought a lamp made of blue glass.",
    "Shares fell after {} announced that the chairman would resign.",
    "A boy shows {} how to fold a swan out of paper.",
    "{} will meet the owners of the harbour next week to discuss who pays for the repair of the pier.",
    "Researchers led by {} counted the bees in forty gardens over two summers and found that small gardens with many kinds "
    "of flowers had the most of them.",
    "{} closes the heavy door.",
    "{} can hear the sea.",
    "The teacher asked {} to read.",
    "{} carries a bucket of sand to the tent.",
    "The film about {} was shown in nearly every village.",
    "{} is pushing a cart with apples and pears through the market.",
    "The court found that {} had not known of the contract and therefore could not be held to it.",
    "On the last morning of the journey {} woke before the others, lit the stove, and watched the caravan of camels move "
    "slowly along the edge of the salt lake.",
    "{} repairs a broken clock.",
    "The soup that {} cooked burned.",
    "{} walks along a frozen river.",
    "A waiter brings {} a plate of fish.",
    "{} denied that the letter had been written in April.",
    "The girls and {} build a hut from branches near the pond.",
    "Nearly half of those whom {} asked would rather walk to work than wait for a tram that is full.",
    "If the harvest is as poor as {} fears, the cooperative will have to buy grain abroad for the first time since the "
    "great flood thirty years ago.",
)
BLOCK = 8
MOST = len(TEMPLATES) * len(NAMES)
ROUNDS = 5
_ROUND = 0.25  # seconds that a round takes approximately, by its number of texts


def cost_texts(count: int) -> list[str]:
    """Return the first `count` texts, at most MOST, all different: templates filled with names."""
    size, names = len(TEMPLATES), len(NAMES)
    return [TEMPLATES[i % size].format(NAMES[(i % size + i // size) % names]) for i in range(min(count, MOST))]


def measure_cost(encoder: Encoder, first_vector: float | None = None) -> Cost | None:
    """Return the cost of an encoder; None where nothing is computed (`vectors:`). It takes some two seconds, more where
    eight texts take more than a quarter of a second. first_vector: seconds, if known. Raises EncoderError.

    Rounds are repeated ROUNDS times after a warm-up; sizes are those of the vectors of a round.
    """
    if encoder.computes_in == "nothing":
        return None
    timed = encoder.as_timed(cost_texts(BLOCK))
    timed.ready()
    one = cost_texts(1)
    timed.run(one)
    latency = median(_clocked(timed, one)[0] for _ in range(ROUNDS))
    texts = _enough(timed)
    forget_peak()
    _forget_cuda_peaks()
    rounds = [_clocked(timed, texts) for _ in range(ROUNDS)]
    here = encoder.computes_in == "process"
    memory, cuda = (peak_since(), _cuda_peak(timed)) if here else (None, None)
    vectors = timed.run(texts[:BLOCK]).vectors
    counts = timed.counts(texts)
    seconds = median(wall for wall, _ in rounds)
    device, threads = _device(timed)
    return Cost(
        probe=PROBE, texts=len(texts), seconds=[round(wall, 6) for wall, _ in rounds],
        cpu_seconds=[round(cpu, 6) for _, cpu in rounds] if here else None,
        sentences_per_second=float(f"{len(texts) / seconds:.6g}"),
        tokens_per_second=float(f"{counts.tokens / seconds:.6g}") if counts.tokens else None,
        latency_seconds=round(latency, 6), first_vector_seconds=None if first_vector is None else round(first_vector, 3),
        memory_bytes=memory, cuda_memory_bytes=cuda, width=None if hasattr(vectors, "nnz") else int(vectors.shape[1]),
        parameters=counts.parameters, bytes_a_vector=timed.bytes_a_vector(vectors),
        machine=Machine(cpu=_cpu(), cores=cores()), device=device, where=encoder.computes_in,
        threads=threads if here else counts.threads, processes=encoder.processes,
        without=encoder.spec.post if timed.spec.post != encoder.spec.post else None,
    )


def in_words(cost: Cost) -> str:
    """Return the cost in one line of text."""
    cuda, memory = cost.cuda_memory_bytes, cost.memory_bytes
    parts = [
        f"{_rounded(cost.sentences_per_second)} sentences/s",
        f"{_rounded(cost.tokens_per_second)} tokens/s" if cost.tokens_per_second else "",
        f"{1000 * cost.latency_seconds:.3g} ms for one text",
        f"first vector after {cost.first_vector_seconds:.1f} s" if cost.first_vector_seconds else "",
        f"{sized(memory)} resident" if memory else "", f"{sized(cuda)} on the device" if cuda else "",
        counted(cost.parameters, "parameter") if cost.parameters is not None else "",
        f"{cost.bytes_a_vector:,.0f} bytes a vector",
    ]
    threads = f", {counted(cost.threads, 'thread')}" if cost.threads else ""
    if cost.processes > 1:
        threads = f"{threads} in each of {cost.processes} processes"
    without = f", without {cost.without}" if cost.without else ""
    return (f"cost{without}: {', '.join(filter(None, parts))} ({cost.device}{threads}; median of {ROUNDS} rounds of "
            f"{counted(cost.texts, 'text')})")


def first_vector(encoder: Encoder, began: float) -> float | None:
    """Return seconds from `began`, the time.perf_counter() at which loading began, to the encoder's first vector."""
    if encoder.computes_in == "nothing":
        return None
    encoder.as_timed(cost_texts(BLOCK)).run(cost_texts(1))
    return time.perf_counter() - began


def _clocked(encoder: Encoder, texts: Sequence[str]) -> tuple[float, float]:
    """Return the wall-clock and the processor seconds of encoding the texts."""
    wall, cpu = time.perf_counter(), time.process_time()
    encoder.run(texts)
    return max(time.perf_counter() - wall, 1e-9), time.process_time() - cpu


def _enough(encoder: Encoder) -> list[str]:
    """Return whole blocks of texts that take about a round's time; they have been encoded once, as a warm-up."""
    count = BLOCK
    while True:
        texts = cost_texts(count)
        seconds, _ = _clocked(encoder, texts)
        if count >= MOST or seconds > _ROUND / 2:
            return texts
        # Larger batches are faster per text, so that the estimate is limited to eight times as many texts.
        count = min(MOST, 8 * count, BLOCK * round(count * _ROUND / seconds / BLOCK))


def _device(encoder: Encoder) -> tuple[str, int | None]:
    """Return the device's name and torch's threads; "cpu" and None for an encoder that computes without torch."""
    torch: Any = sys.modules.get("torch")
    if encoder.computes_in == "server" or torch is None or not encoder.uses_torch:
        return ("server" if encoder.computes_in == "server" else "cpu"), None
    kind = encoder.device.type
    name = str(torch.cuda.get_device_name(encoder.device)) if kind == "cuda" else kind
    return name, int(torch.get_num_threads())


def _forget_cuda_peaks() -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        for number in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(number)


def _cuda_peak(encoder: Encoder) -> int | None:
    torch: Any = sys.modules.get("torch")
    if torch is None or not encoder.uses_torch or encoder.device.type != "cuda":
        return None
    return int(torch.cuda.max_memory_allocated(encoder.device))


def _cpu() -> str:
    """Return the processor's model, else its architecture."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split()) or platform.machine()
    return platform.processor() or platform.machine()


def _rounded(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.10g}"
