// Renders charts without a browser, for report.md: node svg.js, with {"charts": [{"name", "spec",
// "values"}]} on standard input; prints {"NAME": "<svg ...>"}.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const WIDTH = 560;
// The libraries' browser builds, as the page has them: they hang themselves on the global object.
for (const library of ["vega", "vega-lite"])
  vm.runInThisContext(fs.readFileSync(path.join(__dirname, library + ".min.js"), "utf8"));

async function render(chart) {
  const spec = {...chart.spec, data: {values: chart.values}, background: "white", padding: 8};
  if (spec.width === "container") spec.width = WIDTH;
  const config = {font: "sans-serif", view: {stroke: null}, legend: {orient: "top", title: null},
                  range: {category: ["#1b1f24", "#1d5fd0", "#8a94a2", "#b4540a"],
                          diverging: ["#f0b98f", "#f3f4f6", "#a9c8f5"]}};
  const view = new vega.View(vega.parse(vegaLite.compile(spec, {config}).spec), {renderer: "none"});
  return view.toSVG();
}

async function main() {
  const pictures = {};
  for (const chart of JSON.parse(fs.readFileSync(0, "utf8")).charts)
    pictures[chart.name] = await render(chart);
  process.stdout.write(JSON.stringify(pictures));
}

main();
