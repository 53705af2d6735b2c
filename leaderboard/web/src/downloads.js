// The rows in view as CSV, JSON, Markdown, LaTeX and BibTeX.

import { digitsOf, fixed, span } from "./dom.js";
import { imported, interval } from "./rows.js";

const csvCell = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  // A spreadsheet would run a text that begins so as a formula, also behind a semicolon, at which many split.
  const safe = typeof value === "string" ? text.replace(/(^|;)(\s*)(?=[=+\-@\uff0b\uff0d\uff1d\uff20])/g, "$1$2'") : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

/** One line a row: its facts, then value, low, high, sd and n of each column. */
export function csv(tab, rows) {
  const cells = tab.columns
    .flatMap(({ name }) => tab.cell.map((field) => [name, field]))
    .filter(([name, field]) => rows.some((row) => row.scores[name]?.[field] != null));
  const prompted = rows.some((row) => row.prompts);
  const tiered = rows.some((row) => row.rank?.tier);
  const head = [
    "tab",
    "kind",
    "id",
    "method",
    "backbone",
    "setting",
    "flags",
    "seeds",
    "place",
    "rank_first",
    "rank_last",
    ...(tiered ? ["tier"] : []),
    ...(prompted ? ["prompts", "prompts_mean", "prompts_sd", "prompts_lowest", "prompts_highest"] : []),
    ...(prompted ? ["rank_first_over_prompts", "rank_last_over_prompts", "first_in_draws_of_prompts"] : []),
    "source",
    "link",
    ...cells.map(([name, field]) => (field === "value" ? name : `${name} ${field}`)),
  ];
  const lines = rows.map((row) => [
    tab.id,
    row.kind,
    row.id,
    row.method,
    row.backbone,
    row.setting,
    row.flags.join(" "),
    row.seeds,
    row.rank?.place,
    row.rank?.first,
    row.rank?.last,
    ...(tiered ? [row.rank?.tier] : []),
    ...(prompted ? ["n", "mean", "sd", "lowest", "highest"].map((name) => row.prompts?.[name]) : []),
    ...(prompted ? [row.rank?.prompts?.[0], row.rank?.prompts?.[1], row.rank?.chance] : []),
    row.source,
    row.link,
    ...cells.map(([name, field]) => row.scores[name]?.[field]),
  ]);
  return [head, ...lines].map((line) => line.map(csvCell).join(",")).join("\n") + "\n";
}

/** The rows as index.json's documentation describes them, with the tab they are of. */
export function json(tab, rows) {
  const plain = rows.map((row) => ({ kind: row.kind, ...row, at: undefined }));
  return `${JSON.stringify({ tab: tab.id, title: tab.title, group: tab.group, metric: tab.metric, aggregation: tab.aggregation, rows: plain }, null, 1)}\n`;
}

const texed = (text) =>
  text.replace(
    /[\\{}$&#%_~^]/g,
    (sign) =>
      ({ "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" })[sign] ?? `\\${sign}`,
  );

/** The rows as a table of texts, heads first: rank, name and scores, the lead with its interval. */
function grid(tab, rows) {
  const columns = tab.columns.filter(({ name }) => rows.some((row) => row.scores[name]));
  const ranked = rows.some((row) => row.rank);
  const backbone = rows.some((row) => row.backbone);
  const heads = [...(ranked ? ["Rank"] : []), "Method", ...(backbone ? ["Backbone"] : []), ...columns.map(({ name }) => name)];
  const score = (cell, { name }) => {
    const digits = digitsOf(tab, name);
    const within = name === tab.lead && cell?.low != null ? ` (${span(cell.low, cell.high, digits)})` : "";
    return cell ? fixed(cell.value, digits) + within : "";
  };
  const lines = rows.map((row) => [
    ...(ranked ? [row.rank ? interval(...(row.rank.first === undefined ? row.rank.alone : [row.rank.first, row.rank.last])) : ""] : []),
    row.method + (row.kind === "published" ? ` [${row.source || row.id}]` : ""),
    ...(backbone ? [row.backbone] : []),
    ...columns.map((column) => score(row.scores[column.name], column)),
  ]);
  return { heads, lines, words: heads.length - columns.length, title: `${tab.group}: ${tab.title}. Rank and brackets: 95 % intervals.` };
}

/** The rows as a table of GitHub's Markdown. */
export function markdown(tab, rows) {
  const { heads, lines, words, title } = grid(tab, rows);
  const safe = (text) => text.replace(/[\\`*_{}[\]<>|#~]/g, "\\$&");
  const line = (texts) => `| ${texts.map(safe).join(" | ")} |`;
  const rule = `|${heads.map((_, i) => (i < words ? " --- |" : " ---: |")).join("")}`;
  return [safe(title), "", line(heads), rule, ...lines.map(line), ""].join("\n");
}

/** The rows as one table of booktabs. */
export function latex(tab, rows) {
  const { heads, lines, words, title } = grid(tab, rows);
  const line = (texts) => `${texts.map((text) => texed(text).replace(/^\[/, "{[}").replaceAll("–", "--").replaceAll("−", "$-$")).join(" & ")} \\\\`;
  return [
    "% \\usepackage{booktabs}",
    `\\begin{tabular}{${"l".repeat(words)}${"r".repeat(heads.length - words)}}`,
    "\\toprule",
    line(heads),
    "\\midrule",
    ...lines.map(line),
    "\\bottomrule",
    "\\end{tabular}",
    `% ${title}`,
    "",
  ].join("\n");
}

/** One entry a row: what was measured or printed, where, and the address of the paper. */
export function bibtex(tab, rows, updated) {
  const taken = new Set();
  const entries = rows.map((row) => {
    const base = row.id.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "") || "row";
    let key = base;
    for (let i = 2; taken.has(key); i += 1) key = `${base}-${i}`;
    taken.add(key);
    const measured = row.kind === "measured" && !tab.noun;
    const cell = row.scores[tab.lead];
    const number = (value) => value.toFixed(tab.digits);
    const within = cell?.low == null ? "" : ` (95 % interval ${number(cell.low)} to ${number(cell.high)})`;
    const score = cell ? `${tab.lead} ${number(cell.value)}${within}` : "";
    const rank = row.rank?.first ? `rank ${row.rank.first} to ${row.rank.last} at 95 %` : "";
    const flagged = row.flags.length ? `flags: ${row.flags.join(", ")}` : "";
    const where = measured
      ? `measured by stsbench${updated ? `, board of ${updated.slice(0, 10)}` : ""}`
      : `${imported(row) ? "imported, not checked" : "published"}: ${tab.noun ? "results of MTEB" : row.source || row.id}`;
    // A score measured here is not the paper's: the paper is named as that of the method.
    const method = measured && row.link ? `method: ${row.link}` : "";
    const fields = [
      ["title", `{${texed(`${row.method}${row.backbone ? ` (${row.backbone})` : ""}`)}}`],
      ["note", texed([`${tab.group}: ${tab.title}`, score, rank, flagged, where, method].filter(Boolean).join("; "))],
      ["year", measured ? (updated ?? "").slice(0, 4) : String(row.year ?? "")],
      ["url", measured ? "" : row.link.replace(/[{}\\]/g, "")],
    ];
    return `@misc{${key},\n${fields
      .filter(([, value]) => value)
      .map(([name, value]) => `  ${name} = {${value}},`)
      .join("\n")}\n}`;
  });
  return `${entries.join("\n\n")}\n`;
}

/** Give the reader a file. */
export function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const anchor = document.createElement("a");
  Object.assign(anchor, { href: address, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
