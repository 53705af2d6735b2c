import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, written } from "../src/state.js";

const IDS = ["sts-spearman-all", "geometry"];

test("every state goes into its link and back", () => {
  const state = {
    ...parse("", IDS),
    tab: "geometry",
    view: "scores",
    q: "é & = # ?",
    setting: "unsup",
    backbone: "BERT (base)",
    kind: "measured",
    sort: "STS-B",
    order: "desc",
    hide: ["nli", "sts"],
    columns: ["Avg", "STS 12"],
    open: "a:b:1",
    compare: [],
    by: "tiers",
  };
  assert.deepEqual(parse(written(state), IDS), state);
});

test("defaults are left out", () => {
  assert.equal(written(parse("", IDS)), "#sts-spearman-all");
  assert.equal(written(parse("#geometry?view=ranking", IDS)), "#geometry");
});

test("what a link cannot mean becomes the first", () => {
  assert.equal(parse("#no-such%E0%A4%A", IDS).tab, IDS[0]);
  const odd = parse("#geometry?view=x&sort=Avg&order=up&by=x", IDS);
  assert.deepEqual([odd.tab, odd.view, odd.sort, odd.order, odd.by], ["geometry", "ranking", "", "", ""]);
});
