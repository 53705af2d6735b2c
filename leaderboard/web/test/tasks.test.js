// What a row's details say of other tasks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { overTasks } from "../src/drawer/details.js";
import { rows, TAB } from "./example.js";

const all = rows();
const names = new Map(all.map((row) => [row.id, row.method]));
const over = { n: 7, low: 74.1, high: 83.64 };

test("the interval over tasks, and on which side of its neighbours a row would stay", () => {
  const neighbours = [
    { id: "one", same_order: 0.912, overstated: true },
    { id: "three", same_order: 1 },
  ];
  assert.equal(
    overTasks(TAB, all[1], { ...over, neighbours }, all, names),
    "95 % interval of Avg over tasks as well as items: 74.10–83.64, never used for ranks; of 100 other draws of 7 such tasks it would stay below Method one in 91 (between rows this close it came true less often) and above =HYPERLINK(\"x\") in 99",
  );
});

test("a row without neighbours has its interval alone", () => {
  assert.equal(
    overTasks(TAB, all[3], { ...over, low: -1 }, all, names),
    "95 % interval of Avg over tasks as well as items: −1.00 to 83.64, never used for ranks",
  );
});
