// The profile that the settings come from, what speaks for it, and the settings themselves.

const shown = value => value === null ? "default" : typeof value === "boolean" ? (value ? "on" : "off") : String(value);

// Settings that are not as the profile has them. A KV cache of no given size gets one at a restart.
function differences(profile, options) {
  return Object.entries(profile.configuration)
    .filter(([name, value]) => name in options && JSON.stringify(options[name]) !== JSON.stringify(value) &&
                               !(name === "kv_cache_space" && value === null))
    .map(([name, value]) => `${name} is ${shown(options[name])} in place of ${shown(value)}`);
}

function ratioLine(ratio) {
  if (typeof ratio?.median !== "number") return [];
  const percent = 100 * (ratio.median - 1), {interval} = ratio;
  const bounds = interval ? `, ${(interval.low).toFixed(3)} to ${(interval.high).toFixed(3)} with ${Math.round(100 * interval.coverage)} % confidence` : "";
  return [make("p", {class: "ratio"}, Math.abs(percent) < 0.05 ? "as good as the defaults" : `${Math.abs(percent).toFixed(1)} % ${percent > 0 ? "better" : "worse"}`),
          make("p", {class: "faint"}, `than the defaults: ${ratio.median.toFixed(3)} times${bounds}, from ${ratio.n} rounds`)];
}

const metricNames = {output_tokens_per_s: "Throughput", ttft_s: "First token after", tpot_s: "Time per token",
                     e2el_s: "Whole answer", peak_rss_bytes: "Peak memory"};

function measured({median, unit}) {
  if (unit === "s") return formatSeconds(median);
  return unit === "bytes" ? formatBytes(median) : `${Number(median.toPrecision(4)).toLocaleString("en")} ${unit}`;
}

function expectedTable(expected) {
  if (!expected?.length) return [];
  const row = one => make("tr", {}, make("td", {}, metricNames[one.metric] ?? one.metric.replaceAll("_", " ")),
                          make("td", {}, one.rate ? `${one.rate}/s` : one.concurrency ? String(one.concurrency) : "–"),
                          make("td", {}, measured(one)));
  return [make("details", {}, make("summary", {}, "What the sweep measured"),
               make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "metric"), make("th", {}, "requests"), make("th", {}, "median"))),
                    make("tbody", {}, ...expected.map(row))))];
}

function evidenceList({floor, confirmed, rounds, started_at: began, version, commit, sweep}) {
  const facts = {
    "Noise floor": typeof floor === "number" ? `${(100 * floor).toFixed(1)} %` : null,
    "Confirmed": typeof confirmed === "boolean" ? (confirmed ? "on fresh rounds" : "no") : null,
    "Rounds": rounds, "Measured": typeof began === "string" ? began.replace(/^(.{10})T(.{5}).*Z$/, "$1 $2 UTC") : null, "By version": version && [version, commit].filter(Boolean).join(", "), "Sweep": sweep,
  };
  return factList(make("dl"), facts);
}

function factList(list, facts) {
  list.replaceChildren(...Object.entries(facts).filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
    .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
  return list;
}

function drawProfile(info) {
  const {profile} = info, place = byId("profile");
  byId("profile-card").hidden = false;
  if (!profile)
    return place.replaceChildren(
      make("p", {}, "The server was started without a profile."),
      make("p", {class: "faint"}, make("code", {}, "pinion sweep MODEL"), " measures which settings suit this machine, and ",
           make("code", {}, "pinion launch PROFILE"), " starts a server with them."));
  const evidence = profile.evidence ?? {}, changed = differences(profile, info.options ?? {});
  const notes = changed.map(text => make("p", {class: "warning"}, `Changed since: ${text}.`));
  if (info.machine && profile.machine?.cpu_model && profile.machine.cpu_model !== info.machine.name)
    notes.push(make("p", {class: "warning"}, `Measured on another machine: ${profile.machine.cpu_model}.`));
  place.replaceChildren(make("p", {}, "For ", make("strong", {}, profile.objective)), ...ratioLine(evidence.ratio_to_default),
                        ...(evidence.sentence ? [make("p", {}, evidence.sentence)] : []), ...notes,
                        evidenceList(evidence), ...expectedTable(profile.expected));
}

function drawEngine(info) {
  byId("model-card").hidden = false;
  const cache = info.kv_cache, count = enginesOf(info).length;
  factList(byId("facts"), {
    "Replicas, of each of which this is true": count > 1 && String(count),
    "Weights": info.weight_bytes && `${formatBytes(info.weight_bytes)}, ${info.dtype}`,
    "KV cache": cache?.bytes && `${formatBytes(cache.bytes)}, ${cache.dtype}`,
    "Context": info.max_model_len && `${formatCount(info.max_model_len)} tokens`,
    "Instructions": info.isa, "Threads": info.threads, "Loaded in": info.load_s && formatSeconds(info.load_s),
    "Stand-in, no model computed": info.stand_in_tokens_per_s && `${info.stand_in_tokens_per_s} tokens/s`,
  });
  factList(byId("in-force"), Object.fromEntries(Object.entries(info.options ?? {})
    .filter(([name]) => name !== "model").map(([name, value]) => [name, shown(value)])));
}
