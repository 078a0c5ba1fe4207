// A whole and a streamed answer through OpenAI's and Vercel's packages; run with an engine's URL and model.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
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

const provider = createOpenAICompatible({ name: "engine", baseURL: `${url}/v1`, includeUsage: true });
const vercel = { model: provider(model), prompt: ask, temperature: 0 };
const text = (await generateText(vercel)).text;
let pieces = "";
for await (const piece of streamText(vercel).textStream) pieces += piece;
told("ai", [text, pieces]);
