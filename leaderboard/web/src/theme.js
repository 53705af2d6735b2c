// Light and dark: as the system has it, or as the reader chose.

const KEY = "stsbench-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

// A page opened from a file may be refused its storage.
const recall = () => {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
};
const remember = (theme) => {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // this visit only
  }
};

const stored = recall();
if (stored === "dark" || stored === "light") root.dataset.theme = stored;

export function themeButton(button) {
  const present = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const name = () => {
    button.textContent = present() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `${button.textContent} colours`);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = present() === "dark" ? "light" : "dark";
    remember(root.dataset.theme);
    name();
  });
  dark.addEventListener("change", name);
  name();
}
