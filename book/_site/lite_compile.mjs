// node lite_compile.mjs FOLDER < settings.json
// Start the browser's Python from FOLDER (Pyodide's files and wheels), import what every notebook imports, and put those modules into
// the archives as byte code: the reader's browser then need not compile them at each start. Tests of the packages are left out.
// settings: {lock: a lock file, packages: [names to load], imports: a Python text, skip: [archives to leave alone]}
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

process.on("uncaughtException", (error) => { console.error(String(error.message ?? error)); process.exit(1); });

const folder = process.argv[2] + "/";
const settings = JSON.parse(readFileSync(0, "utf8"));
const { loadPyodide } = await import(pathToFileURL(folder + "pyodide.mjs"));
const python = await loadPyodide({ indexURL: folder, packageBaseUrl: folder, lockFileContents: JSON.stringify(settings.lock) });
await python.loadPackage(settings.packages, { messageCallback() {} });
python.mountNodeFS("/archives", folder);
python.globals.set("imports", settings.imports);
python.globals.set("skip", python.toPy(settings.skip));
python.runPython(`
import importlib.util, marshal, os, sys, warnings, zipfile

out, err = sys.stdout, sys.stderr
exec(imports, {})
sys.stdout, sys.stderr = out, err
used = {module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
warnings.simplefilter("ignore")
unchecked = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
site, library = next(p for p in sys.path if p.endswith("site-packages")), next(p for p in sys.path if p.endswith(".zip"))
for name in sorted(os.listdir("/archives")):
    if not name.endswith((".whl", ".zip")) or name in skip:
        continue
    path, place = f"/archives/{name}", library if name.endswith(".zip") else site
    with zipfile.ZipFile(path) as archive:
        files = {i.filename: archive.read(i) for i in archive.infolist() if not i.is_dir() and "/tests/" not in i.filename}
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED) as archive:
        for file, data in files.items():
            if f"{place}/{file}" in used and file.endswith(".py"):
                code = compile(data, f"{place}/{file}", "exec", dont_inherit=True)
                file, data = file + "c", unchecked + marshal.dumps(code)
            archive.writestr(zipfile.ZipInfo(file, (2000, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    os.replace(path + ".new", path)
`);
