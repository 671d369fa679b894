// Light or dark: the system's preference until the reader chooses. A page from a file may have no
// storage.

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem("pinion-theme", theme); } catch { /* the choice lasts for this visit */ }
}

try {
  const kept = localStorage.getItem("pinion-theme");
  if (kept) document.documentElement.dataset.theme = kept;
} catch { /* see above */ }
document.getElementById("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
