// Rows as the page takes them: scores by field name, filters, order.

/** A shard's row with its scores as {value, low, high, sd, n}; `at` is its place in the board's order. */
export function unpacked(row, kind, at, fields) {
  const scores = {};
  for (const [column, cell] of Object.entries(row.scores)) {
    scores[column] = Object.fromEntries(fields.map((field, i) => [field, cell[i] ?? null]));
  }
  return {
    method: "",
    backbone: "",
    setting: "",
    flags: [],
    marks: [],
    rank: null,
    unranked: "",
    source: "",
    link: "",
    card: "",
    entry: "",
    ...row,
    scores,
    kind,
    at,
  };
}

/** Whether a row passes the filters of a state. */
export function passes(row, state) {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${row.method} ${row.backbone} ${row.kind === "published" ? row.source : ""}`.toLowerCase();
  return (
    (!state.kind || state.kind === row.kind) &&
    (!state.setting || state.setting === (row.setting || "-")) &&
    (!state.backbone || state.backbone === row.backbone) &&
    words.every((word) => text.includes(word)) &&
    !state.hide.some((flag) => row.flags.includes(flag))
  );
}

/** The kind whose rows are folded: trainings that show methods side by side, not encoders to choose from. */
export const SHORT = "short trainings";
export const FOLDED = "Trained here for a few steps";

/** [{kind, rows}] of the ranked rows by what is known of their training, the kind of the best row first, FOLDED last; empty
 * where none is known. */
export function comparable(rows) {
  const able = rows.filter((row) => row.comparable).toSorted((a, b) => (a.rank?.place ?? Infinity) - (b.rank?.place ?? Infinity) || a.at - b.at);
  return [...new Set(able.map((row) => row.comparable))]
    .map((key) => ({ kind: key === SHORT ? FOLDED : key, rows: able.filter((row) => row.comparable === key) }))
    .sort((a, b) => (a.kind === FOLDED) - (b.kind === FOLDED));
}

/** [{tier, leader, rows}] of the ranked rows, the first tier first; leader: its best row. Empty where there are none. */
export function tiers(rows) {
  const able = rows.filter((row) => row.rank?.tier).sort((a, b) => a.rank.place - b.rank.place || a.at - b.at);
  return [...new Set(able.map(({ rank }) => rank.tier))]
    .sort((a, b) => a - b)
    .map((tier) => ({ tier, rows: able.filter(({ rank }) => rank.tier === tier) }))
    .map((each) => ({ ...each, leader: each.rows[0] }));
}

/** Those of some ranked rows, among `all`, that could be the first of them: no other's last place is before their first, and
 * all that are surely better, as many as are before `first`, may be others than these. */
export function firsts(rows, all) {
  const last = Math.min(...rows.map(({ rank }) => rank.last));
  const others = all.filter((row) => row.rank && !rows.includes(row)).map(({ rank }) => rank.place);
  const ahead = (place) => others.filter((other) => other < place).length;
  return rows.filter(({ rank }) => rank.first <= last && rank.first - 1 <= ahead(rank.place));
}

/** What a row is sorted by in a column; null where it has nothing there. */
export function key(row, column) {
  if (column === "rank") return row.rank?.place ?? null;
  if (["method", "backbone", "setting"].includes(column)) return row[column]?.toLowerCase() || null;
  if (["seeds", "year"].includes(column)) return row[column] ?? null;
  if (column === "flags") return row.flags.join(" ") || null;
  return row.scores[column]?.value ?? null;
}

/** Compares two rows by a column; rows with nothing there come last either way, equal ones stay in the board's order. */
export function compared(one, other, column, order) {
  const [a, b] = [key(one, column), key(other, column)];
  if ((a === null) !== (b === null)) return a === null ? 1 : -1;
  const sign = order === "desc" ? -1 : 1;
  return sign * ((a > b) - (a < b)) || one.at - other.at;
}

/** The order that a first click on a heading gives: the best, or the first of the alphabet, on top. */
export function bestFirst(tab, column) {
  const known = tab.columns.find((each) => each.name === column);
  return known && !known.lower_is_better ? "desc" : "asc";
}

/** Whether a better number in a column is a better row. In geometry it is not: alignment and uniformity are read together. */
export const directed = (tab) =>
  tab.group !== "geometry" && tab.columns?.find(({ name }) => name === tab.lead)?.better !== "neither";

/** Whether a row was taken from another tool's result files. */
export const imported = (row) => row.flags.includes("imported");

/** {title, why}: what stands below the measured rows, and why it is never ranked. */
export function beside(rows) {
  const some = rows.filter(imported).length;
  const unchecked = "nothing behind imported scores was checked";
  const undated = "papers give no digest of their data, and few say which text they measured";
  if (!some) return { title: "Published, as the papers print it", why: `Never ranked: ${undated}.` };
  if (some === rows.length) return { title: "Imported from another tool’s result files", why: `Never ranked: ${unchecked}.` };
  return {
    title: "Published, as the papers print it, and imported from another tool’s result files",
    why: `Never ranked: ${undated}; ${unchecked}.`,
  };
}

/** "1", "1–3". */
export const interval = (first, last) => (first === last ? String(first) : `${first}–${last}`);

/** "12 %"; what is neither never nor always is not shown as either. */
export function percent(share) {
  if (share > 0 && share < 0.005) return "<1 %";
  return share > 0.995 && share < 1 ? ">99 %" : `${Math.round(100 * share)} %`;
}

/** Names by which rows can be told from each other: the method, with backbone or id where others have the same. */
export function names(rows) {
  const count = (make) => rows.reduce((all, row) => all.set(make(row), (all.get(make(row)) ?? 0) + 1), new Map());
  const makes = [
    (row) => row.method,
    (row) => (row.backbone ? `${row.method} (${row.backbone})` : row.method),
    (row) => `${row.method} (${row.id})`,
  ];
  const counts = makes.map(count);
  return new Map(
    rows.map((row) => [row.id, makes.find((make, i) => counts[i].get(make(row)) === 1)?.(row) ?? makes[2](row)]),
  );
}
