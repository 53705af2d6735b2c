import assert from "node:assert/strict";
import { test } from "node:test";
import { front, scale, ticks } from "../src/views/scale.js";

test("ticks are round and inside", () => {
  assert.deepEqual(ticks(54.2, 72.1, 5), [55, 60, 65, 70]);
  assert.deepEqual(ticks(-3.9, -1, 3), [-3, -2, -1]);
  assert.deepEqual(ticks(0.1, 0.4, 3), [0.1, 0.2, 0.3, 0.4]);
});

test("a scale keeps order and has room at both ends, for one value too", () => {
  const { at } = scale([10, 20]);
  assert.ok(at(10) > 0 && at(10) < at(15) && at(20) < 1);
  assert.ok(scale([5]).at(5) > 0 && scale([5]).at(5) < 1);
  assert.ok(Number.isFinite(scale([0]).at(0)));
});

test("the front is what no smaller point beats", () => {
  const points = [
    [1, 50],
    [2, 70],
    [2, 60],
    [3, 65],
    [4, 80],
    [4, 80.5],
  ].map(([x, y]) => ({ x, y }));
  assert.deepEqual(
    front(points, false).map(({ x, y }) => [x, y]),
    [
      [1, 50],
      [2, 70],
      [4, 80.5],
    ],
  );
  assert.deepEqual(
    front(points, true).map(({ x, y }) => [x, y]),
    [[1, 50]],
  );
  // Against the definition, point by point.
  const drawn = Array.from({ length: 60 }, (_, i) => ({ x: (i * 37) % 11, y: (i * 53) % 29 }));
  const kept = front(drawn, false);
  for (const point of drawn) {
    const beaten = drawn.some(
      (other) => other.x <= point.x && other.y >= point.y && (other.x < point.x || other.y > point.y),
    );
    assert.equal(
      kept.some(({ x, y }) => x === point.x && y === point.y),
      !beaten,
    );
  }
});
