// The first screen: within a budget the best encoder, what cannot be told from it, the cheapest of those; of what was measured
// here and of what MTEB publishes, side by side and never in one order.

import { choice, facts, LIMITS, megabytes, millions, sized, usable, within, words } from "../choose/budget.js";
import { couldBeBest } from "../choose/over_tasks.js";
import { fixed, h, link, span } from "../dom.js";
import { firsts, interval } from "../rows.js";

const MOST_NAMED = 4;
const SHOWN = 15; // rows of a table before "show all"
const ENGLISH = "English";
const QUESTIONS = [
  ["German on a laptop", { language: "German", size: "1000" }],
  ["Under 100 MB", { size: "100" }],
];
export const FIELDS = ["language", ...Object.keys(LIMITS)];

const inWords = new Intl.DisplayNames(["en"], { type: "language" });

/** [name, [measured tab or null, choice of the published or null]] of each language that anything is known of. */
export function languages(tabs, published) {
  const known = new Map([["", [tabs.find((tab) => tab.measured && !tab.language) ?? tabs[0], published ? "" : null]]]);
  const add = (name, at, value) => {
    if (!known.has(name)) known.set(name, [null, null]);
    known.get(name)[at] ??= value;
  };
  for (const tab of tabs) {
    if (tab.measured && tab.language && !/ and |^All /.test(tab.language)) add(tab.language, 0, tab);
    if (tab.measured && tab.user_set && tab !== known.get("")[0]) add(tab.user_set, 0, tab);
  }
  // Of several sets in one language the later has more models of today; pairs of two languages are no language.
  for (const [task, code] of (published?.languages ?? []).toReversed()) {
    const [one, other = one] = code.split("-");
    if (one === other && one !== "en") add(inWords.of(one), 1, `${task}/${code}`);
  }
  return [...known].sort(([a], [b]) => (a > b) - (a < b));
}

export class Choose {
  /** change(fields): the reader chose; read(tab, choice): a promise of a table's rows. */
  constructor(index, tabs, published, change, read, address) {
    Object.assign(this, { index, tabs, published, change, read, address });
    this.languages = languages(tabs, index.as_published);
    this.form = h("form", { id: "budget", "aria-label": "What the encoder must meet" });
    this.panels = h("div", { class: "panels" });
    this.element = h("div", { class: "choose" }, this.form, this.panels);
    this.form.addEventListener("change", () =>
      this.change(Object.fromEntries([...new FormData(this.form)].map(([key, value]) => [key, value]))),
    );
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.whole = {};
  }

  async show(state) {
    const now = JSON.stringify(FIELDS.map((key) => state[key]));
    if (this.now === now) return this.tables;
    const [, [tab, choice_]] = this.languages.find(([name]) => name === state.language) ?? this.languages[0];
    this.asked = now;
    const english = this.languages[0][1][0];
    const [registry, ...tables] = await Promise.all([
      this.published && this.read(this.published),
      this.read(tab ?? english),
      choice_ === null ? null : this.read(this.published, choice_),
    ]);
    if (this.asked !== now) return null; // overtaken by another choice
    if (registry) tables[0] = { ...tables[0], rows: sized(tables[0].rows, new Map(registry.rows.map((row) => [row.id, row]))) };
    Object.assign(this, { now, state, tables: tables.filter(Boolean) });
    this.sync(tables);
    const panels = [
      tab ? this.measured(tables[0]) : this.unmeasured(state.language, tables[0]),
      tables[1] ? this.foreign(tables[1]) : null,
    ].filter(Boolean);
    this.panels.replaceChildren(...panels.map(({ said }) => said), ...panels.map(({ table }) => table ?? ""));
    this.panels.classList.toggle("alone", panels.length < 2);
    return this.tables;
  }

  /** The controls: a limit only where some row's fact is known. */
  sync(tables) {
    const { state } = this;
    const rows = tables.filter(Boolean).flatMap((table) => table.rows);
    const known = (fact) => rows.some((row) => facts(row)[fact] !== null);
    const select = (name, label, options) =>
      h(
        "label",
        {},
        `${label} `,
        h(
          "select",
          { name },
          options.map(([value, text]) => h("option", { value, selected: value === state[name] }, text)),
        ),
      );
    const [, [english]] = this.languages[0];
    const own = this.tabs.some((tab) => tab.user_set);
    const focus = this.form.contains(document.activeElement) ? document.activeElement.name : null;
    this.form.replaceChildren(
      this.languages.length > 1
        ? select("language", own ? "Data" : "Language", this.languages.map(([name]) => [name, name || english.user_set || ENGLISH]))
        : "",
      ...Object.entries(LIMITS)
        .filter(([key, { fact }]) => known(fact) || state[key])
        .map(([key, { label, options }]) => {
          const other = state[key] && !options.some(([value]) => value === state[key]) ? [[state[key], state[key]]] : [];
          return select(key, label, [["", "any"], ...options, ...other]);
        }),
      h(
        "span",
        { class: "questions" },
        QUESTIONS.filter(([, { language, ...limits }]) =>
          this.languages.some(([name]) => name === (language ?? "")) && Object.keys(limits).every((key) => known(LIMITS[key].fact)),
        ).map(([text, fields]) => h("a", { href: this.address(fields) }, text)),
      ),
    );
    if (focus) this.form.elements[focus]?.focus();
  }

  /** What was measured here, by the ranks that hold for all rows at once. */
  measured(table) {
    const { tab, rows } = table;
    const { rows: fair, fitted } = usable(rows);
    const { able, unknown } = within(fair, this.state);
    const group = this.index.groups.find(({ id }) => id === tab.group).title;
    return this.panel(table, `Measured here: ${group}, ${tab.title}`, able, unknown, choice(able, firsts(able, rows)), fitted);
  }

  /** What MTEB publishes: which models cannot be excluded as the best of those within the budget. */
  foreign(table) {
    const { tab, rows } = table;
    const ranked = rows.filter((row) => row.rank);
    const { able, unknown } = within(ranked, this.state);
    const place = able[0]?.rank.place;
    const scores = (row) => tab.columns.slice(1).map(({ name }) => row.scores[name].value);
    // In a language whoever is surely better than a row stands above it; over tasks only the tests can say.
    const tested = tab.test && able.length < ranked.length ? couldBeBest(able.map(scores)) : null;
    const ties = able.filter(({ rank }, i) => tested?.[i] ?? (tab.test ? rank.able : rank.alone[0] <= place));
    const title = `MTEB, as published: ${tab.title}. Nothing of it was checked here`;
    return this.panel(table, title, able, unknown, choice(able, ties));
  }

  /** A language that nothing was measured in: which encoders are made for it, without a score. */
  unmeasured(language, { rows, names }) {
    const { able } = within(usable(rows).rows, this.state);
    const made = able.filter((row) => facts(row).languages?.some((code) => inWords.of(code) === language)).slice(0, MOST_NAMED);
    const open = (row) => h("button", { type: "button", class: "open", onclick: () => this.change({ open: row.id }) }, names.get(row.id));
    return {
      said: h(
        "section",
        { class: "answer" },
        h("h2", {}, `Measured here: nothing in ${language} yet`),
        h("p", {}, "A model’s score in English says little of it in another language."),
        made.length ? h("p", {}, "Made for it, too: ", made.flatMap((row, i) => [i ? "; " : "", open(row)]), ".") : "",
      ),
    };
  }

  panel(table, title, able, unknown, made, fitted = 0) {
    const { tab, names } = table;
    const { head: lead, ties, cheap } = words(tab, made, names, able.length);
    const [one, other = able[1]] = [made.best, made.ties[1]];
    const compare = { open: "", compare: [one?.id, other?.id] };
    const said = h(
      "section",
      { class: "answer", "aria-live": "polite" },
      h("h2", {}, title),
      h("p", { class: "lead" }, lead),
      ties ? h("p", {}, ties) : "",
      cheap ? h("p", {}, cheap) : "",
      h(
        "p",
        { class: "how" },
        other ? h("button", { type: "button", class: "open", onclick: () => this.change(compare) }, "May two be treated as equal?") : "",
        unknown ? ` ${unknown} more may meet this: it is not known.` : "",
        fitted ? ` ${fitted} fitted on the tests’ own texts left out.` : "",
      ),
    );
    return { said, table: able.length ? this.table(table, title, able, made) : null };
  }

  table(table, title, able, made) {
    const { tab } = table;
    const name = title.split(":")[0];
    const ordered = [...made.ties, ...able.filter((row) => !made.ties.includes(row))];
    const shown = this.whole[name] ? ordered : ordered.slice(0, Math.max(SHOWN, Math.min(made.ties.length, 2 * SHOWN)));
    const columns = COLUMNS.filter(({ known }) => able.some((row) => known(facts(row)) !== null));
    const line = (row) =>
      h(
        "tr",
        { class: made.ties.includes(row) ? "able" : null },
        h(
          "th",
          { scope: "row" },
          h("button", { type: "button", class: "open", onclick: () => this.change({ open: row.id }) }, table.names.get(row.id)),
          row === made.cheapest && made.ties.length > 1 ? h("span", { class: "chip good", title: CHEAPEST }, "cheapest") : "",
          h("small", {}, origin(row)),
        ),
        h("td", { class: "num" }, h("b", {}, fixed(row.scores[tab.lead].value, tab.digits)), noise(tab, row)),
        columns.map(({ known, shows, number }) => {
          const value = known(facts(row));
          const told = value === null ? h("span", { class: "none" }, "–") : shows(value, facts(row));
          return h("td", { class: number ? "num" : null }, told);
        }),
      );
    const group = (text, rows) =>
      rows.length
        ? h("tbody", {}, h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: String(columns.length + 2) }, text)), rows.map(line))
        : "";
    const tied = shown.filter((row) => made.ties.includes(row));
    return h(
      "div",
      { class: "scroll encoders", tabindex: "0", role: "region", "aria-label": name },
      h(
        "table",
        {},
        h("caption", { class: "sr" }, title),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, name),
            head(tab.lead, able[0].scores[tab.lead].low === null ? "ranks, 95 %" : "95 % interval", true),
            columns.map(({ title: of, unit, number }) => head(of, unit, number)),
          ),
        ),
        group(made.ties.length > 1 ? `The best, and what cannot be told from it (${made.ties.length})` : "The best", tied),
        group(`Significantly worse than one of these (${able.length - made.ties.length})`, shown.filter((row) => !made.ties.includes(row))),
      ),
      shown.length < able.length || this.whole[name]
        ? h(
            "button",
            {
              type: "button",
              class: "more",
              onclick: (event) => {
                this.whole[name] = !this.whole[name];
                event.target.closest(".encoders").replaceWith(this.table(table, title, able, made));
              },
            },
            this.whole[name] ? "Show fewer" : `Show all ${able.length}`,
          )
        : "",
    );
  }
}

const COLUMNS = [
  { title: "Trained", unit: "on tests", known: (of) => of.seen, shows: String },
  { title: "Size", unit: "parameters", number: true, known: (of) => of.parameters, shows: (value, of) => [millions(value), h("small", {}, megabytes(of.mb))] },
  { title: "Width", unit: "dimensions", number: true, known: (of) => of.width, shows: String },
  { title: "Longest", unit: "tokens", number: true, known: (of) => of.longest, shows: (value) => value.toLocaleString("en") },
  { title: "Speed", unit: "sentences/s", number: true, known: (of) => of.speed, shows: (value) => value.toLocaleString("en") },
];

const CHEAPEST = "Of those that cannot be told from the best, the fewest parameters, or dimensions";

/** The heading of a column. */
const head = (title, unit, number) => h("th", { scope: "col", class: number ? "num" : null }, title, unit ? h("small", {}, unit) : "");

const noise = (tab, row) => {
  const { low, high } = row.scores[tab.lead];
  const ranks = row.rank?.first === undefined ? row.rank?.alone : [row.rank.first, row.rank.last];
  return h("small", {}, low !== null ? span(low, high, tab.digits) : ranks?.length ? interval(...ranks) : "");
};

/** Licence and date of a row, and the addresses that it is known at. */
function origin(row) {
  const { licence, released } = facts(row);
  const hub = row.hub ? `https://huggingface.co/${row.hub}` : "";
  const of = [
    /^https:/.test(licence) ? link(licence, "own terms") : licence,
    released && String(released),
    ...[[hub, "Hub"], [row.card === hub ? "" : row.card, "card"], [row.link, "paper"]].map(([address, text]) => address && link(address, text)),
  ].filter(Boolean);
  return of.flatMap((part, i) => [i ? " · " : "", part]);
}
