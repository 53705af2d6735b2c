// What is said of MTEB's published results: texts made of their file, without the page.

import { fixed, listed } from "./dom.js";
import { interval } from "./rows.js";

const MOST_NAMED = 4;

/** {head, how, doubt}: which models could be the best, what that means, what is doubtful. */
export function publishedAnswer(data) {
  const first = data.rows.filter((row) => row.tier === 1);
  const names = first.length <= MOST_NAMED ? listed(first.map((row) => row.model)) : `${first[0].model} and ${first.length - 1} others`;
  const count = (key) => data.rows.filter((row) => row.doubts?.some(([name]) => name === key)).length;
  const head =
    first.length === 1
      ? `${names} is the best of ${data.ranked} models.`
      : `${first.length} of ${data.ranked} models cannot be excluded as the best: ${names}.`;
  const how =
    first.length === 1
      ? `With 95 % confidence no other would lead on another draw of such tasks.`
      : `With 95 % confidence the best on such tasks is among these ${first.length}. In a test of two alone, ${first.filter((row) => !row.differs).length - 1} of the other ${first.length - 1} cannot be told from the first.`;
  const doubt = `Doubts: nobody here checked these scores; ${count("card")} rows are copied from model cards, ${count("mixed")} mix folders, ${count("disagrees")} have two scores for one test set; ${data.rows.filter((row) => row.trained === "yes").length} were trained on sets that hold pairs of these tasks, and of ${data.rows.filter((row) => row.trained === "unknown").length} nobody says on what.`;
  return { head, how, doubt };
}

/** The same data with the rows alone whose makers name their training sets, none of which holds pairs of the tasks, ranked
 * among these. */
export function declaredAlone(data) {
  const rows = data.rows.filter((row) => row.declared).map((row) => ({ ...row, ...row.declared }));
  return { ...data, rows, ranked: data.declared };
}

/** {head, how} of one language of a task; the same for all rows, whatever is searched. */
export function languageAnswer({ task, name, pairs, ranked, first, refused }) {
  if (refused) return { head: `${task}, ${name}: no ranks.`, how: `${refused}.` };
  return {
    head: `${first} of ${ranked} models could be first in ${task}, ${name}.`,
    how: `${pairs.toLocaleString("en")} pairs decide no more: the ranks are those that other pairs may give, even if two models’ errors were independent (95 % for a row by itself; a cautious bound). Languages are never averaged.`,
  };
}

/** The rows of a language as those of the seven tasks. */
export function languageRows(data, { task, rows }) {
  return rows.map(([at, mean, first, last], place) => ({
    model: data.models[at],
    mean,
    rank: first ? [1 + rows.filter((row) => row[2] && row[1] > mean).length, first, last] : undefined,
    tier: first === 1 ? 1 : first ? 2 : undefined,
    doubts: (data.doubts[task][at] ?? []).map((key) => [key, ""]),
    place,
  }));
}

/** Rows whose model has all words of a query; all without one. */
export function matching(rows, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => words.every((word) => row.model.toLowerCase().includes(word)));
}

/** The facts of an opened row: [name, text]. */
export function publishedFacts(data, row) {
  const facts = [];
  if (row.rank) {
    const [place, first, last] = row.rank;
    facts.push([
      "rank",
      `${place} of ${data.ranked}, tier ${row.tier}. Over another draw of such tasks ${interval(first, last)} (95 %, for this row by itself), for all rows at once ${interval(...row.jointly)}. Over other sentences of these seven tasks ${interval(...row.on_items)}, even if two models’ errors were independent (a cautious bound).`,
    ]);
  } else facts.push(["rank", `not ranked: ${row.unranked}`]);
  const sets = { yes: `on ${listed(row.kin ?? [])}`, no: "on none of the tasks’ kin", unknown: "nobody says on what" };
  if (row.trained) facts.push(["trained", `${sets[row.trained]}, by what mteb’s registry knows of its makers`]);
  for (const [key, what] of row.doubts ?? []) facts.push([data.flags[key].label, `${data.flags[key].about}: ${what}`]);
  facts.push([row.folders.length > 1 ? "folders" : "folder", listed(row.folders)]);
  facts.push(["mteb", row.versions?.length ? `version ${listed(row.versions)}, as the files say` : "no version named"]);
  return facts;
}

/** "As published 78.94; measured here 78.94": a model's mean in both. */
export const bothWays = (published, measured) =>
  `As published ${fixed(published, 2)}; measured here ${fixed(measured, 2)}`;

/** What the tests can say, as sentences. */
export function published(data) {
  const [tasks, ...items] = data.separated;
  const pairs = (data.ranked * (data.ranked - 1)) / 2;
  const share = (count) => `${Math.round((100 * count) / pairs)} %`;
  const said = [
    `Over tasks: ${tasks.adjacent} of ${data.ranked - 1} pairs of neighbours and ${share(tasks.pairs)} of all pairs differ at 5 %. Every sign of a task’s difference may flip (an exact test of 64 patterns); it takes the seven tasks for a fair draw of such tasks, which they are not quite.`,
  ];
  const sizes = items.map((one) => `${one.adjacent} (${one.assumption})`);
  said.push(
    `Over sentences: no score of a single pair is published, so the error is computed from score and number of pairs (Bonett & Wright 2000), and neighbours that differ are ${listed(sizes)}. An approximation, and bounds.`,
  );
  if (data.shared)
    said.push(
      `How much two models’ errors correlate was measured on ${data.shared.rows} encoders of this board: ${fixed(data.shared.low, 2)} to ${fixed(data.shared.high, 2)} for nine pairs of ten, all of small encoders.`,
    );
  if (data.check)
    said.push(
      `The check: of ${data.check.pairs} pairs measured here, printed scores call ${data.check.sure_differ} different and ${data.check.sure_same} not; the test over sentences contradicts ${data.check.wrong_differ} and ${data.check.wrong_same} of them.`,
    );
  said.push(
    "Tier 1: models that none is significantly better than; tier 2: those of the rest, and so on. A model far below may stand in tier 1 where its scores go up and down between tasks.",
  );
  return said;
}
