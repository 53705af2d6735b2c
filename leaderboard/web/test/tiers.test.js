// Rows by tiers, and what a row ranks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { csv } from "../src/downloads.js";
import { subject } from "../src/drawer/details.js";
import { tiers } from "../src/rows.js";
import { rank, rows, TAB } from "./example.js";

const tiered = () => rows([{ ...rank(1, 1, 2), tier: 1 }, { ...rank(2, 2, 3), tier: 2 }, { ...rank(3, 1, 3), tier: 1 }]);

test("each tier has its rows, the best first, whatever their ranks are beside other tiers", () => {
  const ids = tiers(tiered().reverse()).map(({ tier, leader, rows: some }) => [tier, leader.id, some.map(({ id }) => id)]);
  assert.deepEqual(ids, [
    [1, "one", ["one", "three"]],
    [2, "two", ["two"]],
  ]);
});

test("a board without tiers has none", () => assert.deepEqual(tiers(rows()), []));

test("CSV has a column for tiers only where a row has one", () => {
  assert.doesNotMatch(csv(TAB, rows()), /tier/);
  const [head, first, , , unranked] = csv(TAB, tiered()).split("\n");
  assert.match(head, /,rank_first,rank_last,tier,source,/);
  assert.match(first, /,1,1,2,1,,/);
  assert.match(unranked, /,,,,,,/);
});

test("a row of one seed is an encoder, one of several a method", () => {
  assert.match(subject({ seeds: 1 }), /^this encoder, of one seed/);
  assert.equal(subject({ seeds: 3 }), "this method, over 3 seeds");
});
