// What stands around a tab's table: above it the answer and how sure it is, below it the settings and the data.

import { answer } from "../answer.js";
import { h } from "../dom.js";
import { lines } from "../drawer/details.js";
import { comparable } from "../rows.js";

const TIERS =
  "Tier 1: the best row and all that do not differ significantly from it, over all pairs at once; the best of the others leads tier 2, and so on. At 95 %, whatever is in a later tier is worse than the first row of each tier before it. Rows of one tier may differ from each other.";

/** The answer, of all rows: filters change no rank. {whole, byTier, flags, names}: how the page is read; compare: told the ids. */
export function above(tab, rows, { whole, byTier, flags, names }, compare) {
  const { head, how, sure, said, others = [] } = answer(tab, rows, names, flags, whole);
  const word =
    sure === null ? "" : h("span", { class: `sure ${sure ? "yes" : "no"}` }, sure ? "clear lead" : "no clear lead");
  const ranked = rows.filter((row) => row.rank);
  const kinds = whole ? [] : comparable(ranked);
  const measured = kinds[0]?.rows ?? ranked;
  const apart = rows.filter((row) => row.kind === "measured" && !row.comparable).length;
  const bare = measured.some((row) => row.scores[tab.lead].low == null);
  const several = ranked.some((row) => row.seeds > 1);
  const ofKind = kinds.length && !byTier;
  const more = [
    ...others.map((other) => h("p", {}, other.head, " ", other.how, " ", other.said)),
    kinds.length
      ? h(
          "p",
          { class: "how" },
          "Groups: what makers state, or records show, of a training on sentences or labels of these tests; unknown is neither yes nor no. ",
          apart ? `${apart} more ${apart === 1 ? "is" : "are"} in the list of all. ` : "",
          `Ranks are among all ${ranked.length} ranked rows.`,
        )
      : "",
    byTier ? h("p", { class: "how" }, TIERS) : "",
    measured.length > 1
      ? h(
          "p",
          { class: "how marks" },
          `Dot: score. Bar: its 95 % interval. Filled dots: rows that could be first${ofKind ? " of their kind, in which “Place” counts" : ""}. “Rank, 95 %”: the ranks a row may have, over all rows at once; “alone”: for that row by itself. `,
          ranked.some((row) => row.rank.prompts) ? "“Over prompts”: where each row with prompts draws one of them. " : "",
          several ? "“3 seeds”: the row is a method, over its seeds; without it, the row is one encoder. " : "",
          bare ? "Rows without a bar have no interval, and are no surer than others. " : "",
          h(
            "button",
            {
              type: "button",
              class: "open",
              onclick: () => compare(measured.slice(0, 2).map(({ id }) => id)),
            },
            "Compare the first two",
          ),
        )
      : "",
  ].filter(Boolean);
  return [
    h("p", { class: "lead" }, head, " ", word),
    h("p", {}, [how, said].filter(Boolean).join(" ")),
    more.length ? h("details", { class: "more" }, h("summary", {}, "How sure that is"), ...more) : "",
  ];
}

/** What holds for the table as a whole. */
export function below(tab, shard) {
  const facts = [
    ["metric", [tab.metric + (tab.aggregation ? `, ${tab.aggregation}` : "")]],
    ...Object.entries(shard.settings).map(([key, value]) => [key, lines(value)]),
    ...Object.entries(shard.data).map(([key, value]) => [`data of ${key}`, [h("code", {}, value)]]),
    ["published tables", shard.notes],
  ];
  return [
    h("p", {}, tab.about),
    h(
      "details",
      {},
      h("summary", {}, "Settings, data and notes"),
      h(
        "dl",
        {},
        facts
          .filter(([, said_]) => said_.length)
          .map(([key, said_]) => [
            h("dt", {}, key),
            h(
              "dd",
              {},
              said_.map((line, i) => [i ? h("br") : [], line]),
            ),
          ]),
      ),
    ),
  ];
}
