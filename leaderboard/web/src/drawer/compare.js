// Two rows side by side, task by task, and what the board's test says of them.

import { digitsOf, fixed, h, listed, span } from "../dom.js";
import { directed } from "../rows.js";
import { tested, untested, verdict } from "./pairs.js";

/** [{name, one, other, gap, better}] of the columns; gap is one minus other, better 1, -1 or 0 for who is ahead. */
export function gaps(tab, one, other) {
  return tab.columns.map(({ name, lower_is_better: lower }) => {
    const [a, b] = [one.scores[name] ?? null, other.scores[name] ?? null];
    const gap = a && b ? a.value - b.value : null;
    return { name, one: a, other: b, gap, better: gap && directed(tab) ? Math.sign(gap) * (lower ? -1 : 1) : 0 };
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
      const seeds = tab.noun || (one.seeds > 1 && other.seeds > 1);
      return box.replaceChildren(
        h("p", { class: "lead" }, head, " ", word),
        h("p", {}, how),
        seeds
          ? ""
          : h(
              "p",
              { class: "how" },
              "A row of one training seed stands for this one encoder: another run of its method may compare differently.",
            ),
      );
    })
    .catch((error) => box.replaceChildren(h("p", {}, `Not tested: ${error.message}.`)))
    .finally(() => box.removeAttribute("aria-busy"));
  return box;
}

/** What stands above the scores: [fact, of one row, of the other], without the facts that neither has. */
export function facts(one, other, flags) {
  const said = (row) => [
    row.backbone,
    row.setting,
    listed(row.flags.map((flag) => flags[flag]?.label ?? flag)),
    row.seeds ? String(row.seeds) : "",
  ];
  const [ours, theirs] = [said(one), said(other)];
  return ["Backbone", "Setting", "Flags", "Seeds"]
    .map((fact, i) => [fact, ours[i], theirs[i]])
    .filter(([, a, b]) => a || b);
}

/** Who is ahead in how many columns, and what of that is tested; "" where there is nothing to count. */
export function tally(tab, all, name) {
  const tasks = all.filter((each) => each.name !== "Avg" && each.gap !== null);
  if (!directed(tab) || !tasks.length || (tasks.length === 1 && tasks[0].name === tab.lead)) return "";
  const wins = tasks.filter(({ better }) => better > 0).length;
  return `${name} is ahead in ${wins} of ${tasks.length} columns that both have. Of these only ${tab.lead} is tested on this page; `;
}

/** Both rows as a table, and what the test of the board says above it. `files`: those with the tests of the tab's pairs. */
export function comparison(tab, files, rows, one, other, names, flags) {
  const all = gaps(tab, one, other);
  const widest = Math.max(...all.map(({ gap }) => Math.abs(gap ?? 0)), 1e-9);
  const counted = tally(tab, all, names.get(one.id));
  const score = (cell, digits) =>
    cell
      ? [fixed(cell.value, digits), cell.low == null ? "" : h("small", {}, span(cell.low, cell.high, digits))]
      : "–";
  return h(
    "div",
    { class: "comparison" },
    said(tab, files, rows, one, other, names),
    counted && !tab.noun ? h("p", {}, counted, h("code", {}, "stsbench compare RUN RUN"), " tests each.") : "",
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
          facts(one, other, flags).map(([fact, ours, theirs]) =>
            h(
              "tr",
              { class: "fact" },
              h("th", { scope: "row" }, fact),
              h("td", { class: "num" }, ours || "–"),
              h("td", { class: "num" }, theirs || "–"),
              h("td"),
              h("td", { class: "gap", "aria-hidden": "true" }),
            ),
          ),
          all.map(({ name, one: a, other: b, gap, better }) =>
            h(
              "tr",
              { class: name === tab.lead ? "lead" : null },
              h("th", { scope: "row" }, name),
              h("td", { class: `num ${better > 0 ? "best" : ""}` }, score(a, digitsOf(tab, name))),
              h("td", { class: `num ${better < 0 ? "best" : ""}` }, score(b, digitsOf(tab, name))),
              h("td", { class: "num" }, gap === null ? "–" : (gap > 0 ? "+" : "") + fixed(gap, digitsOf(tab, name))),
              h("td", { class: "gap", "aria-hidden": "true" }, gap === null || !directed(tab) ? "" : gapBar(gap / widest, better)),
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
