// node pyodide_parity.mjs PYODIDE_FOLDER LIBRARY_FOLDER < {calculator: [inputs, ...]} : answers of the library in Pyodide, as JSON
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const [pyodide, library] = process.argv.slice(2);
const cases = await text(process.stdin);
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`).href);
const python = await loadPyodide();
python.mountNodeFS("/library", library);
python.globals.set("cases", cases);
console.log(python.runPython(`
import json, sys
sys.path.insert(0, "/library")
sys.dont_write_bytecode = True
from workloads_book import calculators
json.dumps({name: [calculators.answer(name, given) for given in found] for name, found in json.loads(cases).items()}, allow_nan=False)`));
