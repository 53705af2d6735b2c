import assert from "node:assert/strict";
import { test } from "node:test";
import { facts, gaps, tally } from "../src/drawer/compare.js";
import { lines } from "../src/drawer/details.js";
import { family } from "../src/switches.js";
import { places, tau } from "../src/views/settings.js";
import { apart, chart, known, labelled, opening, timedOn } from "../src/views/size.js";
import { rows, TAB } from "./example.js";

test("differences, and who is ahead where lower is better", () => {
  const [one, two] = rows();
  assert.deepEqual(
    gaps(TAB, one, two).map(({ name, gap, better }) => [name, gap, better]),
    [
      ["Avg", 0.5, 1],
      ["STS12", 0.5, 1],
    ],
  );
  const lower = { ...TAB, columns: [{ name: "Avg", lower_is_better: true }] };
  assert.equal(gaps(lower, one, two)[0].better, -1);
  assert.equal(gaps(TAB, one, rows()[4])[1].gap, null);
});

test("in geometry no row is ahead, and nothing is counted", () => {
  const [one, two] = rows();
  const geometry = { ...TAB, group: "geometry" };
  const all = gaps(geometry, one, two);
  assert.deepEqual(
    all.map(({ gap, better }) => [gap, better]),
    [
      [0.5, 0],
      [0.5, 0],
    ],
  );
  assert.equal(tally(geometry, all, "One"), "");
});

test("columns are counted without the average, and not where the only one is tested", () => {
  const [one, two] = rows();
  assert.match(tally(TAB, gaps(TAB, one, two), "One"), /^One is ahead in 1 of 1 columns that both have\. Of these only Avg is tested/);
  const single = { ...TAB, lead: "STS12", columns: [{ name: "STS12", lower_is_better: false }] };
  assert.equal(tally(single, gaps(single, one, two), "One"), "");
});

test("what stands above the scores of two rows", () => {
  const [one, two] = rows();
  one.seeds = 3;
  assert.deepEqual(facts(one, two, { nli: { label: "NLI" } }), [
    ["Backbone", "BERT-base", "BERT-base"],
    ["Setting", "unsup", "sup"],
    ["Flags", "NLI", ""],
    ["Seeds", "3", ""],
  ]);
});

test("a family has one protocol, form and lead", () => {
  const other = { ...TAB, id: "mean", aggregation: "mean" };
  const raw = { ...TAB, id: "raw", form: "raw text" };
  const transfer = { ...TAB, id: "transfer", group: "transfer" };
  assert.deepEqual(
    family([TAB, other, raw, transfer, { ...TAB, measured: 0 }], TAB).map(({ id }) => id),
    ["sts-spearman-all", "mean"],
  );
});

test("ticks that would touch are left out", () => {
  assert.deepEqual(apart([384, 768, 4700, 4720, 7635], true, 0.2), [384, 768, 4700]);
  assert.deepEqual(apart([2019, 2020, 2021], false, 0.2), [2019, 2020, 2021]);
});

test("only what the records hold is drawn", () => {
  const all = rows();
  assert.deepEqual(known(all), []); // one year alone is no axis
  Object.assign(all[0], { width: 768 });
  Object.assign(all[2], { width: 384 });
  const { points, left, best } = chart(TAB, all, "width");
  assert.equal(points.length, 2);
  assert.equal(left, 3);
  assert.deepEqual(
    best.map(({ id }) => id),
    ["three", "one"],
  );
  assert.deepEqual(chart(TAB, all, "year").best, []); // a published row is on no front
});

test("times are of the machine that most rows were timed on", () => {
  const all = rows();
  const timed = (row, speed, machine, use) =>
    Object.assign(row, { sentences_per_second: speed, machine, ...(use ? { run_on: use } : {}) });
  timed(all[0], 100, "Some CPU, 2 cores", "cpu, 2 threads");
  timed(all[1], 200, "Some CPU, 2 cores", "cpu, 2 threads");
  timed(all[2], 9000, "Some CPU, 2 cores"); // computed without torch
  timed(all[3], 50000, "Other CPU, 64 cores", "Some GPU");
  all[3].rank = all[2].rank;
  const { points, left, best } = chart(TAB, all, "sentences_per_second");
  assert.deepEqual(points.map(({ x }) => x).sort((a, b) => a - b), [100, 200, 9000]);
  assert.equal(left, 2);
  assert.deepEqual(
    best.map(({ id }) => id),
    ["three", "two", "one"],
  );
  assert.equal(labelled(all, "sentences_per_second"), "Sentences per second (Some CPU, 2 cores, cpu, 2 threads)");
  assert.equal(labelled(all, "width"), "Dimensions of the vector");
  assert.equal(timedOn([all[2], all[0]]), all[0]); // both fit it
  assert.equal(timedOn([{ id: "x" }]), undefined);
  assert.deepEqual(known(all.slice(3)), []);
});

test("places among rows that every setting has, and tau-b", () => {
  const shard = (setting, values) => ({
    setting,
    lead: "Avg",
    lower: false,
    rows: Object.entries(values).map(([id, value]) => ({ id, rank: {}, scores: { Avg: { value } } })),
  });
  const all = places([shard("all", { a: 3, b: 2, c: 2, d: 9 }), shard("mean", { a: 1, b: 2, c: 3 })]);
  assert.deepEqual(
    all.map(({ id, setting, place }) => `${setting} ${id} ${place}`),
    ["all a 1", "all b 2", "all c 2", "mean a 3", "mean b 2", "mean c 1"],
  );
  assert.equal(tau([1, 2, 3], [1, 2, 3]), 1);
  assert.equal(tau([1, 2, 3], [3, 2, 1]), -1);
  assert.ok(Math.abs(tau([1, 2, 2, 4], [1, 3, 2, 4]) - 0.912870929175277) < 1e-12); // scipy.stats.kendalltau
  assert.equal(tau([1, 1], [1, 2]), null);
});

test("provenance of any shape is text; a command can be copied", () => {
  assert.deepEqual(lines(["stsbench", "eval", "--model", "a b", "it's"]), [`stsbench eval --model 'a b' 'it'"'"'s'`]);
  assert.deepEqual(lines({ b: null, a: [1, { c: 2 }] }), ["a [1, {c 2}], b none"]);
  assert.deepEqual([lines(null), lines(""), lines([]), lines({}), lines(0)], [[], [], [], [], ["0"]]);
});

test("the view opens with an axis that spreads the rows", () => {
  const all = Array.from({ length: 8 }, (_, i) => ({ width: i ? 384 : 768, year: 2018 + i }));
  assert.deepEqual(known(all), ["width", "year"]);
  assert.equal(opening(all), "year"); // seven of eight in one column
  assert.equal(opening(all.slice(0, 2)), "width");
  assert.equal(opening(all.slice(1).map(({ width }) => ({ width }))), undefined);
});
