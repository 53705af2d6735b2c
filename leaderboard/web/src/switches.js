// The tabs of a protocol differ in aggregation, metric and form (text version, changed settings): one switch for each.

export const KEYS = ["aggregation", "metric", "form"];
export const TEXT = "Text"; // the label where forms differ in the text alone
const TEXTS = ["", "raw text", "own files"];
const DATA = { true: "Data", false: "Data and settings" }; // where a tab is of a file of one's own or a language; true: each is, whole
const LABELS = { aggregation: "Aggregation", metric: "Score", form: "Text and settings" };

/** What has tables of its own: a file or folder of one's own, or a language. */
const part = (tab) => tab.user_set ?? tab.language ?? "";

/** [{key, label, values}] of what the measured tabs of a group differ in. Within a part, and outside of all, only what its
 * own tabs differ in: another aggregation must not lead to other data. */
export function switches(tabs, tab) {
  const measured = tabs.filter((other) => other.measured);
  const near = (other) => !tab || (part(tab) ? other.form === tab.form : !part(other));
  return KEYS.map((key) => {
    const able = key === "form" ? measured : measured.filter(near);
    const values = [...new Set(able.map((other) => other[key] ?? ""))];
    const texts = key === "form" && values.every((value) => TEXTS.includes(value));
    const parts = key === "form" && measured.some(part);
    const label = parts ? DATA[measured.every((other) => other.form === part(other))] : texts ? TEXT : LABELS[key];
    return { key, label, values };
  }).filter(({ values }) => values.length > 1);
}

/** [{title, values}]: the forms of a group's measured tabs, files of one's own and languages under a title each. */
export function kinds(tabs, values) {
  const titles = values.map((value) => {
    const tab = tabs.find((other) => other.measured && (other.form ?? "") === value);
    return tab?.user_set ? "Own data" : tab?.language ? "Languages" : "";
  });
  return [...new Set(titles)].map((title) => ({ title, values: values.filter((_, i) => titles[i] === title) }));
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

/** Tabs that measured the same rows and differ in pooling and metric only. */
export const family = (tabs, tab) =>
  tabs.filter(
    (other) =>
      other.group === tab.group &&
      other.measured &&
      other.form === tab.form &&
      other.lead === tab.lead &&
      other.sample === tab.sample &&
      (other.aggregation === null) === (tab.aggregation === null),
  );
