import assert from "node:assert/strict";
import { test } from "node:test";
import { beside, bestFirst, compared, imported, interval, key, names, passes, unpacked } from "../src/rows.js";
import { parse } from "../src/state.js";
import { rows, TAB } from "./example.js";

const state = (fields) => ({ ...parse("", [TAB.id]), ...fields });
const kept = (fields) =>
  rows()
    .filter((row) => passes(row, state(fields)))
    .map(({ id }) => id);
const sorted = (column, order) =>
  rows()
    .slice(0, 4)
    .sort((a, b) => compared(a, b, column, order))
    .map(({ id }) => id);

test("a shard's lists become fields, missing ones null", () => {
  assert.deepEqual(rows()[0].scores.STS12, { value: 75, low: null, high: null, sd: 0.4, n: 3108 });
  assert.deepEqual(rows()[4].scores.Avg, { value: 70, low: null, high: null, sd: null, n: null });
});

test("filters, one by one and together", () => {
  assert.equal(kept({}).length, 5);
  assert.deepEqual(kept({ kind: "published" }), ["paper:1:2"]);
  assert.deepEqual(kept({ setting: "sup" }), ["two"]);
  assert.deepEqual(kept({ setting: "-" }), ["three", "four", "paper:1:2"]);
  assert.deepEqual(kept({ q: "ONE bert" }), ["one", "paper:1:2"]);
  assert.deepEqual(kept({ hide: ["nli"], backbone: "BERT-base", kind: "measured" }), ["two", "four"]);
});

test("what has no number comes last either way", () => {
  assert.deepEqual(sorted("rank", "asc"), ["one", "two", "three", "four"]);
  assert.deepEqual(sorted("rank", "desc"), ["three", "two", "one", "four"]);
  assert.deepEqual(sorted("Avg", "desc"), ["four", "one", "two", "three"]);
  assert.deepEqual(sorted("setting", "desc"), ["one", "two", "three", "four"]);
});

test("scores begin with the best, names with the first", () => {
  assert.equal(bestFirst(TAB, "Avg"), "desc");
  assert.equal(bestFirst({ columns: [{ name: "alignment", lower_is_better: true }] }, "alignment"), "asc");
  assert.equal(bestFirst(TAB, "method"), "asc");
});

test("intervals and names", () => {
  assert.equal(interval(1, 1), "1");
  assert.equal(interval(1, 3), "1–3");
  const known = names(rows());
  assert.equal(new Set(known.values()).size, 5);
  assert.equal(known.get("two"), "Method two");
  assert.equal(known.get("paper:1:2"), "Method one (paper:1:2)");
});

test("imported rows are not said to be printed by papers", () => {
  const printed = rows().filter(({ kind }) => kind === "published");
  const taken = printed.map((row) => ({ ...row, flags: ["imported"] }));
  assert.deepEqual([...printed, ...taken].map(imported), [false, true]);
  assert.match(beside(printed).title, /^Published, as the papers print it$/);
  assert.match(beside(taken).title, /^Imported/);
  assert.doesNotMatch(beside(taken).why, /papers/);
  assert.match(beside([...printed, ...taken]).why, /papers give no digest.*imported scores/);
});

test("what a shard leaves out is empty, not undefined", () => {
  const row = unpacked({ id: "mteb:x", method: "x", scores: {} }, "published", 0, []);
  assert.deepEqual([row.backbone, row.setting, row.rank], ["", "", null]);
  assert.equal(key(row, "backbone"), null);
});
