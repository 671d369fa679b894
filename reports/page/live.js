// While the sweep runs, its server sends the page's parts anew after every trial.

function takeNews(news) {
  for (const [name, markup] of Object.entries(news.sections)) {
    const place = document.querySelector(`[data-place="${name}"]`);
    // What the reader has opened stays open.
    const open = [...place.querySelectorAll("details")].map(one => one.open);
    place.innerHTML = markup;
    place.querySelectorAll("details").forEach((one, index) => { one.open = open[index] ?? false; });
  }
  wakeTables();
  data.charts = news.charts;
  drawCharts(data.charts);
}

function followSweep() {
  const state = document.getElementById("live");
  state.hidden = false;
  state.textContent = "connecting";
  const events = new EventSource("events");
  events.onmessage = event => {
    const news = JSON.parse(event.data);
    takeNews(news);
    state.textContent = news.state;
    if (news.finished) events.close();
  };
  events.onerror = () => { state.textContent = "the sweep does not answer; trying again"; };
}
