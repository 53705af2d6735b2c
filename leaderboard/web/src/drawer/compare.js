// Two rows side by side, task by task, and what the board's test says of them.

import { fixed, h, span } from "../dom.js";
import { tested, untested, verdict } from "./pairs.js";

/** [{name, one, other, gap, better}] of the columns; gap is one minus other, better 1, -1 or 0 for who is ahead. */
export function gaps(tab, one, other) {
  return tab.columns.map(({ name, lower_is_better: lower }) => {
    const [a, b] = [one.scores[name] ?? null, other.scores[name] ?? null];
    const gap = a && b ? a.value - b.value : null;
    return { name, one: a, other: b, gap, better: gap === null ? 0 : Math.sign(gap) * (lower ? -1 : 1) };
  });
}

/** The place of the test: what it says comes in when the file with it is there. */
function said(tab, files, rows, one, other, names) {
  const why = untested(one, other);
  const box = h("div", { class: "verdict", "aria-live": "polite" }, h("p", {}, why || "Loading the test of this pair."));
  if (why) return box;
  box.setAttribute("aria-busy", "true");
  tested(tab, files, rows, one, other)
    .then((test) => {
      if (!test) return box.replaceChildren(h("p", {}, "Not tested: this board holds no test of the pair."));
      const { sign, sure, head, how } = verdict(tab, test, one, other, names);
      const word = h("span", { class: `sure ${sure ? "yes" : "no"}` }, sign);
      const seeds = one.seeds > 1 && other.seeds > 1;
      return box.replaceChildren(
        h("p", { class: "lead" }, head, " ", word),
        h("p", {}, how),
        seeds
          ? ""
          : h(
              "p",
              { class: "how" },
              "A row of one training seed is tested as this very encoder: trained again, the method may compare otherwise.",
            ),
      );
    })
    .catch((error) => box.replaceChildren(h("p", {}, `Not tested: ${error.message}.`)))
    .finally(() => box.removeAttribute("aria-busy"));
  return box;
}

/** Both rows as a table, and what the test of the board says above it. `files`: those with the tests of the tab's pairs. */
export function comparison(tab, files, rows, one, other, names) {
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
    said(tab, files, rows, one, other, names),
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
