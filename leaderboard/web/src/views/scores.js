// All scores as a table: Tabulator draws only the rows in sight, so that a thousand are as quick as ten.

import {
  AccessorModule,
  FormatModule,
  FrozenColumnsModule,
  InteractionModule,
  SortModule,
  Tabulator,
} from "tabulator-tables";
import { digitsOf, fixed, h, span } from "../dom.js";
import { beside, bestFirst, compared, interval } from "../rows.js";

Tabulator.registerModule([AccessorModule, FormatModule, FrozenColumnsModule, InteractionModule, SortModule]);
const ROW = { measured: 56, published: 58 }; // pixels: three lines; below a published row's name stands its source
const MOST = 14; // rows in sight at once
const NARROW = 640; // pixels of a window in which one column may stay in sight

/** Both tables of a tab, measured above published. `open(row)`, and `turn(column, order)` when a heading sorts. */
export class Scores {
  constructor(open, turn) {
    Object.assign(this, { open, turn });
    this.element = h("div", { class: "scores" });
    this.tables = [];
  }

  /** Show these rows; the tables are made anew for another tab or other columns, else filled. */
  show(tab, rows, state, flags) {
    this.state = state;
    const signature = JSON.stringify([tab.key ?? tab.id, state.columns]);
    if (signature !== this.signature) {
      this.signature = signature;
      this.clear();
      for (const kind of ["measured", "published"]) if (tab[kind]) this.add(tab, rows, kind, flags);
      return;
    }
    for (const each of this.tables) {
      const { table, kind, count } = each;
      const kept = rows.filter((row) => row.kind === kind);
      if (kept.length === each.kept.length && kept.every((row, i) => row === each.kept[i])) {
        this.sort(table); // the same rows: at most their order has changed
        continue;
      }
      each.kept = kept;
      count.textContent = counted(tab, kind, kept.length);
      table.setHeight(height(kept.length, kind));
      table.replaceData(kept).then(() => this.sort(table));
    }
  }

  clear() {
    for (const { table } of this.tables) table.destroy();
    this.tables = [];
    this.element.replaceChildren();
  }

  add(tab, rows, kind, flags) {
    const kept = rows.filter((row) => row.kind === kind);
    const box = h("div", { class: `grid-box ${kind}`, "aria-label": `${kind} rows of ${tab.title}` });
    const count = h("h3", {}, counted(tab, kind, kept.length));
    const said = beside(rows.filter((row) => row.kind === kind));
    this.element.append(
      count,
      ...(kind === "published" && tab.group !== "cost"
        ? [h("p", { class: "apart" }, `${said.title}. ${said.why}`)]
        : []),
      box,
    );
    const table = new Tabulator(box, {
      data: kept,
      index: "id",
      layout: "fitDataStretch",
      nestedFieldSeparator: false,
      height: height(kept.length, kind), // in pixels: else every row is drawn
      rowHeight: ROW[kind],
      headerSortElement: "",
      placeholder: empty(),
      columns: columns(tab, kind, this.state, flags, this.open, rows),
      columnDefaults: { headerSortTristate: true, vertAlign: "middle" },
    });
    this.tables.push({ table, kind, count, kept });
    table.on("tableBuilt", () => {
      // To a screen reader: one grid of rows, of which the part that scrolls is a group.
      const holder = box.querySelector(".tabulator-tableholder");
      holder.setAttribute("role", "rowgroup");
      holder.setAttribute("aria-label", `${kind} rows`);
      holder.querySelector(".tabulator-table").setAttribute("role", "none");
      // A heading that gets the keyboard's focus scrolls the headings alone; Tabulator moves them with the rows only.
      const heads = box.querySelector(".tabulator-header-contents");
      heads.addEventListener("scroll", () => {
        if (holder.scrollLeft !== heads.scrollLeft) holder.scrollLeft = heads.scrollLeft;
      });
      this.sort(table);
    });
    table.on("headerClick", () => {
      const [sorter] = table.getSorters();
      this.turn(sorter?.field ?? "", sorter?.dir ?? "");
    });
  }

  sort(table) {
    const { sort, order } = this.state;
    const [now] = table.getSorters();
    if (sort && table.getColumn(sort)) {
      if (now?.field !== sort || now?.dir !== order) table.setSort(sort, order);
    } else if (now) table.clearSort();
  }
}

const empty = () => h("span", {}, "No row passes the filters.");
const counted = ({ noun, ...tab }, kind, shown) => {
  const count = shown === tab[kind] ? shown : `${shown} of ${tab[kind]}`;
  return noun ? `${count} ${noun}` : `${kind === "measured" ? "Measured here" : "Not measured here"}: ${count} row${tab[kind] === 1 ? "" : "s"}`;
};
const height = (count, kind) => 58 + ROW[kind] * Math.min(Math.max(count, 1), MOST);

function columns(tab, kind, state, flags, open, rows) {
  const make = (field, title, more) => ({
    field,
    title,
    headerSortStartingDir: bestFirst(tab, field),
    titleFormatter: heading,
    sorter: (a, b, one, other, column, direction) => {
      // Tabulator turns the result round for "desc", where rows without a value must still come last.
      const result = compared(one.getData(), other.getData(), field, direction);
      return direction === "desc" ? -result : result;
    },
    ...more,
  });
  const shown = tab.columns.filter((column) => !state.columns.length || state.columns.includes(column.name));
  const has = (field) =>
    rows.some((row) => row.kind === kind && row[field] !== undefined && row[field] !== null && row[field] !== "");
  const backbone = make("backbone", "Backbone", { width: 130, formatter: (cell) => text(cell.getData().backbone) });
  const scored = shown.map(({ name }) =>
    make(name, name, {
      hozAlign: "right",
      headerHozAlign: "right",
      width: Math.max(name === tab.lead ? 94 + 7 * tab.digits : 76, 9 * name.length + 34),
      cssClass: name === tab.lead ? "lead" : "",
      formatter: (cell) => number(cell.getData().scores[name], digitsOf(tab, name), name === tab.lead),
    }),
  );
  return [
    ...(kind === "measured" && rows.some((row) => row.rank)
      ? [make("rank", "Rank", { width: tab.prompts > 1 ? 108 : 84, frozen: innerWidth > NARROW, formatter: (cell) => ranked(cell.getData()) })]
      : []),
    make("method", "Method", {
      frozen: true,
      width: innerWidth > NARROW ? 220 : 130,
      formatter: (cell) => opener(cell.getData(), open),
    }),
    ...(!has("backbone") ? scored : innerWidth > NARROW ? [backbone, ...scored] : [...scored, backbone]),
    ...(has("setting") ? [make("setting", "Setting", { width: 92, formatter: (cell) => text(cell.getData().setting) })] : []),
    ...(has("seeds")
      ? [make("seeds", "Seeds", { width: 84, formatter: (cell) => text(cell.getData().seeds ?? "") })]
      : []),
    ...(has("year") ? [make("year", "Year", { width: 74, formatter: (cell) => text(cell.getData().year ?? "") })] : []),
    // The last column takes the room that is left. All have widths: to measure every cell took most of a sort.
    make("flags", "Flags", {
      minWidth: 110,
      formatter: (cell) =>
        h(
          "span",
          {},
          cell.getData().flags.map((flag) => h("span", { class: "chip", title: flags[flag]?.about }, flags[flag]?.label ?? flag)),
        ),
    }),
  ];
}

const text = (value) => document.createTextNode(String(value));
const heading = (cell) => h("button", { type: "button", class: "heading" }, cell.getValue());

function opener(row, open) {
  const odd =
    row.marks.length || row.average_printed !== undefined
      ? h("span", { class: "mark", role: "img", "aria-label": "Note: open this row" }, "†")
      : "";
  const source = row.source || row.id;
  const below = row.kind === "published" ? h("small", { title: source }, source) : "";
  return h(
    "span",
    {},
    odd,
    h("button", { type: "button", class: "open", onclick: () => open(row) }, row.method),
    below,
  );
}

function ranked(row) {
  if (!row.rank) return h("small", {}, row.best_of ? `best of ${row.best_of}` : "not ranked");
  return h(
    "span",
    {},
    h("b", {}, String(row.rank.place)),
    row.rank.ties ? ` ${row.rank.ties}` : "", // letters are shown for up to 20 ranked rows
    h("small", {}, row.rank.first === undefined ? `alone ${interval(...row.rank.alone)}` : interval(row.rank.first, row.rank.last)),
    row.rank.prompts ? h("small", {}, `prompts ${interval(...row.rank.prompts)}`) : "",
  );
}

function number(cell, digits, lead) {
  if (!cell) return h("span", { class: "none" }, "–");
  const bounds = lead && cell.low !== null ? h("small", {}, span(cell.low, cell.high, digits)) : "";
  return h("span", {}, fixed(cell.value, digits), bounds);
}
