// Two rows side by side, task by task, and what the board's test says of them.

import { fixed, h, span } from "../dom.js";
import { differ } from "../rows.js";

/** [{name, one, other, gap, better}] of the columns; gap is one minus other, better 1, -1 or 0 for who is ahead. */
export function gaps(tab, one, other) {
  return tab.columns.map(({ name, lower_is_better: lower }) => {
    const [a, b] = [one.scores[name] ?? null, other.scores[name] ?? null];
    const gap = a && b ? a.value - b.value : null;
    return { name, one: a, other: b, gap, better: gap === null ? 0 : Math.sign(gap) * (lower ? -1 : 1) };
  });
}

/** What the test of the board says of two rows, as a sentence. */
export function verdict(tab, one, other) {
  if (one.kind === "published" || other.kind === "published")
    return "Not tested: nothing was observed item by item for a published row.";
  if (!one.rank || !other.rank) return "Not tested: a row that is not ranked is not tested.";
  const known = differ(one, other);
  if (known === null) {
    // Rank intervals hold for all rows at once: where two are disjoint, the true ranks differ, and so do the true scores.
    const disjoint = one.rank.last < other.rank.first || other.rank.last < one.rank.first;
    return disjoint
      ? `The two differ significantly in ${tab.lead}: their rank intervals, which hold for all rows at once at 95 %, do not overlap.`
      : `Not shown to differ in ${tab.lead}: their rank intervals overlap. The pair itself is not tested on this page.`;
  }
  return known
    ? `The two differ significantly in ${tab.lead}: paired bootstrap, 5 % over all pairs of rows in this table.`
    : `The two do not differ significantly in ${tab.lead}: paired bootstrap, 5 % over all pairs of rows in this table.`;
}

/** Both rows as a table, and the sentence above it. */
export function comparison(tab, one, other, names) {
  const all = gaps(tab, one, other);
  const widest = Math.max(...all.map(({ gap }) => Math.abs(gap ?? 0)), 1e-9);
  const score = (cell) =>
    cell
      ? [fixed(cell.value, tab.digits), cell.low == null ? "" : h("small", {}, span(cell.low, cell.high, tab.digits))]
      : "–";
  const wins = all.filter(({ better, name }) => better > 0 && name !== "Avg").length;
  const shared = all.filter(({ gap, name }) => gap !== null && name !== "Avg").length;
  return h(
    "div",
    { class: "comparison" },
    h("p", { class: "verdict" }, verdict(tab, one, other)),
    h(
      "p",
      {},
      `${names.get(one.id)} is ahead in ${wins} of ${shared} columns that both have. Single tasks are not tested on this page; `,
      h("code", {}, "stsbench compare RUN RUN"),
      " tests each.",
    ),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Scores side by side" },
      h(
        "table",
        { class: "pair" },
        h("caption", {}, `${tab.title}: score, and its 95 % interval where it is known`),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Task"),
            h("th", { scope: "col", class: "num one" }, names.get(one.id)),
            h("th", { scope: "col", class: "num other" }, names.get(other.id)),
            h("th", { scope: "col", class: "num" }, "Difference"),
            h("td", { "aria-hidden": "true" }),
          ),
        ),
        h(
          "tbody",
          {},
          all.map(({ name, one: a, other: b, gap, better }) =>
            h(
              "tr",
              { class: name === tab.lead ? "lead" : null },
              h("th", { scope: "row" }, name),
              h("td", { class: `num ${better > 0 ? "best" : ""}` }, score(a)),
              h("td", { class: `num ${better < 0 ? "best" : ""}` }, score(b)),
              h("td", { class: "num" }, gap === null ? "–" : (gap > 0 ? "+" : "") + fixed(gap, tab.digits)),
              h("td", { class: "gap", "aria-hidden": "true" }, gap === null ? "" : gapBar(gap / widest, better)),
            ),
          ),
        ),
      ),
    ),
  );
}

function gapBar(share, better) {
  const bar = h("span", { class: better > 0 ? "one" : "other" });
  // Ahead points to the left, where the first row stands.
  bar.style.width = `${50 * Math.abs(share)}%`;
  bar.style[better > 0 ? "right" : "left"] = "50%";
  return h("span", { class: "gap-bar" }, bar);
}
