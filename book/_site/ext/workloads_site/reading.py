"""What helps to read a page: questions to be answered before their answer shows, a button that puts all code away."""

BUTTON = {
    "type": "javascript",
    "javascript": "wlCode()",
    "tooltip": "Hide or show all code",
    "icon": "fas fa-code",
    "label": "wl-code-button",
}


# on a phone the contents of a page lie over it: a tap on one of their lines leads there, so they go away
DRAWER = """document.addEventListener("click", event => {
const drawer = event.target.closest?.("dialog[open] a[href*='#']")?.closest("dialog");
if (drawer?.id.includes("secondary-sidebar")) drawer.close(); });
addEventListener("close", () => setTimeout(() => document.querySelector(".sidebar-toggle:focus")?.blur()), true);"""


def add(app, pagename, templatename, context, doctree):
    """The script and the button, on pages that have use for them."""
    body = context.get("body", "")
    code = 'class="cell_input' in body or "cell_input docutils" in body
    if code:
        context.setdefault("header_buttons", []).append(BUTTON)
    if code or "wl-guess" in body:
        app.add_js_file("reading.js", loading_method="defer")


def setup(app):
    app.add_js_file(None, body=DRAWER)
    app.connect("html-page-context", add, priority=855)  # when the theme has its buttons
