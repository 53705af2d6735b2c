import assert from "node:assert/strict";
import { test } from "node:test";
import { declaredAlone, languageAnswer, languageRows, published, publishedAnswer, publishedFacts, publishedTable } from "../src/published.js";

const row = (model, tier, more = {}) => ({
  model,
  tier,
  mean: 80,
  rank: [tier, tier, tier + 1],
  jointly: [1, 9],
  on_items: [1, 2],
  folders: ["1"],
  ...more,
});
const DATA = {
  ranked: 4,
  flags: { card: { label: "from its model card", about: "copied" }, mixed: { label: "mixed folders", about: "several" } },
  separated: [
    { assumption: "over tasks", adjacent: 1, pairs: 3, first: 2 },
    { assumption: "errors independent", adjacent: 2, pairs: 4, first: 1 },
    { assumption: "errors correlate by 0.52", adjacent: 3, pairs: 6, first: 1 },
  ],
  shared: { rows: 31, low: 0.52, high: 0.92 },
  check: { pairs: 465, sure_differ: 433, sure_same: 14, wrong_differ: 0, wrong_same: 2 },
  rows: [
    row("a/one", 1),
    row("b/Two", 1, { doubts: [["card", "STS16"]] }),
    row("c/three", 2),
    row("d/four", 3, { doubts: [["card", "all seven tasks"], ["mixed", "x"]] }),
    { model: "e/odd", mean: 3, unranked: "divided", folders: ["1", "2"] },
  ],
};

test("the first tier is named, with how many tie, what that means and the doubts", () => {
  const { head, how, doubt } = publishedAnswer(DATA);
  assert.equal(head, "2 of 4 models cannot be excluded as the best: a/one and b/Two.");
  assert.match(how, /^With 95 % confidence the best on such tasks is among these 2. .* 1 of the other 1 cannot be told from/);
  assert.match(doubt, /nobody here checked.*; 2 rows are copied from model cards, 1 mix folders, 0 have two scores/);
  const many = { ...DATA, rows: Array.from({ length: 9 }, (_, i) => row(`m/${i}`, 1)) };
  assert.equal(publishedAnswer(many).head, "9 of 4 models cannot be excluded as the best: m/0 and 8 others.");
  const alone = publishedAnswer({ ...DATA, rows: [row("a/one", 1), row("c/three", 2)] });
  assert.equal(alone.head, "a/one is the best of 4 models.");
  assert.doesNotMatch(alone.how, /among/);
});

test("models that were not trained on kin of the tasks are ranked among themselves", () => {
  const declared = { rank: [1, 1, 1], tier: 1, differs: false, jointly: [1, 1], on_items: [1, 1] };
  const rows = [
    row("a/one", 1, { trained: "yes", kin: ["STS12"] }),
    row("b/Two", 1, { trained: "unknown" }),
    row("c/three", 2, { trained: "no", declared }),
  ];
  const alone = declaredAlone({ ...DATA, rows, declared: 1 });
  assert.equal(publishedAnswer(alone).head, "c/three is the best of 1 models.");
  assert.match(publishedAnswer({ ...DATA, rows }).doubt, /1 were trained on sets that hold pairs of these tasks, and of 1 nobody/);
  const told = (one) => Object.fromEntries(publishedFacts(DATA, one)).trained;
  assert.match(told(rows[0]), /^on STS12, by what/);
  assert.match(told(rows[2]), /^on none of the tasks’ kin/);
});

test("an opened row says its rank, its doubts and where it was read", () => {
  const facts = Object.fromEntries(publishedFacts(DATA, DATA.rows[1]));
  assert.match(facts["over sentences"], /^1–2: the ranks that other sentences .* cautious bound/);
  assert.equal(facts["from its model card"], "STS16");
  const odd = Object.fromEntries(publishedFacts(DATA, DATA.rows[4]));
  assert.equal(odd["over sentences"], undefined);
  assert.equal(odd.folders, "1 and 2");
  assert.equal(odd.mteb, "no version named");
});

test("what was tested is said with its assumptions and its check", () => {
  const [tasks, items, shared, check] = published(DATA);
  assert.match(tasks, /^Over tasks: 1 of 3 pairs of neighbours and 50 % of all pairs differ/);
  assert.match(items, /2 \(errors independent\) and 3 \(errors correlate by 0\.52\)/);
  assert.match(shared, /31 encoders of this board: 0\.52 to 0\.92/);
  assert.match(check, /of 465 pairs .* 433 different and 14 not; .* contradicts 0 and 2/);
  assert.equal(published({ ...DATA, shared: null, check: null }).length, 3);
});

test("a language says how many could be first, or why nothing is ranked", () => {
  const language = { task: "STS17", name: "en-de", pairs: 250, ranked: 2, first: 1, refused: "", rows: [[1, 90, 1, 1], [0, 80, 2, 2], [2, 0.9]] };
  assert.equal(languageAnswer(language).head, "1 of 2 models could be first in STS17, en-de.");
  assert.match(languageAnswer(language).how, /^250 pairs .* cautious bound/);
  const few = languageAnswer({ ...language, pairs: 8, refused: "8 pairs rank nothing: at least 50 are needed" });
  assert.deepEqual([few.head, few.how], ["STS17, en-de: no ranks.", "8 pairs rank nothing: at least 50 are needed."]);
  const rows = languageRows({ models: ["a", "b", "c"], doubts: { STS17: { 2: ["divided"] } } }, language);
  assert.deepEqual(
    rows.map(({ model, alone, tier }) => [model, alone, tier]),
    [["b", [1, 1, 1], 1], ["a", [2, 2, 2], 2], ["c", undefined, undefined]],
  );
  assert.deepEqual(rows[2].doubts, [["divided", ""]]);
});
