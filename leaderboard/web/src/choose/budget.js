// What a budget asks of an encoder, which rows meet it, and what may be said of these: the best, what cannot be told from it,
// and the cheapest of those. Texts and numbers, without the page.

import { fixed, listed, span } from "../dom.js";
import { SHORT } from "../rows.js";

const BYTES = 4; // of a weight in float32, where the size of the stored weights is unknown
const OPEN = /^(apache|mit|bsd|cc0|cc-by-[\d.]+$|isc|unlicense)/i;

/** {seen, mb, parameters, width, longest, licence, released, languages, speed} of a row; null where nobody knows. seen: whether
 * it was trained on the tests of its lead column: yes, no or unknown. */
export function facts(row) {
  const known = (value) => (value === undefined || value === "" ? null : value); // 0: words have no parameters
  return {
    seen: row.exposed ?? "unknown",
    parameters: known(row.parameters),
    mb: row.weights_mb ?? (known(row.parameters) === null ? null : (BYTES * row.parameters) / 1e6),
    width: known(row.width),
    longest: known(row.max_tokens),
    licence: known(row.licence),
    released: known(row.released),
    languages: known(row.languages),
    speed: known(row.sentences_per_second),
  };
}

/** The limits a reader may set: field of the state -> {label, options: [value, text], passes(facts, value)}. */
export const LIMITS = {
  seen: {
    label: "Trained on tests",
    options: [["no", "no"], ["perhaps", "no or unknown"]],
    fact: "seen",
    passes: (value, limit) => value === "no" || (limit === "perhaps" && value === "unknown"),
  },
  size: {
    label: "Size up to",
    options: [["50", "50 MB"], ["100", "100 MB"], ["500", "500 MB"], ["1000", "1 GB: a laptop"], ["4000", "4 GB"], ["16000", "16 GB: one GPU"]],
    fact: "mb",
    passes: (value, limit) => value <= Number(limit),
  },
  dims: {
    label: "Dimensions up to",
    options: ["64", "128", "256", "384", "512", "768", "1024"].map((size) => [size, size]),
    fact: "width",
    passes: (value, limit) => value <= Number(limit),
  },
  licence: {
    label: "Licence",
    options: [["open", "free for any use"]],
    fact: "licence",
    passes: (value) => OPEN.test(value),
  },
  speed: {
    label: "Sentences a second",
    options: ["50", "200", "1000", "5000"].map((speed) => [speed, `at least ${speed}`]),
    fact: "speed",
    passes: (value, limit) => value >= Number(limit),
  },
};

/** {able, unknown}: the rows that meet every limit of a state, and how many are left out only because a fact is unknown. */
export function within(rows, state) {
  const limits = Object.entries(LIMITS).filter(([key]) => state[key]);
  let unknown = 0;
  const able = rows.filter((row) => {
    const of = facts(row);
    const told = limits.map(([key, { fact, passes }]) => (of[fact] === null ? null : passes(of[fact], state[key])));
    if (told.includes(null) && !told.includes(false)) unknown += 1;
    return told.every(Boolean);
  });
  return { able, unknown };
}

/** The rows with the size of the published model that they read, where a record does not hold it. registry: model -> its row. */
export const sized = (rows, registry) =>
  rows.map((row) => {
    const { parameters, weights_mb } = (!row.parameters && registry.get(row.hub)) || {};
    return parameters ? { ...row, parameters, weights_mb } : row;
  });

/** {rows, fitted}: the measured rows that one may take for an encoder to use: ranked, neither fitted on the tests' texts nor a
 * training of a few steps; and how many are left out as fitted. */
export const usable = (rows) => {
  const ranked = rows.filter((row) => row.rank && row.comparable !== SHORT);
  const fair = ranked.filter((row) => !row.flags.includes("transductive"));
  return fair.length ? { rows: fair, fitted: ranked.length - fair.length } : { rows: rows.filter((row) => row.rank), fitted: 0 };
};

/** {best, ties, cheapest} of rows, best first. ties: those that no other of them is significantly better than: none can be
 * told from the truly best. */
export function choice(rows, ties) {
  const known = ties.filter((row) => facts(row).parameters !== null);
  const cost = known.length ? (row) => facts(row).parameters : (row) => facts(row).width ?? Infinity;
  const able = (known.length ? known : ties.filter((row) => facts(row).width !== null)).toSorted((a, b) => cost(a) - cost(b) || a.at - b.at);
  return { best: rows[0] ?? null, ties, cheapest: able[0] ?? null };
}

/** "22.7 M parameters", "384 dimensions" or "". */
export function costWords(row) {
  const { parameters, width } = facts(row);
  if (parameters !== null) return `${millions(parameters)} parameters`;
  return width === null ? "" : `${width} dimensions`;
}

/** A number of parameters in short. */
export const millions = (count) =>
  count >= 1e9 ? `${Number((count / 1e9).toPrecision(3))} B` : `${Number((count / 1e6).toPrecision(3))} M`;

/** A size in words that one reads on a disk. */
export const megabytes = (mb) => (mb >= 1000 ? `${Number((mb / 1000).toPrecision(2))} GB` : `${Number(mb.toPrecision(2))} MB`);

/** {head, ties, cheap}: what is said of a choice, as texts. names: row id -> name; tab: that of the scores. */
export function words(tab, { best, ties, cheapest }, names, count) {
  if (!best) return { head: "No encoder meets these limits.", ties: "", cheap: "" };
  const cell = best.scores[tab.lead];
  const interval = cell.low === null ? "" : ` (${span(cell.low, cell.high, tab.digits)})`;
  const others = ties.filter((row) => row !== best);
  const few = others.slice(0, 3).map((row) => names.get(row.id));
  const more = others.length - few.length;
  const those = listed(more ? [...few, `${more} more`] : few);
  const cost = cheapest && costWords(cheapest);
  return {
    head: `${names.get(best.id)}: ${tab.lead} ${fixed(cell.value, tab.digits)}${interval}, the best of ${count}.`,
    ties: others.length ? `Cannot be told from it: ${those}.` : count > 1 ? "No other could be the best, at 95 %." : "",
    cheap: others.length && cheapest ? `The cheapest of these: ${names.get(cheapest.id)}${cost ? `, ${cost}` : ""}.` : "",
  };
}
