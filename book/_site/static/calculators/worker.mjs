// Runs the book's library: {id, what, name, inputs, other} in, {id, answer} or {id, failed} out; what: "answer", "more", "how" (other: a value to explain, "" for their names) or "compared" (other: the second inputs). Started by calculators.js on the first input.
import { loadPyodide } from "../../lite/static/pyodide/pyodide.mjs";

// Pyodide waits for ever where one of its files does not come or is damaged, and may say so to the console alone: so what it asks for is watched.
let fail;
const broken = new Promise((_, reject) => { fail = reject; });
broken.catch(() => {});
self.onunhandledrejection = (event) => fail(event.reason);
for (const [owner, name] of [[self, "fetch"], [WebAssembly, "instantiate"], [WebAssembly, "instantiateStreaming"]]) {
  const plain = owner[name].bind(owner);
  owner[name] = (...what) => { const coming = plain(...what); coming.catch(fail); return coming; };
}

const ready = (async () => {
  const library = fetch(new URL("lib.zip" + self.location.search, self.location.href));
  const python = await loadPyodide({ indexURL: new URL("../../lite/static/pyodide/", self.location.href).href });
  const answer = await library;
  if (!answer.ok) throw new Error(`lib.zip: ${answer.status}`);
  python.unpackArchive(await answer.arrayBuffer(), "zip", { extractDir: "/library" });
  return python.runPython(`
import json, sys
sys.path.insert(0, "/library")
from workloads_book import calculators
from workloads_book.calculators import forms
def call(what, name, inputs, other):
    given = json.loads(inputs)
    if what == "how":
        from workloads_book.calculators.how import how as explained  # how.how
        return json.dumps(explained(name, given, other))
    if what == "more":
        return json.dumps({"html": forms.CALCULATORS[name].rest(given)})
    if what == "compared":
        return json.dumps(forms.compared(name, given, json.loads(other)))
    return json.dumps(calculators.answer(name, given), allow_nan=False)
call`);
})();

onmessage = async ({ data: { id, what, name, inputs, other } }) => {
  try {
    const call = await Promise.race([ready, broken]);
    postMessage({ id, answer: JSON.parse(call(what, name, JSON.stringify(inputs), typeof other == "object" ? JSON.stringify(other) : other)) });
  } catch (error) {
    postMessage({ id, failed: String(error.message ?? error).trim().split("\n").pop() });
  }
};
