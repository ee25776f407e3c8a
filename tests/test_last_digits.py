"""The watch over printed numbers, and the stand-in for other machines: what they find, what they leave alone, in kernels too."""

import json
import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import last_digits
import nbformat
import numpy as np
import pytest
import reproducible
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "value, spec, found",
    [
        (0.285, ".2f", True),
        (2.675, ".2f", True),
        (1.005, ".2f", True),
        (-1.005, ".2f", True),  # a hair beside the tie
        (1234.5000000000002, ",.0f", True),
        (0.285, ".0%", True),
        (0.285001, ".0%", False),
        (1.25e-9 * (1 + 1e-12), ".1e", True),
        (12.345, ".4g", True),
        (0.12004999999999999, ".4g", True),
        (0.12, ".4g", False),
        (0.125, ".2f", False),
        (2.5, ".0f", False),
        (0.4375, ".3f", False),  # the tie itself
        (2.5 + 4e-9, ".0f", False),
        (2.5 + 4e-10, ".0f", True),
        (5.0, ".2f", False),
        (5, ".2f", False),
        (Fraction(57, 200), ".2f", False),
        (math.inf, ".2f", False),
        (math.nan, ".2f", False),
        ("0.285", "", False),
    ],
)
def test_a_number_beside_a_rounding_edge_is_found(value, spec, found):
    assert last_digits.on_edge(value, spec) is found


@given(whole=st.integers(-(10**6), 10**6), digits=st.integers(1, 6), off=st.sampled_from([-3e-9, -2e-10, 2e-10, 3e-9]))
def test_the_distance_counts_in_units_of_the_last_printed_digit(whole, digits, off):
    value = float((Fraction(2 * whole + 1, 2) + Fraction(off)) / 10**digits)
    real = abs(Fraction(value) * 10**digits - Fraction(2 * whole + 1, 2))  # rounded to a float it may have moved
    assert last_digits.on_edge(value, f".{digits}f") is (0 < real < 1e-9)


def test_one_float_up_and_down():
    assert last_digits.neighbour(1.0, math.inf) == 1 + 2**-52 and last_digits.neighbour(1.0, -math.inf) == 1 - 2**-53
    assert last_digits.neighbour(1.0, math.inf, exact=True) == 1 and last_digits.neighbour(1.5, math.inf, exact=True) == 1.5 + 2**-52
    assert [last_digits.neighbour(x, math.inf) for x in (0.0, math.inf, 3, "text")] == [0.0, math.inf, 3, "text"]
    moved = last_digits.neighbour(np.array([0.0, 1.0, 1.5]), math.inf, exact=True)
    assert moved.tolist() == [0, 1, 1.5 + 2**-52] and last_digits.neighbour(np.float32(1.5), -math.inf) == np.float32(1.5) - 2.0**-23


def test_a_shifted_function_keeps_exact_results_and_all_else_that_it_has():
    up = last_digits.Off(np.log2, math.inf)
    assert up(8.0) == 3 and up(np.array([8.0, 3.0])).tolist() == [3, math.nextafter(math.log2(3), 4)] and up(0.5) > -1
    out = np.zeros(1)
    assert up(np.array([3.0]), out=out) is out and out[0] > math.log2(3)
    assert up.__name__ == "log2" and up.nin == 1
    down = last_digits.Off(sum, -math.inf)
    assert down(x for x in (1.0, 2.0)) == 3 and down(x for x in (0.5, 2.25)) == math.nextafter(2.75, 0) and down([0.5, -0.5]) == 0


# --- in the kernels of nbval ----------------------------------------------------------------------------------------------


def outcomes(folder, cells, **environment):
    """What nbval makes of cells [(source, what it is stored to print)] under the settings of the project: (failed, its report)."""
    path = folder / "planted.ipynb"
    nbformat.write(
        nbformat.v4.new_notebook(
            cells=[
                nbformat.v4.new_code_cell(source, execution_count=i, outputs=[nbformat.v4.new_output("stream", text=printed + "\n")])
                for i, (source, printed) in enumerate(cells, 1)
            ]
        ),
        path,
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--color=no", "-c", str(ROOT / ".pytest.ini"), f"--rootdir={folder}"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--nbval", "--nbval-current-env", str(path)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "ONE_ULP": "", **environment},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return [int(line.split("::Cell ")[1].split()[0]) for line in lines], done.stdout


def test_a_cell_that_prints_beside_an_edge_fails(tmp_path):
    """Fields of f-strings, `format`, `round` and the library's own formatter; not what stands clear, on a tie or in full."""
    beside = [
        'f"{0.285:.2f}"',
        'f"{0.285:.{1 + 1}f}"',
        'format(0.285, ".2f")',
        "round(0.285, 2)",
        "units.number(0.285, 2)",
        'units.quantity(0.000285, "s", 2)',
        "units.binary(291.84, 2)",
    ]
    clear = 'print(f"{0.284:.2f} {2.5:.0f} {7:.2f} {0.285} {0.285!r:>6}", round(2.5), units.number(0.2851, 2), format(7), round(7, -1))'
    plain = ["0.28", "0.28", "0.28", "0.28", "0.28", "0.28 ms", "290 B"]
    cells = [("from workloads import units\n" + clear, "0.28 2 7.00 0.285  0.285 2 0.29 7 10")]
    cells += [(f"print({source})", printed) for source, printed in zip(beside, plain, strict=True)]
    failed, report = outcomes(tmp_path, cells)
    assert failed == [1, 2, 3, 4, 5, 6], report  # 291.84 B is a byte count far from an edge
    assert report.count("OnAnEdge") >= 6 and "0.285 stands within 1e-09 of a rounding edge of '.2f'" in report


MOVED = [
    "import math; print(repr(math.exp(1)))",
    "import math; print(repr(math.log(3)))",
    "x = 1.1; print(repr(x ** 3))",
    "x = 1.1; x **= 3; print(repr(x))",
    "print(repr(sum([0.1, 0.7])))",
    "import numpy as np; print(np.array([0.1, 0.7]).sum().item())",
    "import numpy as np; print((np.array([1.1]) ** 3)[0].item())",
    "from workloads.learning import scaling as s; print(repr(s.optimal_parameters(s.ScalingLaw(1, 2, 0.3, 2, 0.4), 1e21)))",  # a power
    "from workloads.serving import arrivals; print(repr(arrivals.random_times(1, 3, seed=7)[0]))",
]  # a logarithm
KEPT = [
    "import math; print(math.log2(8), math.exp(0), math.log(1), math.sqrt(2))",
    "print(2**10, 1.5 * 1.1, sum([1, 2.0]), 2.0**3)",
    "import numpy as np; print(np.exp(0.0).item(), np.sum([1.0, 2.0]).item(), np.log2(np.array([8.0])).tolist())",
]


def test_one_place_up_or_down_moves_what_machines_may_compute_otherwise_and_nothing_else(tmp_path):
    plain = [
        subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout.strip() for source in MOVED + KEPT
    ]
    cells = list(zip(MOVED + KEPT, plain, strict=True))
    assert outcomes(tmp_path, cells)[0] == []
    for way in ("up", "down"):
        failed, report = outcomes(tmp_path, cells, ONE_ULP=way)
        assert failed == list(range(len(MOVED))), report


def test_the_machines_leave_out_ever_more_of_what_numpy_finds_here():
    machines = reproducible.machines()
    dispatched = json.loads(
        subprocess.run(
            [
                sys.executable,
                "-c",
                (
                    "import json\nfrom numpy._core import _multiarray_umath as m\n"
                    "print(json.dumps([f for f in m.__cpu_dispatch__ if m.__cpu_features__[f]]))"
                ),
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    left_out = [m["NPY_DISABLE_CPU_FEATURES"].split() for m in machines.values() if "NPY_DISABLE_CPU_FEATURES" in m]
    assert len(left_out) == len(dispatched) and [len(names) for names in left_out] == list(range(1, len(dispatched) + 1))
    assert all(set(names) <= set(dispatched) for names in left_out)
    assert [m["ONE_ULP"] for m in machines.values() if "ONE_ULP" in m] == ["up", "down"]


def test_the_pages_of_the_short_form_exist():
    assert reproducible.FEW and all((ROOT / name).exists() for name in reproducible.FEW)
