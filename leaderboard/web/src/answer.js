// The answer in one or two sentences: who leads, by how much, how sure.

import { fixed, listed, span } from "./dom.js";
import { directed } from "./rows.js";

const MOST_NAMED = 4;

/** {head, how, sure, said}: what is said of a tab's rows, as texts. `names`: row id -> name; `flags`: those of the index. */
export function answer(tab, rows, names, flags = {}) {
  const measured = rows.filter((row) => row.kind === "measured");
  const ranked = measured.filter((row) => row.rank).sort((a, b) => a.rank.place - b.rank.place || a.at - b.at);
  if (!measured.length)
    return {
      head: "Published figures only.",
      how: tab.group === "cost" ? "" : "They are never ranked: papers give no digest of their data.",
      sure: null,
    };
  if (!ranked.length) return unranked(tab, measured, names);
  const [first, second] = ranked;
  const score = (row) => fixed(row.scores[tab.lead].value, tab.digits);
  const cell = first.scores[tab.lead];
  const within = cell.low === null ? "" : ` (95 % interval ${span(cell.low, cell.high, tab.digits)})`;
  if (!second)
    return {
      head: `${names.get(first.id)}: ${score(first)}`,
      how: `${within.trim()} The only ranked row.`.trim(),
      sure: null,
    };
  const gap = Math.abs(cell.value - second.scores[tab.lead].value);
  const able = ranked.filter((row) => row.rank.first === 1);
  const sure = first.rank.last === 1;
  const labels = first.flags.map((flag) => flags[flag]?.label ?? flag);
  const flagged = labels.length ? ` Keep its flag${labels.length > 1 ? "s" : ""} in mind: ${listed(labels)}.` : "";
  const lower = tab.columns.find((each) => each.name === tab.lead)?.lower_is_better;
  const size = fixed(gap, tab.digits);
  const how = `${tab.lead} ${score(first)}${within}, ${lower ? `${size} below` : `${size} points ahead of`} ${names.get(second.id)}.`;
  if (sure)
    return {
      head: `${names.get(first.id)} leads.`,
      how,
      sure: true,
      able,
      said: `At 95 %, none of the other ${ranked.length - 1} ranked rows could be first.${flagged}`,
    };
  const others = able.filter((row) => row !== first);
  const few =
    others.length <= MOST_NAMED ? listed(others.map((row) => names.get(row.id))) : `${others.length} other rows`;
  const said = others.length
    ? `At 95 %, ${few} could be first as well.`
    : `At 95 %, its rank is ${first.rank.first} to ${first.rank.last}.`;
  return { head: `${names.get(first.id)} has the best score.`, how, sure: false, able, said: said + flagged };
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
