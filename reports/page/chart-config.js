// The style of charts, in the browser and in report.md's pictures. Colours are names of page.css: when the
// theme changes, the charts follow without being drawn again.

const chartConfig = {
  background: null, font: "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif", view: {stroke: null},
  axis: {labelColor: "var(--faint)", titleColor: "var(--faint)", titleFontWeight: "normal",
         domainColor: "var(--line)", tickColor: "var(--line)", gridColor: "var(--line)",
         labelFontSize: 12, titleFontSize: 12},
  text: {color: "var(--text)"}, rule: {color: "var(--faint)"}, line: {color: "var(--accent)"},
  header: {labelColor: "var(--faint)", titleColor: "var(--faint)"},
  legend: {labelColor: "var(--text)", titleColor: "var(--faint)", labelFontSize: 12, labelLimit: 240,
           symbolFillColor: "var(--quiet)", orient: "top", title: null},
  range: {category: ["var(--accent)", "var(--second)", "var(--text)", "var(--quiet)"]},
};
