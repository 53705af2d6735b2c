// Tabs, filters, sorting, rows that open, light and dark. Text is only ever set as text.
(() => {
  "use strict";
  const root = document.documentElement;
  const KEY = "stsbench-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  root.classList.add("js");

  // A page opened from a file may be refused its storage.
  const recall = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem(KEY, theme); } catch { /* this visit only */ } };

  const stored = recall();
  if (stored === "dark" || stored === "light") root.dataset.theme = stored;

  function themeButton() {
    const button = document.getElementById("theme");
    const present = () => root.dataset.theme || (dark.matches ? "dark" : "light");
    const name = () => {
      button.textContent = present() === "dark" ? "Light" : "Dark";
      button.setAttribute("aria-label", button.textContent + " colours");
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = present() === "dark" ? "light" : "dark";
      remember(root.dataset.theme);
      name();
    });
    dark.addEventListener("change", name);
    name();
  }

  // --- tabs: links to the sections without this script, tabs with it; the fragment names the tab shown.

  const shownPanel = (group) => group.querySelector(".panel.on") || group.querySelector(".panel");
  const panelOf = (link) => {
    const group = link.dataset.group && document.getElementById(link.dataset.group);
    return group ? shownPanel(group) : document.getElementById(link.hash.slice(1));
  };

  function wanted() {
    let name = location.hash.slice(1);
    try { name = decodeURIComponent(name); } catch { /* taken as it stands */ }
    const target = document.getElementById(name);
    if (target && target.matches(".panel")) return target;
    return target && target.matches(".group") ? shownPanel(target) : document.querySelector(".panel");
  }

  function go(panel, push) {
    show(panel);
    const fragment = "#" + panel.id;
    if (location.hash === fragment) return;
    try {
      if (push) history.pushState(null, "", fragment);
      else history.replaceState(null, "", fragment);
    } catch { location.hash = fragment; }
  }

  function mark(links, chosen) {
    for (const link of links) {
      link.setAttribute("aria-selected", String(link === chosen));
      link.tabIndex = link === chosen ? 0 : -1;
    }
  }

  function show(panel) {
    if (!panel) return;
    const group = panel.closest(".group");
    for (const other of document.querySelectorAll(".group")) other.classList.toggle("on", other === group);
    for (const other of group.querySelectorAll(".panel")) other.classList.toggle("on", other === panel);
    const groups = [...document.querySelectorAll(".groups a")];
    mark(groups, groups.find((link) => link.dataset.group === group.id));
    const settings = [...group.querySelectorAll(".settings a")];
    const chosen = settings.find((link) => link.hash === "#" + panel.id);
    mark(settings, chosen);
    if (chosen) chosen.scrollIntoView({ block: "nearest", inline: "nearest" });
    const table = panel.querySelector("table.board");
    if (table) {
      if (!table.ready) prepare(table);
      placeFilters(table);
    }
  }

  function tabs(list) {
    const links = [...list.querySelectorAll("a")];
    list.setAttribute("role", "tablist");
    links.forEach((link, i) => {
      const target = link.dataset.group || link.hash.slice(1);
      const panel = document.getElementById(target);
      link.id = "tab-" + target;
      link.setAttribute("role", "tab");
      link.setAttribute("aria-controls", target);
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", link.id);
      link.addEventListener("click", (event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        go(panelOf(link), true);
      });
      link.addEventListener("keydown", (event) => {
        const last = links.length - 1;
        const next = { ArrowRight: i === last ? 0 : i + 1, ArrowLeft: i ? i - 1 : last, Home: 0, End: last, " ": i }[event.key];
        if (next === undefined || event.metaKey || event.ctrlKey || event.altKey) return;
        event.preventDefault();
        links[next].focus();
        go(panelOf(links[next]), event.key === " ");
      });
    });
  }

  // --- tables

  function prepare(table) {
    table.ready = true;
    table.bodies = [...table.tBodies].map((body) => ({
      body, rows: [...body.rows].filter((row) => row.matches(".row")).map((row) => ({ row, more: row.nextElementSibling })),
    }));
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => turn(table, head, column));
      head.append(button);
    });
    for (const { rows } of table.bodies) for (const pair of rows) opener(table, pair);
  }

  function opener(table, { row, more }) {
    const cell = row.querySelector("th.method");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "opener";
    button.setAttribute("aria-expanded", "false");
    button.append(...[...cell.childNodes].filter((node) => !(node.matches && node.matches(".source"))));
    button.addEventListener("click", () => {
      const open = more.classList.toggle("open");
      button.setAttribute("aria-expanded", String(open));
      if (!open) return;
      more.querySelector("details").open = true;
      // Provenance and parts stand once in the page, however many rows they stand behind.
      for (const link of more.querySelectorAll("a[data-entry]")) {
        const copy = document.getElementById(link.dataset.entry).cloneNode(true);
        copy.removeAttribute("id");
        link.parentElement.replaceWith(copy);
      }
    });
    cell.prepend(button);
  }

  const said = (cell) => (cell.dataset.v === undefined ? cell.textContent : cell.dataset.v).trim();
  const field = (row, name) => said(row.querySelector(":scope > ." + name));  // a table of published rows has no ranks

  // First click: best or first on top; second: the other way; third: as it was.
  function turn(table, head, column) {
    const first = head.dataset.first || "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const next = { [first]: second, [second]: null }[head.getAttribute("aria-sort")];
    const order = next === undefined ? first : next;
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    if (order) head.setAttribute("aria-sort", order);
    const sign = order === "descending" ? -1 : 1;
    const numeric = head.matches(".num");
    for (const { body, rows } of table.bodies) {
      const keyed = rows.map((pair) => {
        const text = said(pair.row.cells[column]);
        return { pair, missing: text === "", key: numeric ? Number(text) : text.toLowerCase() };
      });
      // Missing cells stay last either way; equal ones keep the order they had at first.
      if (order) keyed.sort((a, b) => a.missing - b.missing || sign * ((a.key > b.key) - (a.key < b.key)));
      for (const { pair } of keyed) body.append(pair.row, pair.more);
    }
  }

  // --- filters: one form, moved into the tab that is shown, so that a choice holds from tab to tab.

  function placeFilters(table) {
    const form = document.getElementById("filters");
    const box = table.parentElement;
    if (box.previousElementSibling !== form) box.before(form);
    form.hidden = false;
    const here = new Set(table.bodies.flatMap(({ rows }) => rows.map(({ row }) => field(row, "backbone"))));
    for (const option of form.elements.backbone.options) option.disabled = option.value !== "" && !here.has(option.value);
    filter();
  }

  function filter() {
    const form = document.getElementById("filters");
    const table = form.nextElementSibling && form.nextElementSibling.querySelector("table.board");
    if (!table) return;
    const chosen = new FormData(form);
    const words = chosen.get("q").toLowerCase().split(/\s+/).filter(Boolean);
    const hide = chosen.getAll("hide");
    const counts = table.bodies.map(({ body, rows }) => {
      const kind = body.classList.contains("measured") ? "measured" : "published";
      let seen = 0;
      for (const { row, more } of rows) {
        const text = (field(row, "method") + " " + field(row, "backbone")).toLowerCase();
        const flags = (row.dataset.flags || "").split(" ");
        const keep = (!chosen.get("kind") || chosen.get("kind") === kind)
          && (!chosen.get("setting") || chosen.get("setting") === (field(row, "setting") || "-"))
          && (!chosen.get("backbone") || chosen.get("backbone") === field(row, "backbone"))
          && words.every((word) => text.includes(word))
          && !hide.some((flag) => flags.includes(flag));
        row.hidden = more.hidden = !keep;
        seen += keep;
      }
      return `${seen} of ${rows.length} ${kind}`;
    });
    form.querySelector("output").textContent = counts.join(", ");
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    document.querySelectorAll(".tabs").forEach(tabs);
    const form = document.getElementById("filters");
    if (form) {
      for (const kind of ["input", "change"]) form.addEventListener(kind, filter);
      form.addEventListener("reset", () => setTimeout(filter));
      form.addEventListener("submit", (event) => event.preventDefault());
    }
    addEventListener("hashchange", () => show(wanted()));
    show(wanted());
  });
})();
