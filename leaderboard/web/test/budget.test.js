// What a budget leaves, and what is said of it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { choice, facts, megabytes, usable, within, words } from "../src/choose/budget.js";
import { couldBeBest, differOverTasks } from "../src/choose/over_tasks.js";
import { firsts, names } from "../src/rows.js";
import { parse } from "../src/state.js";
import { languages } from "../src/views/choose.js";
import { rank, rows, TAB } from "./example.js";

const state = (fields) => ({ ...parse("", [TAB.id]), ...fields });
const known = () => {
  const [one, two, three, ...rest] = rows();
  return [
    { ...one, parameters: 110e6, width: 768, licence: "apache-2.0", sentences_per_second: 50, exposed: "yes", comparable: "Trained on test sentences" },
    { ...two, parameters: 22.7e6, width: 384, licence: "cc-by-nc-4.0", exposed: "no", comparable: "Trained on no test sentences" },
    { ...three, width: 384, licence: "mit", comparable: "short trainings" },
    ...rest,
  ];
};
const ids = (all) => all.map(({ id }) => id);

test("a limit keeps what is known to meet it, and says how many it cannot judge", () => {
  const kept = (fields) => {
    const { able, unknown } = within(known().slice(0, 3), state(fields));
    return [ids(able), unknown];
  };
  assert.deepEqual(kept({}), [["one", "two", "three"], 0]);
  assert.deepEqual(kept({ size: "100" }), [["two"], 1]); // 22.7 M weights of 4 bytes are 90.8 MB
  assert.deepEqual(kept({ dims: "384" }), [["two", "three"], 0]);
  assert.deepEqual(kept({ licence: "open" }), [["one", "three"], 0]); // NC is not free
  assert.deepEqual(kept({ speed: "50" }), [["one"], 2]);
  assert.deepEqual(kept({ size: "100", dims: "768" }), [["two"], 1]);
  assert.deepEqual(kept({ seen: "no" }), [["two"], 0]);
  assert.deepEqual(kept({ seen: "perhaps" }), [["two", "three"], 0]); // unknown is neither
  assert.deepEqual(kept({ size: "100", licence: "open" }), [[], 1]);
});

test("trainings of a few steps are not encoders to choose, unless a board has nothing else", () => {
  assert.deepEqual(ids(usable(known()).rows), ["one", "two"]);
  assert.deepEqual(ids(usable(rows()).rows), ["one", "two", "three"]);
  const [one, two] = known();
  const fitted = usable([{ ...one, flags: ["transductive"] }, two]);
  assert.deepEqual([ids(fitted.rows), fitted.fitted], [["two"], 1]);
});

test("words have no parameters, and a size", () => {
  const words = { ...known()[0], parameters: 0 };
  assert.deepEqual([facts(words).parameters, facts(words).mb, megabytes(0)], [0, 0, "0 MB"]);
});

test("the best, what cannot be told from it, and the cheapest of those", () => {
  const all = known();
  const able = usable(all).rows;
  const made = choice(able, firsts(able, all));
  assert.deepEqual([made.best.id, ids(made.ties), made.cheapest.id], ["one", ["one", "two"], "two"]);
  const said = words(TAB, made, names(all), 2);
  assert.match(said.head, /^Method one \(one\): Avg 80\.00 \(79\.00–81\.00\), the best of 2\.$/);
  assert.equal(said.ties, "Cannot be told from it: Method two.");
  assert.equal(said.cheap, "The cheapest of these: Method two, 22.7 M parameters.");
  const alone = words(TAB, choice(able, able.slice(0, 1)), names(all), 2);
  assert.deepEqual([alone.ties, alone.cheap], ["No other could be the best, at 95 %.", ""]);
  assert.equal(words(TAB, choice([], []), names(all), 0).head, "No encoder meets these limits.");
});

test("without what is better than the best within the budget, more may be the best", () => {
  const all = rows([rank(1, 1, 1), rank(2, 2, 3), rank(3, 2, 3)]);
  const able = all.filter(({ id }) => id === "two" || id === "three");
  assert.deepEqual(ids(firsts(able, all)), ["two", "three"]);
});

test("what a record does not hold is null, never 0", () => {
  const [row] = rows();
  assert.deepEqual(new Set(Object.values(facts(row))), new Set(["unknown", null]));
});

test("seven tasks differ where every task agrees by about as much, and not where they pull both ways", () => {
  const base = [80, 81, 82, 83, 84, 85, 86];
  const shifted = base.map((score) => score - 1);
  const mixed = [80, 80, 83, 82, 85, 84, 87];
  assert.equal(differOverTasks(base, shifted), true);
  assert.equal(differOverTasks(base, mixed), false);
  assert.deepEqual(couldBeBest([base, shifted, mixed]), [true, false, true]);
  assert.deepEqual(couldBeBest([base]), [true]);
  assert.deepEqual(couldBeBest([]), []);
});

test("languages are what is measured in one, or published of one, English first", () => {
  const published = { languages: [["STS17", "en-de"], ["STS17", "es-es"], ["STS22.v2", "en"], ["STS22.v2", "es"], ["STS22.v2", "de"]] };
  const korean = { ...TAB, id: "k", language: "Korean" };
  const both = { ...TAB, id: "b", language: "English and German" };
  assert.deepEqual(
    languages([TAB, korean, both], published).map(([name, [tab, set]]) => [name, tab?.id, set]),
    [
      ["", TAB.id, ""],
      ["German", undefined, "STS22.v2/de"],
      ["Korean", "k", null],
      ["Spanish", undefined, "STS22.v2/es"],
    ],
  );
});
