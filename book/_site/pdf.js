// Runs in the page that pdf.py prints: the pages of the site become the chapters of one document.
const TALL = 940;                                       // CSS pixels between the upper and lower margin, nearly
const chapters = [], names = new Set();                 // docnames in reading order
const solutions = document.createElement("article");    // what exercises fold away, collected at the end
const words = element => element.textContent.replace(/\s+/g, " ").trim();
const make = (tag, attributes, ...inside) => {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...inside);
  return element;
};

// The name of a place in the document; PDF destinations keep to ASCII.
const place = (doc, id) => (id ? `${doc}:${id}` : doc).replace(/[^\w.:/-]/gu, c => "_" + c.codePointAt(0).toString(16));
const pointer = (id, text, className) => {
  const number = make("span", {className: "wl-page-of"}, "000");
  number.dataset.of = id;
  return make("a", {href: "#" + id, className}, make("span", {}, text), number);
};

// Parts and pages as the site's navigation orders them: [{title, depth, doc}], a part without doc; its first page comes before all.
function order(html, root) {
  const dom = new DOMParser().parseFromString(html, "text/html");
  const found = [{title: words(dom.querySelector("article h1")).replace(/#$/, ""), depth: 1, doc: root}];
  for (const e of dom.querySelectorAll("nav.bd-docs-nav :is(p.caption, li > a.reference.internal)")) {
    const depth = Number(/toctree-l(\d)/.exec(e.parentElement.className)?.[1] ?? 0);
    const path = depth && new URL(e.getAttribute("href"), "file:///" + root).pathname;
    if (/^\/book\/reference\/api\/(?!index\.)/.test(path)) continue;       // entries of the library: hundreds of pages that are looked up, not read
    if (!depth) found.push({title: words(e), depth});
    else if (!found.some(f => f.doc === path.slice(1, -5))) found.push({title: words(e), depth, doc: path.slice(1, -5)});
  }
  found.forEach(f => f.doc && names.add(f.doc));
  return found;
}

// Inputs of a calculator as a list; what needs a script goes.
function settle(form) {
  const list = make("ul", {className: "wl-inputs"});
  for (const field of form.querySelectorAll(".wl-field")) {
    const control = field.querySelector("input:not([type=range]), select, textarea"), label = field.querySelector("label");
    if (!control || !label) continue;
    const value = control.type === "checkbox" ? (control.checked ? "yes" : "no") : control.value;
    list.append(make("li", {}, words(label) + ": ", make("b", {}, value || "none")));
  }
  form.querySelector("fieldset")?.replaceWith(list);
  form.querySelectorAll(".wl-code, .wl-buttons, .wl-error, .wl-note").forEach(e => e.remove());
  const box = make("div", {className: form.className, id: form.id}, ...form.childNodes);
  form.replaceWith(box);
}

// What is folded on the site: code that only draws goes, solutions move to the end, the rest stands open.
function unfold(article, doc, title) {
  let moved = 0, section, chapter;
  for (const fold of [...article.querySelectorAll("details")]) {
    if (!article.contains(fold)) continue;
    const summary = fold.querySelector(":scope > summary"), shown = summary?.querySelector(".collapsed") ?? summary;
    const label = shown ? words(shown).replace(/^Show (the )?/, "") : "";
    const inside = make("div", {className: "wl-unfolded"}, ...[...fold.childNodes].filter(n => n !== summary));
    if (/^(source|code)\b/.test(label)) fold.remove();
    else if (fold.classList.contains("wl-checks")) fold.replaceWith(make("p", {className: "wl-back"}, label));
    else if (fold.closest("table")) fold.replaceWith(label);
    else if (/^outputs?$/.test(label) || !doc.startsWith("exercises/")) {
      if (label && !/^(outputs?$|Used on)/.test(label)) inside.prepend(make("p", {className: "wl-label"}, label));
      fold.replaceWith(inside);
    } else {
      if (!chapter) {
        chapter = make("section", {id: place(doc, "solutions")}, make("h2", {}, title));
        chapter.append(make("p", {className: "wl-back"}, pointer(place(doc), "The exercise is on page ", "wl-pointer")));
        solutions.append(chapter);
      }
      const around = fold.closest("section"), head = around?.querySelector(":is(h2, h3, h4)");
      if (around !== section && head && head.closest("section") === around) chapter.append(make("h3", {}, words(head)));
      section = around;
      const name = label[0].toUpperCase() + label.slice(1);
      if (label === "test") fold.remove();
      else {
        inside.id = place(doc, `solution-${++moved}`);
        fold.replaceWith(make("p", {className: "wl-folded"}, pointer(inside.id, `${name}: page `, "wl-pointer")));
      }
      inside.prepend(make("p", {className: "wl-label"}, name));
      chapter.append(inside);
    }
  }
}

// One page of the site becomes a chapter. Links within the site stay links; those to files and to pages outside the book become text.
function add(html, {doc, title, depth, part}, site) {
  const dom = new DOMParser().parseFromString(html, "text/html"), here = site + doc + ".html";
  for (const link of dom.querySelectorAll("link[rel=stylesheet]")) {
    const href = new URL(link.getAttribute("href"), here).href.replace(/\?.*/, "");
    if (![...document.querySelectorAll("link")].some(l => l.href === href))
      document.querySelector("style").before(make("link", {rel: "stylesheet", href}));
  }
  const article = document.adoptNode(dom.querySelector("article.bd-article"));
  article.querySelectorAll("form.wl-calculator").forEach(settle);
  article.querySelectorAll("figure.wl-map figcaption").forEach(e => e.replaceChildren("On paper the map is a list in its order; the site draws the arcs."));
  for (const formula of article.querySelectorAll(".math:has(annotation)")) {      // read aloud, a formula is its TeX
    formula.setAttribute("role", "img");
    formula.setAttribute("aria-label", formula.querySelector("annotation").textContent);
  }
  const useless = "script, noscript, button, input, select, textarea, iframe, [hidden], .headerlink, .viewcode-link, .wl-starter";
  article.querySelectorAll(useless + ", .katex-mathml:has(+ .katex-html)").forEach(e => e.remove());
  // a third of all elements, each of which costs a tag in the PDF, and none of which shows
  const plain = ".highlight span:is(.n, .nn, .p, .o, .w), span.pre, span.std, span.doc, span:not([class]):not([id]):not([style]), td > p:only-child";
  article.querySelectorAll(plain).forEach(e => e.replaceWith(...e.childNodes));
  article.normalize();
  article.querySelectorAll("td, th").forEach(breakable);
  for (const e of [article, ...article.querySelectorAll("*")]) {
    if (e.id) e.id = place(doc, e.id);
    for (const {name, value} of [...e.attributes]) {
      if (/url\(["']?#/.test(value)) e.setAttribute(name, value.replace(/url\(["']?#([^"')]+)["']?\)/g, (_, id) => `url(#${place(doc, id)})`));
      else if (/^(aria-(labelledby|describedby|controls|owns)|for|headers)$/.test(name)) e.setAttribute(name, value.split(/\s+/).map(id => place(doc, id)).join(" "));
      else if (name === "href" || name === "xlink:href") direct(e, name, value, here, site);
      else if (name === "src" && !value.startsWith("data:")) e.setAttribute(name, new URL(value, here).href);
    }
  }
  unfold(article, doc, title);
  article.id = place(doc);
  article.classList.add("wl-chapter");
  document.querySelector("main").append(article);
  chapters.push({element: article, title, part});
  return [...article.querySelectorAll("section > h2")].filter(h => h.parentElement.id).map(h => ({id: h.parentElement.id, title: words(h)}));
}

// Long names and addresses in a table may end a line after a slash, a dot, a dash.
function breakable(cell) {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), texts = [];
  while (walker.nextNode()) if (/\S{16,}/.test(walker.currentNode.data)) texts.push(walker.currentNode);
  for (const text of texts)
    text.replaceWith(...text.data.split(/(?<=[/_.@:=-])(?=[A-Za-z])/).flatMap((piece, n) => n ? [make("wbr"), piece] : [piece]));
}

function direct(e, name, value, here, site) {
  const url = new URL(value, here), [path, hash] = [url.href.split(/[?#]/)[0], decodeURIComponent(url.hash.slice(1))];
  if (!url.href.startsWith(site)) return e.setAttribute(name, url.href);
  const doc = path.slice(site.length).replace(/\.html$/, "");
  if (names.has(doc)) e.setAttribute(name, "#" + place(doc, hash));
  else if (e.localName === "a") e.replaceWith(...e.childNodes);
}

function addSolutions(title, intro) {
  if (!solutions.children.length) return false;
  solutions.id = "solutions";
  solutions.className = "bd-article wl-chapter";
  solutions.prepend(make("h1", {}, title), make("p", {}, intro));
  document.querySelector("main").append(solutions);
  chapters.push({element: solutions, title, part: ""});
  return true;
}

// Title page and contents before the chapters, a running head for each; links to places that no page has lead to the page.
function bind(front, entries, heads, book) {
  const contents = make("nav", {className: "bd-article wl-chapter wl-contents", id: "contents"}, make("h1", {}, "Contents"));
  for (const {title, depth, id} of entries)
    contents.append(id ? pointer(id, title, `wl-depth-${depth}`) : make("p", {className: "wl-part"}, title));
  document.querySelector("main").prepend(contents);
  document.querySelector("main").insertAdjacentHTML("afterbegin", front);
  const marks = make("div", {hidden: true}, ...heads.map(id => make("a", {href: "#" + id}, id)));   // gives each of them a PDF destination
  document.body.append(marks);
  for (const link of document.querySelectorAll("a[href^='#']"))
    if (!document.getElementById(link.hash.slice(1))) link.href = link.hash.split(":")[0];
  const text = s => '"' + s.replace(/["\\]/g, "\\$&") + '"';
  const rules = [{element: contents, title: "Contents", part: ""}, ...chapters].map(({element, title, part}, n) => {
    element.style.page = "chapter-" + n;
    return `@page chapter-${n} { @top-left { content: ${text(part || book)} } @top-right { content: ${text(title)} } }`;
  });
  document.querySelector("style").append(rules.join("\n"));
}

// Chromium prints the hatching of an SVG pattern as a coarse picture: its tiles are laid out instead, and cut out by the shape.
function layTiles() {
  const draw = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([name, value]) => value === null || element.setAttribute(name, value));
    return element;
  };
  let count = 0;
  for (const shape of document.querySelectorAll("main svg :is(path, rect)")) {
    const found = /url\("?#([^")]+)"?\)/.exec(getComputedStyle(shape).fill), pattern = found && document.getElementById(found[1]);
    if (!pattern || shape.closest("defs, pattern, clipPath")) continue;
    const box = shape.getBBox(), [w, h] = [pattern.width, pattern.height].map(length => length.baseVal.value), id = `tiles-${++count}`;
    const outer = draw("g", {"clip-path": shape.getAttribute("clip-path"), transform: shape.getAttribute("transform")});
    ["clip-path", "transform"].forEach(name => shape.removeAttribute(name));
    const cut = draw("clipPath", {id}), tiles = draw("g", {"clip-path": `url(#${id})`});
    cut.append(shape.cloneNode());
    for (let x = Math.floor(box.x / w) * w; x < box.x + box.width; x += w)
      for (let y = Math.floor(box.y / h) * h; y < box.y + box.height; y += h) {
        const tile = draw("g", {transform: `translate(${x} ${y})`});
        tile.append(...[...pattern.childNodes].map(node => node.cloneNode(true)));
        tiles.append(tile);
      }
    shape.replaceWith(outer);
    shape.style.fill = "none";
    outer.append(cut, tiles, shape);
  }
}

// Long code may be cut between lines; what is wider than the page gets narrower; returns what still is.
async function fit() {
  await document.fonts.ready;
  layTiles();
  const room = document.querySelector("main").getBoundingClientRect(), wide = e => e.getBoundingClientRect().width;
  for (const code of document.querySelectorAll("pre"))
    if (code.textContent.split("\n").length > 28) (code.closest(".cell_input") ?? code).classList.add("wl-long");
  for (const table of document.querySelectorAll("table")) {
    const space = wide(table.parentElement), zoom = least => table.style.zoom = Math.max(least, (table.style.zoom || 1) * space / wide(table));
    if (table.rows.length <= 12) table.classList.add("wl-whole");
    if (table.rows[0]?.cells.length > 7) table.style.zoom = 0.8;
    if (wide(table) <= space + 1) continue;
    zoom(0.8);
    if (wide(table) > space + 1) table.classList.add("wl-narrow");      // heads in several lines
    if (wide(table) > space + 1) zoom(0.5);
    if (wide(table) > space + 1) table.classList.add("wl-squeezed");    // words and numbers, too
  }
  for (const figure of document.querySelectorAll("figure:not(.wl-map)")) {
    const height = figure.getBoundingClientRect().height;
    if (height > TALL) figure.style.zoom = TALL / height;
  }
  for (const box of document.querySelectorAll(".wl-math"))
    if (box.scrollWidth > box.clientWidth + 1) box.style.fontSize = `${Math.floor(100 * box.clientWidth / box.scrollWidth) - 1}%`;
  return [...document.querySelectorAll("main :is(table, pre, figure, p, li, dt, dd, img, .wl-math)")]
    .filter(e => e.getBoundingClientRect().right > room.right + 2 || e.scrollWidth > e.clientWidth + 2 && /^(PRE|TABLE)$|wl-math/.test(e.tagName + e.className))
    .map(e => `${e.closest(".wl-chapter")?.id}: ${e.localName} ${words(e).slice(0, 60)}`);
}

function number(pages) {
  for (const e of document.querySelectorAll(".wl-page-of")) e.textContent = pages[e.dataset.of] ?? "?";
}
