"""Run a notebook whose code nobody has read: in a process of its own, under limits, away from everything else.

With bubblewrap (`bwrap`) the code sees a small private machine: system libraries and the book's library to read, an empty folder in
memory to write, its own processes, no network, no other file. Without it only the limits hold, and the code can read and write what
the one who grades can; `watched` then notices and undoes changes in the folders it is given.

Neither protects from code that forges its own results: tests run in the kernel of the code they test. Nor is the Linux kernel of the
machine a border against someone who knows a hole in it; for that use a container or virtual machine of its own.
"""

import argparse
import contextlib
import ctypes
import json
import os
import queue
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv/bin/python"  # the book's environment: students' code runs with the versions of the book
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/fonts", "/etc/localtime", "/etc/alternatives")
GRACE = 40  # s for starting and stopping, on top of the time for the cells


@dataclass(frozen=True)
class Limits:
    """What one notebook may use: seconds of wall time, bytes of address space a process, bytes a file, bytes of output, bytes on disk."""

    seconds: float = 60
    memory: int = 4 * 2**30
    file: int = 16 * 2**20
    output: int = 2**20
    disk: int = 64 * 2**20


@dataclass(frozen=True)
class Run:
    """Outputs of each code cell, and why the run was stopped: (index of the cell, reason), or None."""

    outputs: list
    stopped: tuple | None


def error(name, text):
    """A cell output that graders count as a failure."""
    return {"output_type": "error", "ename": name, "evalue": text, "traceback": [f"{name}: {text}"]}


# The side of the one who grades


def _environment(home):
    kept = {k: os.environ[k] for k in ("LANG", "LC_ALL", "TZ") if k in os.environ}
    return kept | {
        "PATH": f"{PYTHON.parent}:/usr/bin:/bin",
        "HOME": home,
        "TMPDIR": home,
        "MPLCONFIGDIR": f"{home}/.mpl",
        "IPYTHONDIR": f"{home}/.ipython",
        "JUPYTER_RUNTIME_DIR": f"{home}/.jupyter",
        "USER": "student",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@cache
def _base():
    """Folder of the Python that the environment was made with."""
    return subprocess.run([PYTHON, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True).stdout.strip()


def _boxed(limits):
    """The command that runs what follows it in a private machine."""
    seen = [str(p) for p in (*SYSTEM, _base(), PYTHON.parents[1], ROOT / "lib", Path(__file__))]
    mounts = [word for path in dict.fromkeys(seen) for word in ("--ro-bind-try", path, path)]
    environment = [word for k, v in _environment("/tmp/work").items() for word in ("--setenv", k, v)]
    nobody = "--unshare-all --unshare-user --uid 65534 --gid 65534 --cap-drop ALL --die-with-parent --new-session --hostname student"
    devices = "--proc /proc --dev /dev --remount-ro /dev"
    room = f"--size {limits.disk} --tmpfs /tmp --dir /tmp/work --remount-ro / --chdir /tmp/work"  # all else is read-only
    return ["bwrap", *nobody.split(), *mounts, *devices.split(), *room.split(), "--clearenv", *environment, "--"]


@cache
def boxes():
    """Whether bubblewrap is here and works (inside some containers it is forbidden)."""
    if not shutil.which("bwrap"):
        return False
    return subprocess.run([*_boxed(Limits()), PYTHON, "-c", "pass"], capture_output=True, timeout=60).returncode == 0


def _limit(limits):
    """Set what the system enforces, for this process and all that come from it."""
    for what, value in (
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, int(limits.seconds) + GRACE),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (value, value) if hard == resource.RLIM_INFINITY else (min(value, hard), hard))


def _adopt():
    """Become the parent of processes that outlive their own (Linux), so that none of them escapes."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children():
    """Ids of this process's children, as /proc tells them."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found


def _end(child, before, boxed):
    """End a process, its group, and (in a box they end by themselves) whatever it left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    # an ended process hands its own children over, so again until none is left
    while not boxed and (left := _children() - before):
        for process in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)


def _read(pipe, most, into):
    """Read at most so many bytes, then let the writer stand."""
    data = b""
    while len(data) <= most and (piece := pipe.read1(2**16)):
        data += piece
    into.append(data)


def execute(sources, limits=Limits(), isolation="auto"):
    """Run the code cells of a notebook in one kernel: a `Run`. Isolation is "bwrap", "limits", or "auto": the first where it works."""
    if isolation not in ("auto", "bwrap", "limits"):
        raise ValueError(f"isolation must be auto, bwrap or limits, got {isolation!r}")
    if isolation == "bwrap" and not boxes():
        raise ValueError("isolation is bwrap, but bubblewrap is missing or may not work here")
    boxed = isolation != "limits" and boxes()
    order = json.dumps({"sources": sources, "limits": vars(limits)}).encode()
    with tempfile.TemporaryDirectory(prefix="notebook-", ignore_cleanup_errors=True) as folder:
        place = {} if boxed else {"cwd": folder, "env": _environment(folder)}
        # without a box, processes that the notebook starts may leave its group: they then become children of this one, and are found
        before = _children()
        if not boxed:
            _adopt()
        child = subprocess.Popen(
            [*(_boxed(limits) if boxed else []), PYTHON, "-I", str(Path(__file__)), "--inside"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **place,
        )
        got = []
        # the reader stops at a limit, so a notebook that writes without end fills neither memory nor the pipe's other side
        reader = threading.Thread(target=_read, args=(child.stdout, 20 * limits.output + 2**20, got), daemon=True)
        reader.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(order)
                child.stdin.close()
            reader.join(limits.seconds + 2 * GRACE)
        finally:
            _end(child, before, boxed)
    return _result(got[0] if got else b"", len(sources), limits)


OUTPUTS = {
    "stream": {"name": str, "text": str},
    "error": {"ename": str, "evalue": str, "traceback": list},
    "display_data": {"data": dict, "metadata": dict},
    "execute_result": {"data": dict, "metadata": dict, "execution_count": int},
}


def _output(output):
    """An output with the known fields of its kind and nothing else; anything odd is an error."""
    fields = OUTPUTS[output["output_type"]]
    kept = {k: output[k] for k in fields}
    wrong = any(not isinstance(kept[k], kind) for k, kind in fields.items())
    texts = [
        *kept.get("traceback", ()),
        *kept.get("data", {}).keys(),
        *(v for k, v in kept.get("data", {}).items() if not k.endswith("json")),
    ]
    if wrong or not all(isinstance(t, str) for t in texts):
        raise ValueError("malformed output")
    return {"output_type": output["output_type"], **kept}


def _result(data, cells, limits):
    """What the other side sent, checked; without a complete answer no cell counts."""
    try:
        answer = json.loads(data)
        outputs = [[_output(o) for o in cell] for cell in answer["outputs"]]
        stopped = answer["stopped"]
        if len(outputs) != cells or not (stopped is None or (0 <= int(stopped[0]) <= cells and isinstance(stopped[1], str))):
            raise ValueError("malformed answer")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        reason = f"the run gave no result within {limits.seconds:g} s, or destroyed it"
        return Run([[error("Stopped", reason)] for _ in range(cells)], (0, reason))
    if stopped is not None:
        at, reason = int(stopped[0]), stopped[1][:300]
        for i, cell in enumerate(outputs):
            if i >= at:
                cell.append(error("Stopped", reason) if i == at else error("NotRun", f"the run was stopped before this cell: {reason}"))
        stopped = (at, reason)
    return Run(outputs, stopped)


def _contents(folders, aside):
    """{path: bytes of a file, target of a link, or None for a folder} of all that lies in the folders."""
    found = {}
    for path in (p for folder in folders if folder.exists() for p in (folder, *folder.rglob("*"))):
        if not path.is_relative_to(aside):
            found[path] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


def _put_aside(path, aside):
    """Move what lies at a path into the folder for such things; nothing is destroyed."""
    if path.is_symlink() or path.exists():
        aside.mkdir(parents=True, exist_ok=True)
        shutil.move(path, aside / f"{len(list(aside.iterdir())):04}-{path.name}")


def _put_back(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.mkdir()
    elif isinstance(content, str):
        path.symlink_to(content)
    else:
        path.write_bytes(content)


@contextlib.contextmanager
def watched(folders, aside):
    """Compare the folders before and after; put everything back as it was, what is new or changed into ``aside``; hand out a list of it.

    Whatever changes there meanwhile counts, whoever did it: nobody else should work in these folders.
    """
    before, changes = _contents(folders, aside), []
    try:
        yield changes
    finally:
        after = _contents(folders, aside)
        for path in sorted(after.keys() - before.keys()):
            changes.append(f"new: {path.name}")
            _put_aside(path, aside)
        for path, content in before.items():
            if path not in after or after[path] != content:
                changes.append(f"{'changed' if path in after else 'removed'}: {path.name}")
                _put_aside(path, aside)
                _put_back(path, content)


# The side of the notebook


class Stop(Exception):
    """The run ends here; the text says why."""


def _run_cell(client, manager, source, limits, deadline, budget):
    """Outputs of one cell; `budget` is a list that holds the bytes of output left."""
    from nbformat.v4 import output_from_msg

    sent, outputs = client.execute(source, allow_stdin=False, stop_on_error=False), []
    while True:
        if time.monotonic() > deadline:
            raise Stop(f"the time of {limits.seconds:g} s is used up", outputs)
        try:
            message = client.get_iopub_msg(timeout=0.5)
        except queue.Empty:
            if not manager.is_alive():
                raise Stop("the kernel died (out of memory, or it ended itself)", outputs) from None
            continue
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != sent:
            continue
        if kind == "status" and content["execution_state"] == "idle":
            return outputs
        if kind in OUTPUTS:
            budget[0] -= len(json.dumps(content))
            if budget[0] < 0:
                raise Stop(f"more than {limits.output:,} bytes of output", outputs)
            output = output_from_msg(message)
            if kind == "stream" and outputs and outputs[-1]["output_type"] == "stream" and outputs[-1]["name"] == output["name"]:
                outputs[-1]["text"] += output["text"]
            else:
                outputs.append(output)


def _inside():
    """Read the order, run the cells in a fresh kernel, write the outputs; nothing else may write where they go."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    order = json.load(sys.stdin)
    limits = Limits(**order["limits"])
    _limit(limits)
    # the way out was kept above; the kernel that starts now inherits nothing of it
    with open(os.devnull, "r+b") as null:
        for standard in (0, 1, 2):
            os.dup2(null.fileno(), standard)
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=os.getcwd(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=GRACE)
    outputs = [[] for _ in order["sources"]]
    stopped = None
    deadline = time.monotonic() + limits.seconds
    budget = [limits.output]
    for i, source in enumerate(order["sources"]):
        try:
            outputs[i] = _run_cell(client, manager, source, limits, deadline, budget)
        except Stop as stop:
            outputs[i], stopped = stop.args[1], (i, stop.args[0])
            break
    json.dump({"outputs": outputs, "stopped": stopped}, out)
    out.flush()
    manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inside", action="store_true", required=True)
    parser.parse_args()
    _inside()
