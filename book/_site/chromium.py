"""Chromium on this machine: it opens the pages in the tests and the benchmarks, and prints the PDF."""

import os
import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PLACES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
MISSING = """\
Chromium is missing: none of chromium, google-chrome, msedge is on the PATH.
  Debian, Ubuntu   apt-get install chromium   (Ubuntu: chromium-browser)
  macOS            brew install --cask chromium
  Windows          winget install Google.Chrome
Google Chrome and Microsoft Edge will do. CHROMIUM=/path/to/program names one elsewhere."""


def program():
    """Path of the browser that the variable CHROMIUM names, else of the first found; None without one."""
    if named := os.environ.get("CHROMIUM"):
        return shutil.which(named)
    return next(filter(None, map(shutil.which, (*NAMES, *PLACES))), None)


def missing():
    """What to tell where `program` finds none."""
    if named := os.environ.get("CHROMIUM"):
        return f"CHROMIUM={named} names no program that can be run."
    return MISSING


if __name__ == "__main__":
    sys.exit(None if program() else missing())
