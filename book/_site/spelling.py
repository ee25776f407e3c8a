"""Spelling of the book: `spelling.py [FILE ...]` lists the words that no dictionary knows, and forms that are not British.

It reads what a reader sees: Markdown, strings of the pages' code that hold a sentence, comments; of Python modules the docstrings, comments
and messages. Code, formulas, links and names of the module's own are passed over. Two dictionaries decide: pyspellchecker knows the words,
typos the slips and the British forms. A form in -ize beside its form in -ise is reported, too: one word, one spelling. The words of the
field stand in tests/words.txt (an optimizer and a tokenizer keep the z that programs give them).
"""

import ast
import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

import content
from notebooks import ROOT, every_notebook
from spellchecker import SpellChecker

WORDS = ROOT / "tests/words.txt"
TYPOS = Path(sys.executable).with_name("typos")
WORD = re.compile(r"(?<![\w.\\/'@#{-])[A-Za-z][a-z]*(?:'[a-z]+)?(?!\w|[/'(=_{]|\.\w)")


def every_file():
    """Pages, exercises, the read-me, the library and the tools, in a fixed order."""
    written = {"node_modules", "api"}  # the library's reference pages are its docstrings, which are read below
    pages = [p for p in ROOT.glob("book/**/*.md") if not written & set(p.parts)]
    code = [*ROOT.glob("lib/**/*.py"), *ROOT.glob("book/_site/*.py"), *ROOT.glob("book/_site/ext/**/*.py"), *ROOT.glob("tests/*.py")]
    return [*every_notebook(), *sorted(pages), *ROOT.glob("*.md"), *sorted(code)]


def of_code(source, messages=True):
    """Docstrings, comments and, if asked for, strings that hold a sentence, of a Python text; and the names that it uses."""
    source = content.python(source)
    nodes = list(ast.walk(ast.parse(source)))
    texts = [t.string for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    texts += filter(None, (ast.get_docstring(n) for n in nodes if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)))
    if messages:
        texts += [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and sentence(n.value)]
    names = {getattr(n, key) for n in nodes for key in ("id", "arg", "attr", "name") if isinstance(getattr(n, key, None), str)}
    return re.sub(
        r"^\s*(>>>|\.\.\.).*$|# noqa.*|\b(upper|lower|center) (left|right|center)\b", "", "\n\n".join(texts), flags=re.MULTILINE
    ), names


def sentence(string):
    """Whether a string of a program looks like text, and not like markup or code."""
    return re.search(r"\w \w", string) and not re.search(r"[<{}]|[;(]$|=[\"']|\w\(", re.sub(r"`[^`]*`|\$[^$]*\$", "", string))


def of_file(path):
    """The prose of a file, and the names that are no words."""
    if path.suffix == ".py":
        return of_code(path.read_text(encoding="utf-8"), messages="tests" not in path.parts)  # a test plants what is wrong
    return "\n\n".join(c.source if c.kind == "markdown" else of_code(c.source)[0] for c in content.page(path).cells), set()


def words(text):
    """The words of a text, without code, formulas, links, tags and addresses."""
    text = re.sub(r"^(```+|~~~).*?^\1", " ", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\{[\w:-]+\}`[^`]*`|``[^`]*``|`[^`\n]*`", " ", text)
    text = re.sub(r"\$\$.*?\$\$", " ", text.replace("\\$", " "), flags=re.DOTALL)
    text = re.sub(r"\$[^$\n]+\$|\\[a-zA-Z]+", " ", text)
    text = re.sub(r"\]\([^)]*\)|</?[A-Za-z][^>\n]*>|https?://\S+|\S+@\S+|\S+\.(?:md|py|toml|tsv|json|html|txt)\b", " ", text)
    return {re.sub(r"'s?$", "", word) for word in WORD.findall(text.replace("\u2019", "'"))}


def listed():
    return WORDS.read_text(encoding="utf-8").split()


def slips(found, locale="en-gb"):
    """{word: what it should be} of a set of words, from typos."""
    with tempfile.TemporaryDirectory() as folder:
        config, text = Path(folder, "typos.toml"), Path(folder, "words.txt")
        config.write_text(f'[default]\nlocale = "{locale}"\n', encoding="utf-8")
        text.write_text("\n".join(sorted(found)), encoding="utf-8")
        command = [TYPOS, "--isolated", "--config", config, "--format", "json", text]
        lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    reports = [r for r in map(json.loads, lines) if r["type"] == "typo"]
    return {r["typo"]: ", ".join(r["corrections"]) for r in reports}


def doubtful(found):
    """{word: advice} of the words that a dictionary does not know, of forms that are not British, and of words in two forms."""
    small = {word.lower() for word in found}
    british = slips(small, "en-us").keys() - slips(small).keys()  # the words of pyspellchecker are American
    advice = dict.fromkeys(SpellChecker(language="en", distance=1).unknown(w for w in small - british if len(w) > 2), "")
    other = {word: re.sub(r"iz(?=[aei])", "is", word) for word in small}
    return advice | slips(small) | {word: form for word, form in other.items() if form != word and form in small}


def problems(texts, known=()):
    """One line for each doubtful word of {name: (text, names)}: where it stands, and what it may be."""
    found = {name: words(text) - names for name, (text, names) in texts.items()}
    advice = doubtful(set().union(*found.values()))
    for name, here in found.items():
        for word in sorted(here):
            if word.lower() in advice and word not in known and word.lower() not in known:
                yield f"{name}: {word}" + (f" -> {advice[word.lower()]}" if advice[word.lower()] else "")


def main():
    paths = [Path(p).resolve() for p in sys.argv[1:]] or every_file()
    found = list(problems({p.relative_to(ROOT).as_posix(): of_file(p) for p in paths}, set(listed())))
    print("\n".join(found) if found else "No word is in doubt.")
    return len(found) > 0


if __name__ == "__main__":
    sys.exit(main())
