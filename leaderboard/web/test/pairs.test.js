import assert from "node:assert/strict";
import { test } from "node:test";
import { rows, TAB } from "./example.js";

globalThis.document = { head: { append: () => {} }, createElement: () => ({ addEventListener: () => {} }) };
const { tested, untested, verdict } = await import("../src/drawer/pairs.js");
const NAMES = new Map(rows().map(({ id, method }) => [id, method]));
const FILES = ["pairs/sts-spearman-all.0.json"];
globalThis.stsbench("pairs/sts-spearman-all.0", {
  first: 0,
  rows: [
    { id: "one", different: "", half: [] },
    { id: "two", different: "0", half: [60] },
    { id: "three", different: "10", half: [75, null] },
  ],
});
const near = (value) => Math.round(value * 1e6) / 1e6;

test("a pair is found from both sides, and its interval turns with it", async () => {
  const all = rows();
  const [one, two, three] = all;
  const ahead = await tested(TAB, FILES, all, one, two);
  assert.deepEqual([ahead.pairs, ahead.different, ahead.value, near(ahead.low), near(ahead.high)], [3, false, 0.5, -0.1, 1.1]);
  const behind = await tested(TAB, FILES, all, two, one);
  assert.deepEqual([behind.value, near(behind.low), near(behind.high)], [-0.5, -1.1, 0.1]);
  const far = await tested(TAB, FILES, all, three, one);
  assert.deepEqual([far.different, far.value, far.low, far.high], [true, -20, -20.75, -19.25]);
  const lower = { ...TAB, columns: [{ name: "Avg", lower_is_better: true }] };
  assert.equal((await tested(lower, FILES, all, one, two)).value, -0.5);
  assert.deepEqual(await tested(TAB, FILES, all, two, three).then(({ low, high }) => [low, high]), [null, null]);
});

test("the file that holds the lower row is asked for", async () => {
  const rank = { place: 1, first: 1, last: 70, alone: [1, 70] };
  const many = Array.from({ length: 70 }, (_, i) => ({ ...rows()[0], id: `row-${i}`, rank }));
  globalThis.stsbench("pairs/many.1", {
    first: 64,
    rows: Array.from({ length: 6 }, (_, i) => ({
      id: `row-${64 + i}`,
      different: "0".repeat(64 + i),
      half: Array.from({ length: 64 + i }, (_unused, k) => 100 * i + k),
    })),
  });
  const found = await tested(TAB, ["pairs/many.0.json", "pairs/many.1.json"], many, many[7], many[67]);
  assert.deepEqual([near(found.high), found.pairs], [3.07, 2415]);
});

test("what was not tested says why", async () => {
  const all = rows();
  const [one, two, , four, printed] = all;
  assert.match(untested(one, four), /^Not tested: .* not ranked/);
  assert.match(untested(one, printed), /^Not tested: .* a published row/);
  assert.match(untested({ ...printed, flags: ["imported"] }, one), /^Not tested: .* an imported row/);
  assert.equal(untested(one, two), "");
  assert.equal(await tested(TAB, FILES, all, one, four), null);
  assert.equal(await tested(TAB, undefined, all, one, two), null); // a board of before
});

test("words for each result, from the better row's side", () => {
  const [one, two] = rows();
  const said = (fields, a = one, b = two) =>
    verdict(TAB, { pairs: 3, different: false, value: 0.5, low: 0.1, high: 0.9, ...fields }, a, b, NAMES);
  const sure = said({ different: true });
  assert.deepEqual([sure.sure, sure.sign, sure.head], [true, "significant", "Method one is ahead of Method two by 0.50 in Avg."]);
  assert.match(sure.how, /for this pair alone: 0\.10–0\.90\. The two differ significantly, at 5 % over all 3 pairs/);
  const alone = said({});
  assert.deepEqual([alone.sure, alone.sign], [null, "significant alone"]);
  assert.match(alone.how, /Of this pair alone .* over all 3 pairs of rows of this table at once it is not/);
  const not = said({ low: -0.1, high: 1.1 });
  assert.deepEqual([not.sure, not.sign], [false, "not significant"]);
  assert.match(not.how, /−0\.10 to 1\.10\. It holds 0/);
  const turned = said({ value: -0.5, low: -1.1, high: 0.1 });
  assert.equal(turned.head, "Method two is ahead of Method one by 0.50 in Avg.");
  assert.match(turned.how, /−0\.10 to 1\.10/);
  assert.match(said({ value: -0.5, low: -0.9, high: -0.1, different: true }).how, /0\.10–0\.90/);
  assert.match(said({ pairs: 1, different: true }).how, /the only pair/);
  assert.equal(said({ value: 0, low: -0.1, high: 0.1 }).head, "Both have the same Avg.");
  const none = said({ low: null, high: null });
  assert.doesNotMatch(none.how, /interval/);
});
