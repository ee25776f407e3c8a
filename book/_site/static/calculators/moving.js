/* A run to step through: states that Python wrote, one in the place of another. Buttons, arrow keys and a slider; nothing is computed or fetched here. */
(() => {
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const runs = new WeakMap();                                 // states, by the element that holds them: a new result brings a new one
  let playing;

  function states(box) {
    if (!runs.has(box)) runs.set(box, JSON.parse(box.querySelector("script").textContent));
    return runs.get(box);
  }
  const slider = (box) => box.querySelector("input[type=range]");
  function show(box, wanted) {
    const found = states(box), at = Math.min(Math.max(wanted, 1), found.length), [text, html] = found[at - 1];
    slider(box).value = at;
    slider(box).setAttribute("aria-valuetext", `step ${at} of ${found.length}`);
    box.querySelector(".wl-step-says").textContent = text;
    box.querySelector(".wl-step-frame").innerHTML = html;
    box.closest("form").dataset.step = at;
    const off = (step, is) => box.querySelector(`[data-step="${step}"]`).setAttribute("aria-disabled", is);
    off("first", at == 1); off("-1", at == 1); off("1", at == found.length);
    return at < found.length;
  }
  function stop() {
    if (!playing) return;
    clearInterval(playing.timer);
    playing.button.textContent = "Play";
    playing = null;
  }
  function play(box, button) {
    if (playing) return stop();
    if (still.matches) return;
    if (Number(slider(box).value) == states(box).length) show(box, 1);
    const timer = setInterval(() => { if (!box.isConnected || !show(box, Number(slider(box).value) + 1)) stop(); }, 1400);
    playing = { timer, button };
    button.textContent = "Pause";
  }
  function move(box, step, button) {
    if (step == "play") return play(box, button);
    stop();
    show(box, step == "first" ? 1 : Number(slider(box).value) + Number(step));
  }

  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.(".wl-steps [data-step]");
    if (button) move(button.closest(".wl-steps"), button.dataset.step, button);
  });
  document.addEventListener("input", (event) => {             // a slider of steps is no input of the calculator
    const box = event.target.matches?.("input[type=range]") && event.target.closest(".wl-steps");
    if (!box) return;
    event.stopPropagation();
    stop();
    show(box, Number(event.target.value));
  }, true);
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest?.(".wl-step-keys, .wl-step-frame")?.closest(".wl-steps");
    const to = { ArrowLeft: "-1", ArrowRight: "1", Home: "first" }[event.key];
    if (!box || !to || event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move(box, to);
  });
  for (const box of document.querySelectorAll(".wl-steps")) {
    const form = box.closest("form");
    form.classList.add("wl-steps-live");
    show(box, 1);
    new MutationObserver(() => {                              // another result: the same step of it, as far as it goes
      const now = form.querySelector(".wl-steps");
      if (now && !runs.has(now)) { stop(); show(now, Number(form.dataset.step)); }
    }).observe(form.querySelector(".wl-result"), { childList: true });
  }
})();
