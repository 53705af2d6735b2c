// Which models could be the best of some, by printed scores of a few tasks alone: an exact test of sign flips over tasks, of
// each model's pairs together by the step-down method (Romano & Wolf 2005), as leaderboard/mteb/differences.py has it.

const LEVEL = 0.05;
const EXACT = 1e10; // sums of the same numbers in another order are one number

/** All ways to flip the signs of so many tasks, but for none, and for those that mirror another. */
const patterns = (tasks) =>
  Array.from({ length: 2 ** (tasks - 1) - 1 }, (_, at) =>
    Array.from({ length: tasks }, (_, task) => (task && ((at + 1) >> (task - 1)) & 1 ? -1 : 1)),
  );

/** The size of a mean difference over the root of its mean square: as observed, and with each pattern of signs. */
function statistics(one, other, signs) {
  const gaps = one.map((score, task) => score - other[task]);
  const root = Math.sqrt(gaps.reduce((sum, gap) => sum + gap * gap, 0) / gaps.length) || 1;
  const size = (flips) => Math.round((EXACT * Math.abs(gaps.reduce((sum, gap, i) => sum + gap * flips[i], 0))) / root / gaps.length);
  return { observed: size(gaps.map(() => 1)), drawn: signs.map(size) };
}

const few = (reached, draws) => 1 + reached < LEVEL * (draws + 1) - 1e-9;

/** Whether two lists of scores on the same tasks differ in their mean, in a test of these two alone. */
export function differOverTasks(one, other) {
  const { observed, drawn } = statistics(one, other, patterns(one.length));
  return few(drawn.filter((each) => each >= observed).length, drawn.length);
}

/** Which of some rows cannot be excluded as the best of them: booleans. rows: lists of scores on the same tasks. */
export function couldBeBest(rows) {
  if (!rows.length) return [];
  const signs = patterns(rows[0].length);
  const means = rows.map((row) => row.reduce((sum, score) => sum + score, 0) / row.length);
  return rows.map((row, i) => {
    const tests = rows
      .map((other, k) => ({ better: means[k] > means[i], k, other }))
      .filter(({ k }) => k !== i)
      .map(({ better, other }) => ({ better, ...statistics(row, other, signs) }))
      .sort((a, b) => a.observed - b.observed);
    // From the smallest statistic on, the largest drawn ones of all hypotheses that are not yet rejected when it is tested.
    const largest = signs.map(() => 0);
    let standing = -1;
    for (let at = 0; at < tests.length; ) {
      let end = at; // equal statistics stand or fall together
      while (end < tests.length && tests[end].observed === tests[at].observed) {
        tests[end].drawn.forEach((value, flip) => (largest[flip] = Math.max(largest[flip], value)));
        end += 1;
      }
      if (!few(largest.filter((value) => value >= tests[at].observed).length, signs.length)) standing = end - 1;
      at = end;
    }
    return !tests.slice(standing + 1).some(({ better }) => better);
  });
}
