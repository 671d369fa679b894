// The server's load, once a second while the page is seen: rates are differences of /metrics.

const keptSeconds = 120, rateSeconds = 3, meanSeconds = 60;
let samples = [], kvTokens = 0, maxSeqs = 0, engineCount = 1;

// {name: [{labels, value}]}
function parseMetrics(text) {
  const metrics = {};
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    (metrics[found[1]] ??= []).push({labels, value: Number(found[3])});
  }
  return metrics;
}

function sampleOf(metrics) {
  const sum = (name, labels = {}) => (metrics[name] ?? [])
    .filter(one => Object.entries(labels).every(([key, value]) => one.labels[key] === value))
    .reduce((total, one) => total + one.value, 0);
  return {
    at: performance.now() / 1e3,
    up: sum("pinion:engine_up") === 1,
    generated: sum("vllm:generation_tokens_total"),
    prompted: sum("vllm:prompt_tokens_by_source_total", {source: "local_compute"}),
    running: sum("vllm:num_requests_running"),
    waiting: sum("vllm:num_requests_waiting"),
    preemptions: sum("vllm:num_preemptions_total"),
    kv: sum("vllm:kv_cache_usage_perc") / Math.max(1, metrics["vllm:kv_cache_usage_perc"]?.length ?? 0),
    queries: sum("vllm:prefix_cache_queries_total"),
    hits: sum("vllm:prefix_cache_hits_total"),
    stepSeconds: sum("pinion:step_seconds_total"),
    decodeSeconds: sum("pinion:step_seconds_total", {kind: "decode"}),
    decodeBytes: sum("pinion:step_bytes_total", {kind: "decode"}),
    ttftSum: sum("vllm:time_to_first_token_seconds_sum"),
    ttftCount: sum("vllm:time_to_first_token_seconds_count"),
    itlSum: sum("vllm:inter_token_latency_seconds_sum"),
    itlCount: sum("vllm:inter_token_latency_seconds_count"),
  };
}

// From the sample of about `seconds` ago until now.
function since(seconds) {
  const now = samples.at(-1);
  const before = samples.find(one => now.at - one.at <= seconds + 0.5) ?? now;
  const difference = name => now[name] - before[name];
  const ratio = (above, below) => difference(below) > 0 ? difference(above) / difference(below) : null;
  return {rate: name => now.at > before.at ? difference(name) / (now.at - before.at) : 0, ratio};
}

function keepSample(sample) {
  const last = samples.at(-1);
  if (last && sample.generated + sample.prompted < last.generated + last.prompted) samples = [];  // another engine process
  samples.push(sample);
  samples = samples.filter(one => sample.at - one.at <= keptSeconds + 2);
}

function drawLive() {
  const now = samples.at(-1), recent = since(rateSeconds), minute = since(meanSeconds);
  const write = (id, text) => { if (byId(id).textContent !== text) byId(id).textContent = text; };
  const orDash = (value, format) => value === null ? "–" : format(value);
  write("generated", formatRate(recent.rate("generated")));
  write("prompted", formatRate(recent.rate("prompted")));
  write("ttft", orDash(minute.ratio("ttftSum", "ttftCount"), formatSeconds));
  write("itl", orDash(minute.ratio("itlSum", "itlCount"), formatSeconds));
  const busy = Math.min(1, recent.rate("stepSeconds") / engineCount);
  write("busy", `${Math.round(100 * busy)} % of the time`);
  write("bandwidth", orDash(minute.ratio("decodeBytes", "decodeSeconds"), value => value > 0 ? `${formatBytes(value)}/s` : "–"));
  write("running", formatCount(now.running));
  write("most", maxSeqs ? formatCount(maxSeqs) : "–");
  write("waiting", formatCount(now.waiting));
  write("preemptions", formatCount(now.preemptions));
  const percent = 100 * now.kv;
  write("kv", `${percent > 0 && percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`);
  write("kv-of", kvTokens ? `of ${formatCount(kvTokens)} tokens` : "in use");
  byId("kv-meter").setAttribute("aria-valuenow", Math.round(percent));
  byId("kv-meter").firstElementChild.style.width = `${percent}%`;
  write("hits", now.queries > 0 ? `${Math.round(100 * now.hits / now.queries)} %` : "–");
  byId("machine").style.setProperty("--load", `${Math.round(30 + 70 * busy)}%`);
  drawSpark();
}

function drawSpark() {
  const now = samples.at(-1).at, height = 40, points = [];
  for (let i = 1; i < samples.length; ++i) {
    const [before, after] = [samples[i - 1], samples[i]];
    points.push([keptSeconds - (now - after.at), (after.generated - before.generated) / Math.max(0.2, after.at - before.at)]);
  }
  const peak = Math.max(1, ...points.map(([, rate]) => rate));
  const at = ([x, rate]) => `${Math.max(0, x).toFixed(2)},${(height - 1 - (height - 3) * rate / peak).toFixed(2)}`;
  const line = points.map(at).join(" ");
  const spark = byId("spark");
  spark.setAttribute("viewBox", `0 0 ${keptSeconds} ${height}`);
  spark.replaceChildren(makeSvg("line", {class: "base", x1: 0, x2: keptSeconds, y1: height - 1, y2: height - 1}));
  if (points.length > 1)
    spark.append(makeSvg("polygon", {class: "area", points: `${at([points[0][0], 0])} ${line} ${at([points.at(-1)[0], 0])}`}),
                 makeSvg("polyline", {class: "line", points: line}));
  const said = points.some(([, rate]) => rate > 0) ? `peak ${formatRate(peak)}` : "";
  if (byId("peak").textContent !== said) byId("peak").textContent = said;
}

function setState(text, is) {
  const state = byId("state");
  state.dataset.is = is;
  if (state.textContent !== text) state.textContent = text;
  state.title = text;
}

// Why the engine does not answer, by /health.
async function sayWhyNot() {
  try {
    await ask("health");
  } catch (error) {
    setState(error.message, "bad");
  }
}

let known = false;  // whether what the engine told about itself is on the page

async function lookOnce() {
  try {
    const sample = sampleOf(parseMetrics(await (await ask("metrics")).text()));
    keepSample(sample);
    drawLive();
    if (!sample.up) {
      known = false;
      return await sayWhyNot();
    }
    if (!known) {
      await showServer();
      known = true;
      drawLive();
    }
    setState(sample.running + sample.waiting > 0 ? "computing" : "ready", "ready");
  } catch (error) {
    known = false;
    setState(error.status === 401 ? "waits for an API key" : error.message, "bad");
  }
}

async function showServer() {
  const [models, props, info] = await Promise.all([askJson("v1/models"), askJson("props"), askJson("server_info")]);
  maxSeqs = props.total_slots;
  engineCount = enginesOf(info).length;
  kvTokens = enginesOf(info).reduce((total, engine) => total + (engine.kv_cache?.tokens ?? 0), 0);
  showModel(models.data[0].id, props);
  drawMachine(info);
  drawProfile(info);
  drawEngine(info);
}

function watchServer() {
  let timer = 0, looking = false;
  const look = async () => {
    clearTimeout(timer);
    if (looking || document.hidden) return;
    looking = true;
    await lookOnce();
    looking = false;
    timer = setTimeout(look, 1000);
  };
  document.addEventListener("visibilitychange", look);
  byId("key-form").addEventListener("submit", event => {
    event.preventDefault();
    apiKey = byId("key").value.trim();
    remember("key", apiKey);
    byId("key-form").hidden = true;
    byId("prompt").focus();
    look();
  });
  look();
}
