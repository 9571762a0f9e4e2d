// The official openai package: one request at a time (whole, stream) and its own tool loop (runner, runner-stream).
import OpenAI from "openai";
import { SCHEMAS, loop, main, run } from "./agent.mjs";

const tools = Object.entries(SCHEMAS).map(([name, parameters]) => ({
  type: "function",
  function: { name, description: `the tool ${name}`, parameters },
}));

async function answer(client, one, request) {
  if (one.mode === "whole") return await client.chat.completions.create(request);
  const stream = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
  let text = "";
  stream.on("content.delta", ({ delta }) => (text += delta));
  const completion = await stream.finalChatCompletion();
  const whole = completion.choices[0].message.content ?? "";
  if (text !== whole) throw new Error(`the deltas say ${text}, the message ${whole}`);
  if (!completion.usage?.total_tokens) throw new Error("no usage");
  return completion;
}

async function asked(client, one, words, history) {
  history.push({ role: "user", content: words });
  const calls = [];
  return await loop(async () => {
    const completion = await answer(client, one, { model: one.model, messages: history, tools });
    const { message, finish_reason: stop } = completion.choices[0];
    history.push(message);
    for (const call of message.tool_calls ?? []) {
      const content = run(calls, call.function.name, JSON.parse(call.function.arguments));
      history.push({ role: "tool", tool_call_id: call.id, content });
    }
    return message.tool_calls?.length ? null : { text: message.content, calls, stop };
  });
}

async function ran(client, one, words, history) {
  history.push({ role: "user", content: words });
  const calls = [];
  const own = tools.map(({ type, function: f }) => ({
    type,
    function: { ...f, parse: JSON.parse, function: (args) => run(calls, f.name, args) },
  }));
  const runner = client.chat.completions.runTools({
    model: one.model,
    messages: [...history],
    tools: own,
    stream: one.mode === "runner-stream",
  });
  const text = await runner.finalContent();
  const completion = await runner.finalChatCompletion();
  history.splice(0, history.length, ...runner.messages);
  return { text, calls, stop: completion.choices[0].finish_reason };
}

await main((place, one, words, history) => {
  const client = new OpenAI({ baseURL: `${place.url}/v1`, apiKey: place.key, maxRetries: 0, timeout: 20_000 });
  return (one.mode.startsWith("runner") ? ran : asked)(client, one, words, history);
});
