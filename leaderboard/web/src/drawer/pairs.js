// The board's test of two rows: read from the file that holds this pair, and said in words.

import { fixed, span } from "../dom.js";
import { load } from "../load.js";
import { imported } from "../rows.js";

const ROWS = 64; // of a file

/**
 * The test of two ranked rows of a tab: {pairs, different, value, low, high}; null where the pair was not tested.
 * pairs: how many the table has; value: how far `one` is ahead, negative where it is behind; low, high: its 95 %
 * interval, for this pair by itself, null where there is none. `files` are those of the tab's shard.
 */
export async function tested(tab, files, rows, one, other) {
  if (tab.test) return one.rank && other.rank && one !== other ? tab.test(one, other) : null;
  const ranked = rows.filter((row) => row.rank);
  const places = [one, other].map((row) => ranked.indexOf(row));
  if (!files?.length || places.includes(-1) || one === other) return null;
  const below = Math.max(...places);
  const shard = await load(files[Math.floor(below / ROWS)].replace(/\.json$/, ""));
  const line = shard.rows[below - shard.first];
  const above = Math.min(...places);
  const lower = tab.columns.find(({ name }) => name === tab.lead)?.lower_is_better;
  const gap = one.scores[tab.lead].value - other.scores[tab.lead].value;
  // As the board rounds it: a score has two digits more than are shown.
  const value = Number(((lower ? -1 : 1) * gap).toFixed(tab.digits + 2)) + 0;
  const half = line.half[above];
  return {
    pairs: (ranked.length * (ranked.length - 1)) / 2,
    different: line.different[above] === "1",
    value,
    low: half === null ? null : value - half / 10 ** tab.digits,
    high: half === null ? null : value + half / 10 ** tab.digits,
  };
}

/** Why two rows have no test, as a sentence; "" where they have one. */
export function untested(one, other) {
  const outside = [one, other].find((row) => row.kind === "published");
  if (outside)
    return `Not tested: nothing was observed item by item for ${imported(outside) ? "an imported" : "a published"} row.`;
  return one.rank && other.rank ? "" : "Not tested: a row that is not ranked is not tested.";
}

/** {sign, sure, head, how, notes} of a test, as texts: sure is true, false or, where it holds by itself only, null. */
export function verdict(tab, test, one, other, names) {
  const [better, worse] = test.value < 0 ? [other, one] : [one, other];
  const [sign, low, high] = test.value < 0 ? [-1, -test.high, -test.low] : [1, test.low, test.high];
  const size = fixed(sign * test.value, tab.digits);
  const head =
    test.value === 0
      ? `Both have the same ${tab.lead}.`
      : `${names.get(better.id)} is ahead of ${names.get(worse.id)} by ${size} in ${tab.lead}.`;
  const alone = test.low !== null && (low > 0 || high < 0);
  const within = test.low === null ? "" : `95 % interval of the difference, for this pair alone: ${span(low, high, tab.digits)}. `;
  const all = test.over ?? (test.pairs === 1 ? "the only pair of this table" : `all ${test.pairs} pairs of rows of this table`);
  const said = { head, sure: test.different ? true : alone ? null : false };
  if (test.different)
    return {
      ...said,
      sign: "significant",
      how: `${within}The two differ significantly, at 5 % over ${all}${test.over ? "" : " at once"}.`,
    };
  if (alone)
    return {
      ...said,
      sign: "significant alone",
      how: `${within}Of this pair alone the difference is significant at 5 %; over ${all} at once it is not. Among many pairs some seem to differ by chance: trust it if you chose the pair before you saw the scores.`,
    };
  return {
    ...said,
    sign: "not significant",
    how:
      test.low === null
        ? `${within}The two do not differ significantly, at 5 % over ${all}${test.over ? "" : " at once"}.`
        : `${within}It holds 0: the two do not differ significantly, not even by themselves. Treat them as equal where a difference of ${fixed(Math.max(-low, high), tab.digits)} does not matter to you.`,
  };
}
