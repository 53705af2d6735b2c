// What the reader turns: protocols, switches, views, filters, columns, downloads.

import { bibtex, csv, json, latex, markdown, save } from "./downloads.js";
import { h } from "./dom.js";
import { kinds, switches, TEXT, turned, worded } from "./switches.js";

/** A list of links that act as tabs; arrows, Home and End move as in the pattern of WAI-ARIA. */
export function tablist(label, items, chosen, pick, panel) {
  const links = items.map(({ id, title, href }) =>
    h(
      "a",
      {
        role: "tab",
        href,
        id: `tab-${id}`,
        "aria-selected": String(id === chosen),
        "aria-controls": panel,
        tabindex: id === chosen ? "0" : "-1",
        onclick: (event) => {
          if (event.metaKey || event.ctrlKey || event.shiftKey) return;
          event.preventDefault();
          pick(id);
        },
        onkeydown: (event) => {
          const i = items.findIndex((item) => item.id === id);
          const last = items.length - 1;
          const next = { ArrowRight: i === last ? 0 : i + 1, ArrowLeft: i ? i - 1 : last, Home: 0, End: last, " ": i }[
            event.key
          ];
          if (next === undefined || event.metaKey || event.ctrlKey || event.altKey) return;
          event.preventDefault();
          pick(items[next].id);
          document.getElementById(`tab-${items[next].id}`)?.focus();
        },
      },
      title,
    ),
  );
  return h("div", { class: "tabs", role: "tablist", "aria-label": label }, links);
}

/** A switch for each thing the tabs of a protocol differ in, and a list of published tables that nothing was measured for. */
export function switchboard(tabs, tab, pick) {
  const boxes = switches(tabs, tab).map(({ key, label, values }) => {
    const now = tab[key] ?? "";
    const option = (value) =>
      h("option", { value, selected: tab.measured && value === now }, worded(key, value, label));
    const choose = (value) => pick(turned(tabs, tab, key, value).id);
    const choice =
      values.length > 4 || (key === "form" && label !== TEXT)
        ? h(
            "select",
            { "aria-label": label, onchange: (event) => choose(event.target.value) },
            tab.measured ? "" : h("option", { value: "", selected: true }, "–"),
            key === "form"
              ? kinds(tabs, values).map(({ title, values: some }, _, all) =>
                  title && all.length > 1 ? h("optgroup", { label: title }, some.map(option)) : some.map(option),
                )
              : values.map(option),
          )
        : h(
            "span",
            { class: "segments" },
            values.map((value) =>
              h(
                "label",
                {},
                h("input", {
                  type: "radio",
                  name: `switch-${key}`,
                  value,
                  checked: tab.measured && value === now,
                  onchange: () => choose(value),
                }),
                h("span", {}, worded(key, value, label)),
              ),
            ),
          );
    return h("fieldset", { class: "switch", "data-key": key }, h("legend", {}, label), choice);
  });
  const only = tabs.filter((other) => !other.measured);
  if (only.length && tabs.length > 1) {
    boxes.push(
      h(
        "fieldset",
        { class: "switch" },
        h("legend", {}, only.length < tabs.length ? "More" : "Table"),
        h(
          "select",
          {
            "aria-label": "Tables of published rows alone",
            onchange: (event) => event.target.value && pick(event.target.value),
          },
          h(
            "option",
            { value: "", selected: Boolean(tab.measured) },
            `${only.length} published-only table${only.length > 1 ? "s" : ""}`,
          ),
          only.map((other) => h("option", { value: other.id, selected: other.id === tab.id }, other.title)),
        ),
      ),
    );
  }
  return boxes;
}

/** A list under a label: options are [value, text] or [title, options]. */
export const selection = (label, options, now, pick) => {
  const option = ([value, text]) =>
    Array.isArray(text) ? h("optgroup", { label: value }, text.map(option)) : h("option", { value, selected: value === now }, text);
  return h("label", { class: "switch" }, `${label} `, h("select", { onchange: (event) => pick(event.target.value) }, options.map(option)));
};

/** A switch between a few ways to show the rows: the values that a field of the state may have. */
export class Segments {
  constructor(key, legend, values, change) {
    this.choices = values.map((value) => {
      const text = h("span");
      const input = h("input", { type: "radio", name: `switch-${key}`, value, onchange: () => change({ [key]: value }) });
      return { value, text, input };
    });
    this.element = h(
      "fieldset",
      { class: "switch rows", "data-key": key },
      h("legend", {}, legend),
      h(
        "span",
        { class: "segments" },
        this.choices.map(({ text, input }) => h("label", {}, input, text)),
      ),
    );
  }

  /** texts: of the values, in their order; hidden: where it would change nothing. */
  sync(texts, now, hidden) {
    this.element.hidden = hidden;
    this.choices.forEach(({ value, text, input }, i) => {
      text.textContent = texts[i];
      input.checked = value === now;
    });
  }
}

/** The form of the filters. It stays while rows change; `sync` sets it to a state. */
export class Filters {
  constructor(index, change) {
    this.index = index;
    this.status = h("output", { role: "status" });
    this.backbones = h("select", { name: "backbone" });
    this.columns = h("fieldset", { class: "checks" });
    this.hidden = h("span"); // how many flags hide their rows
    this.folded = h("span"); // the same as the status, where a phone folds the form
    this.flags = h("fieldset", { class: "checks" });
    const any = h("option", { value: "" }, "any");
    this.element = h(
      "form",
      { id: "filters", role: "search", "aria-label": "Filter rows" },
      h(
        "label",
        { class: "text" },
        "Search ",
        h("input", {
          type: "search",
          name: "q",
          placeholder: "method, model or backbone",
          autocomplete: "off",
          spellcheck: "false",
        }),
      ),
      h(
        "label",
        {},
        "Setting ",
        h(
          "select",
          { name: "setting" },
          any,
          Object.entries(index.settings).map(([key, about]) => h("option", { value: key, title: about }, key)),
          h("option", { value: "-" }, "not stated"),
        ),
      ),
      h("label", {}, "Backbone ", this.backbones),
      h(
        "label",
        {},
        "Rows ",
        h(
          "select",
          { name: "kind" },
          h("option", { value: "" }, "all"),
          h("option", { value: "measured" }, "measured here"),
          h("option", { value: "published" }, index.flags.imported ? "published or imported" : "published"),
        ),
      ),
      h("details", { class: "choice flags" }, h("summary", {}, "Hide flagged", this.hidden), this.flags),
      h("details", { class: "choice columns" }, h("summary", {}, "Columns"), this.columns),
      h("button", { type: "reset" }, "Clear"),
      this.status,
    );
    // Folded at first: rows come first.
    this.box = h("details", { class: "filter-box" }, h("summary", {}, "Filter rows", this.folded), this.element);
    const read = () => {
      const data = new FormData(this.element);
      const columns = data.getAll("columns");
      change({
        q: data.get("q"),
        setting: data.get("setting"),
        backbone: data.get("backbone") ?? "",
        kind: data.get("kind"),
        hide: data.getAll("hide"),
        columns: columns.length === this.all || !columns.length ? [] : columns,
      });
    };
    for (const kind of ["input", "change"]) this.element.addEventListener(kind, read);
    this.element.addEventListener("submit", (event) => event.preventDefault());
    this.element.addEventListener("reset", (event) => {
      event.preventDefault();
      change({ q: "", setting: "", backbone: "", kind: "", hide: [], columns: [] });
    });
  }

  sync(tab, rows, shown, state, flags) {
    const form = this.element.elements;
    const names = [...new Set(rows.map(({ backbone }) => backbone))].filter(Boolean).sort();
    const all = names.includes(state.backbone) || !state.backbone ? names : [...names, state.backbone];
    this.backbones.replaceChildren(
      h("option", { value: "" }, "any"),
      ...all.map((name) => h("option", { value: name }, name)),
    );
    // Never while the reader types: the caret would jump.
    if (form.q.value !== state.q) form.q.value = state.q;
    for (const key of ["setting", "backbone", "kind"]) form[key].value = state[key];
    const has = (field) => rows.some((row) => row[field]);
    for (const [key, wanted] of [["setting", has("setting")], ["backbone", names.length], ["kind", tab.published]])
      form[key].closest("label").hidden = !wanted && !state[key];
    if (this.tab !== (tab.key ?? tab.id)) this.flagged(rows, flags);
    for (const box of this.element.querySelectorAll("[name=hide]")) box.checked = state.hide.includes(box.value);
    this.all = tab.columns.length;
    if (this.tab !== (tab.key ?? tab.id)) {
      this.tab = tab.key ?? tab.id;
      this.columns.replaceChildren(
        h("legend", { class: "sr" }, "Columns shown"),
        ...tab.columns.map(({ name }) =>
          h("label", {}, h("input", { type: "checkbox", name: "columns", value: name }), name),
        ),
      );
    }
    for (const box of this.columns.querySelectorAll("input"))
      box.checked = !state.columns.length || state.columns.includes(box.value);
    this.element.querySelector(".columns").hidden = state.view !== "scores";
    const counts = ["measured", "published"]
      .filter((kind) => tab[kind])
      .map((kind) => `${shown.filter((row) => row.kind === kind).length} of ${tab[kind]} ${tab.noun ?? kind}`);
    const said = counts.join(", ");
    if (this.status.textContent !== said) this.status.textContent = said;
    this.folded.textContent = `: ${said}`;
    this.hidden.textContent = state.hide.length ? ` (${state.hide.length})` : "";
  }

  /** The boxes that hide rows: of the flags that some row of the table has. */
  flagged(rows, flags) {
    const used = Object.entries(flags).filter(([flag]) => rows.some((row) => row.flags.includes(flag)));
    this.flags.replaceChildren(
      h("legend", { class: "sr" }, "Hide rows flagged"),
      ...used.map(([flag, { label, about }]) =>
        h("label", { title: about }, h("input", { type: "checkbox", name: "hide", value: flag }), label),
      ),
    );
    this.flags.parentElement.hidden = !used.length;
  }
}

/** Buttons that save the rows in view. `view()` gives {tab, rows}. */
export function downloads(view, updated) {
  const button = (label, suffix, type, make) =>
    h(
      "button",
      {
        type: "button",
        onclick: () => {
          const { tab, rows } = view();
          save(`${tab.id}.${suffix}`, type, make(tab, rows));
        },
      },
      label,
    );
  const copied = h("span", { role: "status" });
  const copy = h(
    "button",
    {
      type: "button",
      onclick: () => {
        // Without a clipboard, as from a file in some browsers, the address stands in the address bar.
        (navigator.clipboard?.writeText(location.href) ?? Promise.reject(new Error("no clipboard"))).then(
          () => (copied.textContent = "Link copied."),
          () => (copied.textContent = "The link is in the address bar."),
        );
      },
    },
    "Copy link",
  );
  return h(
    "div",
    { class: "downloads", role: "group", "aria-label": "Rows in view" },
    h("span", {}, "Rows in view:"),
    button("CSV", "csv", "text/csv", csv),
    button("JSON", "json", "application/json", json),
    button("Markdown", "md", "text/markdown", markdown),
    button("LaTeX", "tex", "application/x-tex", latex),
    button("BibTeX", "bib", "application/x-bibtex", (tab, rows) => bibtex(tab, rows, updated)),
    copy,
    copied,
  );
}
