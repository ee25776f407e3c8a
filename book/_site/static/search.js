// The search page: better order, and excerpts that hold what a reader reads.
"use strict";
{
  const words = (text) => ` ${text.toLowerCase().split(/[^\p{Letter}\p{Number}_]+/u).filter(Boolean).join(" ")} `;
  const asked = words(new URLSearchParams(location.search).get("q") ?? "");

  // first the pages whose title holds the words asked for, in their order ("F-4", "roofline check")
  Scorer.score = ([, title, , , score]) => score + (asked.trim() && words(title).includes(asked) ? 100 : 0);

  const unread = ".headerlink, script, style, svg, .katex-mathml, details.hide, .toggle";
  Search.htmlToText = (html, anchor) => {
    const article = new DOMParser().parseFromString(html, "text/html").querySelector("article.bd-article");
    article?.querySelectorAll(unread).forEach((element) => element.remove());
    article?.append(...article.querySelectorAll("pre"));      // what is found in a sentence is shown in the sentence
    const part = (anchor && article?.querySelector(anchor)) || article;
    return part ? part.textContent.replace(/\s+/g, " ") : "";
  };

  // a page opened as a file may not read other files: titles alone
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
