// node live_python.mjs FOLDER < {packages, notebooks: {path: [source, ...]}}: run notebooks in the site's Python,
// each in a fresh namespace and with the library loaded anew, as in a kernel of its own. Out: {path: [outputs of a cell, ...]}, up to a cell that fails.
import { readFileSync, readdirSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = process.argv[2] + "/", { packages, notebooks } = JSON.parse(readFileSync(0, "utf8"));
const { loadPyodide } = await import(pathToFileURL(folder + "pyodide.mjs"));
const lock = readFileSync(folder + readdirSync(folder).find((name) => name.startsWith("lock-")), "utf8");
const quiet = { stdout() {}, stderr() {} };
const python = await loadPyodide({ indexURL: folder, packageBaseUrl: folder, lockFileContents: lock, ...quiet });
await python.loadPackage(packages, { messageCallback() {}, errorCallback() {} });
const run = python.runPython(`
import pyodide_kernel, sys

kernel, outputs = pyodide_kernel.kernel_instance, []
shell = kernel.interpreter
shell.display_pub.display_data_callback = lambda data, *_: outputs.append({"output_type": "display_data", "data": dict(data)})
shell.displayhook.publish_execution_result = lambda count, data, *_: outputs.append({"output_type": "execute_result", "data": dict(data)})

def write(name, text):
    if outputs and outputs[-1].get("name") == name:
        outputs[-1]["text"] += text
    else:
        outputs.append({"output_type": "stream", "name": name, "text": text})

for stream in (pyodide_kernel.stdout_stream, pyodide_kernel.stderr_stream):
    stream.publish_stream_callback = write
kernel._parent_header = {"header": {}}

async def run(sources):
    import json
    shell.reset(new_session=True)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("workloads", "workloads_book")]:
        del sys.modules[name]  # they count figures and tables, and know which checks have been shown
    found = []
    for source in sources:
        outputs.clear()
        result = await kernel.run(source)
        sys.stdout.flush()
        if result["status"] == "error":
            found.append([{"output_type": "error", "ename": result["ename"], "evalue": result["evalue"]}])
            break
        found.append(list(outputs))
    return json.dumps(found)

run`);
const found = {};
for (const [path, sources] of Object.entries(notebooks)) found[path] = JSON.parse(await run(python.toPy(sources)));
process.stdout.write(JSON.stringify(found));
