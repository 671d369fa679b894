// The machine as `pinion topo` draws it: sockets, NUMA nodes, cores that share an L3, and on every
// logical CPU who computes there.

// Several engines behind one front end tell of themselves one by one.
const enginesOf = info => info.replicas ?? [info];

// [{name, said, cpus, threads}]: a replica's rank 1 is called 0.1, or 0 if it is the only one there.
function ranksOf(info) {
  const engines = enginesOf(info);
  return engines.flatMap(({plan}, index) => plan.ranks.map(({rank, cpus, threads}) => {
    const name = engines.length === 1 ? `${rank}` : plan.ranks.length === 1 ? `${index}` : `${index}.${rank}`;
    const said = [engines.length > 1 && `replica ${index}`, (engines.length === 1 || plan.ranks.length > 1) && `rank ${rank}`];
    return {name, said: said.filter(Boolean).join(", "), cpus, threads};
  }));
}

function markOf(cpu, ranks, front, allowed, floating) {
  const rank = ranks.findIndex(one => one.cpus.includes(cpu));
  if (rank >= 0) return {text: ranks[rank].name, rank, said: ranks[rank].said};
  if (front.includes(cpu)) return {text: "F", front: true, said: "front end"};
  if (!allowed.has(cpu)) return {text: "×", said: "not allowed"};
  return floating ? {text: "*", rank: 0, said: "any rank"} : {text: "·", said: "idle"};
}

function cpuBox(mark, title) {
  return make("span", {class: `cpu${mark.front ? " front" : ""}${mark.rank === undefined ? "" : ` rank-${mark.rank % 4}`}`,
                       "data-rank": mark.rank ?? null, title}, mark.text);
}

// Values of `key` in their order, each with its entries.
function grouped(list, key) {
  const groups = new Map();
  for (const one of list) groups.set(key(one), [...(groups.get(key(one)) ?? []), one]);
  return groups;
}

// Those that share a copy of the weights count it once.
function withOwnWeights(engines) {
  const copyOf = engine => engine.shared_weights?.copy;
  return engines.filter((engine, index) =>
    copyOf(engine) === undefined || engines.findIndex(other => copyOf(other) === copyOf(engine)) === index);
}

function memoryLine(node, info) {
  const engines = enginesOf(info);
  const on = what => (what === "weights" ? withOwnWeights(engines) : engines)
    .flatMap(engine => engine.placement ?? []).flatMap(rank => rank[what] ?? [])
    .filter(one => one.node === node.id).reduce((total, one) => total + one.bytes, 0);
  const parts = [`node ${node.id}`, formatBytes(node.memory_bytes) + (node.memory_allowed ? "" : " (not allowed)")];
  if (info.machine.l3_bytes) {
    const domains = grouped(node.cores, core => core.l3).size;
    if (domains) parts.push(`${domains > 1 ? `${domains} × ` : ""}L3 ${formatBytes(info.machine.l3_bytes)}`);
  }
  if (on("weights")) parts.push(`weights ${formatBytes(on("weights"))}`);
  if (on("kv")) parts.push(`KV ${formatBytes(on("kv"))}`);
  return parts.join(" · ");
}

function nodeBox(node, cores, info, markFor, marks) {
  const box = make("div", {class: "node"}, make("p", {}, memoryLine({...node, cores}, info)));
  const row = make("div", {class: "cores"});
  const boxOf = cpu => {
    const mark = markFor(cpu);
    marks.set(mark.text, mark);
    return cpuBox(mark, `CPU ${cpu}: ${mark.said}`);
  };
  for (const domain of grouped(cores, core => core.l3).values()) {
    const l3 = make("span", {class: "l3"}, ...domain.map(core => make("span", {class: "core"}, ...core.cpus.map(boxOf))));
    // At most 16 logical CPUs a row, which fit on a phone.
    l3.style.setProperty("--columns", Math.min(domain.length, Math.max(1, Math.floor(16 / domain[0].cpus.length))));
    row.append(l3);
  }
  if (cores.length) box.append(row);
  return box;
}

function drawMachine(info) {
  const {machine, plan, budget} = info;
  byId("machine-card").hidden = !machine || !plan;
  if (!machine || !plan) return;
  const ranks = ranksOf(info), front = enginesOf(info).flatMap(engine => engine.plan.frontend_cpus);
  const allowed = new Set(budget.cpus), floating = ranks.every(rank => rank.cpus.length === 0);
  const markFor = cpu => markOf(cpu, ranks, front, allowed, floating);
  const marks = new Map(), boxes = [];
  const sockets = [...new Set(machine.nodes.flatMap(node => node.cores.map(core => core.package)))].sort((a, b) => a - b);
  for (const socket of sockets) {
    const box = make("div", {class: "socket"}, make("p", {}, `socket ${socket}`));
    for (const node of machine.nodes) {
      const cores = node.cores.filter(core => core.package === socket);
      if (cores.length) box.append(nodeBox(node, cores, info, markFor, marks));
    }
    boxes.push(box);
  }
  for (const node of machine.nodes)
    if (!node.cores.length) boxes.push(make("div", {class: "socket"}, make("p", {}, `${memoryLine(node, info)} · no CPUs`)));
  byId("machine").replaceChildren(...boxes);
  byId("machine").setAttribute("aria-label", ranks.map(rank =>
    `${rank.said}: ${rank.cpus.length ? `CPUs ${rank.cpus.join(", ")}` : `${rank.threads} threads anywhere`}`).join("; "));
  const count = machine.nodes.reduce((total, node) => total + node.cores.length, 0);
  byId("machine-line").textContent = `${machine.name} · ${count} core${count === 1 ? "" : "s"}`;
  drawLegend(marks, ranks, enginesOf(info).length);
  drawPlan(enginesOf(info).map(engine => engine.plan));
}

function drawLegend(marks, ranks, engines) {
  const entries = [...marks.values()].filter(mark => !(mark.rank > 0)).map(mark => {
    const what = mark.rank === undefined ? mark.said
      : mark.text === "*" ? "any rank's threads, not pinned"
      : ranks.length > 1 ? `to ${ranks.at(-1).name}: the ${engines > 1 ? "replica" : "rank"} that computes there`
      : "computes; the stronger, the busier";
    return make("li", {}, cpuBox(mark), what);
  });
  byId("legend").replaceChildren(...entries);
}

function drawPlan(plans) {
  const all = what => [...new Set(plans.flatMap(plan => plan[what]))], warnings = all("warnings");
  const lines = [...all("reasons").map(reason => make("p", {class: "faint"}, reason)),
                 ...warnings.map(warning => make("p", {class: "warning"}, warning))];
  const why = make("details", {open: warnings.length > 0}, make("summary"), ...lines);
  why.firstChild.textContent = warnings.length ? "Why, and what to mend" : "Why";
  byId("plan").replaceChildren(...(lines.length ? [why] : []));
}
