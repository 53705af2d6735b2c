// MTEB's published results: which models cannot be excluded as the best, a search, the rows by tier.

import { fixed, h, link } from "../dom.js";
import { load } from "../load.js";
import { bothWays, declaredAlone, languageAnswer, languageRows, matching, published as tested, publishedAnswer, publishedFacts } from "../published.js";
import { interval } from "../rows.js";

const SHOWN = 30;
const DECLARED = "declared"; // in the place of a language: models that name their training sets, and none of the tasks' kin

/** The line that answers a visitor of the first page. */
export function which({ id, title, ranked, first }) {
  const answer = h("a", { href: `#${id}` }, `${first} of ${ranked} published models cannot be excluded as the best`);
  return h("p", { class: "which" }, h("b", {}, "Which model? "), answer, ` (${title}).`);
}

export class AsPublished {
  /** `change(fields)`: the reader searched or opened a row. `parts`: answer and about of the page. */
  constructor(index, change, parts) {
    this.index = index;
    this.change = change;
    this.parts = parts;
    this.search = h("input", {
      type: "search",
      placeholder: "Model’s name",
      "aria-label": "Search by model",
      oninput: () => this.change({ q: this.search.value }),
    });
    const tasks = [...new Set(index.as_published.languages.map(([task]) => task))];
    this.pick = h(
      "select",
      { "aria-label": "Tasks", onchange: () => this.change({ x: this.pick.value, open: "" }) },
      h("option", { value: "" }, "Mean of seven tasks"),
      h("option", { value: DECLARED }, "Mean of seven, not trained on their kin"),
      tasks.map((task) =>
        h(
          "optgroup",
          { label: `${task}, a language` },
          index.as_published.languages
            .filter(([other]) => other === task)
            .map(([, name]) => h("option", { value: `${task}/${name}` }, `${task} ${name}`)),
        ),
      ),
    );
    this.count = h("span", { class: "count", role: "status" });
    this.lists = h("div");
    this.more = h("button", {
      type: "button",
      class: "more",
      onclick: () => {
        this.whole = !this.whole;
        this.rows();
      },
    });
    this.element = h(
      "div",
      { class: "as-published" },
      h("p", { class: "search" }, this.search, this.pick, this.count),
      (this.legend = h("p", { class: "how" })),
      this.lists,
      this.more,
    );
  }

  async show(state) {
    this.state = state;
    if (this.search.value !== state.q) this.search.value = state.q;
    const file = (name) => load(name.replace(/\.json$/, ""));
    const known = this.index.as_published.languages.some((one) => one.join("/") === state.x);
    const [data, others] = await Promise.all([
      file(this.index.as_published.file),
      known ? file(this.index.as_published.by_language) : null,
    ]);
    if (this.state !== state) return null;
    const declared = state.x === DECLARED;
    this.pick.value = known || declared ? state.x : "";
    const language = others?.languages.find(({ task, name }) => `${task}/${name}` === state.x);
    const now = JSON.stringify([state.q, (language || declared) && state.x]);
    if (this.data && this.now === now) return data;
    const chosen = declared ? declaredAlone(data) : data;
    Object.assign(this, { data: chosen, now, language });
    this.shown = language ? languageRows(others, language) : chosen.rows;
    this.say(chosen);
    this.rows();
    return chosen;
  }

  say(data) {
    const all = publishedAnswer(data);
    const { head, how } = this.language ? languageAnswer(this.language) : all;
    const { commit, date, repository, licence } = data.source;
    this.said = [
      h("p", { class: "lead" }, head),
      h("p", {}, how),
      h("p", { class: "how doubt" }, this.language ? "Doubts: nobody here checked these scores; marks stand on the rows." : all.doubt),
      this.language
        ? ""
        : h(
            "details",
            { class: "tested" },
            h("summary", {}, "How sure that is"),
            tested(data).map((line) => h("p", { class: "how" }, line)),
          ),
    ];
    this.legend.hidden = Boolean(this.language?.refused);
    this.legend.textContent = this.language
      ? "Bar: the ranks that other sentence pairs may give the model; dot: its rank by the score."
      : "Mean of seven STS tasks. Bar: the ranks that another draw of such tasks may give the model (95 %); dot: its rank by the mean.";
    this.about = [
      h(
        "p",
        {},
        "Scores as MTEB’s ",
        link(repository, "results repository"),
        ` holds them (${licence}, commit ${commit.slice(0, 12)} of ${date}): models with all seven of ${data.tasks.map(({ name }) => name).join(", ")}, test splits, cosine and Spearman’s correlation over all pairs. SICK-R is all 9,927 pairs, not the 4,927 that papers use. None of these rows stands in any other table here.`,
      ),
      h(
        "p",
        {},
        "Also doubtful, without a mark on a row: a version in a merged file is the last writer’s, not each score’s; copies that the repository removed differed from those it kept by over half a point in 53 of 307 cells of these tasks; results of models without an implementation were removed in December 2025.",
      ),
    ];
  }

  rows() {
    const { shown, state, language } = this;
    const some = matching(shown, state.q);
    const cut = this.whole || state.q ? some : some.slice(0, SHOWN);
    const kinds = [...new Set(cut.map((row) => row.tier ?? 0))].sort((a, b) => (a || Infinity) - (b || Infinity));
    this.lists.replaceChildren(
      ...kinds.map((tier) => {
        const words = language ? (tier === 1 ? "Could be first" : "Behind") : `Tier ${tier}`;
        const title = tier ? `${words} (${shown.filter((row) => row.tier === tier).length})` : "Not ranked";
        return h(
          "div",
          {},
          h("h3", { class: "kind" }, title),
          h(
            "ol",
            { class: "lines published-lines", "aria-label": title },
            cut.filter((row) => (row.tier ?? 0) === tier).map((row) => this.line(row)),
          ),
        );
      }),
    );
    this.count.textContent = state.q ? `${some.length} of ${shown.length} models` : `${shown.length} models`;
    this.more.hidden = Boolean(state.q) || shown.length <= SHOWN;
    this.more.textContent = this.whole ? "Show fewer" : `Show all ${shown.length} models`;
  }

  line(row) {
    const { flags } = this.data;
    const { ranked } = this.language ?? this.data;
    const at = (rank) => `${((100 * (rank - 0.5)) / ranked).toFixed(2)}%`;
    const place = row.rank?.[0];
    const bar = h("span", { class: "bar" });
    const dot = h("span", { class: "dot" });
    if (row.rank) {
      bar.style.left = `${((100 * (row.rank[1] - 1)) / ranked).toFixed(2)}%`;
      bar.style.width = `${((100 * (row.rank[2] - row.rank[1] + 1)) / ranked).toFixed(2)}%`;
      dot.style.left = at(place);
    }
    const keys = [...new Set((row.doubts ?? []).map(([key]) => key))];
    return h(
      "li",
      { class: `line ${row.tier === 1 ? "able" : ""} ${row.rank ? "" : "unranked"}` },
      h("span", { class: "place" }, place ? String(place) : "–"),
      h(
        "span",
        { class: "name" },
        this.language
          ? h("b", { class: "open" }, row.model)
          : h("button", { type: "button", class: "open", onclick: () => this.change({ open: row.model }) }, row.model),
        h(
          "span",
          { class: "about" },
          keys.map((key) => h("span", { class: "chip warn", title: flags[key].about }, flags[key].label)),
          row.trained === "yes"
            ? h("span", { class: "chip warn", title: `Trained on ${row.kin.join(", ")}, which hold pairs of these tasks in some split` }, "trained on kin")
            : row.trained === "unknown"
              ? h("span", { class: "chip", title: "Nobody says what it was trained on" }, "training unknown")
              : "",
          row.measured ? h("span", { class: "chip" }, `measured here ${fixed(row.measured.mean, 2)}`) : "",
        ),
      ),
      h("span", { class: "track", "aria-hidden": "true" }, row.rank ? [bar, dot] : ""),
      h("span", { class: "score", "data-lead": this.language ? "" : "mean" }, h("b", {}, fixed(row.mean, 2))),
      h(
        "span",
        { class: "between" },
        row.rank ? h("b", {}, interval(row.rank[1], row.rank[2])) : h("small", {}, "not ranked"),
      ),
    );
  }

  /** What stands in the drawer for a model. */
  opened(row, address) {
    const facts = publishedFacts(this.data, row);
    const { measured } = row;
    return [
      measured
        ? h(
            "p",
            { class: "both" },
            `${bothWays(row.mean, measured.mean)}. `,
            h("a", { href: address({ open: measured.entry }) }, `The row measured here: ${measured.entry}`),
          )
        : "",
      h("dl", {}, facts.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Scores as published" },
        h(
          "table",
          {},
          h("caption", {}, "Scores as published, × 100"),
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["Task", "Pairs", "Published", measured ? "Measured here" : ""]
                .filter(Boolean)
                .map((head, i) => h("th", { scope: "col", class: i ? "num" : null }, head)),
            ),
          ),
          h(
            "tbody",
            {},
            this.data.tasks.map(({ name, items }, i) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, name),
                h("td", { class: "num" }, items.toLocaleString("en")),
                h("td", { class: "num" }, fixed(row.scores[i], 2)),
                measured ? h("td", { class: "num" }, fixed(measured.scores[i], 2)) : "",
              ),
            ),
          ),
        ),
      ),
    ].filter(Boolean);
  }
}
