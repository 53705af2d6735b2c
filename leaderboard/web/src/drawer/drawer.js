// A row that is opened, alone or beside another: one dialog at the side of the page.

import { comparison } from "./compare.js";
import { details } from "./details.js";
import { h } from "../dom.js";
import { imported } from "../rows.js";

/** The drawer. `change({open, compare})` is called when the reader opens, compares or closes. */
export class Drawer {
  constructor(change) {
    this.change = change;
    this.title = h("h2", { id: "drawer-title", tabindex: "-1" });
    this.body = h("div", { class: "drawer-body" });
    const close = h(
      "button",
      { type: "button", class: "close", "aria-label": "Close", onclick: () => this.element.close() },
      "✕",
    );
    this.element = h(
      "dialog",
      { id: "drawer", "aria-labelledby": "drawer-title", onclose: () => this.closed() },
      h("header", {}, this.title, close),
      this.body,
    );
    // A click beside the drawer closes it.
    this.element.addEventListener("click", (event) => event.target === this.element && this.element.close());
  }

  closed() {
    if (!this.closing) this.change({ open: "", compare: [] });
  }

  /** Show what the state names, or nothing. Rows that the tab does not have are as if not named. */
  show(tab, rows, state, names, index, files) {
    const [one, other] = [state.compare[0] ?? state.open, state.compare[1]].map((id) =>
      rows.find((row) => row.id === id),
    );
    if (!one) return this.shut();
    const signature = JSON.stringify([tab.key ?? tab.id, one.id, other?.id]);
    if (this.element.open && signature === this.signature) return;
    this.signature = signature;
    this.title.textContent = other ? `${names.get(one.id)} and ${names.get(other.id)}` : names.get(one.id);
    this.element.classList.toggle("wide", Boolean(other));
    this.body.replaceChildren(
      ...(other
        ? [this.pickers(rows, one, other, names), comparison(tab, files, rows, one, other, names, index.flags)]
        : [
            h("p", { class: "about" }, `${one.backbone}${one.backbone ? ". " : ""}${tab.title}: ${tab.about}`),
            this.picker(rows, one, names),
            details(tab, one, index, rows, names),
          ]),
    );
    if (!this.element.open) this.element.showModal();
    this.body.scrollTop = 0;
  }

  shut() {
    if (!this.element.open) return;
    this.closing = true;
    this.element.addEventListener("close", () => (this.closing = false), { once: true });
    this.element.close();
  }

  picker(rows, one, names) {
    return h(
      "p",
      { class: "picker" },
      this.select("Compare with", rows, "", names, (id) => this.change({ open: "", compare: [one.id, id] }), one),
    );
  }

  pickers(rows, one, other, names) {
    return h(
      "p",
      { class: "picker pickers" },
      this.select("First", rows, one.id, names, (id) => this.change({ open: "", compare: [id, other.id] }), other),
      this.select("Second", rows, other.id, names, (id) => this.change({ open: "", compare: [one.id, id] }), one),
      h(
        "button",
        {
          type: "button",
          class: "picker-swap",
          onclick: () => this.change({ open: "", compare: [other.id, one.id] }),
        },
        "Swap",
      ),
    );
  }

  select(label, rows, chosen, names, pick, without) {
    const choice = (kind) =>
      rows
        .filter((row) => row.kind === kind && row !== without)
        .map((row) => h("option", { value: row.id, selected: row.id === chosen }, names.get(row.id)));
    const list = h(
      "select",
      { onchange: (event) => event.target.value && pick(event.target.value) },
      chosen ? "" : h("option", { value: "" }, "another row"),
      h("optgroup", { label: rows.some(({ kind }) => kind === "published") ? "Measured here" : "Rows" }, choice("measured")),
      h("optgroup", { label: rows.some(imported) ? "Published and imported" : "Published" }, choice("published")),
    );
    return h("label", {}, `${label} `, list);
  }
}
