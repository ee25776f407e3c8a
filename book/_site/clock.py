"""How long the `make` that calls this has taken: `clock.py $$PPID "make book" --wall 250` in its recipe.

Time of the processor, which a busy machine changes little, counts all processes that have ended. Over a limit there is a warning,
never a failure. Systems without /proc are told nothing.
"""

import argparse
import os
import time
from pathlib import Path


def spent(pid, proc=Path("/proc")):
    """(seconds since the process began, seconds of processor time of it and its ended children)."""
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / tick, sum(map(int, fields[11:15])) / tick


def minutes(seconds):
    """Seconds, or minutes from two on, as text."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} minutes".replace(".0 ", " ")


def sentence(name, wall, cpu, limits):
    """What was taken and what may be; limits in seconds, of "time" and of "processor time"."""
    taken = {"time": wall, "processor time": cpu}
    text = f"{name}: " + ", ".join(f"{minutes(seconds)} of {what}" for what, seconds in taken.items())
    text += f" (limit: {', '.join(f'{minutes(most)} of {what}' for what, most in limits.items())})"
    return f"WARNING, over the limit: {text}" if any(taken[what] > most for what, most in limits.items()) else text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pid", type=int)
    parser.add_argument("name")
    parser.add_argument("--wall", type=float, help="seconds that it may take")
    parser.add_argument("--cpu", type=float, help="seconds of processor time that it may take")
    a = parser.parse_args()
    if Path("/proc/self/stat").exists():
        given = {"time": a.wall, "processor time": a.cpu}
        print(sentence(a.name, *spent(a.pid), {what: most for what, most in given.items() if most}))


if __name__ == "__main__":
    main()
