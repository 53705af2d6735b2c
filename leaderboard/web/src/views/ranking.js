// The first picture: a line a row with its score, the score's interval and the rank's.

import { fixed, h, span } from "../dom.js";
import { beside, comparable, directed, FOLDED, firsts, interval, tiers } from "../rows.js";
import { scale } from "./scale.js";

const SHOWN = 20; // rows before "show all"
const OF_A_KIND = 12; // the same where rows stand by their supervision, or by tiers
const MOST = 0.75; // of a group: what so many are marked with stands in its heading
const OF_TIERS = 36; // of all tiers together

/** The ranking in an element. `open(row)` is called for a row that is clicked. */
export class Ranking {
  constructor(open) {
    this.open = open;
    this.items = new Map(); // row key -> its element
    this.whole = { measured: false, published: false };
    this.axis = h("div", { class: "axis", "aria-hidden": "true" });
    this.head = h(
      "div",
      { class: "line head", "aria-hidden": "true" },
      h("span", { class: "place" }, "Rank"),
      h("span", { class: "name" }, "Method and backbone"),
      this.axis,
      h("span", { class: "score" }),
      h("span", { class: "between" }, "Rank, 95 %"),
    );
    this.measured = h("div");
    this.lists = new Map(); // kind of supervision -> {box, title, list}
    this.published = h("ol", { class: "lines published", "aria-label": "Published rows, never ranked" });
    this.note = h("p", { class: "apart" });
    this.none = h("p", { class: "none", hidden: true }, "No row passes the filters.");
    this.more = { measured: this.button("measured"), published: this.button("published") };
    this.element = h(
      "div",
      { class: "ranking" },
      this.none,
      this.head,
      this.measured,
      this.more.measured,
      this.note,
      this.published,
      this.more.published,
    );
  }

  button(kind) {
    return h("button", {
      type: "button",
      class: "more",
      onclick: () => {
        this.whole[kind] = !this.whole[kind];
        this.show(...this.last);
      },
    });
  }

  /** The heading and the list of the rows of a kind of supervision; "": of all. */
  list(kind) {
    if (!this.lists.has(kind)) {
      const title = h("h3", { class: "kind", hidden: !kind });
      const list = h("ol", { class: "lines measured" });
      const box = kind === FOLDED ? h("details", { class: "folded" }, h("summary", {}, title), list) : h("div", {}, title, list);
      this.lists.set(kind, { title, list, box });
    }
    return this.lists.get(kind);
  }

  /** Show these rows of a tab, of `all` it has: in one list, by supervision or, where `names` (row id -> name) are there, by
   * tiers. */
  show(tab, rows, index, whole, all, names = null) {
    this.last = [tab, rows, index, whole, all, names];
    this.index = index;
    const kinds = {
      measured: rows.filter((row) => row.kind === "measured"),
      published: rows.filter((row) => row.kind === "published"),
    };
    const every = names ? byTier(all) : whole ? [{ kind: "", rows: all }] : comparable(all);
    const filled = every
      .map((group) => ({ ...group, peers: group.rows, rows: kinds.measured.filter((row) => group.rows.includes(row)) }));
    const begin = filled.findIndex((group) => group.rows.length);
    // The tiers above those shown are named: else a page that begins with tier 2 would leave a riddle.
    const groups = filled.filter((group, i) => group.rows.length || (group.leader && i < begin));
    const most = groups.length > 1 ? OF_A_KIND : SHOWN;
    let room = names ? OF_TIERS : Infinity;
    for (const group of groups) {
      group.few = group.rows.slice(0, Math.min(most, room));
      group.shown = this.whole.measured ? group.rows : group.few;
      room -= group.few.length;
    }
    const few = { measured: groups.flatMap((group) => group.few).length, published: SHOWN };
    const shown = {
      measured: groups.flatMap((group) => group.shown),
      published: this.whole.published ? kinds.published : kinds.published.slice(0, kinds.measured.length ? 5 : SHOWN),
    };
    const drawn = groups.filter((group) => group.shown.length || !group.rows.length);
    const values = [...shown.measured, ...shown.published].flatMap((row) => {
      const cell = row.scores[tab.lead];
      return cell ? [cell.value, cell.low ?? cell.value, cell.high ?? cell.value] : [];
    });
    this.scale = values.length ? scale(values) : null;
    this.drawAxis();
    arrange(
      this.measured,
      drawn.map(({ kind }) => this.list(kind).box),
    );
    const ofAll = whole || names;
    for (const { kind, leader: best, peers, rows: some, shown: lines } of drawn) {
      const { title, list } = this.list(kind);
      const able = new Set(ofAll ? [] : firsts(peers, all)); // of all: filters change no rank
      const shared = common(peers);
      const leader = names ? some.find((row) => row === best) : whole ? some.find((row) => row.rank?.place === 1) : peers[0];
      title.textContent = `${kind} (${some.length}${names && some.length < peers.length ? ` of ${peers.length}` : ""})`;
      const and = peers.length > 1 ? " and what does not differ significantly from it" : "";
      title.append(...badges(shared, index).flatMap((chip) => [" ", chip]));
      if (best) title.append(" ", h("small", {}, `${names.get(best.id)}${and}${some.length ? "" : ": not shown"}`));
      list.setAttribute(
        "aria-label",
        `${kind || "Measured"} rows, ${directed(tab) ? "best first" : `by ${tab.lead}`}`,
      );
      arrange(
        list,
        lines.map((row) => {
          const first = ofAll ? (row.rank?.able ?? row.rank?.first === 1) : able.has(row);
          return this.line(tab, row, leader, first, shared, ofAll ? row.rank?.place : placed(row, peers));
        }),
      );
    }
    arrange(
      this.published,
      shown.published.map((row) => this.line(tab, row, null, false, [])),
    );
    for (const kind of ["measured", "published"]) {
      const rest = kinds[kind].length - shown[kind].length;
      const many = kinds[kind].length > few[kind];
      this.more[kind].hidden = !rest && !(this.whole[kind] && many);
      this.more[kind].textContent = rest ? `Show all ${kinds[kind].length} ${tab.noun ?? `${kind} rows`}` : "Show fewer";
    }
    const lower = tab.columns.find(({ name }) => name === tab.lead)?.lower_is_better;
    this.head.querySelector(".score").replaceChildren(tab.lead, lower && directed(tab) ? h("small", {}, "lower is better") : "");
    const ranked = shown.measured.some((row) => row.rank);
    this.head.querySelector(".place").textContent = ranked ? (ofAll ? "Rank" : "Place") : "";
    const jointly = shown.measured.some((row) => row.rank?.first !== undefined);
    this.head.querySelector(".between").replaceChildren(ranked ? (jointly ? "Rank, 95 %" : "") : "", ranked ? h("small", {}, jointly ? "bold: joint" : "95 %, alone") : "");
    this.head.querySelector(".name").textContent = tab.noun ? "Model" : "Method and backbone";
    this.head.hidden = !shown.measured.length && !shown.published.length;
    this.note.hidden = !kinds.published.length;
    this.note.classList.toggle("alone", !kinds.measured.length);
    const { title, why } = beside(kinds.published);
    this.note.replaceChildren(
      h("b", {}, `${title} (${kinds.published.length}). `),
      tab.group === "cost" ? "" : why,
    );
    this.none.hidden = rows.length > 0;
  }

  drawAxis() {
    const ticks = this.scale?.ticks ?? [];
    const inside = ticks.filter((tick) => this.scale.at(tick) > 0.02 && this.scale.at(tick) < 0.98);
    this.axis.replaceChildren(
      ...inside.map((tick) => at(h("span", {}, String(tick).replace("-", "−")), this.scale.at(tick))),
    );
    this.ticks = inside;
  }

  line(tab, row, leader, able, shared, place) {
    const key = `${row.kind}:${row.id}`; // a measured row has its entry's id in every tab
    let item = this.items.get(key);
    if (!item) this.items.set(key, (item = new Line((each) => this.open(each))));
    item.show(tab, row, this.index, leader, this.scale, this.ticks, able, shared, place);
    return item.element;
  }
}

class Line {
  constructor(open) {
    this.bar = h("span", { class: "bar" });
    this.dot = h("span", { class: "dot" });
    this.guide = h("span", { class: "guide" });
    this.grid = h("span", { class: "grid" });
    this.place = h("span", { class: "place" });
    this.title = h("button", { type: "button", class: "open", onclick: () => open(this.row) });
    this.about = h("span", { class: "about" });
    this.score = h("span", { class: "score" });
    this.between = h("span", { class: "between" });
    this.element = h(
      "li",
      { class: "line" },
      this.place,
      h("span", { class: "name" }, this.title, this.about),
      h("span", { class: "track", "aria-hidden": "true" }, this.grid, this.guide, this.bar, this.dot),
      this.score,
      this.between,
    );
  }

  show(tab, row, index, leader, scaled, ticks, able, shared, place) {
    this.row = row;
    const cell = row.scores[tab.lead];
    this.element.className = `line ${able ? "able" : ""} ${row.rank ? "" : "unranked"}`;
    this.place.replaceChildren(
      row.rank
        ? String(place)
        : row.kind === "measured"
          ? h("abbr", { title: row.unranked || "not ranked" }, "–")
          : "",
    );
    this.title.replaceChildren(row.method);
    this.about.replaceChildren(...about(row, index, shared));
    this.score.dataset.lead = tab.lead;
    this.score.replaceChildren(
      h("b", {}, fixed(cell?.value, tab.digits)),
      cell?.low == null ? "" : h("small", {}, span(cell.low, cell.high, tab.digits)),
    );
    this.between.replaceChildren(...standing(row));
    for (const each of [this.bar, this.dot]) each.hidden = !cell || !scaled;
    const led = leader?.scores[tab.lead];
    this.guide.hidden = !led || !scaled;
    if (!scaled) return;
    this.grid.replaceChildren(...ticks.map((tick) => at(h("i"), scaled.at(tick))));
    if (led) at(this.guide, scaled.at(led.value));
    if (!cell) return;
    at(this.dot, scaled.at(cell.value));
    at(this.bar, scaled.at(cell.low ?? cell.value));
    this.bar.style.width = `${100 * (scaled.at(cell.high ?? cell.value) - scaled.at(cell.low ?? cell.value))}%`;
  }
}

/** The place of a row among its peers, by their ranks among all rows. */
const placed = (row, peers) => (row.rank ? 1 + peers.filter((other) => other.rank?.place < row.rank.place).length : null);

/** Setting and flags of a row that may stand in a heading: ["setting", ...flags]. */
const marked = (row) => [...(row.setting ? [row.setting] : []), ...row.flags.filter((flag) => flag !== "best-of-n" || !row.best_of)];

/** What nearly all of some rows are marked with, which their heading says once; a row that is not says so. */
const common = (rows) =>
  [...new Set(rows.flatMap(marked))].filter((mark) => rows.length > 1 && rows.filter((row) => marked(row).includes(mark)).length >= MOST * rows.length);

/** Marks as chips, whose titles say what they mean. */
const badges = (marks, { flags, settings }) =>
  marks.map((mark) =>
    settings[mark]
      ? h("span", { class: "chip", title: settings[mark] }, mark)
      : h("span", { class: "chip warn", title: flags[mark]?.about }, flags[mark]?.label ?? mark),
  );

/** Backbone, seeds and flags of a row, but for what its group shares, and whether something about it is odd. */
function about(row, index, shared) {
  const seeds = row.seeds > 1 ? h("span", { class: "chip" }, `${row.seeds} seeds`) : "";
  const prompts = row.prompts ? h("span", { class: "chip" }, `${row.prompts.n} prompts`) : "";
  const best = row.best_of ? h("span", { class: "chip warn" }, `best of ${row.best_of}`) : "";
  const odd =
    row.marks.length || row.average_printed !== undefined
      ? h("span", { class: "mark", role: "img", "aria-label": "Note: open this row" }, "†")
      : "";
  const source = row.kind === "published" ? h("span", { class: "source" }, row.source || row.id) : "";
  return [
    row.backbone ? h("span", { class: "backbone" }, row.backbone) : "",
    badges(marked(row).filter((mark) => !shared.includes(mark)), index),
    shared
      .filter((mark) => index.flags[mark] && !row.flags.includes(mark))
      .map((mark) => h("span", { class: "chip", title: `not ${index.flags[mark].about}` }, `not ${index.flags[mark].label}`)),
    seeds,
    prompts,
    best,
    source,
    odd,
  ]
    .flat()
    .filter((part) => part !== "");
}

function standing(row) {
  if (!row.rank)
    return row.kind === "measured" ? [h("small", {}, row.best_of ? `best of ${row.best_of}` : "not ranked")] : [];
  const { first, last, alone, ties, prompts } = row.rank;
  const letters = ties ? h("span", { class: "ties" }, ties) : "";
  const single = alone
    ? h("small", { title: "95 % interval of this row's rank alone" }, `alone ${interval(...alone)}`)
    : "";
  const over = prompts
    ? h(
        "small",
        { title: "95 % interval of the rank over items and over the prompts that each row which has some draws from its own" },
        `over prompts ${interval(...prompts)}`,
      )
    : "";
  return [first === undefined ? "" : h("b", {}, interval(first, last)), letters, single, over].filter((part) => part !== "");
}

/** Groups of all rows by their tiers; those without a rank last. */
function byTier(rows) {
  const apart = rows.filter((row) => row.kind === "measured" && !row.rank);
  return [
    ...tiers(rows).map(({ tier, ...group }) => ({ kind: `Tier ${tier}`, ...group })),
    { kind: "Not ranked", rows: apart },
  ];
}

/** Make these the children, in this order; those that stay are moved, not taken out, so that focus lasts. */
function arrange(parent, elements) {
  const kept = new Set(elements);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  elements.forEach((element, i) => {
    const there = parent.children[i] ?? null;
    if (there === element) return;
    if (element.parentNode === parent && parent.moveBefore) parent.moveBefore(element, there);
    else parent.insertBefore(element, there);
  });
}

function at(element, share) {
  element.style.left = `${(100 * share).toFixed(3)}%`;
  return element;
}
