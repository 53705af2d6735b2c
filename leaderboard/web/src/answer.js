// The answer in one or two sentences: who leads, by how much, how sure.

import { fixed, listed, span } from "./dom.js";
import { comparable, directed, FOLDED, firsts } from "./rows.js";

const MOST_NAMED = 4;

/** {head, how, sure, said}: what is said of a tab's rows, as texts. `names`: row id -> name; `flags`: those of the index;
 * `whole`: of all measured rows, not by their training: of rows that were trained on unlike texts none has a clear lead. */
export function answer(tab, rows, names, flags = {}, whole = false) {
  const measured = rows.filter((row) => row.kind === "measured");
  const ranked = measured.filter((row) => row.rank).sort((a, b) => a.rank.place - b.rank.place || a.at - b.at);
  if (!measured.length)
    return {
      head: "Published figures only.",
      how: tab.group === "cost" ? "" : "They are never ranked: papers give no digest of their data.",
      sure: null,
    };
  if (!ranked.length) return unranked(tab, measured, names);
  const kinds = whole ? [] : comparable(ranked);
  if (!kinds.length) {
    const { head, how, said } = leader(tab, ranked, ranked, "ranked here", names, flags);
    return { head, how, sure: null, said };
  }
  const [most, ...others] = kinds.filter(({ kind }, i) => !i || kind !== FOLDED);
  const first = leader(tab, most.rows, ranked, most.kind, names, flags);
  return { ...first, others: others.map(({ kind, rows: some }) => leader(tab, some, ranked, kind, names, flags)) };
}

/** What is said of the first of some rows, among all ranked ones; `kind`: what these rows are. */
function leader(tab, rows, all, kind, names, flags) {
  const [first, second] = rows;
  const word = kind.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
  const score = (row) => fixed(row.scores[tab.lead].value, tab.digits);
  const cell = first.scores[tab.lead];
  const within = cell.low === null ? "" : ` (95 % interval ${span(cell.low, cell.high, tab.digits)})`;
  const labels = first.flags.map((flag) => flags[flag]?.label ?? flag);
  const flagged = labels.length ? ` Keep its flag${labels.length > 1 ? "s" : ""} in mind: ${listed(labels)}.` : "";
  if (!second)
    return {
      head: `${names.get(first.id)} is the only row ${word}.`,
      how: `${tab.lead} ${score(first)}${within}.`,
      sure: null,
      said: flagged.trim(),
    };
  const gap = Math.abs(cell.value - second.scores[tab.lead].value);
  const able = firsts(rows, all);
  const lower = tab.columns.find((each) => each.name === tab.lead)?.lower_is_better;
  const size = fixed(gap, tab.digits);
  const how = `${tab.lead} ${score(first)}${within}, ${lower ? `${size} below` : `${size} points ahead of`} ${names.get(second.id)}.`;
  const those = `the ${rows.length} rows ${word}`;
  if (able.length === 1 && able[0] === first && first.comparable)
    return {
      head: `${names.get(first.id)} leads ${those}.`,
      how,
      sure: true,
      said: `At 95 %, ${rows.length > 2 ? `none of the other ${rows.length - 1} could` : "the other could not"} be first.${flagged}`,
    };
  const rivals = able.filter((row) => row !== first);
  const few =
    rivals.length <= MOST_NAMED ? listed(rivals.map((row) => names.get(row.id))) : `${rivals.length} of the others`;
  const said = rivals.length ? `At 95 %, ${few} could be first as well.` : "At 95 %, none of the others could be first.";
  return { head: `${names.get(first.id)} has the best score of ${those}.`, how, sure: false, said: said + flagged };
}

function unranked(tab, measured, names) {
  const scored = measured.filter((row) => row.scores[tab.lead]);
  const best = scored.length ? scored.toSorted((a, b) => a.at - b.at)[0] : null;
  const lower = tab.columns.find((each) => each.name === tab.lead)?.lower_is_better;
  const reason = [...new Set(measured.map((row) => row.unranked).filter(Boolean))][0] ?? "not ranked";
  return {
    head: "No row is ranked here.",
    how: best && directed(tab)
      ? `${lower ? "Lowest" : "Highest"} ${tab.lead}: ${names.get(best.id)}, ${fixed(best.scores[tab.lead].value, tab.digits)}.`
      : "",
    sure: null,
    said: reason.charAt(0).toUpperCase() + reason.slice(1) + ".",
  };
}
