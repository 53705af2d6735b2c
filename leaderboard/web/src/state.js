// What is shown, as a link: "#sts-spearman-all?view=table&q=bert". A field that has its default is left out.

const LISTS = ["hide", "columns", "compare", "mark"];
const TEXTS = ["view", "rows", "q", "setting", "backbone", "kind", "sort", "order", "open", "x", "by", "set", "language", "size", "dims", "licence", "speed", "seen"];
export const VIEWS = ["ranking", "scores", "settings", "size"];
const DEFAULTS = { view: "ranking", x: "" };

/** The state of a fragment. `ids`: the tabs that exist; an unknown one becomes the first, and stands in `gone`. */
export function parse(fragment, ids) {
  const text = fragment.replace(/^#/, "");
  const at = text.indexOf("?");
  const name = decoded(at < 0 ? text : text.slice(0, at));
  const fields = new URLSearchParams(at < 0 ? "" : text.slice(at + 1));
  const there = ids.includes(name);
  const state = { tab: there ? name : ids[0], gone: there ? "" : name };
  for (const key of TEXTS) state[key] = fields.get(key) ?? DEFAULTS[key] ?? "";
  for (const key of LISTS) state[key] = fields.getAll(key);
  if (!VIEWS.includes(state.view)) state.view = DEFAULTS.view;
  if (state.by !== "tiers") state.by = "";
  if (!["asc", "desc"].includes(state.order)) state.sort = state.order = "";
  return state;
}

/** The fragment of a state, "#..." */
export function written(state) {
  const fields = new URLSearchParams();
  for (const key of TEXTS) if (state[key] && state[key] !== DEFAULTS[key]) fields.set(key, state[key]);
  for (const key of LISTS) for (const value of state[key]) fields.append(key, value);
  const text = fields.toString();
  return `#${encodeURIComponent(state.tab)}${text ? `?${text}` : ""}`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
