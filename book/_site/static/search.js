// The search: answers while one types, in the dialog that opens over a page and on the search page. The index is built with the book.
"use strict";
(() => {
  const root = document.documentElement.dataset.content_root;
  const STOP = new Set("a an and are as at be by can do does for from has have how i if in into is it its me my need of on or per so than that the this to was we what when where which who why will with you your".split(" "));
  const WEIGHT = {page: 1, reference: .8, exercise: .5, library: .12};
  const NAMES = {page: "", reference: "Reference", exercise: "Exercise", library: "Library"};

  // a word in one form: small letters, American and British spelling, singular and plural alike
  const stem = word => {
    let w = word.toLowerCase();
    if (/[\d_]/.test(w) || w.length < 4) return w;
    w = w.replace(/is(ation|ations|e|es|ed|ing|er|ers)$/, "iz$1").replace(/yse(s|d)?$/, "yze$1").replace(/our(s|ed|ing|al)?$/, "or$1").replace(/^(cent|lit|met)re/, "$1er");
    w = w.replace(/ies$/, "y").replace(/(ss|x|ch|sh)es$/, "$1").replace(/([^su])s$/, "$1");
    w = w.replace(/(z)(ation|e|ed|ing|er)$/, "$1").replace(/(.{3,}[^aeiou])(ing|ed)$/, "$1").replace(/([^aeiousl])\1$/, "$1");
    return w.length > 4 ? w.replace(/e$/, "") : w;
  };
  const split = text => text.match(/[\p{Letter}\p{Number}_]+/gu) ?? [];
  const words = text => split(text).map(stem);

  let pages = null, inAll = null, same = null, first = null;
  const count = text => {
    const found = new Map();
    for (const w of words(text)) found.set(w, (found.get(w) ?? 0) + 1);
    return found;
  };
  const prepare = ({pages: listed, same: groups, first: questions}) => {
    inAll = new Map();
    pages = listed.map(([name, kind, title, lead, parts]) => {
      const page = {name, kind, title, lead, titled: words(title), led: new Set(words(lead)), parts: parts.map(([heading, anchor, said, beside]) => (
        {heading, anchor, said, headed: new Set(words(heading)), said_: count(said), beside_: count(beside)}))};
      const all = new Set([...page.titled, ...page.led]);
      for (const p of page.parts) for (const m of [p.headed, p.said_.keys(), p.beside_.keys()]) for (const w of m) all.add(w);
      for (const w of all) inAll.set(w, (inAll.get(w) ?? 0) + 1);
      page.all = all;
      return page;
    });
    same = new Map();
    for (const group of groups) for (const w of group) same.set(stem(w), group.filter(v => v !== w).map(v => words(v)).filter(v => v.length === 1).map(v => v[0]));
    first = questions.map(([question, to]) => [new Set(words(question)), to]);
  };
  const load = () => load.begun ??= new Promise(done => {
    const script = document.createElement("script");
    script.src = `${root}_static/search-index.js`;
    script.onload = () => { prepare(wlSearchIndex); done(); };
    document.body.append(script);
  });

  // words of the index that a word asked for stands for: itself, what it begins while it is typed, the same by another name
  const variants = (word, last) => {
    const found = new Map([[word, 1]]);
    if (word.length > (last ? 1 : 2) && !inAll.has(word)) for (const w of inAll.keys()) if (w.startsWith(word)) found.set(w, .7);
    for (const w of same.get(word) ?? []) if (!found.has(w)) found.set(w, .35);
    return found;
  };
  const times = n => n ? 1 + Math.log(n) : 0;
  const run = (titled, asked) => asked.length && titled.some((_, at) => asked.every((w, n) => titled[at + n] === w));

  const rate = (page, asked, meant) => {
    let total = 0, met = 0, best = page.parts[0], most = 0;
    const scores = page.parts.map(() => 0);
    for (const word of asked) {
      let here = 0;
      for (const [w, weight] of meant.get(word)) {
        if (!page.all.has(w)) continue;
        const rare = Math.log(1 + pages.length / inAll.get(w)) * weight;
        const rest = [0, 0];
        page.parts.forEach((p, n) => {
          const own = 5 * p.headed.has(w) * (n > 0) + times(p.said_.get(w)) + .4 * times(p.beside_.get(w));
          scores[n] += rare * own;
          rest[0] += p.said_.get(w) ?? 0;
          rest[1] += p.beside_.get(w) ?? 0;
        });
        const headed = page.parts.slice(1).some(p => p.headed.has(w));
        here = Math.max(here, rare * (9 * page.titled.includes(w) + 4 * page.led.has(w) + 4 * headed + 2 * times(rest[0]) + .6 * times(rest[1])));
      }
      total += here;
      met += here > 0;
    }
    page.parts.forEach((p, n) => { if (scores[n] > most + (n > 0) * 1) { most = scores[n]; best = p; } });
    return [total * (met / asked.length) ** 2 * WEIGHT[page.kind], best];
  };

  // the pages that answer, best first: {page, part, score}
  const find = query => {
    const typed = split(query), all = typed.map(stem);
    const asked = [...new Set(all.filter((w, n) => !STOP.has(typed[n].toLowerCase())))];
    if (!asked.length) return [];
    const open = /[\p{Letter}\p{Number}_]$/u.test(query), last = asked[asked.length - 1];
    const meant = new Map(asked.map(w => [w, variants(w, open && w === last)]));
    const exact = query.trim().toLowerCase();
    const to = first.find(([q]) => q.size === new Set(all).size && all.every(w => q.has(w)))?.[1]
      ?? first.filter(([q]) => q.size > 1 && [...q].every(w => all.includes(w))).sort((a, b) => b[0].size - a[0].size)[0]?.[1];
    const found = [];
    for (const page of pages) {
      let [score, part] = rate(page, asked, meant);
      if (page.kind !== "library" && run(page.titled, all)) score += 100;
      else if (page.kind === "page" && asked.length > 1 && asked.every(w => page.titled.includes(w))) score += 20;
      if (page.kind === "library" && /[a-z]_[a-z]/.test(exact)) {
        const entry = page.parts.find(p => p.heading === exact);
        if (entry) { score += 200; part = entry; }
      }
      if (page.name === to) score += 300;
      if (score > 0) found.push({page, part, score});
    }
    found.sort((a, b) => b.score - a.score || (a.page.name < b.page.name ? -1 : 1));
    return found.filter(f => f.score > .12 * Math.min(found[0].score, 40)).slice(0, 40);
  };

  // the sentence of a part that holds most of the words, whole where it is short; those with a formula in them come last
  const excerpt = ({page, part}, asked) => {
    const hit = w => asked.some(a => w === a || (a.length > 2 && w.startsWith(a)));
    const rank = text => new Set(words(text).filter(hit)).size - .5 * (text.split("…").length - 1);
    const sentences = [page.lead, ...(part.said.match(/[^.!?]+(?:[.!?](?!\s|$)[^.!?]*)*[.!?]?/g) ?? [])].map(t => t.trim()).filter(t => t.length > 20);
    let best = page.lead || sentences[0] || "", most = rank(best);
    for (const sentence of sentences) { const r = rank(sentence); if (r > most) { most = r; best = sentence; } }
    if (best.length <= 240) return best;
    const at = [...best.matchAll(/[\p{Letter}\p{Number}_]+/gu)].find(m => hit(stem(m[0])))?.index ?? 0;
    const from = at < 160 ? 0 : best.indexOf(" ", at - 90) + 1;
    const until = best.lastIndexOf(" ", from + 220);
    return (from ? "… " : "") + best.slice(from, until) + (until < best.length ? " …" : "");
  };
  const marked = (into, text, asked) => {
    let at = 0;
    for (const m of text.matchAll(/[\p{Letter}\p{Number}_]+/gu)) {
      if (!asked.includes(stem(m[0]))) continue;
      into.append(text.slice(at, m.index), Object.assign(document.createElement("mark"), {textContent: m[0]}));
      at = m.index + m[0].length;
    }
    into.append(text.slice(at));
  };

  const show = (list, query, most) => {
    const found = find(query), asked = words(query).filter((w, n) => !STOP.has(split(query)[n].toLowerCase()));
    const also = asked.flatMap(w => [w, ...(same.get(w) ?? [])]);
    list.replaceChildren(...found.slice(0, most).map(f => {
      const line = document.createElement("li"), link = document.createElement("a"), note = document.createElement("small"), text = document.createElement("p");
      const within = f.part.heading && f.part !== f.page.parts[0];
      link.href = `${root}${f.page.name}.html${within && f.score < 300 ? "#" + f.part.anchor : ""}`;
      link.textContent = f.page.title;
      note.textContent = [NAMES[f.page.kind], within && f.score < 300 ? f.part.heading : ""].filter(Boolean).join(" · ");
      text.className = "context";
      marked(text, excerpt(f, also), also);
      line.append(link, " ", note, text);
      return line;
    }));
    return found.length;
  };

  const said = n => n ? `${n} page${n > 1 ? "s" : ""} found.` : "Nothing found. Try another word, or look into the glossary.";
  const lists = [];
  const attach = (input, box, most) => {
    const list = document.createElement("ul"), status = document.createElement("p");
    list.className = "wl-found";
    status.className = "search-summary";
    status.setAttribute("role", "status");
    box.append(status, list);
    let timer = 0;
    const answer = () => load().then(() => {
      const n = input.value.trim() ? show(list, input.value, most) : (list.replaceChildren(), -1);
      status.textContent = n < 0 ? "" : n > most ? `${said(n)} Enter shows all.` : said(n);
    });
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(answer, 60); });
    const move = event => {   // arrows go from the field to the results and back
      const links = [input, ...list.querySelectorAll("a")], at = links.indexOf(document.activeElement);
      const to = {ArrowDown: at + 1, ArrowUp: at - 1}[event.key];
      if (at < 0 || to === undefined || !links[to]) return;
      event.preventDefault();
      links[to].focus();
    };
    input.addEventListener("keydown", move);
    box.addEventListener("keydown", move);
    lists.push(answer);
    return answer;
  };

  const dialog = document.querySelector("#pst-search-dialog"), results = document.querySelector("#search-results");
  if (dialog && !results) {
    const box = document.createElement("div");
    box.className = "wl-found-box";
    dialog.append(box);
    const answer = attach(dialog.querySelector("input[name=q]"), box, 8);
    if (dialog.querySelector("input[name=q]").value) answer();
  }
  if (results) {
    const input = document.querySelector(".bd-search-container input[name=q]");
    input.value = new URLSearchParams(location.search).get("q") ?? "";
    const answer = attach(input, results, 40);
    if (input.value) answer(); else input.focus();
  }
  window.wlSearch = {load, find, stem};
})();
