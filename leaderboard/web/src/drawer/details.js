// What stands behind a row: its notes, its scores with their noise, the parts of its tasks, and each run's provenance.

import { facts, megabytes, millions } from "../choose/budget.js";
import { digitsOf, fixed, h, link, listed, span } from "../dom.js";
import { load } from "../load.js";
import { bothWays } from "../published.js";
import { imported, interval, percent } from "../rows.js";

const CODE = ["command", "fingerprint", "revision", "git", "records", "recipe"];
const LONG = 6; // lines before they are folded

/** The content of an opened row, at once; what is loaded for it comes in when it is there. */
export function details(tab, row, index, rows = [], names = new Map()) {
  const told = [];
  const fact = (name, ...said) => told.push(h("dt", {}, name), h("dd", {}, ...said));
  fact("rank", rankWords(tab, row));
  if (row.rank?.tier) fact("tier", tierWords(tab, row));
  const lead = row.scores[tab.lead];
  if (row.average_printed !== undefined) {
    fact(
      "average",
      `the paper prints ${fixed(row.average_printed, tab.digits)}` +
        (lead ? `, its columns average to ${fixed(lead.value, tab.digits)}` : ""),
    );
  }
  for (const mark of row.marks) fact("note †", mark);
  for (const flag of row.flags) fact(index.flags[flag]?.label ?? flag, index.flags[flag]?.about ?? "");
  for (const [name, text] of known(row)) fact(name, text);
  if (row.setting) fact("setting", `${row.setting}: ${index.settings[row.setting] ?? ""}`);
  if (row.seeds) {
    const spread = lead?.sd != null ? `; standard deviation of ${tab.lead} over them ${fixed(lead.sd, tab.digits)}` : "";
    if (row.kind === "measured") fact("this row is", subject(row) + spread);
    else fact("seeds", row.seeds + spread);
  }
  if (row.prompts) fact("prompts", overPrompts(tab, row.prompts));
  if (row.rank?.prompts) fact("rank over prompts", rankOverPrompts(row.rank));
  for (const [name, text] of row.facts ?? []) fact(name, text);
  if (row.measured)
    fact(
      "measured here",
      `${bothWays(row.mean, row.measured.mean)}. `,
      h("a", { href: `#${index.tabs[0].id}?${new URLSearchParams({ open: row.measured.entry })}` }, `The row measured here: ${row.measured.entry}`),
    );
  if (row.source) fact("source", row.source, row.link ? [" ", link(row.link, "paper")] : []);
  const published = row.kind === "measured" && index.as_published?.measured_here[row.entry];
  if (published)
    fact(
      index.as_published.title,
      `${bothWays(published.published, published.measured)} (mean of MTEB’s seven tasks, SICK-R with all 9,927 pairs). `,
      h("a", { href: `#${index.as_published.id}?${new URLSearchParams({ open: published.model })}` }, published.model),
    );
  if (row.card) fact("model card", link(row.card, row.card));
  const box = h("div", { class: "details" }, h("dl", {}, told), scoreTable(tab, row));
  if (row.entry) box.append(behind(tab, row, rows, names));
  return box;
}

/** What is known of the encoder itself. */
function known(row) {
  const { seen } = row;
  const alike = new Map(); // what is known of several test sets in the same words
  for (const [column, answer] of Object.entries(seen ?? {})) {
    const told = answer.filter(Boolean).join(": ");
    alike.set(told, [...(alike.get(told) ?? []), column === "Avg" ? "any of these" : column]);
  }
  const { parameters, mb, width, longest, licence, released, languages, speed } = facts(row);
  return [
    ...[...alike].map(([told, columns]) => [`trained on ${listed(columns)}`, told]),
    ["size", parameters === null ? null : `${millions(parameters)} parameters, ${megabytes(mb)} of weights`],
    ["width", width === null ? null : `${width} dimensions`],
    ["longest text", longest === null ? null : `${longest} tokens`],
    ["speed", speed === null ? null : `${speed} sentences a second (${[row.machine, row.run_on].filter(Boolean).join(", ")})`],
    ["licence", licence],
    ["released", released],
    ["languages", languages === null ? null : listed([languages].flat().map(String))],
  ].filter(([, text]) => text);
}

function rankWords(tab, row) {
  if (row.kind === "published") return `${imported(row) ? "imported" : "published"} rows are never ranked`;
  if (!row.rank) return row.unranked || "not ranked";
  const { place, first, last, alone, ties } = row.rank;
  if (first === undefined) return `${place} of ${tab.ranked}; 95 % interval for this row alone ${interval(...alone)}`;
  const single = alone ? `; for this row alone ${interval(...alone)}` : "";
  const letters = ties ? `; letters ${ties}: rows that share one do not differ significantly` : "";
  return `${place} of ${tab.ranked}; 95 % interval ${interval(first, last)}, over all rows at once${single}${letters}`;
}

function tierWords(tab, { rank }) {
  if (tab.noun) return `${rank.tier}: none of the same tier or a later one is significantly better`;
  return `${rank.tier} of ${tab.tiers}: the best row of this tier, or not significantly different from it`;
}

/** What a measured row ranks: an encoder, or a method over its seeds. */
export function subject({ seeds }) {
  return seeds > 1 ? `this method, over ${seeds} seeds` : "this encoder, of one seed: nothing is said of other seeds of its method";
}

/** What the scores of a row's encoder are behind its prompts. */
export function overPrompts(tab, { n, mean, sd, lowest, highest }) {
  const [middle, low, high] = [mean, lowest, highest].map((value) => fixed(value, tab.digits));
  const spread = sd == null ? "" : `, standard deviation ${fixed(sd, tab.digits)}`;
  return `${tab.lead} of this encoder behind ${n} other prompt${n === 1 ? "" : "s"}: mean ${middle}${spread}, from ${low} to ${high}`;
}

/** The interval of a rank over prompts and items, and the chance of being first. */
export function rankOverPrompts({ prompts, chance }) {
  return `95 % interval ${interval(...prompts)}, over items and over the prompts that each row which has some draws from its own; first in ${percent(chance)} of the draws, by the scores alone`;
}

/** The interval of the average over tasks, and on which side of its neighbours the row would stay with other tasks. */
export function overTasks(tab, row, { n, low, high, neighbours = [] }, rows, names) {
  const at = (id) => rows.findIndex((other) => other.id === id);
  const kept = neighbours.map(
    ({ id, same_order: share, overstated }) =>
      `${at(id) < at(row.id) ? "below" : "above"} ${names.get(id) ?? id} in ${Math.min(Math.round(100 * share), 99)}` +
      (overstated ? " (between rows this close it came true less often)" : ""),
  );
  const order = kept.length ? `; of 100 other draws of ${n} such tasks it would stay ${listed(kept)}` : "";
  return `95 % interval of ${tab.lead} over tasks as well as items: ${span(low, high, tab.digits)}, never used for ranks${order}`;
}

function scoreTable(tab, row) {
  const lines = tab.columns.filter(({ name }) => row.scores[name]).map(({ name }) => [[name], row.scores[name]]);
  return table("Scores with their noise", ["Task"], lines, (name) => digitsOf(tab, name));
}

/** A table of scores: `lines` are [names, cell]; digits: by the first of the names; columns that no line fills are left out. */
function table(caption, heads, lines, digits) {
  const any = (field) => lines.some(([, cell]) => cell[field] != null);
  const columns = [
    ["Score", (cell, name) => fixed(cell.value, digits(name))],
    ...(any("low") ? [["95 % interval", (cell, name) => (cell.low == null ? "" : span(cell.low, cell.high, digits(name)))]] : []),
    ...(any("sd") ? [["sd over seeds", (cell, name) => (cell.sd == null ? "" : fixed(cell.sd, digits(name)))]] : []),
    ...(any("n") ? [["n", (cell) => cell.n ?? ""]] : []),
  ];
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) => h("th", { scope: "col" }, head)),
          columns.map(([head]) => h("th", { scope: "col", class: "num" }, head)),
        ),
      ),
      h(
        "tbody",
        {},
        lines.map(([names, cell]) =>
          h(
            "tr",
            {},
            names.map((name, i) => h("th", { scope: i === names.length - 1 ? "row" : null }, name)),
            columns.map(([, show]) => h("td", { class: "num" }, String(show(cell, names[0])))),
          ),
        ),
      ),
    ),
  );
}

/** What the entry's own file holds. */
function behind(tab, row, rows, names) {
  const box = h("div", { class: "behind", "aria-busy": "true" }, h("p", {}, "Loading its provenance."));
  load(`entries/${row.entry}`)
    .then((entry) => {
      box.removeAttribute("aria-busy");
      const over = entry.over_tasks?.find((each) => each.tab === tab.id);
      const facts = [
        ["over tasks", over && overTasks(tab, row, over, rows, names)],
        ["note", entry.note],
        ["recipe", entry.recipe],
      ].filter(([, value]) => value);
      const parts = entry.parts.find((each) => each.tabs.includes(tab.id));
      box.replaceChildren(
        ...[
          commands(entry),
          h("h3", {}, `Provenance: ${entry.name}`),
          h(
            "dl",
            {},
            facts.map(([name, value]) => [
              h("dt", {}, name),
              h("dd", {}, CODE.includes(name) ? h("code", {}, value) : value),
            ]),
          ),
          entry.runs.map((run, i) =>
            h(
              "details",
              { open: i === 0 },
              h("summary", {}, `Run ${i + 1} of ${entry.runs.length}`),
              h(
                "dl",
                {},
                Object.entries(run).map(([name, value]) => shownFact(name, lines(value))),
              ),
            ),
          ),
          parts
            ? h(
                "details",
                {},
                h("summary", {}, `Parts of the tasks (${parts.scores.length})`),
                table(
                  `Parts of the tasks, ${parts.metric}`,
                  ["Task", "Part"],
                  parts.scores.map(([task, part, cell]) => [
                    [task, part],
                    Object.fromEntries(tab.cell.map((field, k) => [field, cell[k] ?? null])),
                  ]),
                  () => tab.digits,
                ),
              )
            : [],
          entry.prompts
            ? h(
                "details",
                {},
                h("summary", {}, `Other prompts that it was read behind (${entry.prompts.length})`),
                h(
                  "ul",
                  {},
                  entry.prompts.map((prompt) => h("li", {}, h("code", {}, prompt))),
                ),
              )
            : [],
        ].flat(),
      );
    })
    .catch((error) => {
      box.removeAttribute("aria-busy");
      box.replaceChildren(
        h(
          "p",
          { class: "banner" },
          `${error.message}: its provenance is in ${row.entry}.json where the whole site is there.`,
        ),
      );
    });
  return box;
}

/** The command that repeats a row, and when and where it was measured. */
function commands(entry) {
  const all = [...new Set(entry.runs.flatMap((run) => lines(run.command)))];
  const dates = entry.runs.flatMap((run) => run.measured ?? []).toSorted();
  const devices = [...new Set(entry.runs.flatMap((run) => lines(run.device)))];
  const on = dates.length
    ? `${dates[0].slice(0, 10)}${dates.at(-1).slice(0, 10) === dates[0].slice(0, 10) ? "" : ` to ${dates.at(-1).slice(0, 10)}`}`
    : "";
  const measured = [on, listed(devices)].filter(Boolean).join(", on ");
  return [
    measured ? h("p", {}, h("b", {}, "Measured "), measured) : [],
    all.length
      ? [
          h("h3", {}, all.length > 1 ? `Repeat it: the first of ${all.length} commands` : "Repeat it"),
          h("pre", { tabindex: "0", role: "region", "aria-label": "Command that repeats it" }, h("code", {}, all[0])),
          h("p", { class: "how" }, "Paths are those of the machine that measured it; the note says what they held."),
        ]
      : [],
  ].flat();
}

function shownFact(name, said) {
  if (!said.length) return [];
  const shown = said.map((line, i) => [i ? h("br") : [], CODE.includes(name) ? h("code", {}, line) : line]);
  return [
    h("dt", {}, name),
    h("dd", {}, said.length > LONG ? h("details", {}, h("summary", {}, `${said.length} ${name}`), shown) : shown),
  ];
}

/** Plain data of any shape as lines of text. */
export function lines(value) {
  if (value === null || value === undefined || value === "") return [];
  if (Array.isArray(value)) return value[0] === "stsbench" ? [value.map(quoted).join(" ")] : value.map(said);
  if (typeof value === "object")
    return Object.keys(value).length
      ? [
          Object.keys(value)
            .sort()
            .map((key) => `${key} ${said(value[key])}`)
            .join(", "),
        ]
      : [];
  return [String(value)];
}

function said(value) {
  if (value === null) return "none";
  if (Array.isArray(value)) return `[${value.map(said).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.keys(value)
      .sort()
      .map((key) => `${key} ${said(value[key])}`)
      .join(", ")}}`;
  return String(value);
}

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);
