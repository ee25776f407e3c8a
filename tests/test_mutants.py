"""The accounts of seeded faults: who gets how many places, what counts as found, which goal is missed."""
import mutants
import pytest
from conftest import ROOT


@pytest.mark.parametrize("count, quota", [(0, {"small": 6, "middle": 20, "large": 20}), (200, {"small": 6, "middle": 20, "large": 174}),
                                          (10**6, {"small": 6, "middle": 44, "large": 450})])
def test_a_small_module_gets_its_least_or_all_it_has_and_a_large_one_its_part(count, quota):
    sizes = {"small": 6, "middle": 44, "large": 450}            # of 500: 1.2, 8.8 and 90%, which is 180 of 200
    assert mutants.quotas(sizes, count, 20) == quota | {"large": min(450, max(20, count * 9 // 10))}


def test_a_survivor_with_a_reason_is_no_fault():
    found = mutants.shares(["a"] * 10 + ["b"] * 3, ["a", "a", "b"], ["a", "b"])
    assert found == {"a": (8, 9), "b": (2, 2)}


def test_the_share_of_all_counts_a_module_by_its_size_and_not_by_what_was_drawn():
    found = {"small": (10, 20), "large": (20, 20)}
    assert mutants.overall(found, {"small": 100, "large": 900}) == pytest.approx(0.95)      # 0.1 x 0.5 + 0.9 x 1; of those drawn 0.75
    assert mutants.overall({**found, "excused": (0, 0)}, {"small": 100, "large": 900, "excused": 500}) == pytest.approx(0.95)
    assert mutants.overall({}, {}) == 1


def test_both_goals_are_asked_and_time_that_was_over_is_no_success():
    sizes = {"a": 100, "b": 900}
    assert mutants.shortfalls({"a": (18, 20), "b": (20, 20)}, sizes, {}) == []
    assert mutants.shortfalls({"a": (17, 20), "b": (20, 20)}, sizes, {}) == ["a: 17 of 20, below 90%"]
    assert mutants.shortfalls({"a": (20, 20), "b": (93, 100)}, sizes, {}) == ["93.7% of all, below 95%"]       # 0.1 x 1 + 0.9 x 0.93
    assert mutants.shortfalls({"a": (0, 0), "b": (20, 20)}, sizes, {"a": 3}) == ["a: the time was over before 3 of its faults were tried"]


def test_the_report_says_what_survived_and_whether_a_goal_is_missed(capsys, monkeypatch):
    monkeypatch.setattr(mutants, "known", lambda: {("a", "x = 1", "x = 2"): "no one looks"})
    monkeypatch.setattr(mutants, "outdated", lambda reasons: [("a", "z = 1")])
    faults = [("a", 1, "operator", 0)] * 3 + [("b", 1, "operator", 0)]
    assert mutants.report(faults, [None, ("x = 1", "x = 2"), False, ("y = 1", "y = 2")], {"a": 3, "b": 1}, seed=7, minutes=2)
    said = capsys.readouterr().out
    assert "a line that a no longer has: z = 1" in said and "no one looks" in said and said.count("NOT EXPLAINED") == 1
    assert "a               1 of    1 found, 100.0%" in said and "b               0 of    1 found,   0.0%" in said
    assert "1 of 3 faults found, 1 that change nothing a test could see left out: 75.0%" in said
    assert "GOAL MISSED: b: 0 of 1" in said and "GOAL MISSED: a: the time was over before 1" in said
    assert not mutants.report(faults[:1], [None], {"a": 3}, seed=7, minutes=2)


def test_every_module_of_formulas_is_tried_and_has_tests_of_its_own():
    assert [m for m in mutants.MODULES if not (ROOT / f"tests/test_{mutants.OWN.get(m, m)}.py").is_file()] == []


def test_every_excused_fault_changes_something_and_has_a_reason():
    assert [fault for fault, reason in mutants.known().items() if fault[1] == fault[2] or len(reason) < 10] == []


def test_a_reason_for_a_line_that_is_gone_is_told():
    lines = {"queues": "return mg1_wait(arrival_rate, service, 0)", "flops": "nobody = 1"}
    assert mutants.outdated({(module, line, "x"): "no one looks" for module, line in lines.items()}) == [("flops", "nobody = 1")]
