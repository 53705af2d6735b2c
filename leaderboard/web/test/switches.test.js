import assert from "node:assert/strict";
import { test } from "node:test";
import { switches, TEXT, turned, worded } from "../src/switches.js";

const tab = (metric, aggregation, form = "", measured = 1) => ({
  id: `${metric}-${aggregation}-${form}`,
  metric,
  aggregation,
  form,
  measured,
});
const TABS = [
  tab("spearman", "all"),
  tab("spearman", "mean"),
  tab("pearson", "all"),
  tab("pearson", "mean"),
  tab("spearman", "all", "raw text"),
  tab("spearman", "unknown", "", 0),
];

test("a switch for each thing the measured tabs differ in", () => {
  assert.deepEqual(
    switches(TABS).map(({ key, values }) => [key, values]),
    [
      ["aggregation", ["all", "mean"]],
      ["metric", ["spearman", "pearson"]],
      ["form", ["", "raw text"]],
    ],
  );
  assert.deepEqual(switches(TABS.slice(0, 1)), []);
});

test("a switch of texts alone says so, one of settings does not", () => {
  const last = (tabs) => switches(tabs).at(-1);
  assert.equal(last(TABS).label, TEXT);
  assert.deepEqual(
    last(TABS).values.map((value) => worded("form", value, TEXT)),
    ["SentEval’s", "raw"],
  );
  assert.equal(last([...TABS, tab("spearman", "all", "transfer:exact")]).label, "Text and settings");
});

test("turning one keeps the others, as far as a tab has them", () => {
  assert.equal(turned(TABS, TABS[1], "metric", "pearson").id, "pearson-mean-");
  assert.equal(turned(TABS, TABS[3], "form", "raw text").id, "spearman-all-raw text");
  assert.equal(turned(TABS, TABS[4], "metric", "pearson").id, "pearson-all-");
});

test("words", () => {
  assert.equal(worded("metric", "spearman"), "Spearman");
  assert.equal(worded("metric", "mse"), "MSE");
  assert.match(worded("form", ""), /SentEval/);
});
