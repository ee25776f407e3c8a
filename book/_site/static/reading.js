// A question that is answered before its answer is shown, and code that a reader may put away.
(() => {
  const shown = x => Math.abs(x) >= 1e15 ? x.toExponential(2) : Number(x.toPrecision(3)).toLocaleString("en");
  const read = text => Number(text.replace(/[,\s]/g, "").replace(/[×x·]?10\^/, "e"));

  // How far a guess lies from the answer, in words.
  const gap = (guess, right) => {
    if (guess === right || Math.abs(guess - right) <= 0.02 * Math.abs(right)) return "That is it.";
    if (!right || !guess || (guess < 0) !== (right < 0)) return `Off by ${shown(Math.abs(guess - right))}.`;
    const times = Math.abs(guess / right);
    const much = times > 1 ? times : 1 / times;
    if (much < 1.25) return `Close: off by ${shown(100 * Math.abs(guess / right - 1))}%.`;
    return `Too ${(times > 1) === (right > 0) ? "large" : "small"} by a factor of ${shown(much)}.`;
  };

  document.querySelectorAll("details.wl-guess").forEach((answer, number) => {
    const unit = answer.dataset.unit, right = Number(answer.dataset.value), key = `wl-guess:${location.pathname}:${number}`;
    const form = document.createElement("form");
    form.className = "wl-guess-form";
    const label = document.createElement("label"), field = document.createElement("input"), lock = document.createElement("button");
    const said = document.createElement("p");
    Object.assign(field, {type: "text", inputMode: "decimal", autocomplete: "off", id: `wl-guess-${number}`, size: 9});
    label.htmlFor = field.id;
    label.textContent = unit ? `Your guess (${unit}): ` : "Your guess: ";
    Object.assign(lock, {type: "submit", textContent: "Lock in"});
    said.setAttribute("role", "status");
    form.append(label, field, " ", lock, said);
    answer.before(form);
    const locked = text => {
      const guess = read(text);
      if (!text.trim() || !Number.isFinite(guess)) { said.textContent = "A number, please."; return false; }
      field.value = text;
      field.readOnly = lock.disabled = true;
      said.textContent = `You said ${shown(guess)}${unit && " " + unit}. ${gap(guess, right)}`;
      answer.open = true;
      return true;
    };
    form.addEventListener("submit", event => {
      event.preventDefault();
      if (locked(field.value)) try { sessionStorage.setItem(key, field.value); } catch { /* not kept */ }
    });
    try { const before = sessionStorage.getItem(key); if (before) locked(before); } catch { /* not kept */ }
  });

  const root = document.documentElement, button = document.querySelector(".btn-wl-code-button");
  const set = hidden => {
    root.classList.toggle("wl-no-code", hidden);
    button?.setAttribute("aria-pressed", String(hidden));
  };
  window.wlCode = () => {
    const hidden = !root.classList.contains("wl-no-code");
    set(hidden);
    try { localStorage.setItem("wl-no-code", hidden ? "1" : ""); } catch { /* not kept */ }
  };
  try { set(localStorage.getItem("wl-no-code") === "1"); } catch { /* shown */ }
})();
