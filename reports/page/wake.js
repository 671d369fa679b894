// The last script: runs the functions of the others.

const data = JSON.parse(document.getElementById("data").textContent);
wakeTables();
drawCharts(data.charts);
if (document.body.dataset.live === "true") followSweep();
