// What every picture drawn by Observable Plot needs before it is shown.

/** The plot as one image with a name. Plot brings a style element, which the page's policy refuses: style.css has our rules. */
export function picture(plot, name) {
  for (const style of plot.querySelectorAll("style")) style.remove();
  for (const part of plot.querySelectorAll("[aria-label], [aria-description]")) {
    part.removeAttribute("aria-label");
    part.removeAttribute("aria-description");
  }
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", name);
  return plot;
}
