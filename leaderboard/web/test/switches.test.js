import assert from "node:assert/strict";
import { test } from "node:test";
import { kinds, switches, TEXT, turned, worded } from "../src/switches.js";

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

test("a file of one's own and a language switch only among their own tabs", () => {
  const own = (metric, aggregation) => ({ ...tab(metric, aggregation, "pairs.tsv"), user_set: "pairs.tsv" });
  const korean = { ...tab("spearman", "all", "Korean"), language: "Korean" };
  const tabs = [...TABS, own("spearman", "all"), own("spearman", "mean"), korean];
  const keys = (of) => switches(tabs, of).map(({ key, values }) => [key, values.length]);
  assert.deepEqual(keys(korean), [["form", 4]]);
  assert.deepEqual(keys(tabs.at(-2)), [["aggregation", 2], ["form", 4]]);
  assert.deepEqual(keys(TABS[0]), [["aggregation", 2], ["metric", 2], ["form", 4]]);
  assert.equal(switches(tabs.slice(-3), korean).at(-1).label, "Data");
  assert.deepEqual(kinds(tabs, ["", "pairs.tsv", "Korean", "raw text"]), [
    { title: "", values: ["", "raw text"] },
    { title: "Own data", values: ["pairs.tsv"] },
    { title: "Languages", values: ["Korean"] },
  ]);
});

test("words", () => {
  assert.equal(worded("metric", "spearman"), "Spearman");
  assert.equal(worded("metric", "mse"), "MSE");
  assert.match(worded("form", ""), /SentEval/);
});
