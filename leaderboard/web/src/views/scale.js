// A straight scale with round ticks, and the front of what nothing else beats.

/** {at, ticks}: `at` takes a value to a share of 0 to 1 of [low, high], widened a little. */
export function scale(values, count = 5) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const margin = Math.max(0.03 * (high - low), 1e-9 + 0.002 * Math.abs(high || 1));
  const [from, to] = [low - margin, high + margin];
  return { at: (value) => (value - from) / (to - from), ticks: ticks(from, to, count) };
}

/** Round numbers between two values, about `count` of them: 1, 2 or 5 times a power of ten apart. */
export function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough * (1 - 1e-9)) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** The points that no other point beats: smaller or equal x and a better y. Sorted by x. */
export function front(points, lowerIsBetter) {
  const better = (a, b) => (lowerIsBetter ? a < b : a > b);
  const sorted = points.toSorted((a, b) => a.x - b.x || (better(a.y, b.y) ? -1 : 1));
  const kept = [];
  for (const point of sorted) if (!kept.length || better(point.y, kept.at(-1).y)) kept.push(point);
  return kept;
}
