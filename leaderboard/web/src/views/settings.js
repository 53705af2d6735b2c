// How the order of the same rows changes with the setting alone: a line a row across the settings of a protocol.

import * as Plot from "@observablehq/plot";
import { fixed, h } from "../dom.js";
import { family } from "../switches.js";
import { picture } from "./picture.js";

const DRAWN = 30; // rows in the picture; all count for the places
const COLOURS = 8; // lines that can be told from each other, under deuteranopia, too
const FIRST = 3; // of more lines, those in colour until the reader chooses

/** [{id, setting, place, score}]: each row's place, by score, among the ranked rows that all settings have. */
export function places(shards) {
  const there = shards.map(({ rows }) => new Set(rows.filter((row) => row.rank).map(({ id }) => id)));
  return shards.flatMap(({ setting, lead, lower, rows }) => {
    const kept = rows.filter(({ id }) => there.every((ids) => ids.has(id)));
    const better = (a, b) =>
      lower ? a.scores[lead].value < b.scores[lead].value : a.scores[lead].value > b.scores[lead].value;
    return kept.map((row) => ({
      id: row.id,
      setting,
      score: row.scores[lead].value,
      place: 1 + kept.filter((other) => better(other, row)).length,
    }));
  });
}

/** Kendall's tau-b of two lists of places. */
export function tau(one, other) {
  let [sum, ties1, ties2, pairs] = [0, 0, 0, 0];
  for (let i = 0; i < one.length; i += 1) {
    for (let k = 0; k < i; k += 1) {
      const [a, b] = [Math.sign(one[i] - one[k]), Math.sign(other[i] - other[k])];
      sum += a * b;
      ties1 += a === 0;
      ties2 += b === 0;
      pairs += 1;
    }
  }
  const scale = Math.sqrt((pairs - ties1) * (pairs - ties2));
  return scale ? sum / scale : null;
}

/** A setting in the few letters that a phone has room for; "wmean" a line lower, where it does not touch "mean". */
function short(name) {
  const [metric, pooling = ""] = name.replace("Spearman", "ρ").replace("Pearson", "r").split(", ");
  return [metric, ...(pooling === "wmean" ? ["", pooling] : [pooling, ""])].join("\n");
}

export class Settings {
  /** load(name): a promise of a file of the board; mark(ids): the reader chose the lines that are drawn in colour. */
  constructor(open, load, mark) {
    Object.assign(this, { open, load, mark });
    this.element = h("div", { class: "settings-view" });
  }

  async show(tab, tabs, rows, names, worded, chosen) {
    const others = family(tabs, tab);
    const loaded = await Promise.all(
      others.map(async (other) => {
        const shard = await this.load(`tabs/${other.id}`);
        const value = (row) => ({
          ...row,
          scores: Object.fromEntries(Object.entries(row.scores).map(([name, cell]) => [name, { value: cell[0] }])),
        });
        return {
          setting: worded(other),
          lead: other.lead,
          lower: other.columns.find(({ name }) => name === other.lead).lower_is_better,
          rows: shard.measured.map(value),
        };
      }),
    );
    const all = places(loaded);
    const settings = loaded.map(({ setting }) => setting);
    const shown = rows.filter((row) => row.rank && all.some(({ id }) => id === row.id)).slice(0, DRAWN);
    if (!shown.length) return this.element.replaceChildren(h("p", {}, "No row is ranked under every setting."));
    const drawn = all
      .filter(({ id }) => shown.some((row) => row.id === id))
      .map((each) => ({ ...each, name: names.get(each.id) }));
    const there = chosen.filter((id) => shown.some((row) => row.id === id));
    const marked = shown.length > COLOURS ? (there.length ? there : shown.slice(0, FIRST).map(({ id }) => id)) : shown.map(({ id }) => id);
    const lines = settings.map((setting) => all.filter((each) => each.setting === setting));
    const by = (line) => line.toSorted((a, b) => (a.id < b.id ? -1 : 1)).map(({ place }) => place);
    this.element.replaceChildren(
      h(
        "p",
        { class: "about" },
        "The same vectors of the same sentences: only the way the score is computed differs. Lines that cross are rows that swap. " +
          "Numbers of different settings cannot be compared. Places can, but neighbours often differ by chance: Ranking has each place’s interval.",
      ),
      this.picture(drawn, settings, shown, marked),
      shown.length > COLOURS ? this.choice(shown, marked, names) : "",
      (this.element.clientWidth || 900) < 600 && settings.some((name) => /Spearman|Pearson/.test(name))
        ? h("p", {}, "ρ: Spearman; r: Pearson.")
        : "",
      lines[0].length > shown.length
        ? h("p", {}, `The first ${shown.length} of ${lines[0].length} rows are drawn.`)
        : "",
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Agreement between settings" },
        h(
          "table",
          {},
          h("caption", {}, "Agreement of the orders: Kendall’s τ-b between every two settings; 1 is the same order"),
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { scope: "col" }, "Setting"),
              settings.map((name) => h("th", { scope: "col", class: "num" }, name)),
            ),
          ),
          h(
            "tbody",
            {},
            settings.map((name, i) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, name),
                settings.map((_, k) =>
                  h("td", { class: "num" }, i === k ? "1" : fixed(tau(by(lines[i]), by(lines[k])), 2)),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }

  /** Which lines are in colour: up to as many as there are colours. */
  choice(rows, marked, names) {
    const box = ({ id }) => {
      const mark = (event) => this.mark(event.target.checked ? [...marked, id].slice(-COLOURS) : marked.filter((other) => other !== id));
      return h("label", {}, h("input", { type: "checkbox", value: id, checked: marked.includes(id), onchange: mark }), names.get(id));
    };
    return h("fieldset", { class: "checks marks" }, h("legend", {}, "In colour"), rows.map(box));
  }

  picture(points, settings, rows, marked) {
    const colour = ({ id }) => (marked.includes(id) ? `var(--line-${marked.indexOf(id) + 1})` : "var(--line)");
    const thickness = ({ id }) => (marked.includes(id) ? 2.5 : 1.5);
    points = points.toSorted((a, b) => marked.includes(a.id) - marked.includes(b.id)); // in colour on top
    const last = points.filter(({ setting }) => setting === settings.at(-1));
    const width = Math.min(1000, Math.max(340, this.element.clientWidth || 900));
    const right = width < 600 ? 110 : 240;
    const plot = Plot.plot({
      className: "plot",
      width,
      height: Math.max(300, 24 * rows.length + 70),
      marginLeft: 34,
      marginRight: right,
      marginTop: width < 600 ? 50 : 34,
      x: {
        type: "point",
        domain: settings,
        label: null,
        axis: "top",
        padding: 0.2,
        tickFormat: (name) => (width < 600 ? short(name) : name),
      },
      y: { reverse: true, label: null, ticks: [], inset: 16 },
      marks: [
        Plot.line(points, { x: "setting", y: "place", z: "id", stroke: colour, strokeWidth: thickness, curve: "bump-x" }),
        Plot.dot(points, { x: "setting", y: "place", r: 9, fill: "var(--bg)", stroke: colour }),
        Plot.text(points, {
          x: "setting",
          y: "place",
          text: ({ place }) => String(place),
          fontSize: 10,
          fill: "var(--ink)",
        }),
        Plot.text(last, {
          x: "setting",
          y: "place",
          text: "name",
          textAnchor: "start",
          dx: 16,
          fill: ({ id }) => (marked.includes(id) ? "var(--ink)" : "var(--muted)"),
          fontWeight: ({ id }) => (marked.includes(id) && marked.length < rows.length ? 600 : 400),
          lineWidth: right / 12,
          textOverflow: "ellipsis",
        }),
      ],
    });
    return h(
      "figure",
      {},
      picture(
        plot,
        `Places of ${rows.length} rows under ${settings.length} settings; the rows are listed under Ranking`,
      ),
    );
  }
}
