// The official @anthropic-ai/sdk package: one request at a time (whole, stream) and its own tool loop (runner, runner-stream).
import Anthropic from "@anthropic-ai/sdk";
import { SCHEMAS, loop, main, run } from "./agent.mjs";

const tools = Object.entries(SCHEMAS).map(([name, input_schema]) => ({ name, description: `the tool ${name}`, input_schema }));
const textOf = (message) => message.content.filter((b) => b.type === "text").map((b) => b.text).join("");

async function answer(client, one, request) {
  if (one.mode === "whole") return await client.messages.create(request);
  const stream = client.messages.stream(request);
  let text = "";
  stream.on("text", (delta) => (text += delta));
  const message = await stream.finalMessage();
  if (text !== textOf(message)) throw new Error(`the deltas say ${text}, the message ${textOf(message)}`);
  if (!message.usage.output_tokens) throw new Error("no usage");
  return message;
}

async function asked(client, one, words, history) {
  history.push({ role: "user", content: words });
  const calls = [];
  return await loop(async () => {
    const message = await answer(client, one, { model: one.model, max_tokens: 1000, messages: history, tools });
    history.push({ role: "assistant", content: message.content });
    const content = message.content
      .filter((block) => block.type === "tool_use")
      .map((block) => ({ type: "tool_result", tool_use_id: block.id, content: run(calls, block.name, block.input) }));
    if (content.length) history.push({ role: "user", content });
    return content.length ? null : { text: textOf(message), calls, stop: message.stop_reason };
  });
}

async function ran(client, one, words, history) {
  history.push({ role: "user", content: words });
  const calls = [];
  const own = tools.map((tool) => ({ ...tool, type: "custom", run: (args) => run(calls, tool.name, args), parse: (args) => args }));
  const runner = client.beta.messages.toolRunner({
    model: one.model,
    max_tokens: 1000,
    messages: [...history],
    tools: own,
    stream: one.mode === "runner-stream",
  });
  const message = await runner.runUntilDone();
  history.splice(0, history.length, ...runner.params.messages);
  return { text: textOf(message), calls, stop: message.stop_reason };
}

await main((place, one, words, history) => {
  const client = new Anthropic({ baseURL: place.url, apiKey: place.key, maxRetries: 0, timeout: 20_000 });
  return (one.mode.startsWith("runner") ? ran : asked)(client, one, words, history);
});
