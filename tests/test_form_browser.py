"""The form in a browser without a network: a pasted model on a phone, tabs, Back, A beside B, links, files, what the browser keeps."""

import json
import re

import pytest
from calculator_inputs import TINY
from test_accessibility import ALL
from test_calculators_browser import AXE, LISTED, change, needs_python, opened, shown  # noqa: F401

from workloads_book.calculators import yours
from workloads_book.calculators.forms import CALCULATORS

PHONE = {"viewport": {"width": 360, "height": 740}, "reduced_motion": "reduce", "accept_downloads": True}
SERVE = CALCULATORS["serve"]


@pytest.fixture(scope="module")
def phone(opened):  # noqa: F811
    """The page of calculators on a phone, before the first input."""
    return opened(LISTED, **PHONE)


def drawn(page, name="serve"):
    """Wait until what takes longer is drawn, too."""
    page.wait_for_function("n => document.getElementById(n).dataset.drawn && !document.querySelector(`#${n} .wl-dim`)", arg=f"calc-{name}")


def settled(page, *parts):
    """Wait until the address holds these texts."""
    page.wait_for_function("parts => parts.every(p => location.search.includes(p))", arg=list(parts), timeout=30_000)


def reset(page):
    """All tabs as at first, the first one in sight."""
    for name in ("train", "rl", "serve"):
        page.locator(f"#tab-{name}").click()
        page.locator(f"#calc-{name} [data-reset]").click()
    page.wait_for_function("!location.search", timeout=30_000)


@needs_python
def test_on_a_phone_a_pasted_model_gives_memory_speed_price_and_curve_in_two_actions(phone):
    before = phone.locator("#calc-serve .wl-text").inner_text()
    phone.locator("#calc-serve summary", has_text="Your model").click()
    phone.locator("#calc-serve-config").fill(TINY)
    state = phone.locator("#calc-serve .wl-state")
    assert state.is_visible() and "Python" in state.inner_text()
    assert state.evaluate("e => e.parentElement.querySelector('textarea').name") == "config"
    assert phone.locator("#calc-serve .wl-text").inner_text() == before and "wl-waiting" in phone.locator("#calc-serve").get_attribute(
        "class"
    )
    text = shown(phone, "serve")
    drawn(phone)
    wanted = SERVE.answer({"config": TINY})
    assert text == wanted["text"] and "your llama" in text and "$" in text
    result = phone.locator("#calc-serve .wl-result")
    assert result.locator("svg").count() == 2 and "weights" in result.locator("svg").first.get_attribute("aria-label")
    said = result.first.inner_text()
    assert "A step of decoding: bound" in said and "four in five measured ones" in said and "a million tokens" in said
    assert phone.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert "Kept: the 7 keys" in phone.locator("#calc-serve .wl-kept").inner_text()
    assert "rms_norm_eps" not in phone.locator("#calc-serve-config").input_value()


@needs_python
def test_on_a_phone_the_answer_stays_in_sight_beside_the_field_that_is_changed(phone):
    phone.locator("#calc-serve-output").evaluate("e => e.scrollIntoView({block: 'center'})")
    top, bottom = phone.locator("#calc-serve .wl-text").evaluate("e => { const r = e.getBoundingClientRect(); return [r.top, r.bottom]; }")
    field = phone.locator("#calc-serve-output").evaluate("e => e.getBoundingClientRect().top")
    header = phone.evaluate("document.querySelector('.bd-header-article').getBoundingClientRect().bottom")
    assert header - 2 <= top and bottom < field < 740 and bottom - top < 200


@needs_python
def test_back_undoes_a_change_and_forward_repeats_it(phone):
    settled(phone, "config=")
    change(phone, "serve", "rate", "9")
    settled(phone, "rate=9")
    change(phone, "serve", "output", "300")
    settled(phone, "rate=9", "output=300")
    phone.go_back()
    phone.wait_for_function("document.getElementById('calc-serve-output').value == '256'")
    phone.wait_for_function(
        "t => document.querySelector('#calc-serve .wl-text').textContent == t", arg=SERVE.answer({"config": TINY, "rate": 9})["text"]
    )
    assert phone.locator("#calc-serve-rate").input_value() == "9"
    phone.go_forward()
    phone.wait_for_function("document.getElementById('calc-serve-output').value == '300'")
    phone.go_back()
    phone.go_back()
    phone.wait_for_function("document.getElementById('calc-serve-rate').value == '4'")
    assert "llama" in phone.locator("#calc-serve-config").input_value()


@needs_python
def test_tabs_go_by_arrow_keys_and_take_model_and_machine_along(phone):
    change(phone, "serve", "accelerator", "B200")
    phone.locator("#tab-serve").focus()
    phone.keyboard.press("ArrowRight")
    assert phone.locator("#tab-train").get_attribute("aria-selected") == "true" and phone.locator("#calc-train").is_visible()
    assert not phone.locator("#calc-serve").is_visible() and phone.evaluate("document.activeElement.id") == "tab-train"
    wanted = CALCULATORS["train"].answer({"config": TINY, "accelerator": "B200"})["text"]
    phone.wait_for_function("t => document.querySelector('#calc-train .wl-text').textContent == t", arg=wanted)
    phone.keyboard.press("End")
    wanted = CALCULATORS["rl"].answer({"config": TINY, "accelerator": "B200"})["text"]
    phone.wait_for_function("t => document.querySelector('#calc-rl .wl-text').textContent == t", arg=wanted)
    phone.keyboard.press("ArrowRight")
    assert phone.locator("#calc-serve").is_visible() and phone.locator("[role=tab][tabindex='0']").count() == 1


@needs_python
def test_a_model_that_the_library_cannot_read_is_refused_at_its_field_with_the_key(phone):
    change(phone, "serve", "config", TINY.replace("}", ', "banana": 3}'))
    error = phone.locator("#calc-serve-config-error")
    assert "banana must be a key known for family 'llama'" in error.inner_text() and error.is_visible()
    assert "No result" in phone.locator("#calc-serve .wl-text").inner_text()
    change(phone, "serve", "config", "")
    assert not error.is_visible()
    reset(phone)


@needs_python
def test_a_file_is_read_and_one_too_long_for_an_address_stays_in_the_browser(phone):
    phone.locator("#calc-serve [data-into]").set_input_files(
        {"name": "config.json", "mimeType": "application/json", "buffer": TINY.encode()}
    )
    phone.wait_for_function("document.querySelector('#calc-serve .wl-kept').textContent.startsWith('Kept: the 7')")
    spared = [f"model.layers.{k}.self_attn.{k * 7919 % 99991}" for k in range(3000)]
    long = json.dumps(json.loads(TINY) | {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": spared}})
    change(phone, "serve", "config", long)
    change(phone, "serve", "rate", "5")
    settled(phone, "rate=5")
    assert "Kept in this browser alone" in phone.locator("#calc-serve .wl-kept").inner_text() and "config" not in phone.url
    reset(phone)


@needs_python
def test_a_part_of_a_name_is_enough_and_is_written_out(phone):
    phone.locator("#calc-serve-model").fill("qwen3-8b")
    phone.keyboard.press("Tab")
    phone.wait_for_function(
        "t => document.querySelector('#calc-serve .wl-text').textContent == t", arg=SERVE.answer({"model": "Qwen3-8B"})["text"]
    )
    assert phone.locator("#calc-serve-model").input_value() == "Qwen3-8B"
    reset(phone)


@needs_python
def test_a_beside_b_and_other_calculators_stand_in_one_address(phone, opened):  # noqa: F811
    change(phone, "serve", "weights", "FP8")
    phone.locator("#calc-serve [data-freeze]").click()
    change(phone, "serve", "rate", "8")
    compared = phone.locator("#calc-serve .wl-compared")
    phone.wait_for_function("document.querySelector('#calc-serve .wl-compared th[scope=row]')?.textContent == 'Requests (1/s)'")
    rows = compared.locator("tbody").first.locator("tr")
    assert rows.count() == 1 and rows.first.inner_text().split() == ["Requests", "(1/s)", "4", "8"]
    change(phone, "audio", "buffer", "45")
    settled(phone, "calculator=serve", "against=serve", "calculator=audio")
    address = phone.url
    again = opened(LISTED + address[address.index("?") :], **PHONE)
    shown(again, "serve"), shown(again, "audio")
    again.wait_for_function("document.querySelector('#calc-serve .wl-compared table')", timeout=60_000)
    assert again.locator("#calc-serve .wl-compared").inner_text() == compared.inner_text()
    assert again.locator("#calc-audio-buffer").input_value() == "45" and again.locator("#calc-serve-weights").input_value() == "FP8"
    assert not again.trouble
    again.context.close()
    phone.locator("#calc-serve [data-freeze]").click()
    assert not compared.is_visible()
    phone.locator("#calc-audio [data-reset]").click()
    reset(phone)


@needs_python
def test_tables_and_drawings_are_given_as_files(phone):
    files = {}
    for kind in ("csv", "svg", "png"):
        # one press gives a file for each drawing: the later ones of the press before may still come
        with phone.expect_download(lambda d, kind=kind: d.suggested_filename.endswith(f".{kind}")) as download:
            phone.locator(f"#calc-serve [data-{kind}]").click()
        files[kind] = download.value.path().read_bytes()
    lines = files["csv"].decode().splitlines()
    assert lines[1].startswith('answer,"One H100 SXM keeps') and "Model (type a part of its name),Llama-3.1-8B" in lines
    assert any(re.match(r"first token,[\d.]+ ms,", line) for line in lines)
    assert files["svg"].startswith(b"<svg") and b"rgb(" in files["svg"] and files["png"].startswith(b"\x89PNG") and len(files["png"]) > 5000


@needs_python
def test_the_browser_offers_the_last_model_and_machine(phone):
    change(phone, "serve", "config", TINY)
    settled(phone, "config=")
    phone.goto(phone.url.partition("?")[0])
    button = phone.locator(".wl-stored")
    assert button.is_visible() and not [u for u in phone.asked[-3:] if "worker" in u]
    button.click()
    assert shown(phone, "serve") == SERVE.answer({"config": yours.kept(TINY)["text"]})["text"] and not button.is_visible()


@needs_python
def test_all_tabs_keep_the_rules_of_accessibility_with_everything_unfolded(phone):
    if not AXE.exists():
        pytest.skip("axe is not installed")
    phone.evaluate(AXE.read_text(encoding="utf8"))
    for name in ("train", "rl", "serve"):
        phone.locator(f"#tab-{name}").click()
        shown(phone, name)
        phone.wait_for_function("!document.querySelector('.wl-tabs .wl-dim, .wl-tabs .wl-waiting')")
        phone.wait_for_timeout(300)  # until nothing fades any more
        phone.evaluate("n => document.querySelectorAll(`#calc-${n} details`).forEach(d => { d.open = true; })", name)
        found = phone.evaluate(
            "rules => axe.run('.wl-tabs', {runOnly: rules}).then(r => r.violations.map(v => [v.id, v.nodes[0].html.slice(0, 150)]))", ALL
        )
        assert found == [] and phone.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert not phone.trouble
