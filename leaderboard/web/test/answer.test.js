import assert from "node:assert/strict";
import { test } from "node:test";
import { answer } from "../src/answer.js";
import { comparable, firsts, names } from "../src/rows.js";
import { rank, rows, TAB } from "./example.js";

const said = (all, tab = TAB, whole = false) => answer(tab, all, names(all), {}, whole);
const kinds = (all, list) => all.map((row, i) => (list[i] ? { ...row, comparable: list[i] } : row));

test("a lead that another row may have is not clear, and that row is named", () => {
  const { head, how, sure, said: words } = said(rows());
  // a published row has the same method and backbone
  assert.equal(head, "Method one (one) has the best score of the 3 rows ranked here.");
  assert.match(how, /^Avg 80\.00 \(95 % interval 79\.00–81\.00\), 0\.50 points ahead of Method two\.$/);
  assert.equal(sure, null); // no row is comparable
  assert.equal(words, "At 95 %, Method two could be first as well. Keep its flag in mind: nli.");
});

test("a lead is clear where the leader's rank interval is 1", () => {
  const all = kinds(rows([rank(1, 1, 1), rank(2, 2, 2), rank(3, 3, 3)]), Array(3).fill("Trained on no test sentences"));
  const { head, sure, said: words } = said(all);
  assert.equal(head, "Method one (one) leads the 3 rows trained on no test sentences.");
  assert.equal(sure, true);
  assert.match(words, /none of the other 2 could be first/);
});

test("of all rows, whatever they were trained on, none has a clear lead", () => {
  const all = kinds(rows([rank(1, 1, 1), rank(2, 2, 2), rank(3, 3, 3)]), ["", "Trained on test sentences", "Trained on test sentences"]);
  assert.equal(said(all).head, "Method two leads the 2 rows trained on test sentences.");
  assert.equal(said(all).sure, true);
  const whole = said(all, TAB, true);
  assert.equal(whole.head, "Method one (one) has the best score of the 3 rows ranked here.");
  assert.equal(whole.sure, null);
});

test("each kind of training has its own first, the kind of the best row stands first", () => {
  const all = kinds(rows([rank(1, 1, 1), rank(2, 2, 3), rank(3, 2, 3)]), ["Trained on no test sentences", "Trained on test sentences", "Trained on test sentences"]);
  const { head, sure, others } = said(all);
  assert.equal(head, "Method one (one) is the only row trained on no test sentences.");
  assert.equal(sure, null);
  assert.deepEqual(others.map((other) => [other.head, other.sure]), [["Method two has the best score of the 2 rows trained on test sentences.", false]]);
  assert.deepEqual(comparable(all).map(({ kind, rows: some }) => [kind, some.length]), [["Trained on no test sentences", 1], ["Trained on test sentences", 2]]);
});

test("trainings of a few steps stand last and lead nothing beside encoders to choose from", () => {
  const all = kinds(rows([rank(1, 1, 1), rank(2, 2, 3), rank(3, 2, 3)]), ["short trainings", "short trainings", "Trained on test sentences"]);
  const { head, others } = said(all);
  assert.match(head, /is the only row trained on test sentences\.$/);
  assert.deepEqual(others, []);
  assert.equal(comparable(all).at(-1).kind, "Trained here for a few steps");
});

test("who could be first of a kind: no other's last place is before its first", () => {
  const all = rows([rank(4, 3, 6), rank(5, 5, 9), rank(8, 7, 12)]).slice(0, 3);
  const ids = (others) => firsts(all, [...all, ...others]).map(({ id }) => id);
  const better = Array.from({ length: 4 }, (_, i) => ({ rank: rank(1 + i, 1, 3) }));
  assert.deepEqual(ids(better), ["one", "two"]);
  assert.deepEqual(ids(better.slice(0, 2)), ["one"]); // four are surely better than the second, two of them others
  assert.deepEqual(ids([]), []);
});

test("a row that is not ranked never leads, whatever its score", () => {
  assert.doesNotMatch(said(rows()).head, /four/);
});

test("published rows never lead", () => {
  const only = rows().filter(({ kind }) => kind === "published");
  assert.equal(said(only).head, "Published figures only.");
  assert.equal(said(only).sure, null);
});

test("where nothing is ranked the reason is said, and what is best", () => {
  const all = rows([null, null, null]);
  for (const row of all) if (row.kind === "measured") row.unranked = "not ranked: two sides of one thing";
  const { head, how, said: words } = said(all, { ...TAB, columns: [{ name: "Avg", lower_is_better: true }] });
  assert.equal(head, "No row is ranked here.");
  assert.match(how, /^Lowest Avg: Method one.*, 80\.00\.$/);
  assert.equal(words, "Not ranked: two sides of one thing.");
});

test("geometry names no best row: its two sides are read together", () => {
  const all = rows([null, null, null]);
  assert.equal(said(all, { ...TAB, group: "geometry" }).how, "");
});

test("a score that is better when lower has no points", () => {
  const { how } = said(rows(), { ...TAB, columns: [{ name: "Avg", lower_is_better: true }] });
  assert.match(how, /, 0\.50 below Method two\.$/);
});

test("names with commas are listed with semicolons", () => {
  const all = rows([rank(1, 1, 3), rank(2, 1, 3), rank(3, 1, 3)]);
  all[1].method = "Two, 100 steps";
  assert.match(said(all).said, /Two, 100 steps; and .* could be first as well/);
});

test("one ranked row alone is said to be alone", () => {
  assert.match(said(rows([rank(1, 1, 1), null, null])).head, /is the only row ranked here\.$/);
});
