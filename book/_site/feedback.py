"""The feedback page of one student: marks, comments, and the notebooks as they ran, in one file that loads nothing and runs nothing."""

import html
import re
from pathlib import Path
from xml.etree import ElementTree

import assignment
import mistune
from latex2mathml.converter import convert

LONGEST = 10_000  # characters of an output that are shown
_, MATH, MATH_ATTRIBUTES = (set(line.split()) for line in Path(__file__).with_name("mathml.txt").read_text(encoding="utf-8").splitlines())
PICTURE = re.compile(r'<img alt="[^"<>]*" src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]*">')
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --paper: #fff; --soft: #f2f4f7; --line: #c3cbd4; --good: #0a6b51; --bad: #a33b00;
  --wait: #6d5200 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --paper: #16191d; --soft: #22272d; --line: #4a525c; --good: #5fd0ac;
  --bad: #ff9a66; --wait: #e5c15a } }
body { margin: 0 auto; max-width: 50rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper) }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left; vertical-align: top }
td.points { text-align: right; white-space: nowrap }
a { color: inherit }
pre { background: var(--soft); padding: .6rem; overflow-x: auto; margin: .4rem 0; font-size: .875rem }
.output { border-left: 3px solid var(--line) }
.mark { border: 1px solid; border-radius: .3rem; padding: .3rem .6rem; margin: .4rem 0 }
.full { color: var(--good) } .lost { color: var(--bad) } .waits { color: var(--wait) }
img { max-width: 100%; background: #fff }
section { border-top: 2px solid var(--line); margin-top: 2rem }
"""


POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


def esc(text):
    return html.escape(str(text), quote=True)


class Renderer(mistune.HTMLRenderer):
    """Markdown without raw HTML, links or images: their text stays."""

    def __init__(self):
        super().__init__(escape=True)

    def link(self, text, url, title=None):  # noqa: ARG002
        return text

    def image(self, text, url, title=None):  # noqa: ARG002
        return text

    def block_html(self, text):
        return "" if re.fullmatch(r"\s*</?(details|summary)>.*", text, re.DOTALL) and len(text) < 80 else f"<p>{esc(text)}</p>\n"


def _math(tex, display):
    """A formula as MathML; what the converter can't set, or sets with anything but MathML in it, stays as it was written."""
    try:
        made = convert(tex, display="block" if display else "inline")
        elements = list(ElementTree.fromstring(made).iter())
    except Exception:
        return f"<code>{esc(tex)}</code>"
    names = {e.tag.rpartition("}")[2] for e in elements}
    attributes = {a for e in elements for a in e.attrib}
    return made if names <= MATH and attributes <= MATH_ATTRIBUTES else f"<code>{esc(tex)}</code>"


def markdown(text):
    """Markdown of a notebook as HTML; formulas become MathML, citations their keys."""
    text = re.sub(r"\{[\w:-]+\}`([^`]*)`", r"[\1]", text).replace("&lt;", "<")  # as it was written; the renderer escapes it
    made = mistune.create_markdown(renderer=Renderer(), plugins=["table", "math"])
    made.renderer.register("inline_math", lambda renderer, tex: _math(tex, False))
    made.renderer.register("block_math", lambda renderer, tex: f"<p>{_math(tex, True)}</p>\n")
    return made(text)


def cut(text):
    text = ANSI.sub("", text if isinstance(text, str) else "".join(text))
    return text if len(text) <= LONGEST else text[:LONGEST] + f"\n(cut after {LONGEST:,} characters)"


def output(item):
    """One output of a cell; pictures stand as data that cannot run."""
    if item["output_type"] == "stream":
        return f'<pre class="output">{esc(cut(item["text"]))}</pre>'
    if item["output_type"] == "error":
        return f'<pre class="output lost">{esc(cut(chr(10).join(item["traceback"])))}</pre>'
    data = {k: v if isinstance(v, str) else "".join(v) for k, v in item["data"].items() if not k.endswith("json")}
    if "text/markdown" in data:
        return f'<div class="output">{markdown(cut(data["text/markdown"]))}</div>'
    if PICTURE.fullmatch(data.get("text/html", "")):  # as `grade.shown` wrote it
        return data["text/html"]
    if "image/png" in data:
        return f'<img alt="figure" src="data:image/png;base64,{esc(re.sub(r"[^A-Za-z0-9+/=]", "", data["image/png"]))}">'
    return f'<pre class="output">{esc(cut(data.get("text/plain", "")))}</pre>'


def state(question):
    return "waits" if question.points is None else "full" if question.points >= question.max else "lost"


def points(question):
    return f"waits for a mark, {question.max:g} possible" if question.points is None else f"{question.points:g} of {question.max:g}"


def mark(question):
    """What a question was worth, and why, behind its cell."""
    comment = f"<br>{esc(question.comment)}" if question.comment else ""
    name = esc(question.question)
    return f'<p class="mark {state(question)}" id="{name}"><b>{name}</b>: {points(question)}{comment}</p>'


def line(question):
    """The question's line in the table at the top."""
    name = esc(question.question)
    return (
        f'<tr><td>{esc(question.exercise)}</td><td><a href="#{name}">{name}</a></td>'
        f'<td class="points {state(question)}">{points(question)}</td><td>{esc(question.comment)}</td></tr>'
    )


def cell(item, questions):
    text = assignment.source(item)
    body = markdown(text) if item["cell_type"] == "markdown" else f"<pre>{esc(text)}</pre>"
    question = questions.get(item["metadata"].get("nbgrader", {}).get("grade_id"))
    return body + "".join(map(output, item.get("outputs", []))) + (mark(question) if question else "")


def section(exercise, questions, nb, remarks):
    """One exercise: remarks, the notebook as it ran, and questions whose cells are missing."""
    cells = nb["cells"] if nb else []
    there = {c["metadata"].get("nbgrader", {}).get("grade_id") for c in cells}
    parts = [f'<p class="lost">{esc(r)}</p>' for r in remarks]
    parts += [cell(c, questions) for c in cells] or [f"<h1>{esc(exercise)}</h1>"]
    parts += [mark(q) for name, q in questions.items() if name not in there]
    lowered = re.sub(r"<(/?)h([1-5])", lambda m: f"<{m[1]}h{int(m[2]) + 1}", "".join(parts))  # the page has a main heading of its own
    return f'<section aria-label="{esc(exercise)}">{lowered}</section>'


def marking(name, answers):
    """A page with the answers in words, question by question, below the reference answer; {(exercise, question): [(Question, text)]}."""
    parts = []
    for (exercise, question), those in sorted(answers.items()):
        cells = assignment.read(assignment.exercises()[exercise])["cells"]
        right = next(assignment.source(c) for c in cells if c["metadata"].get("nbgrader", {}).get("grade_id") == question)
        parts.append(f"<section><h2>{esc(question)}</h2><div class='output'>{markdown(right)}</div>")
        parts += [
            f"<p class='mark {state(q)}'><b>{esc(q.student)}</b>: {points(q)} {esc(q.comment)}</p>{markdown(text)}" for q, text in those
        ]
        parts.append("</section>")
    return document(f"{name}: answers to mark", "<p>Points go into questions.csv.</p>" + "".join(parts))


def page(student, name, questions, notebooks):
    """HTML of a student's page; notebooks as {exercise: (notebook or None, remarks)}."""
    total = sum(q.points or 0 for q in questions)
    most = sum(q.max for q in questions)
    waits = sum(q.max for q in questions if q.points is None)
    waiting = f"; {waits:g} wait for a mark" if waits else ""
    sections = [section(e, {q.question: q for q in questions if q.exercise == e}, *notebooks[e]) for e in notebooks]
    body = f"""<p><b>{total:g} of {most:g} points</b>{waiting}.</p>
<table><thead><tr><th>exercise</th><th>question</th><th>points</th><th>remark</th></tr></thead>
<tbody>{"".join(map(line, questions))}</tbody></table>
{"".join(sections)}"""
    return document(f"{name}: {student}", body)


def document(title, body):
    """A whole page, which loads nothing, runs nothing and sends nothing."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{esc(title)}</title><style>{STYLE}</style></head><body>
<h1>{esc(title)}</h1>
{body}
</body></html>
"""
