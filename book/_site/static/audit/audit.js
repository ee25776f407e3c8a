// The filter of the audit: hides the rows that do not match, and sections without a match; says how many are left.
const form = document.querySelector("form.wl-filter");
const sections = [...document.querySelectorAll("table.wl-audit")].map((table) => ({
  place: table.closest("section"),
  name: table.caption.textContent.split(":")[0],
  rows: [...table.tBodies[0].rows].map((row) => ({
    row,
    text: row.textContent.toLowerCase(),
    role: row.cells[0].querySelector("span").lastChild.textContent.trim(),
    verdict: row.cells[3].textContent,
  })),
}));
const total = sections.reduce((sum, section) => sum + section.rows.length, 0);

function show() {
  const wanted = Object.fromEntries(new FormData(form));
  const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
  let hits = 0;
  for (const { place, name, rows } of sections) {
    let here = 0;
    for (const { row, text, role, verdict } of rows) {
      const fits = (!wanted.section || name == wanted.section) && (!wanted.role || role == wanted.role)
        && (!wanted.verdict || verdict == wanted.verdict) && words.every((word) => text.includes(word));
      row.hidden = !fits;
      here += fits;
    }
    place.hidden = here == 0;
    hits += here;
  }
  document.documentElement.toggleAttribute("data-wl-filtered", hits != total);           // paper then shows the rows found
  form.querySelector("[role=status]").textContent = hits == total ? `All ${total} rows.` : `${hits} of ${total} rows.`;
}

form.hidden = false;
form.addEventListener("input", show);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(show));
show();
