// Requests to the server that the page came from, with the reader's API key if it asks for one.
// Addresses are relative, so that a proxy may put the page under a path of its own.

class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let apiKey = remembered("key") ?? "";

function askForKey() {
  const form = byId("key-form");
  if (!form.hidden) return;
  form.hidden = false;
  byId("key").value = "";
  byId("key").focus();
}

// The answer, whose status is 200. Throws ServerError with the server's own sentence.
async function ask(path, {body, signal} = {}) {
  const headers = {};
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
  if (body) headers["Content-Type"] = "application/json";
  let reply;
  try {
    reply = await fetch(path, {method: body ? "POST" : "GET", headers, signal, cache: "no-store",
                               credentials: "same-origin", body: body && JSON.stringify(body)});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "the server does not answer");
  }
  if (reply.ok) return reply;
  if (reply.status === 401) askForKey();
  const text = await reply.text().catch(() => "");
  throw new ServerError(reply.status, sentenceOf(text) || `the server answered with status ${reply.status}`);
}

function sentenceOf(text) {
  try {
    const said = JSON.parse(text);
    return said.error?.message ?? said.reason ?? "";
  } catch {
    return "";
  }
}

async function askJson(path) {
  return (await ask(path)).json();
}

// The events of a stream, parsed. Throws if the server says so in one, or if the stream ends before
// its end was announced.
async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) throw new ServerError(0, "the connection ended before the answer did");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ServerError(event.error.code ?? 0, event.error.message);
      yield event;
    }
  }
}
