"""Run a notebook whose code nobody has read: in a process of its own, under limits, away from everything else.

With bubblewrap (`bwrap`) the code sees a small private machine: system libraries and the book's library to read, a folder in memory to
write, its own processes, no network, no other file, nothing of the environment of the one who grades. Without it only the limits hold,
and the code can read and write what the one who grades can; `watched` then notices and undoes changes in the folders it is given.

Neither protects from code that forges its own results: tests run in the kernel of the code they test. Nor is the Linux kernel of the
machine a border against someone who knows a hole in it; for that use a container or virtual machine of its own.
"""

import argparse
import base64
import contextlib
import ctypes
import json
import os
import queue
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv/bin/python"  # the book's environment: students' code runs with the versions of the book
WHOLE = 8 * 2**20  # bytes of a file that can be put back
LITTER = re.compile(
    r"\.~lock\..*#|~\$.*|\.DS_Store|\._.*|Thumbs\.db|desktop\.ini|\..*\.sw[a-p]|\.goutputstream-.*|\.nfs.*|\.sync.*", re.IGNORECASE
)  # what editors, desktops and clouds put beside files
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/fonts", "/etc/localtime", "/etc/alternatives")
BARE = {"PATH": "/usr/local/bin:/usr/bin:/bin"}  # for bubblewrap itself: its first process shows its environment in /proc
GRACE = 40  # s for starting and stopping, on top of the time for the cells
LOOK = 0.2  # s between two looks at what all processes of a notebook use together


@dataclass(frozen=True)
class Limits:
    """What one notebook may use.

    Seconds of wall time; bytes of address space a process, and of memory all together; processes; bytes a file, of output, on disk.
    """

    seconds: float = 60
    memory: int = 4 * 2**30
    processes: int = 128
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
        "PYTHONPATH": str(ROOT / "lib"),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@cache
def _base():
    """Folder of the Python that the environment was made with."""
    return subprocess.run([PYTHON, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True).stdout.strip()


@cache
def _no_nesting():
    """The words that forbid further user namespaces in the box (they would open more of the system's kernel), where bubblewrap can."""
    words = ["--unshare-user", "--disable-userns"]
    run = subprocess.run([shutil.which("bwrap") or "bwrap", *words, "--ro-bind", "/", "/", "true"], capture_output=True, env=BARE)
    return words[1:] if run.returncode == 0 else []


def _boxed(limits):
    """The command that runs what follows it in a private machine."""
    seen = [str(p) for p in (*SYSTEM, _base(), PYTHON.parents[1], ROOT / "lib", Path(__file__))]
    mounts = [word for path in dict.fromkeys(seen) for word in ("--ro-bind-try", path, path)]
    environment = [word for k, v in _environment("/tmp/work").items() for word in ("--setenv", k, v)]
    nobody = "--unshare-all --unshare-user --uid 65534 --gid 65534 --cap-drop ALL --die-with-parent --new-session --hostname student"
    devices = "--proc /proc --dev /dev --remount-ro /dev"
    room = f"--size {limits.disk} --tmpfs /tmp --dir /tmp/work"  # before the mounts: one of them may lie in the temporary folder
    last = "--remount-ro / --chdir /tmp/work --clearenv"  # all else is read-only
    return [
        shutil.which("bwrap") or "bwrap",
        *nobody.split(),
        *_no_nesting(),
        *room.split(),
        *mounts,
        *devices.split(),
        *last.split(),
        *environment,
        "--",
    ]


@cache
def unboxed():
    """Why bubblewrap can't be used (inside some containers it is forbidden); nothing if it can."""
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed"
    run = subprocess.run([*_boxed(Limits()), PYTHON, "-c", "pass"], capture_output=True, timeout=60, env=BARE)
    return "" if run.returncode == 0 else run.stderr.decode(errors="replace").strip() or "bubblewrap failed"


def boxes():
    """Whether bubblewrap is here and works."""
    return not unboxed()


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


def _children(process=None, all_below=False):
    """Ids of the processes that come from one (this one, if none is named)."""
    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(process).children(recursive=all_below)]
    return []


def _students(first):
    """Those of them that the notebook started: all that come from the process which runs it."""
    for process in [first, *_children(first, True)]:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(os.fsencode(f"{PYTHON}\0-I\0{Path(__file__)}\0--inside\0")):
                return _children(process, True)
    return []


def _held(processes, limit):
    """Bytes of memory that processes hold together; what they share is counted once, if it matters."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += psutil.Process(process).memory_info().rss
        with contextlib.suppress(OSError):  # files in memory that no process has mapped
            for fd in os.scandir(f"/proc/{process}/fd"):
                if os.readlink(fd.path).startswith("/memfd:"):
                    total += os.stat(fd.path).st_blocks * 512
    if total > limit:
        for process in processes:
            with contextlib.suppress(psutil.Error, AttributeError):
                shares = psutil.Process(process).memory_full_info()
                total -= shares.rss - shares.pss
    return total


def _too_much(child, limits):
    """What all processes of a notebook together have too much of; nothing if they have not. Those that have are ended."""
    processes = _students(child.pid)
    if len(processes) > limits.processes:
        why = f"more than {limits.processes} processes"
    elif _held(processes, limits.memory) > limits.memory:
        why = f"more than {limits.memory:,} bytes of memory in all processes together"
    else:
        return ""
    for _ in range(100):  # they may start others meanwhile
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not (processes := [p for p in _students(child.pid) if _held([p], float("inf"))]):  # one that ended holds nothing
            break
        time.sleep(0.01)
    return why


def _end(child, before, boxed):
    """End a process, its group, and (in a box they end by themselves) whatever it left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    # an ended process hands its own children over, so again until none is left
    while not boxed and (left := set(_children()) - before):
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


def execute(sources, limits=Limits(), isolation="auto", files=None):
    """Run the code cells of a notebook in one kernel, with files {name: bytes} in its folder: a `Run`.

    Isolation is "bwrap", "limits", or "auto": the first where it works.
    """
    if isolation not in ("auto", "bwrap", "limits"):
        raise ValueError(f"isolation must be auto, bwrap or limits, got {isolation!r}")
    if isolation == "bwrap" and not boxes():
        raise ValueError(f"isolation is bwrap, but {unboxed()}")
    boxed = isolation != "limits" and boxes()
    packed = {name: base64.b64encode(data).decode() for name, data in (files or {}).items()}
    order = json.dumps({"sources": sources, "limits": vars(limits), "files": packed}).encode()
    with tempfile.TemporaryDirectory(prefix="notebook-", ignore_cleanup_errors=True) as folder:
        place = {"env": BARE} if boxed else {"cwd": folder, "env": _environment(folder)}
        # without a box, processes that the notebook starts may leave its group: they then become children of this one, and are found
        before = set(_children())
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
            why, last = "", time.monotonic() + limits.seconds + 2 * GRACE
            while reader.is_alive() and time.monotonic() < last:
                reader.join(LOOK)
                why = why or _too_much(child, limits)
        finally:
            _end(child, before, boxed)
    return _result(got[0] if got else b"", len(sources), limits, why)


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


def _result(data, cells, limits, why=""):
    """What the other side sent, checked; without a complete answer no cell counts."""
    try:
        answer = json.loads(data)
        outputs = [[_output(o) for o in cell] for cell in answer["outputs"]]
        stopped = answer["stopped"]
        if len(outputs) != cells or not (stopped is None or (0 <= int(stopped[0]) <= cells and isinstance(stopped[1], str))):
            raise ValueError("malformed answer")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        reason = why or f"the run gave no result within {limits.seconds:g} s, or destroyed it"
        return Run([[error("Stopped", reason)] for _ in range(cells)], (0, reason))
    if stopped is not None:
        at, reason = int(stopped[0]), why or stopped[1][:300]
        for i, cell in enumerate(outputs):
            if i >= at:
                cell.append(error("Stopped", reason) if i == at else error("NotRun", f"the run was stopped before this cell: {reason}"))
        stopped = (at, reason)
    return Run(outputs, stopped)


def _state(path):
    """What a path holds: target of a link, None for a folder, bytes of a small file, else its size and time (which is not put back)."""
    mode = path.lstat()
    if stat.S_ISLNK(mode.st_mode):
        return os.readlink(path)
    if stat.S_ISDIR(mode.st_mode):
        return None
    if stat.S_ISREG(mode.st_mode) and mode.st_size <= WHOLE:
        return path.read_bytes()
    return mode.st_mode, mode.st_size, mode.st_ctime_ns


def _contents(folders, aside):
    """{path: its state} of all that lies in the folders, but for what editors, desktops and clouds put there."""
    found = {}
    for path in (p for folder in folders if folder.exists() for p in (folder, *folder.rglob("*"))):
        if not path.is_relative_to(aside) and not LITTER.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                found[path] = _state(path)
    return found


def stamps(folders):
    """{path: size and time of change} of all files below the folders."""
    found = {}
    for folder in folders:
        for place, _, files in os.walk(folder):
            for name in files:
                with contextlib.suppress(FileNotFoundError):
                    mode = os.lstat(path := os.path.join(place, name))
                    found[path] = mode.st_size, mode.st_ctime_ns
    return found


def touched(before, after):
    """Paths that differ between two `stamps`; new bytecode is not counted, as any import of the book may write it."""
    new = [p for p in after.keys() - before.keys() if not p.endswith(".pyc") and ".pyc." not in p]
    return sorted(new + [p for p, stamp in before.items() if after.get(p) != stamp])


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
    elif isinstance(content, bytes):
        path.write_bytes(content)


@contextlib.contextmanager
def watched(folders, aside):
    """Compare the folders before and after; put everything back as it was, what is new or changed into ``aside``; hand out a list of it.

    Whatever changes there meanwhile counts, whoever did it, so this is for code that runs without a box: nobody else should work in these
    folders then. Lock files of editors and the like don't count.
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
                if not isinstance(content, tuple):
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
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: the kernel's processes can't open what this one holds
    for name, data in order["files"].items():
        Path(Path(name).name).write_bytes(base64.b64decode(data))
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
