// The page: reads the state from the address, loads the tab's rows, and draws what the state says.

import { downloads, Filters, Segments, switchboard, tablist } from "./controls.js";
import { h } from "./dom.js";
import { Drawer } from "./drawer/drawer.js";
import { load } from "./load.js";
import { Ranking } from "./views/ranking.js";
import { compared, names, passes, tiers, unpacked } from "./rows.js";
import { AsPublished, which } from "./views/published.js";
import { above, below } from "./views/notes.js";
import { signs } from "./signs.js";
import { Scores } from "./views/scores.js";
import { family, Settings } from "./views/settings.js";
import { Size } from "./views/size.js";
import { parse, written } from "./state.js";
import { worded } from "./switches.js";
import { themeButton } from "./theme.js";

const SCHEMA = 1;
const NAMED = { ranking: "Ranking", scores: "All scores", settings: "Across settings", size: "Score against size" };
const PUSHED = ["tab", "view", "rows", "by", "open", "compare"]; // these make a step that "back" undoes

class Page {
  constructor(index) {
    this.index = index;
    this.tabs = index.tabs.map((tab) => ({ ...tab, cell: index.cell }));
    this.shards = new Map(); // tab id -> its rows, unpacked
    const open = (row) => this.change({ open: row.id, compare: [] });
    this.views = {
      ranking: new Ranking(open),
      scores: new Scores(open, (sort, order) => this.change({ sort, order })),
      settings: new Settings(open),
      size: new Size(open, (x) => this.change({ x })),
    };
    this.filters = new Filters(index, (fields) => this.change(fields));
    this.switches = {
      rows: new Segments("rows", "Shown", ["", "all"], (fields) => this.change(fields)),
      by: new Segments("by", "Read by", ["", "tiers"], (fields) => this.change(fields)),
    };
    this.drawer = new Drawer((fields) => this.change(fields));
    this.published = index.as_published && new AsPublished(index, (fields) => this.change(fields));
    this.parts = {
      groups: h("nav"),
      head: h("div", { class: "tab-head" }),
      switches: h("div", { class: "switches" }),
      answer: h("div", { class: "answer", "aria-live": "polite" }),
      views: h("div"),
      view: h("div", { id: "view", role: "tabpanel" }),
      about: h("div", { class: "tab-about" }),
    };
    this.filtered = h("p", { class: "how filtered" });
    this.downloads = downloads(() => ({ tab: this.tab, rows: this.shown }), index.updated);
    const readings = h("div", { class: "switches" }, this.switches.rows.element, this.switches.by.element);
    this.usual = [this.parts.views, readings, this.filters.box, this.downloads]; // of measured tables
    const main = document.getElementById("board");
    main.replaceChildren(
      this.parts.groups,
      h(
        "div",
        { id: "panel", role: "tabpanel" },
        this.parts.head,
        this.parts.answer,
        this.parts.views,
        readings,
        this.filters.box,
        this.parts.view,
        this.downloads,
        this.parts.about,
      ),
      this.drawer.element,
    );
    addEventListener("hashchange", () => this.go(parse(location.hash, this.ids)));
    addEventListener("popstate", () => this.go(parse(location.hash, this.ids)));
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === width) return; // a phone's address bar comes and goes
      width = innerWidth;
      if (["settings", "size"].includes(this.state.view)) this.draw();
    });
  }

  get ids() {
    return [...this.tabs.map(({ id }) => id), ...(this.published ? [this.index.as_published.id] : [])];
  }

  /** The state with these fields, in the address and on the page. */
  change(fields) {
    const state = { ...this.state, ...fields };
    if (fields.tab && fields.tab !== this.state.tab)
      Object.assign(state, { open: "", compare: [], columns: [], sort: "", order: "" });
    if ([state.tab, this.state.tab].includes(this.index.as_published?.id) && state.tab !== this.state.tab) state.q = state.x = "";
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

  async go(asked) {
    const bare = asked.tab === this.index.as_published?.id;
    for (const part of [...this.usual, ...document.querySelectorAll(".which")]) part.classList.toggle("gone", bare);
    if (bare) return this.goPublished(asked);
    const tab = this.tabs.find(({ id }) => id === asked.tab);
    const known = (name) => tab.columns.some((column) => column.name === name);
    // What this tab does not have, as an old link or a change of protocols may ask for, is as if not asked for.
    const state = {
      ...asked,
      view: this.viewsOf(tab).includes(asked.view) ? asked.view : "ranking",
      columns: asked.columns.filter(known),
    };
    if (this.state && written(state) === written(this.state)) return;
    this.state = state;
    if (location.hash && location.hash !== written(state)) this.address(written(state));
    this.frame(tab);
    try {
      const shard = await load(`tabs/${tab.id}`);
      if (this.state !== state) return; // overtaken by another click
      this.take(tab, shard);
      this.draw();
    } catch (error) {
      if (this.state === state) this.failed(error);
    }
  }

  /** The page of MTEB's published results. */
  async goPublished(state) {
    const { id, title } = this.index.as_published;
    state = { ...state, view: "ranking" };
    if (this.state && written(state) === written(this.state)) return;
    this.state = state;
    const { head, answer: said, view, about } = this.parts;
    if (this.framed !== id) {
      this.framed = id;
      this.groups(id);
      head.replaceChildren(h("h2", {}, `${title}: which model?`));
      view.setAttribute("aria-labelledby", `tab-group-${id}`);
    }
    try {
      const data = await this.published.show(state);
      if (!data) return; // overtaken by another click
      const { element } = this.published;
      if (view.firstChild !== element) view.replaceChildren(element); // what is typed into keeps the focus
      const told = `${id} ${this.published.pick.value}`;
      if (this.said !== told) {
        this.said = this.drawn = told;
        said.replaceChildren(...this.published.said.filter(Boolean));
        about.replaceChildren(...this.published.about);
      }
      const row = data.rows.find(({ model }) => model === state.open);
      const first = { ...parse("", this.ids), tab: this.tabs[0].id };
      if (row) this.drawer.reveal(row.model, this.published.opened(row, (fields) => written({ ...first, ...fields })));
      else this.drawer.shut();
    } catch (error) {
      if (this.state === state) this.failed(error);
    }
  }

  failed(error) {
    this.parts.answer.replaceChildren(
      h("p", { class: "banner" }, `${error.message}. Is the whole site there? This page needs the files beside it.`),
    );
    this.parts.view.replaceChildren();
    this.drawn = this.said = null;
    console.error(error);
  }

  take(tab, shard) {
    if (!this.shards.has(tab.id)) {
      const rows = ["measured", "published"].flatMap((kind) =>
        shard[kind].map((row, at) => unpacked(row, kind, at, this.index.cell)),
      );
      this.shards.set(tab.id, { rows, shard, names: names(rows) });
      tab.ranked = rows.filter((row) => row.rank).length;
      tab.tiers = tiers(rows).length;
    }
    Object.assign(this, { tab }, { rows: this.shards.get(tab.id).rows, names: this.shards.get(tab.id).names });
  }

  /** What is known before the rows are there: protocols, switches, views. */
  frame(tab) {
    const mine = this.tabs.filter(({ group }) => group === tab.group);
    const signature = JSON.stringify([tab.id, this.state.view]);
    if (this.framed === signature) return;
    this.framed = signature;
    const focus = document.activeElement?.closest("[data-key]") ? document.activeElement : null;
    this.last = { ...this.last, [tab.group]: tab.id };
    this.groups(tab.group);
    const title = this.index.groups.find(({ id }) => id === tab.group).title;
    this.parts.head.replaceChildren(
      h("h2", {}, `${title}: ${tab.title}`),
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
    this.parts.switches.replaceChildren(...switchboard(mine, tab, (id) => this.change({ tab: id })));
    if (focus)
      document
        .querySelector(
          focus.value !== undefined && focus.type === "radio"
            ? `[name="${focus.name}"]:checked`
            : "[data-key=form] select",
        )
        ?.focus();
    const views = this.viewsOf(tab);
    this.keep(
      this.parts.views,
      tablist(
        "Views",
        views.map((view) => ({ id: `view-${view}`, title: NAMED[view], href: written({ ...this.state, view }) })),
        `view-${this.state.view}`,
        (id) => this.change({ view: id.slice(5) }),
        "view",
      ),
    );
    this.parts.views.firstElementChild.classList.add("views");
    this.parts.view.setAttribute("aria-labelledby", `tab-view-${this.state.view}`);
  }

  /** The protocols, of which one is chosen; before them what MTEB publishes. */
  groups(chosen) {
    const published = this.index.as_published;
    const first = (group) =>
      group === published?.id ? group : (this.last?.[group] ?? this.tabs.find((each) => each.group === group).id);
    this.keep(
      this.parts.groups,
      tablist(
        "Protocols",
        [...(published ? [published] : []), ...this.index.groups].map(({ id, title }) => ({
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
    this.filters.sync(tab, this.rows, this.shown, state);
    this.switches.rows.sync(
      [`Comparable (${fair})`, `All measured (${tab.measured})`],
      this.whole ? "all" : "",
      !fair || fair === tab.measured || state.view === "scores",
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
    this.drawer.show(tab, this.rows, state, this.names, this.index, this.shards.get(tab.id).shard.pairs);
  }

  /** The view, unless a row was only opened: what has the focus stays where it is. */
  drawView(tab, kept) {
    const { state } = this;
    const signature = JSON.stringify([written({ ...state, open: "", compare: [] }), innerWidth]);
    if (this.drawn === signature) return;
    this.drawn = signature;
    const view = this.views[state.view];
    if (this.parts.view.firstChild !== view.element) this.parts.view.replaceChildren(view.element);
    if (state.view === "ranking") view.show(tab, kept, this.index, this.whole, this.rows, this.byTier && this.names);
    if (state.view === "scores") view.show(tab, kept, state, this.index.flags);
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
      );
    }
  }

  /** The answer, and what stands behind the table as a whole. It is of all rows: filters change no rank. */
  say(tab) {
    const whole = this.state.rows === "all"; // the views differ in the rows they show, not in what is said
    const signature = JSON.stringify([tab.id, whole, this.byTier]);
    if (this.said === signature) return;
    this.said = signature;
    const compare = (ids) => this.change({ open: "", compare: ids });
    const reading = { whole, byTier: this.byTier, flags: this.index.flags, names: this.names };
    this.parts.answer.replaceChildren(...above(tab, this.rows, reading, compare), this.filtered);
    this.parts.about.replaceChildren(...below(tab, this.shards.get(tab.id).shard));
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
    if (index.as_published) document.querySelector("header").append(which(index.as_published));
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
