// Draws the charts of the page's data.

// The element to draw into, created if it does not exist yet.
function chartFigure(section, chart) {
  let figure = document.getElementById("chart-" + chart.name);
  if (!figure) {
    figure = document.createElement("figure");
    figure.id = "chart-" + chart.name;
    figure.innerHTML = "<figcaption><h3></h3><span></span></figcaption><div class=\"chart\"></div>";
    section.append(figure);
  }
  figure.querySelector("h3").textContent = chart.title;
  figure.querySelector("span").textContent = chart.conclusion;
  const place = figure.querySelector(".chart");
  // Charts with many long row names take the whole width, and the names half of it.
  const {spec} = chart, names = spec.encoding?.y?.axis;
  figure.classList.toggle("broad", spec.usermeta?.rows === "configuration" && spec.height > 240);
  if (names?.labelLimit) names.labelLimit = place.clientWidth / 2;
  place.style.minHeight = `${chart.spec.height ?? 0}px`;  // so that the page below does not move
  return place;
}

async function drawCharts(charts) {
  const section = document.getElementById("charts");
  if (typeof vegaEmbed === "undefined" || !charts) return;
  section.hidden = charts.length === 0;
  const places = charts.map(chart => chartFigure(section, chart));
  for (const [index, chart] of charts.entries()) {
    // Between charts the browser can paint, and the reader can scroll.
    await new Promise(done => setTimeout(done));
    if (charts !== data.charts) return;  // replaced by newer data meanwhile
    // ast: Vega interprets its expressions, because the page's policy forbids eval.
    await vegaEmbed(places[index], {...chart.spec, data: {values: chart.values}},
                    {actions: false, renderer: "svg", ast: true, config: chartConfig,
                     mode: "vega-lite"});
  }
}
