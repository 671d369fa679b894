// OpenAI's client for Node: prints as JSON what it got from the server at argv[2]. See test_openai_node.py.
import OpenAI from "openai";

const [url, stop, call] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
const say = (text, more) => ({
  model: "echo", messages: [{ role: "user", content: text + stop }], stop: [stop], max_tokens: 500, ...more,
});
const refused = async (promise) => {
  try {
    await promise;
  } catch (error) {
    return { class: error.constructor.name, status: error.status, code: error.code, param: error.param };
  }
};

const found = { models: [] };
for await (const model of client.models.list()) found.models.push(model.id);
found.said = (await client.chat.completions.create(say("Hello"))).choices[0].message.content;
found.streamed = "";
for await (const chunk of await client.chat.completions.create(say("Hello", { stream: true })))
  found.streamed += chunk.choices[0].delta.content ?? "";
found.completed = (await client.completions.create({ model: "echo", prompt: "One two", max_tokens: 3 })).usage;
const whole = await client.chat.completions.stream(say(call, { tools })).finalChatCompletion();
found.calls = whole.choices[0].message.tool_calls.map((one) => [one.function.name, one.function.arguments]);
const ask = (text, more) => ({ model: "echo", input: text + stop, stop: [stop], max_output_tokens: 500, ...more });
found.responded = (await client.responses.create(ask("Hello"))).output_text;
const following = client.responses.stream(ask(call, {
  tools: [{ type: "function", name: "weather", parameters: { type: "object", properties: {} }, strict: false }] }));
found.numbers = [];
for await (const event of following) found.numbers.push(event.sequence_number);
found.items = (await following.finalResponse()).output.map((item) => [item.type, item.name, item.arguments]);
found.unknown = await refused(client.chat.completions.create(say("x", { model: "other" })));
found.bad = await refused(client.chat.completions.create(say("x", { temperature: -1 })));
const left = await client.chat.completions.create(
  say("word ", { stop: undefined, max_tokens: 400, ignore_eos: true, stream: true }));
for await (const chunk of left) {
  if (chunk.choices[0].delta.content) break;
}
left.controller.abort();
console.log(JSON.stringify(found));
