// A whole and a streamed answer, and loops with tools, through OpenAI's and Vercel's packages; run with an engine's URL
// and model.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

const [url, model] = process.argv.slice(2);
const ask = "What is the capital of Japan?";
const messages = [{ role: "user", content: [{ type: "text", text: ask }] }];
const told = (name, texts) => {
  if (!texts.every((text) => text.includes("Tokyo"))) throw new Error(`${name}: ${JSON.stringify(texts)}`);
  console.log(`${name}: ${texts.length} answers`);
};

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const whole = await openai.chat.completions.create({ model, messages, temperature: 0, store: false, metadata: {} });
let streamed = "";
const options = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await openai.chat.completions.create({ model, messages, temperature: 0, ...options })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
told("openai", [whole.choices[0].message.content, streamed]);

const city = { type: "string", enum: ["Kyoto", "Paris", "Tokyo"] };
const parameters = { type: "object", properties: { city }, required: ["city"], additionalProperties: false };
const results = { weather: "rain", population: "14000000" };
const names = Object.keys(results);
const asked = "What is the weather in Tokyo, and how many live there?";
const tools = names.map((name) => ({ type: "function", function: { name, parameters } }));
const written = [];
for (const streams of [false, true]) {
  const history = [{ role: "user", content: asked }];
  const next = async (tool_choice) => {
    const body = { model, messages: history, tools, tool_choice, temperature: 0, max_tokens: 100 };
    const answer = streams
      ? await openai.chat.completions.stream(body).finalChatCompletion()
      : await openai.chat.completions.create(body);
    return answer.choices[0].message;
  };
  for (const name of names) {
    const message = await next({ type: "function", function: { name } });
    const [call] = message.tool_calls;
    if (call.function.name !== name) throw new Error(`openai called ${call.function.name}, not ${name}`);
    written.push(JSON.parse(call.function.arguments).city);
    history.push(message, { role: "tool", tool_call_id: call.id, content: results[name] });
  }
  const last = await next("none");
  if (!last.content || last.tool_calls?.length) throw new Error(`openai: ${JSON.stringify(last)}`);
}
told("openai with tools", written);

const provider = createOpenAICompatible({ name: "engine", baseURL: `${url}/v1`, includeUsage: true });
const vercel = { model: provider(model), prompt: ask, temperature: 0 };
const text = (await generateText(vercel)).text;
let pieces = "";
for await (const piece of streamText(vercel).textStream) pieces += piece;
told("ai", [text, pieces]);

const called = [];
const run = (name) => ({ execute: ({ city }) => (called.push(city), results[name]) });
const loop = {
  ...vercel,
  prompt: asked,
  maxOutputTokens: 100,
  tools: Object.fromEntries(names.map((name) => [name, tool({ inputSchema: jsonSchema(parameters), ...run(name) })])),
  stopWhen: stepCountIs(names.length + 1),
  prepareStep: ({ stepNumber }) => ({
    toolChoice: stepNumber < names.length ? { type: "tool", toolName: names[stepNumber] } : "none",
  }),
};
for (const steps of [(await generateText(loop)).steps, await streamText(loop).steps]) {
  const order = steps.flatMap((step) => step.toolCalls.map((call) => call.toolName));
  if (order.join() !== names.join() || !steps.at(-1).text) throw new Error(`ai: ${JSON.stringify(steps)}`);
}
told("ai with tools", called);
