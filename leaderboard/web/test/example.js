// An invented tab of three ranked rows, one that is not, and a published one.

import { unpacked } from "../src/rows.js";

export const CELL = ["value", "low", "high", "sd", "n"];
export const TAB = {
  id: "sts-spearman-all",
  group: "sts",
  title: "Spearman, all",
  metric: "spearman",
  aggregation: "all",
  form: "",
  lead: "Avg",
  digits: 2,
  columns: [
    { name: "Avg", lower_is_better: false },
    { name: "STS12", lower_is_better: false },
  ],
  measured: 4,
  published: 1,
  cell: CELL,
};
const make = (id, avg, rank, more = {}) => ({
  id,
  method: `Method ${id}`,
  backbone: "BERT-base",
  scores: { Avg: [avg, avg - 1, avg + 1], STS12: [avg - 5, null, null, 0.4, 3108] },
  ...(rank ? { rank } : {}),
  ...more,
});
export const rank = (place, first, last, ties = "") => ({ place, first, last, ties, alone: [first, last] });

export function rows(ranks = [rank(1, 1, 2, "a"), rank(2, 1, 2, "ab"), rank(3, 3, 3, "c")]) {
  const measured = [
    make("one", 80, ranks[0], { setting: "unsup", flags: ["nli"] }),
    make("two", 79.5, ranks[1], { setting: "sup" }),
    make("three", 60, ranks[2], { backbone: "MiniLM-L6", method: '=HYPERLINK("x")' }),
    make("four", 90, null, { unranked: "not ranked: odd", best_of: 5 }),
  ];
  const published = [
    {
      id: "paper:1:2",
      method: "Method one",
      backbone: "BERT-base",
      source: "Somebody 2021, table 1",
      link: "https://example.org",
      year: 2021,
      scores: { Avg: [70] },
    },
  ];
  return [
    ...measured.map((row, i) => unpacked(row, "measured", i, CELL)),
    ...published.map((row, i) => unpacked(row, "published", i, CELL)),
  ];
}
