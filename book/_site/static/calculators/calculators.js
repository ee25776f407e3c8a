/* Calculators: nothing is fetched before the first input; then one worker runs the book's library for all of them. No formula is here. */
(() => {
  const forms = [...document.querySelectorAll("form.wl-calculator")];
  const here = new URL(".", document.currentScript.src);
  if (!forms.length || !location.protocol.startsWith("http") || !window.Worker) return;

  let worker, asked = 0;
  const waiting = new Map();
  function ask(name, inputs, version, how) {
    if (!worker) {
      const started = worker = new Worker(new URL(`worker.mjs?v=${version}`, here), { type: "module" });
      const fail = (text) => {                                // the next change starts anew
        if (worker != started) return;
        worker.terminate(); worker = null;
        waiting.forEach((done) => done({ failed: text })); waiting.clear();
      };
      worker.onmessage = ({ data }) => { if (data.failed) return fail(data.failed); waiting.get(data.id)?.(data); waiting.delete(data.id); };
      worker.onerror = (event) => fail(event.message || "the worker could not be loaded");
    }
    return new Promise((done) => { waiting.set(++asked, done); worker.postMessage({ id: asked, name, inputs, how }); });
  }

  const fields = (form) => [...form.querySelectorAll("[name]")];
  const read = (field) => (field.type == "checkbox" ? String(field.checked) : field.value);
  const write = (field, text) => { if (field.type == "checkbox") field.checked = text == "true"; else field.value = text; };
  const changed = (form) => fields(form).filter((f) => read(f) != f.dataset.default).map((f) => [f.name, read(f)]);

  function slide(slider) {                                    // slider -> text field
    const text = slider.dataset.stops.split(" ")[slider.value];
    slider.setAttribute("aria-valuetext", text);
    slider.form.elements[slider.dataset.for].value = text;
  }
  function follow(form, taken = {}) {                         // text fields -> sliders; taken: numbers that Python read, by field
    for (const slider of form.querySelectorAll("[data-stops]")) {
      const name = slider.dataset.for, stops = slider.dataset.stops.split(" ").map(Number);
      const value = Number(taken[name] ?? form.elements[name].value);
      if (Number.isNaN(value)) continue;                      // "8k": where it stands until Python has read it
      const at = stops.findIndex((s) => s >= value);
      slider.value = at < 0 ? stops.length - 1 : at > 0 && value - stops[at - 1] < stops[at] - value ? at - 1 : at;
      slider.setAttribute("aria-valuetext", form.elements[slider.dataset.for].value);
    }
  }
  function keepInAddress(form) {
    const url = new URL(location.href), pairs = changed(form);
    url.search = pairs.length ? new URLSearchParams([["calculator", form.dataset.name], ...pairs]) : "";
    if (pairs.length) url.hash = form.id;
    history.replaceState(history.state, "", url);
  }
  function complain(form, message, name) {
    for (const place of form.querySelectorAll(".wl-error")) { place.hidden = true; place.textContent = ""; }
    for (const field of fields(form)) field.removeAttribute("aria-invalid");
    form.classList.toggle("wl-stale", Boolean(message));
    if (!message) return;
    const place = document.getElementById(name ? `${form.id}-${name}-error` : `${form.id}-error`);
    place.textContent = message;
    place.hidden = false;
    if (name) {
      form.elements[name].setAttribute("aria-invalid", "true");
      const group = form.elements[name].closest("details");
      if (group) group.open = true;
    }
  }

  for (const form of forms) {
    const part = (selector) => form.querySelector(selector);
    const text = part(".wl-text"), note = part(".wl-note");
    const how = part(".wl-explained"), lists = part(".wl-lists");
    const given = () => Object.fromEntries(fields(form).map((f) => [f.name, read(f)]));
    let busy = false, again = false, changes = 0;

    async function explain() {                                // value by value, so that a change of input need not wait for all
      const inputs = given(), now = changes, question = (value) => ask(form.dataset.name, inputs, form.dataset.version, value);
      const wait = document.createElement("p");
      wait.textContent = "Writing it down …";
      lists.replaceChildren(wait);
      const { answer, failed } = await question("");
      for (const value of answer?.values ?? []) {
        if (now != changes) return;
        const { answer: found } = await question(value);
        if (now == changes) wait.insertAdjacentHTML("beforebegin", found?.html ?? "");
      }
      if (now != changes) return;
      if (lists.children.length > 1) wait.remove();
      else wait.textContent = failed ? `Python did not run here: ${failed}` : `No result: ${answer.error ?? "no input decides it"}.`;
    }
    async function update() {
      keepInAddress(form);
      changes++; how.open = false; lists.replaceChildren();   // it explained the inputs before
      if (busy) { again = true; return; }
      busy = true;
      if (!worker) { note.textContent = "Starting Python in this page (8 MB, once) …"; form.setAttribute("aria-busy", "true"); }
      const begin = performance.now();
      const inputs = given();
      const { answer, failed } = await ask(form.dataset.name, inputs, form.dataset.version);
      busy = false;
      if (again) { again = false; update(); return; }
      form.removeAttribute("aria-busy");
      if (failed) {
        complain(form, `Python did not run here: ${failed}`);
        note.textContent = "The result above is the one drawn when the book was built, or the last one computed. A change of an input tries again.";
      } else if (answer.error) {
        complain(form, answer.error, answer.field);
        text.textContent = `No result: ${answer.error}.`;
        note.textContent = "Change an input, and the book's own library computes the result in this page.";
      } else {
        complain(form);
        if (text.textContent != answer.text) text.textContent = answer.text;
        part(".wl-result").innerHTML = answer.html;
        part(".wl-code code").textContent = answer.code;
        const read = Object.entries(answer.taken).map(([name, value]) => [inputs[name].trim(), Number(value).toLocaleString("en")])
          .filter(([written, plain]) => written != plain).map((pair) => pair.join(" as "));
        note.textContent = `Computed in this page by the book's library in ${Math.max(1, Math.round(performance.now() - begin))} ms.`
          + (read.length ? ` Read: ${read.join(", ")}.` : "");
        follow(form, answer.taken);
      }
      form.dataset.shown = String(Number(form.dataset.shown ?? 0) + 1);
    }
    function fill(pairs) {
      for (const field of fields(form)) write(field, pairs[field.name] ?? field.dataset.default);
      follow(form);
      update();
    }
    async function copy(what, button) {
      const before = button.textContent;
      try { await navigator.clipboard.writeText(what); button.textContent = "Copied"; } catch { button.textContent = "Not allowed to copy"; }
      setTimeout(() => { button.textContent = before; }, 1500);
    }

    how.addEventListener("toggle", () => { if (how.open && !lists.children.length) explain(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", (event) => {
      if (event.target.dataset.stops) slide(event.target); else follow(form);
      update();
    });
    form.addEventListener("click", ({ target }) => {
      if (target.dataset.preset) fill(JSON.parse(target.dataset.preset));
      if ("reset" in target.dataset) fill({});
      if ("copy" in target.dataset) copy(`# ${part(".wl-pip").textContent}\n${part(".wl-code code").textContent}`, target);
      if ("link" in target.dataset) { keepInAddress(form); copy(location.href, target); }
    });
    for (const hidden of form.querySelectorAll(".wl-buttons")) hidden.hidden = false;
    part("fieldset").disabled = false;
    note.textContent = "Change an input, and the book's own library computes the result in this page.";

    const asked = new URLSearchParams(location.search);
    if (asked.get("calculator") == form.dataset.name) { fill(Object.fromEntries(asked)); form.scrollIntoView(); }
  }
})();
