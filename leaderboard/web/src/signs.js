// What the signs of the page mean.

import { h } from "./dom.js";

export function signs(index) {
  const list = [
    ["● ○", "Dot: the score; bar: its 95 % interval. Filled: a row that could be first, of its kind or of all shown."],
    ["1–3", "The places that a row may have, at 95 %, over all rows of its table at once."],
    ["alone 1–2", "The same for that row by itself, whatever the others’ places."],
    ...(index.tabs.some((tab) => tab.prompts)
      ? [["over prompts 1–2", "The places over items and over prompts, of which each row that has some draws one of its own."]]
      : []),
    ["a, ab", "Rows that share a letter do not differ significantly. Letters are shown for up to 20 ranked rows."],
    ["†", "There is a note on the row: open it."],
    ...Object.entries(index.settings),
    ...Object.values(index.flags).map(({ label, about }) => [label, about]),
  ];
  return h(
    "dl",
    {},
    list.map(([sign, about]) => [h("dt", {}, sign), h("dd", {}, about)]),
  );
}
