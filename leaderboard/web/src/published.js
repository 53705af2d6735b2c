// MTEB's published results as a table like any other, and what is said of them.

import { differOverTasks } from "./choose/over_tasks.js";
import { fixed, h, link, listed } from "./dom.js";
import { interval, unpacked } from "./rows.js";

const MOST_NAMED = 4;
export const DECLARED = "declared"; // in the place of a language: models that name their training sets, and none of the tasks' kin

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

/** The rows of a language as those of the seven tasks: their ranks are of each row by itself. */
export function languageRows(data, { task, rows }) {
  return rows.map(([at, mean, first, last]) => ({
    model: data.models[at],
    mean,
    alone: first ? [1 + rows.filter((row) => row[2] && row[1] > mean).length, first, last] : undefined,
    tier: first === 1 ? 1 : first ? 2 : undefined,
    doubts: (data.doubts[task][at] ?? []).map((key) => [key, ""]),
    unranked: "not ranked",
  }));
}

const KIN = {
  kin: { label: "trained on kin", about: "trained on sets that hold pairs of these tasks, in some split" },
  untold: { label: "training unknown", about: "nobody says what it was trained on" },
};

/** {tab, rows, flags, said, about}: what is published as a table like any other. choice: "", DECLARED or "TASK/LANGUAGE";
 * others: the file of the languages, where one is chosen; of_index: what the index says of it. */
export function publishedTable(of_index, data, choice = "", others = null) {
  const language = others?.languages.find(({ task, name }) => `${task}/${name}` === choice);
  const chosen = choice === DECLARED ? declaredAlone(data) : data;
  const lead = language ? choice.replace("/", " ") : "Mean";
  const names = language ? [lead] : [lead, ...data.tasks.map(({ name }) => name)];
  const rows = (language ? languageRows(others, language) : chosen.rows).map((row, at) => {
    const [place, ...alone] = row.rank ?? row.alone ?? [];
    const [first, last] = row.jointly ?? [];
    const numbers = language ? [row.mean] : [row.mean, ...row.scores];
    const known = data.rows.find(({ model }) => model === row.model) ?? {};
    const kin = { yes: ["kin"], unknown: ["untold"] }[row.trained] ?? [];
    const { scores: _, ...more } = { ...known, ...row };
    return {
      ...unpacked({ id: row.model, method: row.model, scores: {} }, "measured", at, []),
      ...more,
      // As of a measured row: pairs of the tests, or sentences, as NLI and captions hold some.
      exposed: known.holds ? "yes" : known.trained,
      hub: known.released && !known.card ? row.model : "",
      flags: [...new Set((row.doubts ?? []).map(([key]) => key)), ...kin],
      rank: place ? { place, first, last, alone, tier: language ? null : row.tier, able: row.tier === 1 } : null,
      scores: Object.fromEntries(names.map((name, i) => [name, { value: numbers[i], low: null, high: null, n: i || language ? (language?.pairs ?? data.tasks[i - 1].items) : null }])),
      facts: language ? [] : publishedFacts(data, row),
    };
  });
  const all = publishedAnswer(chosen);
  const { head, how } = language ? languageAnswer(language) : all;
  const tab = {
    id: of_index.id,
    key: `${of_index.id} ${choice}`,
    group: of_index.id,
    title: language ? `${language.task}, ${language.name}` : "mean of seven tasks",
    about: "As MTEB publishes it; nothing of it was checked here.",
    metric: "spearman",
    lead,
    digits: 2,
    columns: names.map((name) => ({ name, better: "higher", lower_is_better: false })),
    measured: rows.length,
    published: 0,
    noun: "models",
    legend: language
      ? "Filled dot: could be first. Ranks: those that other pairs may give the row, 95 %, for that row alone."
      : "Filled dot: cannot be excluded as the best. Ranks: those that another draw of such tasks may give, 95 %.",
    test: language ? null : overTasksTest,
  };
  const doubts = language ? [] : published(data);
  return { tab, rows, flags: { ...data.flags, ...KIN }, said: { head, how, doubt: language ? "" : all.doubt, doubts }, source: data.source, tasks: data.tasks };
}

/** The test of two rows by themselves over tasks, as one of the board's. */
function overTasksTest(one, other) {
  const numbers = (row) => Object.entries(row.scores).filter(([name]) => name !== "Mean").map(([, { value }]) => value);
  return {
    pairs: 1,
    different: differOverTasks(numbers(one), numbers(other)),
    value: one.scores.Mean.value - other.scores.Mean.value,
    low: null,
    high: null,
    over: "another draw of seven such tasks, for this pair by itself",
  };
}

/** The facts of an opened row: [name, text]. */
export function publishedFacts(data, row) {
  const facts = [];
  if (row.rank)
    facts.push([
      "over sentences",
      `${interval(...row.on_items)}: the ranks that other sentences of these seven tasks may give it, even if two models’ errors were independent (a cautious bound). The ranks above are over another draw of such tasks.`,
    ]);
  const sets = { yes: `on ${listed(row.kin ?? [])}`, no: "on none of the tasks’ kin", unknown: "nobody says on what" };
  if (row.trained) facts.push(["trained", `${sets[row.trained]}, by what mteb’s registry knows of its makers`]);
  for (const [key, what] of row.doubts ?? []) facts.push([data.flags[key].label, what]);
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

/** What may be chosen of them: [value, text], the languages of a task under its name. */
export function publishedSets({ languages }) {
  const of = (task) => languages.filter(([other]) => other === task).map(([, name]) => [`${task}/${name}`, `${task} ${name}`]);
  const tasks = [...new Set(languages.map(([task]) => task))];
  return [["", "Mean of seven tasks"], [DECLARED, "Mean of seven, not trained on their kin"], ...tasks.map((task) => [`${task}, a language`, of(task)])];
}

/** What stands above the table. */
export const saidOfPublished = ({ legend }, { said: { head, how, doubt, doubts } }) => [
  h("p", { class: "lead" }, head),
  h("p", {}, how),
  h(
    "details",
    { class: "more" },
    h("summary", {}, "How sure that is"),
    [legend, doubt || "Nobody here checked these scores; marks stand on the rows.", ...doubts].map((line) => h("p", { class: "how" }, line)),
  ),
];

/** What stands below it. */
export const aboutPublished = ({ source: { commit, date, repository, licence }, tasks }) => [
  h(
    "p",
    {},
    "Scores as MTEB’s ",
    link(repository, "results repository"),
    ` holds them (${licence}, commit ${commit.slice(0, 12)} of ${date}): models with all seven of ${tasks.map(({ name }) => name).join(", ")}, test splits, cosine and Spearman’s correlation over all pairs. SICK-R is all 9,927 pairs, not the 4,927 that papers use. None of these rows stands in any other table here.`,
  ),
  h(
    "p",
    {},
    "Also doubtful, without a mark on a row: a version in a merged file is the last writer’s, not each score’s; copies that the repository removed differed from those it kept by over half a point in 53 of 307 cells of these tasks; results of models without an implementation were removed in December 2025.",
  ),
];
