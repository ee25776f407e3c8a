// Runs the book's library: {id, name, inputs, how} in, {id, answer} or {id, failed} out; how: a value to explain, "" for their names. Started by calculators.js on the first input.
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
def call(name, inputs, how=None):
    if how is None:
        return json.dumps(calculators.answer(name, json.loads(inputs)), allow_nan=False)
    from workloads_book.calculators.how import how as explained  # how.how
    return json.dumps(explained(name, json.loads(inputs), how))
call`);
})();

onmessage = async ({ data: { id, name, inputs, how } }) => {
  try {
    const call = await Promise.race([ready, broken]);
    postMessage({ id, answer: JSON.parse(call(name, JSON.stringify(inputs), how)) });
  } catch (error) {
    postMessage({ id, failed: String(error.message ?? error).trim().split("\n").pop() });
  }
};
