// Score against what a row costs: width, parameters, bytes, speed, memory, year, where the records say; and the front nothing else beats.

import * as Plot from "@observablehq/plot";
import { fixed, h } from "../dom.js";
import { imported } from "../rows.js";
import { picture } from "./picture.js";
import { front, ticks } from "./scale.js";

export const AXES = {
  uniformity: { label: "Uniformity", noun: "uniformity", rival: "as uniform", smaller: true, log: false, column: true },
  width: { label: "Dimensions of the vector", noun: "vector’s dimension", rival: "with as few dimensions", smaller: true, log: true },
  parameters: { label: "Parameters", noun: "number of parameters", rival: "with as few parameters", smaller: true, log: true },
  bytes_a_vector: { label: "Bytes a vector", noun: "vector’s size", rival: "with as small vectors", smaller: true, log: true },
  sentences_per_second: { label: "Sentences per second", noun: "speed", rival: "as fast", smaller: false, log: true, timed: true },
  memory_mb: { label: "Memory in MB", noun: "memory", rival: "in as little memory", smaller: true, log: true, timed: true },
  year: { label: "Year of the method’s paper", noun: "year of the method’s paper", rival: "of as old a paper", smaller: true, log: false },
};

const MOST = 0.75; // of the rows in one column: the view opens with another axis

/** A row's number on an axis: a fact of its encoder, or its score in another column. */
const number = (row, key) => (AXES[key].column ? row.scores?.[key]?.value : row[key]);

const fits = (row, on) => row.machine === on.machine && (!row.run_on || row.run_on === on.run_on);

/** A row that was timed where most were: on one kind of machine, device and number of threads. What computed without torch
 * states no use of its machine, and fits any. */
export function timedOn(rows) {
  const there = rows.filter(({ machine }) => machine);
  const count = (on) => there.filter((row) => fits(row, on)).length;
  const better = (row, best) => count(row) - count(best) || Boolean(row.run_on) - Boolean(best.run_on);
  return there.reduce((best, row) => (!best || better(row, best) > 0 ? row : best), undefined);
}

/** The rows whose number on an axis may stand beside the others': times are of one machine. */
function drawable(rows, key) {
  const on = AXES[key].timed ? timedOn(rows) : undefined;
  return rows.filter((row) => Number.isFinite(number(row, key)) && (!AXES[key].timed || fits(row, on)));
}

const numbers = (rows, key) => drawable(rows, key).map((row) => number(row, key));

/** An axis in words, with the machine that its times are of. */
export function labelled(rows, key) {
  const { label, timed } = AXES[key];
  const { machine, run_on: use } = (timed && timedOn(rows)) || {};
  return machine ? `${label} (${[machine, use].filter(Boolean).join(", ")})` : label;
}

/** The axes that rows differ in. */
export const known = (rows) => Object.keys(AXES).filter((key) => new Set(numbers(rows, key)).size > 1);

/** {value, count, all}: the most frequent number of an axis, how many rows have it, and how many have any. */
function commonest(rows, key) {
  const values = numbers(rows, key);
  const count = (value) => values.filter((other) => other === value).length;
  const value = values.reduce((best, each) => (count(each) > count(best) ? each : best), values[0]);
  return { value, count: count(value), all: values.length };
}

function share(rows, key) {
  const { count, all } = commonest(rows, key);
  return count / all;
}

/** The axis to open with: the first that spreads the rows, or that which spreads them most. */
export function opening(rows) {
  const there = known(rows);
  return there.find((key) => share(rows, key) <= MOST) ?? there.toSorted((a, b) => share(rows, a) - share(rows, b))[0];
}

/** {points, left, best}: rows with both numbers, how many lack one, and the ids of the front among the ranked rows. */
export function chart(tab, rows, axis) {
  const points = drawable(rows, axis)
    .filter((row) => row.scores[tab.lead])
    .map((row) => ({ row, x: number(row, axis), y: row.scores[tab.lead].value }));
  const lower = tab.columns.find(({ name }) => name === tab.lead)?.lower_is_better;
  const able = points
    .filter(({ row }) => row.rank)
    .map((point) => ({ ...point, x: AXES[axis].smaller ? point.x : -point.x }));
  return { points, left: rows.length - points.length, best: front(able, lower).map(({ row }) => row) };
}

/** Of rising numbers those that stand at least a share `gap` of the whole axis behind the one before, the first always. */
export function apart(numbers, log, gap) {
  const at = log ? Math.log : Number;
  const whole = at(numbers.at(-1)) - at(numbers[0]) || 1;
  return numbers.reduce(
    (kept, number) => (kept.length && (at(number) - at(kept.at(-1))) / whole < gap ? kept : [...kept, number]),
    [],
  );
}

/** The view. `turn(axis)` when another axis is chosen, `open(row)` for a point. */
export class Size {
  constructor(open, turn) {
    Object.assign(this, { open, turn });
    this.element = h("div", { class: "size" });
  }

  show(tab, rows, state, names) {
    const there = known(rows);
    const axis = there.includes(state.x) ? state.x : opening(rows);
    const only = (key) => [...new Set(numbers(rows, key))][0]; // what all rows have, where they do not differ
    if (!axis)
      return this.element.replaceChildren(
        h(
          "p",
          {},
          "Nothing to draw: these rows do not differ in an encoder’s width, parameters, bytes a vector, speed or memory or the year of its paper, or no record holds it.",
        ),
      );
    const choice = h(
      "label",
      {},
      "Against ",
      h(
        "select",
        { onchange: (event) => this.turn(event.target.value) },
        Object.entries(AXES).filter(([key, { column }]) => !column || there.includes(key)).map(([key, { label }]) =>
          h(
            "option",
            { value: key, selected: key === axis, disabled: !there.includes(key) },
            there.includes(key)
              ? label
              : `${label} (${only(key) === undefined ? "unknown: no record holds it" : `no axis: all have ${only(key)}`})`,
          ),
        ),
      ),
    );
    const { points, left, best } = chart(tab, rows, axis);
    const outside = points.some(({ row }) => imported(row)) ? "published or imported" : "published";
    const shown = best.toSorted((a, b) => a[axis] - b[axis]);
    const list = shown.map((row) =>
      h(
        "li",
        {},
        h("button", { type: "button", class: "open", onclick: () => this.open(row) }, names.get(row.id)),
        `: ${tab.lead} ${fixed(row.scores[tab.lead].value, tab.digits)}, ${row[axis]}`,
      ),
    );
    this.element.replaceChildren(
      h("p", {}, choice),
      this.picture(tab, points, shown, axis, names, labelled(rows, axis)),
      h(
        "p",
        { class: "legend" },
        h("span", { class: "key measured" }, "measured here"),
        points.some(({ row }) => row.kind === "published")
          ? h("span", { class: "key published" }, `${outside}, never ranked`)
          : "",
        shown.length ? h("span", { class: "key front" }, `front: no ranked row ${AXES[axis].rival} is better`) : "",
      ),
      left
        ? h(
            "p",
            {},
            `${left} of ${rows.length} rows are not drawn: their ${AXES[axis].noun} is unknown${AXES[axis].timed ? " or of another machine" : ""}, or they have no ${tab.lead}.`,
          )
        : "",
      h(
        "div",
        { class: "front" },
        shown.length
          ? [
              h("h3", {}, `Pareto front of ${tab.lead} and ${AXES[axis].noun}`),
              h("ul", { "aria-label": "Rows on the front" }, list),
            ]
          : "",
      ),
    );
  }

  picture(tab, points, best, axis, names, label) {
    const { log } = AXES[axis];
    const kind = (row) => (row.kind === "measured" ? "" : imported(row) ? "\nimported" : "\npublished");
    const flat = points.map(({ row, x, y }) => ({
      x,
      y,
      row,
      kind: row.kind,
      low: row.scores[tab.lead].low ?? y,
      high: row.scores[tab.lead].high ?? y,
      name: names.get(row.id),
    }));
    const measured = flat.filter(({ kind }) => kind === "measured");
    const line = flat.filter(({ row }) => best.includes(row)).toSorted((a, b) => a.x - b.x);
    const integers = [...new Set(flat.map(({ x }) => x))].toSorted((a, b) => a - b);
    const few = integers.length <= 8 || axis === "year";
    const steps = [1, 2, 5].flatMap((factor) => Array.from({ length: 12 }, (_, i) => factor * 10 ** i));
    const powers = steps.filter((step) => step >= integers[0] && step <= integers.at(-1)).toSorted((a, b) => a - b);
    const width = Math.min(900, Math.max(320, this.element.clientWidth || 900));
    const round = AXES[axis].column ? ticks(integers[0], integers.at(-1), 6) : powers;
    const shown = few && !AXES[axis].column ? apart(integers, log, 38 / (width - 136)) : round;
    const plot = Plot.plot({
      className: "plot",
      width,
      height: 380,
      marginLeft: 48,
      marginRight: 40,
      marginBottom: 44,
      x: { type: log ? "log" : "linear", inset: 24, axis: null },
      y: { label: tab.lead, grid: true, inset: 8, nice: true },
      marks: [
        // As texts of our own: a logarithmic axis would leave out most labels.
        Plot.axisX(shown, { label, labelAnchor: "center", text: String }),
        Plot.dot(
          flat.filter(({ kind }) => kind === "published"),
          { x: "x", y: "y", symbol: "diamond", r: 4, stroke: "var(--muted)", strokeOpacity: 0.7 },
        ),
        Plot.line(line, { x: "x", y: "y", curve: AXES[axis].smaller ? "step-after" : "step-before", stroke: "var(--accent)", strokeWidth: 2 }),
        Plot.ruleX(measured, { x: "x", y1: "low", y2: "high", stroke: "var(--line-1)", strokeOpacity: 0.35 }),
        Plot.dot(measured, { x: "x", y: "y", r: 4.5, fill: "var(--line-1)", stroke: "var(--bg)" }),
        Plot.text(line, {
          x: "x",
          y: "y",
          text: "name",
          dy: -12,
          textAnchor: "start",
          fill: "var(--ink)",
          stroke: "var(--bg)",
          strokeWidth: 4,
          lineWidth: 16,
          textOverflow: "ellipsis",
        }),
        Plot.tip(
          flat,
          Plot.pointer({
            x: "x",
            y: "y",
            fill: "var(--band)",
            title: ({ name, x, y, row }) =>
              `${name}\n${tab.lead} ${fixed(y, tab.digits)}, ${AXES[axis].column ? fixed(x, tab.digits) : x}${kind(row)}`,
          }),
        ),
      ],
    });
    plot.addEventListener("click", () => plot.value && this.open(plot.value.row));
    return h(
      "figure",
      {},
      picture(plot, `${tab.lead} against ${label.toLowerCase()}: ${points.length} rows; the front is listed below`),
    );
  }
}
