// While the sweep runs, its server sends the page's parts again after every trial.

function applyUpdate(update) {
  for (const [name, markup] of Object.entries(update.sections)) {
    const place = document.querySelector(`[data-place="${name}"]`);
    // Keep details open that the reader has opened.
    const open = [...place.querySelectorAll("details")].map(one => one.open);
    place.innerHTML = markup;
    place.querySelectorAll("details").forEach((one, index) => { one.open = open[index] ?? false; });
  }
  wakeTables();
  data.charts = update.charts;
  drawCharts(data.charts);
}

function followSweep() {
  const state = document.getElementById("live");
  state.hidden = false;
  state.textContent = "connecting";
  const events = new EventSource("events");
  events.onmessage = event => {
    const update = JSON.parse(event.data);
    applyUpdate(update);
    state.textContent = update.state;
    if (update.finished) events.close();
  };
  events.onerror = () => { state.textContent = "the sweep does not answer; retrying"; };
}
