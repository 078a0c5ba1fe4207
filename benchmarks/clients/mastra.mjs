// A whole and a streamed answer, an object by its schema, and a tool that Mastra runs before the answer; run with an
// engine's URL and model.
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";

const [url, model] = process.argv.slice(2);
const cities = ["Kyoto", "Paris", "Tokyo"];
const fields = z.object({ city: z.enum(cities) });
const called = [];
const weather = createTool({
  id: "weather",
  description: "The weather in a city",
  inputSchema: fields,
  execute: async ({ city }) => (called.push(city), { weather: "rain" }),
});
const guide = (tools) =>
  new Agent({
    id: "guide",
    name: "guide",
    instructions: "Answer with one short sentence.",
    model: { providerId: "engine", modelId: model, url: `${url}/v1`, apiKey: "none" },
    tools,
  });
const settings = { modelSettings: { temperature: 0, maxOutputTokens: 60, maxRetries: 0 } };
const check = (holds, found) => {
  if (!holds) throw new Error(JSON.stringify(found));
};

const ask = "What is the capital of Japan?";
const whole = (await guide({}).generate(ask, settings)).text;
let pieces = "";
for await (const piece of (await guide({}).stream(ask, settings)).textStream) pieces += piece;
check(whole.includes("Tokyo") && pieces === whole, [whole, pieces]);
const { object } = await guide({}).generate(ask, { ...settings, structuredOutput: { schema: fields } });
check(cities.includes(object.city), object);

const loop = {
  ...settings,
  maxSteps: 2,
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : { type: "tool", toolName: "weather" } }),
};
for (const way of ["generate", "stream"]) {
  const answer = await guide({ weather })[way]("What is the weather in Tokyo?", loop);
  const [steps, text] = [await answer.steps, await answer.text];
  check(steps.length === 2 && steps[0].toolCalls.length === 1 && text.trim(), [steps.length, text]);
}
check(called.join() === "Tokyo,Tokyo", called);
console.log(`2 answers, ${JSON.stringify(object)}, a tool for ${called}`);
