// Definitions of glossary terms in place: on hover, keyboard focus and touch; Escape, leaving or touching elsewhere hides them.
(() => {
  const hint = document.createElement("div");
  hint.id = "wl-hint";
  hint.setAttribute("role", "tooltip");
  hint.hidden = true;
  document.body.append(hint);
  let shown = null, timer = 0, touched = null;

  const hide = () => {
    clearTimeout(timer);
    shown?.removeAttribute("aria-describedby");
    shown = null;
    hint.hidden = true;
  };
  const show = link => {
    clearTimeout(timer);
    if (shown == link) return;
    hide();
    shown = link;
    hint.textContent = link.dataset.means;
    link.setAttribute("aria-describedby", hint.id);
    hint.hidden = false;
    const line = link.getClientRects()[0], wide = document.documentElement.clientWidth;
    const below = line.bottom + hint.offsetHeight + 8 < innerHeight || line.top < hint.offsetHeight + 8;
    hint.style.left = scrollX + Math.max(8, Math.min(line.left, wide - hint.offsetWidth - 8)) + "px";
    hint.style.top = scrollY + (below ? line.bottom : line.top - hint.offsetHeight) + "px";
  };
  const later = (action, wait) => { clearTimeout(timer); timer = setTimeout(action, wait); };
  const term = event => event.target.closest?.("a.wl-term");

  document.addEventListener("pointerover", event => {
    if (event.pointerType == "touch") return;
    if (event.target == hint) return clearTimeout(timer);
    const link = term(event);
    if (link) later(() => show(link), 150);
    else if (shown != document.activeElement) later(hide, 250);
  });
  document.addEventListener("focusin", event => {
    const link = term(event);
    if (link && link.matches(":focus-visible")) show(link);
  });
  document.addEventListener("focusout", () => later(hide, 0));
  document.addEventListener("keydown", event => { if (event.key == "Escape") hide(); });
  document.addEventListener("pointerdown", event => {
    touched = event.pointerType == "touch" ? term(event) : null;
    if (event.target != hint && term(event) != shown) hide();
  });
  document.addEventListener("click", event => {   // the first touch shows the definition, the second follows the link
    const link = term(event);
    if (link && link == touched && shown != link) { event.preventDefault(); show(link); }
  });
})();
