// What the quick starts of the clients do beside chat: structured answers, forced calls, the list of models; and common mistakes.
//
// The script gets one argument, {url, key, words, cases: [{name, client, way, model}]}, and prints one line of JSON for each case:
// {name, got} or {name, error, status}.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { generateObject, generateText, Output, streamObject, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false;
const Event = z.object({
  name: z.string(),
  day: z.enum(["Friday", "Saturday"]),
  guests: z.array(z.string()),
  place: z.string().nullable(),
});
const place = JSON.parse(process.argv[2]);
const messages = [{ role: "user", content: place.words }];
const fast = { maxRetries: 0, timeout: 20_000 };

async function models(client) {
  const listed = [];
  for await (const one of client.models.list()) listed.push(one.id);
  return { listed, retrieved: (await client.models.retrieve("demo")).id };
}

async function openai({ way, model }) {
  const baseURL = way === "base" ? place.url : `${place.url}/v1`;
  const client = new OpenAI({ baseURL, apiKey: way === "key" ? "sk-wrong" : place.key, ...fast });
  const request = { model, messages };
  if (way === "models") return await models(client);
  if (way === "forced") {
    const forced = { tools: [zodFunction({ name: "event", parameters: Event })], tool_choice: { type: "function", function: { name: "event" } } };
    return (await client.chat.completions.parse({ ...request, ...forced })).choices[0].message.tool_calls[0].function.parsed_arguments;
  }
  request.response_format = zodResponseFormat(Event, "event");
  const completion = way === "stream"
    ? await client.chat.completions.stream(request).finalChatCompletion()
    : await client.chat.completions.parse(request);
  return completion.choices[0].message.parsed;
}

async function anthropic({ way, model }) {
  const baseURL = way === "base" ? `${place.url}/v1` : place.url;
  const client = new Anthropic({ baseURL, apiKey: way === "key" ? "sk-wrong" : place.key, ...fast });
  const request = { model, messages, max_tokens: 1000 };
  if (way === "models") return await models(client);
  if (way === "forced") {
    const tools = [{ name: "event", input_schema: zodOutputFormat(Event).schema }];
    const message = await client.messages.create({ ...request, tools, tool_choice: { type: "tool", name: "event" } });
    return message.content.find((block) => block.type === "tool_use").input;
  }
  request.output_config = { format: zodOutputFormat(Event) };
  const message = way === "stream" ? await client.messages.stream(request).finalMessage() : await client.messages.parse(request);
  return message.parsed_output;
}

async function vercel(provider, way) {
  const model = provider(way);
  const request = { model, prompt: place.words, maxRetries: 0 };
  switch (way) {
    case "generateObject":
      return (await generateObject({ ...request, schema: Event })).object;
    case "streamObject": {
      const result = streamObject({ ...request, schema: Event });
      for await (const _ of result.partialObjectStream);
      return await result.object;
    }
    case "output":
      return (await generateText({ ...request, output: Output.object({ schema: Event }) })).output;
    case "output-stream": {
      const result = streamText({ ...request, output: Output.object({ schema: Event }) });
      for await (const _ of result.partialOutputStream);
      return await result.output;
    }
    case "forced": {
      const tools = { event: tool({ description: "an event", inputSchema: Event }) };
      return (await generateText({ ...request, tools, toolChoice: { type: "tool", toolName: "event" } })).toolCalls[0].input;
    }
    default:
      return (await generateText(request)).text;
  }
}

const clients = {
  openai,
  anthropic,
  "vercel-openai": (one) =>
    vercel((way) => {
      const made = createOpenAI(settings(way));
      return way === "responses" ? made(one.model) : made.chat(one.model);
    }, one.way),
  "vercel-anthropic": (one) => vercel((way) => createAnthropic(settings(way))(one.model), one.way),
};

function settings(way) {
  return { baseURL: way === "base" ? place.url : `${place.url}/v1`, apiKey: way === "key" ? "sk-wrong" : place.key };
}

for (const one of place.cases) {
  const said = { name: one.name };
  try {
    said.got = await clients[one.client](one);
  } catch (error) {
    said.status = error?.status ?? error?.statusCode;
    said.error = String(error?.stack ?? error);
  }
  console.log(JSON.stringify(said));
}
