// The page: reads the state from the address, loads the tab's rows, and draws what the state says.

import { downloads, Filters, Segments, selection, switchboard, tablist } from "./controls.js";
import { h } from "./dom.js";
import { Drawer } from "./drawer/drawer.js";
import { load } from "./load.js";
import { Ranking } from "./views/ranking.js";
import { compared, names, passes, tiers, unpacked } from "./rows.js";
import { Choose, FIELDS } from "./views/choose.js";
import { above, below } from "./views/notes.js";
import { aboutPublished, publishedSets, publishedTable, saidOfPublished } from "./published.js";
import { signs } from "./signs.js";
import { parse, written } from "./state.js";
import { family, worded } from "./switches.js";
import { themeButton } from "./theme.js";

const SCHEMA = 1;
const NAMED = { ranking: "Ranking", scores: "All scores", settings: "Across settings", size: "Score against size" };
const GEOMETRY = { size: "Alignment against uniformity" }; // its two sides are read together
const PUSHED = ["tab", "view", "rows", "by", "open", "compare"]; // these make a step that "back" undoes
const FRESH = { open: "", compare: [], columns: [], mark: [], sort: "", order: "" }; // of another table
const CHOICE = { id: "which", title: "Which encoder?" }; // the first screen

class Page {
  constructor(index) {
    this.index = index;
    this.tabs = index.tabs.map((tab) => ({ ...tab, cell: index.cell }));
    const { as_published: published } = index;
    this.published = published && { ...published, group: published.id, columns: [], measured: published.ranked };
    this.shards = new Map(); // tab id, with what is chosen of it -> a promise of its table
    const open = (row) => this.change({ open: row.id, compare: [] });
    this.views = { ranking: new Ranking(open) };
    this.made = {
      scores: async () => new (await load("grid")).Scores(open, (sort, order) => this.change({ sort, order })),
      settings: async () => new (await load("charts")).Settings(open, load, (mark) => this.change({ mark })),
      size: async () => new (await load("charts")).Size(open, (x) => this.change({ x })),
    };
    const change = (fields) => this.change(fields);
    this.filters = new Filters(index, change);
    this.switches = {
      rows: new Segments("rows", "Shown", ["", "all"], change),
      by: new Segments("by", "Read by", ["", "tiers"], change),
    };
    this.drawer = new Drawer(change);
    if (this.tabs.some((tab) => tab.measured))
      this.choose = new Choose(index, this.tabs, this.published, change, (...of) => this.read(...of), (fields) =>
        written({ ...parse("", this.ids), ...fields }),
      );
    this.parts = {
      groups: h("nav"),
      stale: h("p", { class: "banner", role: "status", hidden: true }),
      head: h("div", { class: "tab-head" }),
      switches: h("div", { class: "switches" }),
      answer: h("div", { class: "answer", "aria-live": "polite" }),
      views: h("div"),
      view: h("div", { id: "view", role: "tabpanel" }),
      about: h("div", { class: "tab-about" }),
    };
    this.filtered = h("p", { class: "how filtered" });
    this.downloads = downloads(() => ({ tab: this.tab, rows: this.shown }), index.updated);
    const tools = h("div", { class: "tools" }, this.parts.views, this.switches.rows.element, this.switches.by.element, this.filters.box);
    this.usual = [this.parts.head, this.parts.answer, tools, this.downloads, this.parts.about]; // of tables
    document.getElementById("board").replaceChildren(
      this.parts.groups,
      h("div", { id: "panel", role: "tabpanel" }, this.parts.stale, ...this.usual.slice(0, 3), this.parts.view, ...this.usual.slice(3)),
      this.drawer.element,
    );
    for (const event of ["hashchange", "popstate"])
      addEventListener(event, () => this.go(parse(location.hash, this.ids)));
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === width) return; // a phone's address bar comes and goes
      width = innerWidth;
      if (["settings", "size"].includes(this.state.view)) this.draw();
    });
  }

  get ids() {
    return [this.choose && CHOICE.id, this.published?.id, ...this.tabs.map(({ id }) => id)].filter(Boolean);
  }

  /** The state with these fields, in the address and on the page. */
  change(fields) {
    const state = { ...this.state, ...fields, gone: "" };
    if (fields.tab && fields.tab !== this.state.tab) {
      Object.assign(state, { ...FRESH, set: "" });
      for (const key of FIELDS) state[key] = "";
      if ([state.tab, this.state.tab].includes(this.published?.id)) state.q = state.x = "";
    }
    const address = written(state);
    if (address !== written(this.state)) {
      const differs = PUSHED.some((key) => JSON.stringify(state[key]) !== JSON.stringify(this.state[key]));
      const shuts = !state.open && !state.compare.length && state.tab === this.state.tab; // "back" opens no drawer again
      this.address(address, differs && !(shuts && (this.state.open || this.state.compare.length)));
    }
    this.go(state);
  }

  /** Put an address into the bar, as a step of its own or in the place of the last. */
  address(text, push = false) {
    try {
      if (push) history.pushState(null, "", text);
      else history.replaceState(null, "", text);
    } catch {
      location.hash = text;
    }
  }

  /** The views of a tab: across settings where it has a family, against size where rows have one. */
  viewsOf(tab) {
    const wanted = { settings: family(this.tabs, tab).length > 1, size: tab.group !== "cost" };
    return Object.keys(NAMED).filter((view) => wanted[view] ?? true);
  }

  /** A state without the set or language that this board does not have, which then stands in `gone`. */
  present(state, tab) {
    const all = tab && tab === this.published ? publishedSets(tab).flatMap(([value, more]) => (Array.isArray(more) ? more : [[value]])) : [[""]];
    const set = state.set || (all.some(([value]) => value === state.x) ? state.x : ""); // as older links have it
    if (!all.some(([value]) => value === set)) return { ...state, set: "", gone: set };
    if (!tab && !this.choose.languages.some(([name]) => name === state.language)) return { ...state, language: "", gone: state.language };
    return { ...state, set, x: set && set === state.x ? "" : state.x };
  }

  async go(asked) {
    const which = asked.tab === CHOICE.id;
    const tab = [this.published, ...this.tabs].find((each) => each?.id === asked.tab);
    // What this tab does not have, as an old link or a change of protocols may ask for, is as if not asked for.
    const known = (name) => tab === this.published || tab.columns.some((column) => column.name === name);
    asked = this.present(asked, tab);
    const state = which
      ? asked
      : { ...asked, view: this.viewsOf(tab).includes(asked.view) ? asked.view : "ranking", columns: asked.columns.filter(known) };
    if (this.state && written(state) === written(this.state)) return;
    this.state = state;
    if (location.hash && location.hash !== written(state)) this.address(written(state));
    for (const part of this.usual) part.classList.toggle("gone", which);
    if (which) this.frame(CHOICE, []);
    else this.frame(tab, this.viewsOf(tab));
    try {
      const tables = which ? await this.choose.show(state) : [await this.read(tab, state.set)];
      if (this.state !== state || !tables) return; // overtaken by another click
      if (which) {
        if (this.parts.view.firstChild !== this.choose.element) this.parts.view.replaceChildren(this.choose.element);
        this.drawn = null;
        const of = tables.find(({ rows }) => rows.some(({ id }) => id === (state.compare[0] ?? state.open))) ?? tables[0];
        this.reveal(of);
      } else {
        this.views[state.view] ??= await this.made[state.view]();
        if (this.state !== state) return;
        Object.assign(this, tables[0]);
        this.draw();
      }
    } catch (error) {
      if (this.state === state) this.failed(error);
    }
  }

  /** The drawer, and what the address names that is not there. */
  reveal({ tab, rows, names: of, files, flags }) {
    const { state } = this;
    const lost = [state.open, ...state.compare].find((id) => id && !rows.some((row) => row.id === id));
    const { stale } = this.parts;
    stale.hidden = !state.gone && !lost;
    stale.textContent = state.gone
      ? `This link names a table that is not on this board: ${state.gone}. Shown is the first.`
      : `This link names a row that is not in this table: ${lost}.`;
    this.drawer.show(tab, rows, state, of, { ...this.index, flags }, files);
  }

  failed(error) {
    const said = h("p", { class: "banner" }, `${error.message}. Is the whole site there? This page needs the files beside it.`);
    this.parts.answer.replaceChildren(said);
    this.parts.view.replaceChildren(this.state.tab === CHOICE.id ? said : "");
    this.drawn = this.said = null;
    console.error(error);
  }

  /** A promise of {tab, rows, shard, names, files, flags}: a tab's table, of what is published the chosen one. */
  read(base, choice = "") {
    const key = `${base.id} ${choice}`;
    if (!this.shards.has(key)) {
      const made = base === this.published ? this.readPublished(choice) : this.readMeasured(base);
      made.then(({ tab, rows }) => {
        tab.ranked = rows.filter((row) => row.rank).length;
        tab.tiers = tiers(rows).length;
      }).catch(() => this.shards.delete(key)); // the next attempt reads again
      this.shards.set(key, made);
    }
    return this.shards.get(key);
  }

  async readMeasured(tab) {
    const shard = await load(`tabs/${tab.id}`);
    const rows = ["measured", "published"].flatMap((kind) =>
      shard[kind].map((row, at) => ({ ...unpacked(row, kind, at, this.index.cell), exposed: row.seen?.[tab.lead]?.[0] })),
    );
    return { tab, rows, shard, names: names(rows), files: shard.pairs, flags: this.index.flags };
  }

  async readPublished(choice) {
    const file = (name) => load(name.replace(/\.json$/, ""));
    const { file: all, by_language: others } = this.published;
    const [data, languages] = await Promise.all([file(all), choice.includes("/") ? file(others) : null]);
    const { rows, tab, flags, ...shard } = publishedTable(this.published, data, choice, languages);
    return { tab, rows, shard, names: names(rows), files: null, flags };
  }

  /** What is known before the rows are there: protocols, switches, views. */
  frame(tab, views) {
    const { id, group = tab.id, title } = tab;
    const signature = JSON.stringify([id, this.state.view, this.state.set]);
    if (this.framed === signature) return;
    this.framed = signature;
    const focus = document.activeElement?.closest("[data-key]") ? document.activeElement : null;
    this.last = { ...this.last, [group]: id };
    this.groups(group);
    const named = views.length ? `tab-view-${this.state.view}` : `tab-group-${group}`;
    this.parts.view.setAttribute("aria-labelledby", named);
    if (!views.length) return;
    const of = this.index.groups.find((each) => each.id === group);
    this.parts.head.replaceChildren(
      h("h2", {}, of ? `${of.title}: ${title}` : title),
      this.parts.switches,
      tab.sample
        ? h(
            "p",
            { class: "banner" },
            h("strong", {}, "Sample data."),
            " Measured on the few sentences that come with the package: comparable with nothing outside this table.",
          )
        : "",
    );
    this.parts.switches.replaceChildren(
      ...(of
        ? switchboard(this.tabs.filter((other) => other.group === group), tab, (other) => this.change({ tab: other }))
        : [selection("Tasks", publishedSets(this.published), this.state.set, (set) => this.change({ ...FRESH, set }))]),
    );
    if (focus)
      document
        .querySelector(
          focus.value !== undefined && focus.type === "radio"
            ? `[name="${focus.name}"]:checked`
            : "[data-key=form] select",
        )
        ?.focus();
    this.keep(
      this.parts.views,
      tablist(
        "Views",
        views.map((view) => ({ id: `view-${view}`, title: (group === "geometry" && GEOMETRY[view]) || NAMED[view], href: written({ ...this.state, view }) })),
        `view-${this.state.view}`,
        (chosen) => this.change({ view: chosen.slice(5) }),
        "view",
      ),
    );
    this.parts.views.firstElementChild.classList.add("views");
  }

  /** The protocols, of which one is chosen; before them the choice of an encoder, and what MTEB publishes. */
  groups(chosen) {
    const others = [this.choose && CHOICE, this.published].filter(Boolean);
    const first = (group) =>
      others.some(({ id }) => id === group) ? group : (this.last?.[group] ?? this.tabs.find((each) => each.group === group).id);
    this.keep(
      this.parts.groups,
      tablist(
        "Protocols",
        [...others, ...this.index.groups].map(({ id, title }) => ({
          id: `group-${id}`,
          title,
          href: written({ ...parse("", this.ids), tab: first(id) }),
        })),
        `group-${chosen}`,
        (id) => this.change({ tab: first(id.slice(6)) }),
        "panel",
      ),
    );
    document.getElementById("panel").setAttribute("aria-labelledby", `tab-group-${chosen}`);
  }

  /** Replace a list of tabs without losing the keyboard's place in it. */
  keep(place, list) {
    const id = place.contains(document.activeElement) ? document.activeElement.id : null;
    place.replaceChildren(list);
    // On a phone the list scrolls sideways: what is chosen is brought into sight.
    const chosen = list.querySelector("[aria-selected=true]");
    list.scrollLeft = chosen ? chosen.offsetLeft - list.offsetLeft - (list.clientWidth - chosen.offsetWidth) / 2 : 0;
    if (id) document.getElementById(id)?.focus();
  }

  draw() {
    const { state, tab } = this;
    const fair = this.rows.filter((row) => row.comparable).length;
    this.whole = state.rows === "all" || state.view === "scores" || !fair;
    const wanted = this.rows.filter((row) => this.whole || row.kind === "published" || row.comparable);
    const kept = wanted.filter((row) => passes(row, state));
    this.shown = state.sort
      ? ["measured", "published"].flatMap((kind) =>
          kept.filter((row) => row.kind === kind).sort((a, b) => compared(a, b, state.sort, state.order)),
        )
      : kept;
    this.filters.sync(tab, this.rows, this.shown, state, this.flags);
    this.switches.rows.sync(
      [`By training (${fair})`, `In one list (${tab.measured})`],
      this.whole ? "all" : "",
      !fair || state.view === "scores",
    );
    this.byTier = state.by === "tiers" && state.view === "ranking" && tab.tiers > 0;
    this.switches.by.sync(
      ["Ranks", `Tiers (${tab.tiers})`],
      this.byTier ? "tiers" : "",
      !tab.tiers || state.view !== "ranking",
    );
    this.say(tab);
    const gone = wanted.length - kept.length;
    this.filtered.textContent = gone
      ? `The filters hide ${gone} of ${wanted.length} rows. What is said here, and every rank, is of all of them.`
      : "";
    this.drawView(tab, kept);
    this.reveal(this);
  }

  /** The view, unless a row was only opened: what has the focus stays where it is. */
  drawView(tab, kept) {
    const { state } = this;
    const index = { ...this.index, flags: this.flags };
    const signature = JSON.stringify([written({ ...state, open: "", compare: [] }), innerWidth]);
    if (this.drawn === signature) return;
    this.drawn = signature;
    const view = this.views[state.view];
    if (this.parts.view.firstChild !== view.element) this.parts.view.replaceChildren(view.element);
    if (state.view === "ranking") view.show(tab, kept, index, this.whole, this.rows, this.byTier && this.names);
    if (state.view === "scores") view.show(tab, kept, state, this.flags);
    if (state.view === "size") view.show(tab, kept, state, this.names);
    if (state.view === "settings") {
      const setting = (other) =>
        ["metric", "aggregation"]
          .map((key) => other[key] && worded(key, other[key]))
          .filter(Boolean)
          .join(", ");
      view.show(
        tab,
        this.tabs.filter(({ group }) => group === tab.group),
        kept,
        this.names,
        setting,
        state.mark,
      );
    }
  }

  /** The answer, and what stands behind the table as a whole. It is of all rows: filters change no rank. */
  say(tab) {
    const whole = this.state.rows === "all"; // the views differ in the rows they show, not in what is said
    const signature = JSON.stringify([tab.key ?? tab.id, whole, this.byTier]);
    if (this.said === signature) return;
    this.said = signature;
    const compare = (ids) => this.change({ open: "", compare: ids });
    const reading = { whole, byTier: this.byTier, flags: this.flags, names: this.names };
    const published = tab.id === this.published?.id;
    this.parts.answer.replaceChildren(...(published ? saidOfPublished(tab, this.shard) : above(tab, this.rows, reading, compare)), this.filtered);
    this.parts.about.replaceChildren(...(published ? aboutPublished(this.shard) : below(tab, this.shard)));
  }
}

themeButton(document.getElementById("theme"));
load("index")
  .then((index) => {
    if (index.schema_version !== SCHEMA)
      throw new Error(
        `the board's data have schema ${index.schema_version}, this page reads ${SCHEMA}: reload, or build the board again`,
      );
    document.getElementById("updated").textContent = index.updated
      ? `Newest record: ${index.updated.slice(0, 10)}.`
      : "";
    document.getElementById("signs").replaceChildren(signs(index));
    if (!index.tabs.length) {
      document.getElementById("board").replaceChildren(h("p", {}, "No results yet."));
      return;
    }
    const page = new Page(index);
    page.go(parse(location.hash, page.ids));
  })
  .catch((error) => {
    document.getElementById("board").replaceChildren(h("p", { class: "banner" }, error.message));
    console.error(error);
  });
