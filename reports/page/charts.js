// Draws the charts that the data holds, in the page's colours.

function chartConfig() {
  const style = getComputedStyle(document.documentElement);
  const color = name => style.getPropertyValue("--" + name).trim();
  const axis = {labelColor: color("faint"), titleColor: color("faint"), titleFontWeight: "normal",
                domainColor: color("line"), tickColor: color("line"), gridColor: color("line"),
                labelFontSize: 12, titleFontSize: 12};
  return {
    background: null, font: "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif",
    view: {stroke: null}, axis, text: {color: color("text")}, rule: {color: color("faint")},
    header: {labelColor: color("faint"), titleColor: color("faint")},
    legend: {labelColor: color("text"), titleColor: color("faint"), labelFontSize: 12,
             orient: "top", title: null},
    range: {category: [color("text"), color("accent"), color("faint"), color("second")],
            diverging: [color("bad"), color("even"), color("good")]},
  };
}

// The element to draw into, made where there is none yet.
function chartFigure(section, chart) {
  let figure = document.getElementById("chart-" + chart.name);
  if (!figure) {
    figure = document.createElement("figure");
    figure.id = "chart-" + chart.name;
    figure.innerHTML = "<figcaption><b></b><span></span></figcaption><div class=\"chart\"></div>";
    section.append(figure);
  }
  figure.querySelector("b").textContent = chart.title;
  figure.querySelector("span").textContent = chart.conclusion;
  return figure.querySelector(".chart");
}

async function drawCharts(charts) {
  const section = document.getElementById("charts");
  if (typeof vegaEmbed === "undefined" || !charts) return;
  section.hidden = charts.length === 0;
  const config = chartConfig();
  for (const chart of charts) {
    // ast: Vega interprets its expressions, because this page forbids making code from text.
    await vegaEmbed(chartFigure(section, chart), {...chart.spec, data: {values: chart.values}},
                    {actions: false, renderer: "svg", ast: true, config, mode: "vega-lite",
                     tooltip: {theme: isDark() ? "dark" : "light"}});
  }
}
