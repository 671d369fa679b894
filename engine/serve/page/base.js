// What all other scripts use: elements, numbers, and what the tab remembers. The scripts are joined
// in the order of their names; wake.js, the last one, starts them.

const byId = id => document.getElementById(id);

// make("p", {class: "faint"}, "text", child): never markup, so no text can become more than text.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function makeSvg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// Kept for this tab alone, until it closes: on a shared machine no one finds it later.
function remember(name, value) {
  try { sessionStorage.setItem(`pinion-${name}`, JSON.stringify(value)); } catch { /* until the next visit */ }
}

function remembered(name) {
  try { return JSON.parse(sessionStorage.getItem(`pinion-${name}`)); } catch { return null; }
}

function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 2 ** (10 * power);
  return `${value < 10 && power > 0 ? value.toFixed(1) : Math.round(value)} ${units[power]}`;
}

function formatSeconds(seconds) {
  if (seconds < 0.01) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  return seconds < 100 ? `${seconds.toFixed(seconds < 10 ? 1 : 0)} s` : `${Math.round(seconds / 60)} min`;
}

function formatRate(rate) {
  return rate < 10 && rate > 0 ? rate.toFixed(1) : Math.round(rate).toLocaleString("en");
}

const formatCount = count => Math.round(count).toLocaleString("en");

function copyButton(textOf, attributes = {}) {
  const button = make("button", {type: "button", ...attributes}, "Copy");
  button.addEventListener("click", async () => {
    let said = "Copied";
    try { await navigator.clipboard.writeText(textOf()); } catch { said = "Select it and copy"; }  // pages over plain HTTP may not
    button.textContent = said;
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}
