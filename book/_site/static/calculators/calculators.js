/* Calculators: nothing is fetched before the first input; then one worker runs the book's library for all of them. No formula is here. */
(() => {
  const forms = [...document.querySelectorAll("form.wl-calculator")];
  const here = new URL(".", document.currentScript.src);

  // tabs work without Python, too: what is chosen of model and machine goes with the reader
  const tabs = [...document.querySelectorAll('[role="tab"][id^="tab-"]')], bar = document.querySelector(".wl-tabs");
  const shared = bar ? bar.dataset.shared.split(" ") : [], formOf = (tab) => document.getElementById(`calc-${tab.id.slice(4)}`);
  const inTabs = (form) => tabs.some((tab) => formOf(tab) == form);
  const shownTab = () => tabs.find((tab) => tab.getAttribute("aria-selected") == "true");
  function select(tab) {
    const before = shownTab();
    for (const one of tabs) {
      one.setAttribute("aria-selected", String(one == tab));
      one.tabIndex = one == tab ? 0 : -1;
      document.getElementById(one.getAttribute("aria-controls")).hidden = one != tab;
    }
    return before;
  }
  for (const tab of tabs) {
    tab.addEventListener("click", () => { const before = select(tab); if (before != tab) carry(formOf(before), formOf(tab)); });
    tab.addEventListener("keydown", ({ key }) => {
      const at = tabs.indexOf(tab), to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[key];
      if (to == undefined) return;
      tabs.at(to % tabs.length).focus();
      tabs.at(to % tabs.length).click();
    });
  }
  let carry = () => {};
  if (!forms.length || !location.protocol.startsWith("http") || !window.Worker) return;

  let worker, asked = 0;
  const waiting = new Map();
  function ask(what, form, inputs, other) {
    if (!worker) {
      const started = worker = new Worker(new URL(`worker.mjs?v=${form.dataset.version}`, here), { type: "module" });
      const fail = (text) => {                                // the next change starts anew
        if (worker != started) return;
        worker.terminate(); worker = null;
        waiting.forEach((done) => done({ failed: text })); waiting.clear();
      };
      worker.onmessage = ({ data }) => { if (data.failed) return fail(data.failed); waiting.get(data.id)?.(data); waiting.delete(data.id); };
      worker.onerror = (event) => fail(event.message || "the worker could not be loaded");
    }
    return new Promise((done) => { waiting.set(++asked, done); worker.postMessage({ id: asked, what, name: form.dataset.name, inputs, other }); });
  }

  const fields = (form) => [...form.querySelectorAll("[name]")];
  const read = (field) => (field.type == "checkbox" ? String(field.checked) : field.value);
  const write = (field, text) => { if (field.type == "checkbox") field.checked = text == "true"; else field.value = text; };
  const given = (form) => Object.fromEntries(fields(form).map((f) => [f.name, read(f)]));
  const kept = new Map();                                     // text of a file as the library keeps it -> what stands for it in an address
  const full = (short) => [...kept].find((pair) => short && pair[1] == short)?.[0] ?? short;
  const brief = (text) => kept.get(text) ?? (text.startsWith("{") ? "" : text);
  const changed = (form, values = given(form)) => fields(form).filter((f) => values[f.name] != f.dataset.default)
    .map((f) => [f.name, f.type == "textarea" ? brief(values[f.name]) : values[f.name]]).filter(([name, text]) => text || form.elements[name].type != "textarea");

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

  // the address: a section for each calculator that was changed or is the tab in sight, and for what is kept as A
  const frozen = new Map();                                   // form -> inputs of A
  let settled;
  function address(form) {
    const url = new URL(location.href), pairs = [];
    for (const one of forms) {
      const own = changed(one), tab = inTabs(one) && formOf(shownTab()) == one && one != formOf(tabs[0]);
      if (own.length || tab) pairs.push(["calculator", one.dataset.name], ...own);
      if (frozen.has(one)) pairs.push(["against", one.dataset.name], ...changed(one, frozen.get(one)));
    }
    url.search = pairs.length ? new URLSearchParams(pairs) : "";
    if (pairs.length) url.hash = form.id;
    return url;
  }
  function sections() {                                       // [[kind, form, values]] of the address
    const found = [];
    for (const [name, text] of new URLSearchParams(location.search)) {
      if (name == "calculator" || name == "against") found.push([name, document.getElementById(`calc-${text}`), {}]);
      else if (found.length) found.at(-1)[2][name] = text;
    }
    return found.filter(([, form]) => form);
  }
  function keep(form) {                                       // one step back for each change that stayed
    clearTimeout(settled); settled = null;
    const url = address(form);
    if (url.href != location.href) history.pushState(null, "", url);
  }
  const keepSoon = (form) => { clearTimeout(settled); settled = setTimeout(keep, 500, form); };

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

  const updates = new Map();
  for (const form of forms) {
    const part = (selector) => form.querySelector(selector);
    const text = part(".wl-text"), note = part(".wl-note"), state = part(".wl-state"), more = part(".wl-more"), compared = part(".wl-compared");
    const how = part(".wl-explained"), lists = part(".wl-lists");
    let busy = false, again = false, changes = 0;

    async function explain() {                                // value by value, so that a change of input need not wait for all
      const inputs = given(form), now = changes, question = (value) => ask("how", form, inputs, value);
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
    async function apart(link) {                              // that of the inputs drawn, from its file; where it does not come, the link stays
      const answer = await fetch(link.href, { cache: "no-cache" }).catch(() => null);
      if (!answer?.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (lists.contains(link)) lists.replaceChildren(...page.querySelectorAll("main > ul"));
    }
    function told(where) {                                    // beside the field that was changed
      if (where) where.closest(".wl-field").append(state);
      if (where === null) part(".wl-result").before(state);
      state.textContent = worker ? "Computing …" : "Starting Python in this page (8 MB, once) …";
      state.hidden = false;
      form.classList.add("wl-waiting");
      form.setAttribute("aria-busy", "true");
    }
    function done() {
      state.hidden = true;
      form.classList.remove("wl-waiting");
      form.removeAttribute("aria-busy");
    }
    async function update(where, remember = true) {
      if (remember) keepSoon(form);
      changes++; how.open = false; lists.replaceChildren();   // it explained the inputs before
      told(where);
      if (busy) { again = true; return; }
      busy = true;
      const begin = performance.now(), inputs = given(form), now = changes;
      const { answer, failed } = await ask("answer", form, inputs);
      busy = false;
      if (again) { again = false; update(undefined, remember); return; }
      done();
      if (failed) {
        complain(form, `Python did not run here: ${failed}`);
        note.textContent = "The result above is the one drawn when the book was built, or the last one computed. A change of an input tries again.";
      } else if (answer.error) {
        complain(form, answer.error, answer.field);
        text.textContent = `No result: ${answer.error}.`;
        note.textContent = "Change an input, and the book's own library computes the result in this page.";
      } else {
        complain(form);
        show(answer, inputs, begin);
        if (remember) keepSoon(form);                         // only now is it known what stands for a file
        if (answer.more) setTimeout(rest, 120, inputs, now);
        compare();
      }
      form.dataset.shown = String(Number(form.dataset.shown ?? 0) + 1);
    }
    function show(answer, inputs, begin) {
      if (text.textContent != answer.text) text.textContent = answer.text;
      part(".wl-result").innerHTML = answer.html;
      part(".wl-code pre code").textContent = answer.code;
      for (const [name, full] of Object.entries(answer.named)) write(form.elements[name], full);
      for (const field of form.querySelectorAll("textarea[name]")) {
        const found = answer.kept[field.name], place = field.parentElement.querySelector(".wl-kept");
        if (place) place.textContent = found?.note ?? "";
        if (!found) continue;
        kept.set(found.text, found.short);
        if (field.value == inputs[field.name]) field.value = found.text;
      }
      const own = changed(form).filter(([name]) => shared.includes(name));
      if (inTabs(form) && own.length) try { localStorage.setItem("workloads-yours", JSON.stringify(own)); } catch { /* not allowed to keep */ }
      const taken = Object.entries(answer.taken).map(([name, value]) => [inputs[name].trim(), Number(value).toLocaleString("en")])
        .filter(([written, plain]) => written != plain).map((pair) => pair.join(" as "));
      note.textContent = `Computed in this page by the book's library in ${Math.max(1, Math.round(performance.now() - begin))} ms.`
        + (taken.length ? ` Read: ${taken.join(", ")}.` : "");
      follow(form, answer.taken);
      if (!answer.more) more.replaceChildren(); else more.classList.add("wl-dim");
    }
    async function rest(inputs, now) {                        // what takes longer, once nothing is typed any more
      if (now != changes || busy) return;
      const { answer } = await ask("more", form, inputs);
      if (now != changes || !answer) return;
      more.innerHTML = answer.html;
      more.classList.remove("wl-dim");
      form.dataset.drawn = String(Number(form.dataset.drawn ?? 0) + 1);
    }
    async function compare() {
      const before = frozen.get(form), now = changes;
      compared.hidden = !before;
      part("[data-freeze]").textContent = before ? "Forget A" : "Keep as A";
      if (!before) return;
      const { answer } = await ask("compared", form, before, given(form));
      if (now != changes || !answer || !frozen.has(form)) return;
      compared.innerHTML = answer.html ?? "";
      if (answer.error) compared.textContent = answer.error;
    }
    function fill(pairs, remember = true) {
      for (const field of fields(form)) write(field, full(pairs[field.name] ?? field.dataset.default));
      follow(form);
      update(null, remember);
    }
    async function copy(what, button) {
      const before = button.textContent;
      try { await navigator.clipboard.writeText(what); button.textContent = "Copied"; } catch { button.textContent = "Not allowed to copy"; }
      setTimeout(() => { button.textContent = before; }, 1500);
    }
    async function insert(file, field) {
      if (!file) return;
      field.value = await file.text();
      update(field);
    }
    updates.set(form, { update, fill, compare });

    part(".wl-code").addEventListener("toggle", () => { part(".wl-code pre").tabIndex = 0; });   // the theme gave none to what was folded
    how.addEventListener("toggle", () => {
      const link = lists.querySelector(".wl-apart");
      if (how.open && link) apart(link); else if (how.open && !lists.children.length) explain();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", ({ target }) => {
      if (!target.name && !target.dataset.stops) return;      // no input of the calculator: a file, a slider of steps
      if (target.list && ![...target.list.options].some((o) => o.value == target.value)) return;   // half a name: read when it is left
      if (target.dataset.stops) slide(target); else follow(form);
      update(target);
    });
    form.addEventListener("change", ({ target }) => {
      if (target.dataset.into) insert(target.files[0], form.elements[target.dataset.into]);
      if (target.list && ![...target.list.options].some((o) => o.value == target.value)) update(target);
    });
    for (const field of form.querySelectorAll("[list]")) field.addEventListener("focus", () => field.select());
    for (const field of form.querySelectorAll(".wl-kept")) {
      const box = field.parentElement.querySelector("textarea");
      box.addEventListener("dragover", (event) => event.preventDefault());
      box.addEventListener("drop", (event) => { if (event.dataTransfer.files.length) { event.preventDefault(); insert(event.dataTransfer.files[0], box); } });
    }
    form.addEventListener("click", async ({ target }) => {
      const { preset, csv, svg, png } = target.dataset;
      if (preset) fill(JSON.parse(preset));
      if ("reset" in target.dataset) fill({});
      if ("copy" in target.dataset) copy(`# ${part(".wl-pip").textContent}\n${part(".wl-code pre code").textContent}`, target);
      if ("link" in target.dataset) { keep(form); copy(location.href, target); }
      if ("freeze" in target.dataset) {
        if (frozen.has(form)) frozen.delete(form); else frozen.set(form, given(form));
        compare(); keep(form);
      }
      if ([csv, svg, png].some((asked) => asked != undefined)) {
        const files = await import(new URL("exporting.mjs", here));
        if (csv != undefined) files.csv(form, fields(form).map((f) => [form.querySelector(`label[for="${f.id}"]`).textContent, read(f)]));
        else files.figures(form, svg != undefined ? "svg" : "png");
      }
    });
    for (const hidden of form.querySelectorAll(".wl-buttons")) hidden.hidden = false;
    part("fieldset").disabled = false;
    note.textContent = "Change an input, and the book's own library computes the result in this page.";
  }

  carry = (from, to) => {
    const differ = shared.filter((name) => read(from.elements[name]) != read(to.elements[name]));
    for (const name of differ) write(to.elements[name], read(from.elements[name]));
    if (differ.length) updates.get(to).update(); else keep(to);
  };
  function restore(first) {                                   // what the address says
    const said = sections(), values = (kind, form) => said.find(([k, f]) => k == kind && f == form)?.[2];
    const tab = tabs.find((one) => said.some(([kind, form]) => kind == "calculator" && form == formOf(one) && `#${form.id}` == location.hash))
      ?? tabs.find((one) => said.some(([kind, form]) => kind == "calculator" && form == formOf(one))) ?? tabs[0];
    if (tab && tab != shownTab()) select(tab);
    for (const form of forms) {
      const own = values("calculator", form) ?? {}, before = values("against", form), wasFrozen = frozen.has(form);
      if (before) frozen.set(form, { ...Object.fromEntries(fields(form).map((f) => [f.name, f.dataset.default])), ...before }); else frozen.delete(form);
      const differs = fields(form).some((f) => (f.type == "textarea" ? brief(read(f)) : read(f)) != (own[f.name] ?? f.dataset.default));
      if (differs) updates.get(form).fill(own, false);
      else if (before || wasFrozen) updates.get(form).compare();
    }
    if (first && said.length) (document.getElementById(location.hash.slice(1)) ?? said[0][1]).scrollIntoView();
  }
  addEventListener("popstate", () => { clearTimeout(settled); restore(false); });
  restore(true);

  const button = document.querySelector(".wl-stored");
  let stored = null;
  try { stored = JSON.parse(localStorage.getItem("workloads-yours")); } catch { /* nothing kept */ }
  if (button && stored && !location.search) {
    button.hidden = false;
    button.addEventListener("click", () => { button.hidden = true; updates.get(formOf(shownTab())).fill(Object.fromEntries(stored)); });
  }
})();
