// What a row says of the prompts that its encoder was read behind.

import assert from "node:assert/strict";
import { test } from "node:test";
import { csv } from "../src/downloads.js";
import { overPrompts, rankOverPrompts } from "../src/drawer/details.js";
import { percent } from "../src/rows.js";
import { rows, TAB } from "./example.js";

const over = { n: 15, mean: 78.1234, sd: 1.2, lowest: 75.5, highest: 80.25 };

test("the spread over prompts, with and without a standard deviation", () => {
  assert.equal(
    overPrompts(TAB, over),
    "Avg of this encoder behind 15 other prompts: mean 78.12, standard deviation 1.20, from 75.50 to 80.25",
  );
  assert.equal(
    overPrompts(TAB, { n: 1, mean: 78, lowest: 78, highest: 78 }),
    "Avg of this encoder behind 1 other prompt: mean 78.00, from 78.00 to 78.00",
  );
});

test("the rank over prompts and items, and the chance of being first", () => {
  assert.match(rankOverPrompts({ prompts: [1, 3], chance: 0.25 }), /^95 % interval 1–3, .*; first in 25 % of the draws/);
  assert.match(rankOverPrompts({ prompts: [2, 2], chance: 0 }), /^95 % interval 2, .*; first in 0 % /);
  assert.deepEqual([0, 0.001, 0.5, 0.999, 1].map(percent), ["0 %", "<1 %", "50 %", ">99 %", "100 %"]);
});

test("CSV has columns for prompts only where a row has some", () => {
  const [one, two] = rows();
  assert.doesNotMatch(csv(TAB, [one, two]), /prompts/);
  const prompted = { ...one, prompts: over, rank: { ...one.rank, prompts: [1, 3], chance: 0.25 } };
  const [head, first, second] = csv(TAB, [prompted, two]).split("\n");
  assert.match(
    head,
    /,rank_last,prompts,prompts_mean,prompts_sd,prompts_lowest,prompts_highest,rank_first_over_prompts,rank_last_over_prompts,first_in_draws_of_prompts,source,/,
  );
  assert.match(first, /,1,1,2,15,78\.1234,1\.2,75\.5,80\.25,1,3,0\.25,,/);
  assert.match(second, /,2,1,2,,,,,,,,,,/);
});
