// The system prompt and the parameters of sampling: fields that are left empty are not sent, so that
// the model's own defaults hold.

const fields = [
  {name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, what: "0: always the likeliest token"},
  {name: "max_tokens", label: "Most tokens of an answer", min: 1, step: 1, what: "reasoning included"},
  {name: "top_p", label: "Top p", min: 0, max: 1, step: 0.01, what: "from the likeliest tokens of this share"},
  {name: "top_k", label: "Top k", min: -1, step: 1, what: "from so many tokens; -1: all"},
  {name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, what: "at least this fraction of the likeliest"},
  {name: "repetition_penalty", label: "Repetition penalty", min: 0.01, step: 0.05, what: "above 1: fewer repeats"},
  {name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1},
  {name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1},
  {name: "seed", label: "Seed", step: 1, what: "the same seed, the same answer"},
  {name: "stop", label: "Stop at", text: true, what: "this text ends the answer"},
  {name: "enable_thinking", label: "Reasoning", choices: {"": "the template's default", true: "on", false: "off"}},
];

const settings = remembered("settings") ?? {};

function buildSettings() {
  for (const {name, label, what, text, choices, ...range} of fields) {
    const attributes = {id: `set-${name}`, "data-field": name, "aria-describedby": what ? `about-${name}` : null};
    const input = choices
      ? make("select", attributes, ...Object.entries(choices).map(([value, said]) => make("option", {value}, said)))
      : make("input", {...attributes, type: text ? "text" : "number", inputmode: text ? "text" : "decimal", autocomplete: "off", ...range});
    byId("fields").append(make("div", {id: `row-${name}`}, make("label", {for: `set-${name}`}, label), input,
                               what ? make("small", {id: `about-${name}`}, what) : ""));
  }
  byId("row-enable_thinking").hidden = true;  // until the model's template is known
  const dialog = byId("settings");
  showSettings();
  dialog.addEventListener("input", event => {
    const {field} = event.target.dataset;
    if (event.target.value === "") delete settings[field];
    else settings[field] = event.target.value;
    remember("settings", settings);
    countSettings();
  });
  byId("open-settings").addEventListener("click", () => dialog.showModal());
  byId("close-settings").addEventListener("click", () => dialog.close());
  byId("reset-settings").addEventListener("click", () => {
    for (const name of Object.keys(settings)) delete settings[name];
    remember("settings", settings);
    showSettings();
  });
  dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
}

function showSettings() {
  for (const input of byId("settings").querySelectorAll("[data-field]")) input.value = settings[input.dataset.field] ?? "";
  countSettings();
}

function countSettings() {
  const count = Object.keys(settings).length;
  byId("changed").hidden = count === 0;
  byId("changed").textContent = count;
  byId("changed").setAttribute("aria-label", `${count} set`);
}

// What the model does by itself, from llama-server's /props.
function showDefaults(props) {
  for (const [name, value] of Object.entries({...props.default_generation_settings?.params,
                                              repetition_penalty: props.default_generation_settings?.params?.repeat_penalty})) {
    const input = byId(`set-${name}`);
    if (input && name !== "seed" && typeof value === "number") input.placeholder = Number(value.toFixed(4));
  }
  byId("set-max_tokens").placeholder = "as long as the context allows";
  byId("set-seed").placeholder = "another one each time";
  byId("set-stop").placeholder = "the model's own end";
  byId("row-enable_thinking").hidden = !(props.chat_template ?? "").includes("enable_thinking");
}

// The fields of a request.
function chosenParameters() {
  const chosen = {};
  for (const {name, text, choices} of fields) {
    if (settings[name] === undefined) continue;
    if (choices) chosen.chat_template_kwargs = {[name]: settings[name] === "true"};
    else chosen[name] = text ? settings[name] : Number(settings[name]);
  }
  return chosen;
}
