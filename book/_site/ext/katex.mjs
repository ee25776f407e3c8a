// One line of JSON in ({tex, display}), one line of JSON out ({html} or {error}). Started once by maths.py.
import { createInterface } from "node:readline";
import katex from "../node_modules/katex/dist/katex.mjs";

for await (const line of createInterface({ input: process.stdin })) {
  const { tex, display } = JSON.parse(line);
  let answer;
  try {
    answer = { html: katex.renderToString(tex, { displayMode: display, output: "htmlAndMathml", strict: "error", throwOnError: true }) };
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
