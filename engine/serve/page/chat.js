// The conversation: turns in their order, sent whole with every message, as the API keeps nothing.

// {role, text, thoughts, error, stats}; an answer that failed without a word has an error and no text.
let turns = remembered("turns") ?? [];
let answering = null;  // the AbortController of the answer that is under way
let modelName = "", hasTemplate = true, contextTokens = 0;

const log = byId("log");
const nearEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 60;
const toEnd = () => { log.scrollTop = log.scrollHeight; };

// Questions that got no answer are left out: templates want the roles to alternate.
function messagesOf(list) {
  const messages = settings.system ? [{role: "system", content: settings.system}] : [];
  list.forEach((turn, index) => {
    const answer = turn.role === "user" ? list[index + 1] : turn;
    const last = index === list.length - 1;
    if (last || answer?.text) messages.push({role: turn.role, content: turn.text});
  });
  return messages;
}

function requestOf(list) {
  const common = {model: modelName, stream: true, stream_options: {include_usage: true, continuous_usage_stats: true},
                  ...chosenParameters()};
  if (hasTemplate) return ["v1/chat/completions", {...common, messages: messagesOf(list)}];
  return ["v1/completions", {max_tokens: 256, ...common, prompt: list.map(turn => turn.text).join("")}];
}

function drawTurn(turn) {
  const text = make("div", {class: "text"}), acts = make("div", {class: "acts"});
  turn.place = make("div", {class: `turn ${turn.role}${hasTemplate ? "" : " raw"}`, "data-role": turn.role});
  if (turn.role === "user") {
    text.textContent = turn.text;
    acts.append(make("button", {type: "button", class: "plain", onclick: () => editTurn(turn)}, "Edit"));
    turn.place.append(text, acts);
    return turn.place;
  }
  const thoughts = make("details", {class: "thoughts", hidden: true, open: true}, make("summary"), make("div"));
  const error = make("p", {class: "error", role: "alert", hidden: true});
  turn.place.append(thoughts, text, error, acts);
  turn.draw = () => {
    const stick = nearEnd();
    if (hasTemplate) drawMarkdown(text, turn.text);
    else text.textContent = turn.text;
    text.classList.toggle("waits", Boolean(turn.live) && !turn.text && !turn.thoughts);
    thoughts.hidden = !turn.thoughts;
    thoughts.firstChild.textContent = turn.live && !turn.text ? "Reasoning …" : `Reasoning${turn.thoughtFor ? `, ${turn.thoughtFor}` : ""}`;
    if (thoughts.lastChild.textContent !== turn.thoughts) thoughts.lastChild.textContent = turn.thoughts;
    if (turn.text && !turn.folded) { thoughts.open = false; turn.folded = true; }
    error.hidden = !turn.error;
    error.textContent = turn.error ?? "";
    drawActs(turn, acts);
    if (stick) toEnd();
  };
  turn.draw();
  return turn.place;
}

function drawActs(turn, acts) {
  const stats = make("span", {class: "stats"}, turn.stats ?? "");
  if (turn.live) return acts.replaceChildren(stats);
  const buttons = turn.text ? [copyButton(() => turn.text, {class: "plain"})] : [];
  if (turn === turns.at(-1))
    buttons.push(make("button", {type: "button", class: "plain", onclick: () => answerAgain()}, turn.text ? "Answer again" : "Try again"));
  acts.replaceChildren(...buttons, stats);
}

function drawChat() {
  for (const old of log.querySelectorAll(".turn")) old.remove();
  log.append(...turns.map(drawTurn));
  byId("welcome").hidden = turns.length > 0;
  toEnd();
}

function keepTurns() {
  remember("turns", turns.map(({role, text, thoughts, error, stats, thoughtFor}) => ({role, text, thoughts, error, stats, thoughtFor})));
}

function cutAt(index) {
  answering?.abort();
  turns = turns.slice(0, index);
  drawChat();
  keepTurns();
}

function editTurn(turn) {
  cutAt(turns.indexOf(turn));
  setPrompt(turn.text);
}

function answerAgain() {
  if (answering) return;
  cutAt(turns.length - 1);
  answer();
}

// Counts tokens and times of an answer; texts for its line of figures.
class Stopwatch {
  constructor() { this.began = performance.now(); this.tokens = 0; this.context = 0; this.first = null; }
  note(usage) {
    this.last = performance.now();
    this.first ??= this.last;
    this.tokens = usage.completion_tokens;
    this.context = usage.total_tokens;
  }
  text(reason) {
    if (this.first === null) return reason;
    const parts = [`${formatCount(this.tokens)} token${this.tokens === 1 ? "" : "s"}`];
    const seconds = (this.last - this.first) / 1e3;
    if (this.tokens > 1 && seconds > 0.01) parts.push(`${formatRate((this.tokens - 1) / seconds)} tokens/s`);
    parts.push(`first after ${formatSeconds((this.first - this.began) / 1e3)}`);
    if (contextTokens && this.context) parts.push(`context ${formatCount(this.context)} of ${formatCount(contextTokens)}`);
    if (reason) parts.push(reason);
    return parts.join(" · ");
  }
}

const endings = {length: "ended by the limit of tokens", stop: "", tool_calls: "called a tool"};

async function answer() {
  const [path, body] = requestOf(turns);
  const turn = {role: "assistant", text: "", thoughts: "", live: true};
  const watch = new Stopwatch(), control = new AbortController();
  turns.push(turn);
  log.append(drawTurn(turn));
  toEnd();
  setAnswering(control);
  let frame = 0, reason = "";
  const drawSoon = () => { frame ||= requestAnimationFrame(() => { frame = 0; turn.draw(); }); };
  try {
    for await (const event of eventsOf(await ask(path, {body, signal: control.signal}))) {
      reason = takeEvent(event, turn, watch) ?? reason;
      turn.stats = watch.text("");
      drawSoon();
    }
  } catch (error) {
    if (error.name === "AbortError") reason = "stopped";
    else turn.error = error.message;
  }
  cancelAnimationFrame(frame);
  turn.live = false;
  turn.stats = watch.text(endings[reason] ?? reason);
  if (!turn.text && !turn.error && reason === "stop") turn.error = "the model ended its answer without a word";
  if (answering === control) setAnswering(null);
  if (turns.includes(turn)) {
    turn.draw();
    keepTurns();
  }
}

// The reason why the answer has ended, if it has.
function takeEvent(event, turn, watch) {
  const choice = event.choices[0];
  const said = choice?.delta?.content ?? choice?.text ?? "", thought = choice?.delta?.reasoning_content ?? "";
  turn.text += said;
  turn.thoughts += thought;
  if (event.usage?.completion_tokens) watch.note(event.usage);
  if (thought) turn.thinking ??= performance.now();
  if (said && turn.thinking && !turn.thoughtFor) turn.thoughtFor = formatSeconds((performance.now() - turn.thinking) / 1e3);
  for (const call of choice?.delta?.tool_calls ?? [])
    turn.text += `\n\n\`\`\`${call.function?.name ?? "call"}\n${call.function?.arguments ?? ""}\n\`\`\``;
  return choice?.finish_reason;
}

function setAnswering(control) {
  answering = control;
  const stop = byId("stop"), hadFocus = document.activeElement === stop;
  byId("send").hidden = control !== null;
  stop.hidden = control === null;
  log.setAttribute("aria-busy", control !== null);
  if (hadFocus && control === null) byId("prompt").focus();
}

function setPrompt(text) {
  const prompt = byId("prompt");
  prompt.value = text;
  fitPrompt();
  prompt.focus();
}

function fitPrompt() {
  const prompt = byId("prompt");
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

function send() {
  const text = byId("prompt").value;
  if (answering || !text.trim()) return;
  if (turns.at(-1)?.role === "user") turns.pop();
  turns.push({role: "user", text: hasTemplate ? text.trim() : text});
  setPrompt("");
  drawChat();
  answer();
}

function wakeChat() {
  const prompt = byId("prompt");
  byId("composer").addEventListener("submit", event => { event.preventDefault(); send(); });
  prompt.addEventListener("input", fitPrompt);
  prompt.addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", event => {
    if (event.key === "Escape" && answering && !byId("settings").open) answering.abort();
  });
  byId("stop").addEventListener("click", () => answering?.abort());
  byId("new-chat").addEventListener("click", () => { cutAt(0); prompt.focus(); });
  drawChat();
}

// A model without a chat template can only go on with a text.
function showModel(name, props) {
  modelName = name;
  const short = name.startsWith("/") ? name.split("/").at(-1) || name : name;  // of a path its end
  byId("model").textContent = short;
  byId("model").title = name;
  document.title = `${short} · Pinion`;
  hasTemplate = Boolean(props.chat_template);
  contextTokens = props.default_generation_settings?.n_ctx ?? 0;
  byId("welcome-title").textContent = hasTemplate ? "Chat with the model" : "Write with the model";
  byId("welcome-text").textContent = hasTemplate
    ? "The conversation stays in this tab and is gone when it closes."
    : "This model has no chat template: it continues what you write.";
  byId("prompt").placeholder = hasTemplate ? "Message" : "Text to continue";
  showDefaults(props);
  if (!answering) drawChat();
}
