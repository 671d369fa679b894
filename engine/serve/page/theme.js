// Light or dark: as the system has it, until the reader chooses.

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function wakeTheme() {
  const keep = "pinion-theme";
  try {
    const kept = localStorage.getItem(keep);
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch { /* no storage: the system's */ }
  byId("theme").addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem(keep, theme); } catch { /* for this visit */ }
  });
}
