// The ai package with its OpenAI (chat) and Anthropic providers: generateText and streamText, as an agent of several steps.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { SCHEMAS, main, run } from "./agent.mjs";

function modelOf(place, one) {
  const settings = { baseURL: `${place.url}/v1`, apiKey: place.key };
  return place.provider === "openai" ? createOpenAI(settings).chat(one.model) : createAnthropic(settings)(one.model);
}

async function streamed(request) {
  const failed = [];
  const result = streamText({ ...request, onError: ({ error }) => failed.push(error) });
  let text = "";
  for await (const part of result.textStream) text += part;
  if (failed.length) throw failed[0];
  const said = await result.text;
  if (!text.endsWith(said)) throw new Error(`the stream says ${text}, the result ${said}`);
  return { text: said, stop: await result.finishReason, messages: await result.responseMessages };
}

async function whole(request) {
  const result = await generateText(request);
  return { text: result.text, stop: result.finishReason, messages: result.responseMessages };
}

await main(async (place, one, words, history) => {
  history.push({ role: "user", content: words });
  const calls = [];
  const tools = Object.fromEntries(
    Object.entries(SCHEMAS).map(([name, schema]) => [
      name,
      tool({ description: `the tool ${name}`, inputSchema: jsonSchema(schema), execute: async (args) => run(calls, name, args) }),
    ]),
  );
  const request = { model: modelOf(place, one), messages: history, tools, stopWhen: stepCountIs(8), maxRetries: 0 };
  const said = await (one.mode === "stream" ? streamed : whole)(request);
  history.push(...said.messages);
  return { text: said.text, calls, stop: said.stop };
});
