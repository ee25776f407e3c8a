"""The wheels of the book's two packages: whole, installable, the formulas apart from the book, and without what solutions compute."""

import functools
import http.server
import io
import json
import re
import shutil
import subprocess
import sys
import threading
import zipfile

import pytest
from conftest import ROOT, Quiet

from workloads_book.calculators import CALCULATORS

sys.path[:0] = [str(ROOT / "book/_site"), str(ROOT / "book/_site/ext")]
import assignment
import class_site
import content
import packing
from workloads_site import calculators, install

WHEELS = packing.wheels()
LEDGER = json.loads((ROOT / "lib" / packing.LEDGER).read_text(encoding="utf-8"))
KEPT = {row["id"] for row in json.loads(packing.files("workloads_book")[packing.LEDGER])}


def held(package):
    """{path: text} of a package's wheel."""
    name = next(name for name in WHEELS if name.startswith(f"{package}-"))
    with zipfile.ZipFile(io.BytesIO(WHEELS[name])) as packed:
        assert packed.testzip() is None
        return {path: packed.read(path).decode() for path in packed.namelist()}


def test_who_only_counts_gets_formulas_and_facts_and_nothing_of_the_book():
    files = held("workloads")
    kinds = {path.rpartition(".")[2] for path in files if ".dist-info/" not in path}
    assert {path.partition("/")[0] for path in files} == {"workloads", f"workloads-{packing.project('workloads')['version']}.dist-info"}
    assert kinds <= {"py", "tsv", "toml", "typed"} and not [p for p in files if re.search("ledger|answers|calculators|plot", p)]
    assert not re.search("^Requires-Dist", next(text for path, text in files.items() if path.endswith("METADATA")), re.MULTILINE)


@pytest.mark.parametrize("package", packing.PROJECTS)
def test_the_wheels_hold_what_setuptools_puts_in(package, tmp_path):
    """As pyproject.toml tells it, for those who install from the repository."""
    pytest.importorskip("setuptools")
    shutil.copytree(packing.PROJECTS[package], tmp_path / "lib", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    code = "import setuptools.build_meta as b; b.build_wheel('.')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "lib", check=True, capture_output=True)
    with zipfile.ZipFile(next((tmp_path / "lib").glob("*.whl"))) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
    assert names == {name for name in held(package) if ".dist-info/" not in name}


def test_the_same_files_give_the_same_wheels():
    assert packing.wheels() == WHEELS


def test_no_row_that_only_a_solution_computes_is_in_the_ledger_of_the_wheel():
    on_chapters = packing.on_chapters()
    dropped = {row["id"] for row in LEDGER} - KEPT
    assert dropped == {row["id"] for row in LEDGER if row["role"] == "exercise" and row["id"] not in on_chapters}
    solved = {
        record["id"] for path in assignment.exercises().values() for record in content.page(path).records if record["kind"] == "check"
    }
    assert dropped == solved - on_chapters and len(dropped) > 50
    assert [row for row in LEDGER if row["id"] in KEPT] == json.loads(packing.files("workloads_book")[packing.LEDGER])


def test_neither_ids_nor_formulas_of_these_rows_are_in_the_wheels():
    rows = class_site.hidden_rows()
    texts = {**held("workloads"), **held("workloads_book")}
    assert len(rows) > 100 and {path for path, text in texts.items() if any(row in text for row in rows)} == set()
    assert all(row in (ROOT / "lib" / packing.LEDGER).read_text(encoding="utf-8") for row in rows if row.startswith('"id"'))


def digits(value):
    """A value as texts show it: its seven first digits, or nothing where it has fewer."""
    text = re.sub(r"e.*|\D", "", repr(value)).lstrip("0")
    return text[:7] if len(text.rstrip("0")) >= 7 else None


def test_no_value_of_these_rows_is_in_the_wheels():
    """Their long values: short ones, such as 0.5, stand everywhere. What a chapter has too is no secret."""
    numbers = [(row["id"] in KEPT, row[key]) for row in LEDGER for key in ("expected", "value") if isinstance(row[key], (int, float))]
    hidden = {value for kept, value in numbers if not kept}
    text = "\n".join([*held("workloads").values(), *held("workloads_book").values()])
    written = {digits(float(n)) for n in re.findall(r"(?<![\w.])\d+\.?\d*(?:e[+-]?\d+)?(?![\w.])", text)} - {None}
    secret = {digits(value) for value in hidden} - {digits(value) for kept, value in numbers if kept} - {None}
    assert len(secret) > 15 and secret & written == set()


def test_pip_takes_the_wheels(tmp_path):
    for name, data in WHEELS.items():
        (tmp_path / name).write_bytes(data)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", tmp_path / "there", *tmp_path.glob("*.whl")], check=True)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'there')!r})\nimport workloads as wl\nfrom workloads_book import answers, ledger\n"
        "print(ledger.__file__, wl.parameters(wl.model('Qwen3-8B')).total, len(ledger.rows()), bool(answers.exercises()))"
    )
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == [str(tmp_path / "there/workloads_book/ledger.py"), "8190735360", str(len(KEPT)), "True"]


def test_the_line_of_pip_takes_the_wheels_of_the_site_and_every_copied_program_runs(tmp_path):
    """From a server on this machine, without an index, into a folder of its own; with nothing but the standard library beside it."""
    app = type("App", (), {"builder": type("Builder", (), {"format": "html"}), "outdir": tmp_path / "site"})
    (tmp_path / "site").mkdir()
    (tmp_path / "site/wheels").mkdir()
    (tmp_path / "site/wheels/workloads-0.0.1-py3-none-any.whl").write_bytes(b"old")
    install.write(app, None)
    assert {p.name: p.read_bytes() for p in (tmp_path / "site/wheels").iterdir()} == WHEELS
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path / "site"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command, *words = re.search(r"<code[^>]*>(.*?)</code>", install.line())[1].split()
    wheels = [f"http://127.0.0.1:{server.server_port}/{word}" for word in words if word.endswith(".whl")]  # as install.js writes it
    assert (command, words[:2], len(wheels)) == ("pip", ["install", "--no-deps"], 2)
    apart = ["--no-index", "--isolated", "-q", "--disable-pip-version-check", "--target", tmp_path / "there"]
    subprocess.run([sys.executable, "-m", "pip", *words[:2], *apart, *wheels], check=True)
    server.shutdown()
    programs = {name: calculator.answer({})["code"] for name, calculator in CALCULATORS.items()}
    code = (
        f"import sys, json; sys.path.insert(0, {str(tmp_path / 'there')!r})\n"
        f"for name, program in json.loads({json.dumps(programs)!r}).items(): exec(program, {{}})"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(calculator.answer({})["text"] + "\n" for calculator in CALCULATORS.values())


def test_a_form_has_one_note_which_its_script_rewrites_and_the_line_of_pip_beside_it():
    html = calculators.form("audio")
    assert html.count('class="wl-note"') == 1 and html.count('class="wl-pip"') == 1
    assert 'class="wl-pip"' in html.partition('class="wl-code"')[2].partition("</details>")[0]
