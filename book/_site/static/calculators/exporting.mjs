// A result as a file: tables as CSV, drawings as SVG or PNG with the colours of the page in them. Loaded on the first press of a button.
const KEPT = ["fill", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "font-size", "font-family"];

function give(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const line = (cells) => [...cells].map((c) => cell(c.textContent ?? c)).join(",");

function drawn(svg) {                                         // a copy that looks the same without the page's style sheet
  const copy = svg.cloneNode(true), [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const pairs = [[svg, copy], ...[...svg.querySelectorAll("*")].map((e, k) => [e, copy.querySelectorAll("*")[k]])];
  for (const [from, to] of pairs) {
    const style = getComputedStyle(from);
    for (const name of KEPT) to.style.setProperty(name, style.getPropertyValue(name));
  }
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width); copy.setAttribute("height", height);
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}
async function picture({ text, width, height }) {
  const image = Object.assign(new Image(), { src: `data:image/svg+xml,${encodeURIComponent(text)}` });
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => { canvas.toBlob(done, "image/png"); });
}

export function csv(form, inputs) {
  const rows = [["question", form.querySelector(".wl-question").textContent], ["answer", form.querySelector(".wl-text").textContent], ...inputs].map(line);
  for (const table of form.querySelectorAll(".wl-result table")) rows.push("", ...[...table.rows].map((row) => line(row.cells)));
  give(new Blob([`${rows.join("\n")}\n`], { type: "text/csv" }), `${form.dataset.name}.csv`);
}
export async function figures(form, kind) {
  for (const [k, svg] of [...form.querySelectorAll(".wl-result figure svg")].entries()) {
    const found = drawn(svg), name = `${form.dataset.name}-${k + 1}.${kind}`;
    give(kind == "svg" ? new Blob([found.text], { type: "image/svg+xml" }) : await picture(found), name);
  }
}
