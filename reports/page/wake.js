// The last script: runs what the others define.

const data = JSON.parse(document.getElementById("data").textContent);
wakeTables();
drawCharts(data.charts);
if (document.body.dataset.live === "true") followSweep();
