/* The line of pip with the site's own address: known only where the page is open. */
(() => {
  const site = new URL("../", new URL(".", document.currentScript.src));
  if (!location.protocol.startsWith("http")) return;
  for (const line of document.querySelectorAll("code.wl-pip")) {
    const wheels = line.dataset.wheels.split(" ").map((name) => new URL(name, site).href);
    line.textContent = `pip install --no-deps ${wheels.join(" ")}`;
  }
})();
