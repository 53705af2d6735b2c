// The tabs of a protocol differ in aggregation, metric and form (text version, changed settings): one switch for each.

export const KEYS = ["aggregation", "metric", "form"];
export const TEXT = "Text"; // the label where forms differ in the text alone
const TEXTS = ["", "raw text", "own files"];
const DATA = { true: "Data", false: "Data and settings" }; // where a tab is of a file of one's own; true: each is, whole
const LABELS = { aggregation: "Aggregation", metric: "Score", form: "Text and settings" };

/** [{key, label, values}] of what the measured tabs of a group differ in. */
export function switches(tabs) {
  const measured = tabs.filter((tab) => tab.measured);
  return KEYS.map((key) => {
    const values = [...new Set(measured.map((tab) => tab[key] ?? ""))];
    const texts = key === "form" && values.every((value) => TEXTS.includes(value));
    const sets = key === "form" && measured.some((tab) => tab.user_set);
    const label = sets ? DATA[measured.every((tab) => tab.form === tab.user_set)] : texts ? TEXT : LABELS[key];
    return { key, label, values };
  }).filter(({ values }) => values.length > 1);
}

/** The tab one comes to by setting `key` to `value`: of those that have it, the one that else differs least from `tab`. */
export function turned(tabs, tab, key, value) {
  const able = tabs.filter((other) => other.measured && (other[key] ?? "") === value);
  const kept = (other) => KEYS.filter((each) => (other[each] ?? "") === (tab[each] ?? "")).length;
  return able.reduce((best, other) => (best && kept(best) >= kept(other) ? best : other), null);
}

/** What a switch says for a value; `label`: that of the switch. */
export function worded(key, value, label) {
  if (key === "form" && label === TEXT) return value.replace(" text", "") || "SentEval’s";
  if (key === "form") return value || "SentEval’s text, defaults";
  if (key === "metric")
    return { mse: "MSE", f1: "F1", mrr: "MRR" }[value] ?? value.charAt(0).toUpperCase() + value.slice(1);
  return value || "none";
}
