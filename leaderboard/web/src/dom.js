// Elements built from text: nothing here, or anywhere in this page, takes markup.

/** An element. Attributes that are null or false are left out, functions are listeners ("onclick"), children may be text. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false && child !== ""),
  );
  return element;
}

/** A number with a fixed count of decimals and a minus sign that lines up; "–" where there is none. */
export function fixed(value, digits) {
  if (value === null || value === undefined) return "–";
  const text = (Math.round(value * 10 ** digits) / 10 ** digits + 0).toFixed(digits);
  return text.replace("-", "−");
}

/** "75.10–77.32"; with "to" where a minus sign would meet the dash. */
/** How many decimals a column of a tab is shown with. */
export function digitsOf(tab, name) {
  return tab.columns.find((column) => column.name === name)?.digits ?? tab.digits;
}

export function span(low, high, digits) {
  const between = Math.min(low, high) < 0 ? " to " : "–";
  return fixed(low, digits) + between + fixed(high, digits);
}

/** "a", "a and b", "a, b and c"; with semicolons where a name has a comma. */
export function listed(names) {
  const [comma, last] = names.some((name) => name.includes(", ")) ? ["; ", "; and "] : [", ", " and "];
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(comma)}${last}${names.at(-1)}`;
}

const LINK = /^(https?:\/\/[^\x00-\x20\x7f\\]+|[^\x00-\x20\x7f\\:]+)$/i;

/** A link where the address is http, https or relative; else its text. */
export function link(address, text) {
  return LINK.test(address) ? h("a", { href: address, rel: "noreferrer" }, text) : h("span", {}, text);
}
