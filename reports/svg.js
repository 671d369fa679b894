// Renders charts without a browser, for report.md: node svg.js, with {"charts": [{"name", "spec",
// "values"}]} on standard input; prints {"NAME": "<svg ...>"}.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const v8 = require("node:v8");
const vm = require("node:vm");

// Every chart is drawn once: optimising the libraries' code takes longer than drawing with it saves.
v8.setFlagsFromString("--no-opt");

const WIDTH = 560;
// Runs a script as a page would: its declarations become global.
const take = file => vm.runInThisContext(fs.readFileSync(path.join(__dirname, file), "utf8"));
for (const file of ["vega.min.js", "vega-lite.min.js", "page/chart-config.js"]) take(file);

// The light colour of every pair, because pictures are seen on paper and in pull requests.
const palette = Object.fromEntries(
  [...fs.readFileSync(path.join(__dirname, "page.css"), "utf8")
    .matchAll(/--([\w-]+): light-dark\((#\w+),/g)].map(([, name, light]) => [name, light]));

async function render(chart) {
  const spec = {...chart.spec, data: {values: chart.values}, background: palette.page, padding: 8};
  if (spec.width === "container") spec.width = WIDTH;
  const config = {...chartConfig, font: "sans-serif"};
  const view = new vega.View(vega.parse(vegaLite.compile(spec, {config}).spec), {renderer: "none"});
  const svg = await view.toSVG();
  return svg.replace(/var\(--([\w-]+)\)/g, (_, name) => palette[name]);
}

async function main() {
  const pictures = {};
  for (const chart of JSON.parse(fs.readFileSync(0, "utf8")).charts)
    pictures[chart.name] = await render(chart);
  process.stdout.write(JSON.stringify(pictures));
}

main();
