"""What pages show with: figures that draw what they are given, numbered figures and tables, questions with a folded answer."""

import re

import matplotlib.style
import pytest
from matplotlib.figure import Figure

import workloads as wl
from workloads_book import drawings, figures, page

TEXT = re.compile(r"<text[^>]*>([^<]*)</text>")


@pytest.fixture
def ax():
    with matplotlib.rc_context():
        matplotlib.style.use(figures.STYLE)
        yield Figure(figsize=figures.SIZE).subplots()


@pytest.fixture
def shown(monkeypatch):
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw=False: outputs.append(data if raw else {"text/markdown": data.data}))
    monkeypatch.setattr(figures, "_counted", {})
    return outputs


def widths(ax):
    return [[bar.get_width() for bar in group] for group in ax.containers]


def said(ax):
    return [text.get_text() for text in ax.texts]


def test_bars_are_as_long_as_their_numbers_the_first_on_top(ax):
    figures.draw_bars(ax, {"a": 3, "b": 1500.4}, x="s")
    assert widths(ax) == [[3, 1500.4]] and said(ax) == ["3", "1,500"]
    bottom, top = ax.get_ylim()
    assert bottom > top and [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert ax.get_xlim()[1] > 1500.4  # room for the text


def test_stacked_bars_begin_where_the_part_before_ended(ax):
    figures.draw_bars(ax, {"FLOPs": {"rollout": 1, "training": 3}, "seconds": {"training": 2}}, values=["four", "two"])
    assert widths(ax) == [[1, 0], [3, 2]] and said(ax) == ["four", "two"]
    assert [bar.get_x() for bar in ax.containers[1]] == [1, 0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["rollout", "training"]
    assert len({bar[0].get_hatch() for bar in ax.containers}) == 2


def test_curves_show_lines_points_and_marks_on_the_axes_asked_for(ax):
    figures.draw_curves(ax, {"one": ([1, 10], [2, 4])}, x="tokens", y="s", log="x", points={"seen": ([5], [3])}, marks={"here": (2, 3)})
    assert ax.get_xscale() == "log" and ax.get_yscale() == "linear"
    assert [list(line.get_ydata()) for line in ax.lines] == [[2, 4], [3], [3]] and said(ax) == ["here"]
    with pytest.raises(ValueError, match="log must be made of x and y, got 'z'"):
        figures.draw_curves(ax, {}, x="", y="", log="z")


def test_stages_of_one_kind_look_alike_and_stand_once_in_the_legend(ax):
    figures.draw_gantt(ax, {"GPU": [(0, 2, "", "decode"), (5, 6, "d", "decode")], "tool": [(2, 5, "", "tool")]}, x="s")
    assert [(bar.get_x(), bar.get_width()) for bar in ax.patches[:3]] == [(0, 2), (5, 1), (2, 3)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["decode", "tool"]
    assert ax.patches[0].get_facecolor() == ax.patches[1].get_facecolor() != ax.patches[2].get_facecolor()


def test_work_stands_on_the_first_roof_and_a_measurement_where_its_seconds_put_it(ax):
    points = {"left": (10, 10), "right": wl.Pass(flops=9000, bytes=10), "measured": (10, 10, 4)}
    figures.draw_roofline(ax, {"A": (100, 10), "B": (100, 20)}, points)
    first, second, *dots = ax.lines
    assert list(first.get_xdata())[1] == 10 and list(second.get_xdata())[1] == 5  # the ridges
    assert [(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots] == [(1, 10), (900, 100), (1, 2.5)]


def test_ticks_of_few_decades_are_numbers_that_do_not_meet(ax):
    figures.draw_curves(ax, {"": ([60_000, 700_000], [1, 2])}, x="", y="", log="x")
    ax.figure.canvas.draw()
    low, high = ax.get_xlim()
    labels = [t.get_text() for t in ax.get_xticklabels() if low <= t.get_position()[0] <= high]
    assert labels == ["100,000", "200,000", "500,000"] and not any(t.get_text() for t in ax.get_xticklabels(minor=True))


def test_thousands_stand_apart_on_linear_axes(ax):
    figures.draw_curves(ax, {"": ([0, 10_000], [0, 1])}, x="", y="")
    ax.figure.canvas.draw()
    assert "10,000" in [t.get_text() for t in ax.get_xticklabels()] and "0.2" in [t.get_text() for t in ax.get_yticklabels()]


def test_figures_and_tables_are_numbered_in_their_order(shown):
    figures.bars({"a": 1}, alt="one bar", caption="First.")
    page.table(["n>"], [[1]], caption="Alone.")
    figures.curves({"": ([0, 1], [0, 1])}, alt="a line", caption="Second.", x="", y="")
    page.table(["n>"], [[1]])
    texts = [data["text/markdown"] for data in shown if "text/markdown" in data]
    assert [text.partition("\n")[0] for text in texts] == ["*Figure 1.* First.", "*Table 1.* Alone.", "*Figure 2.* Second.", "| n |"]
    assert [re.search("<title>(.*)</title>", data["image/svg+xml"])[1] for data in shown if "image/svg+xml" in data] == [
        "one bar",
        "a line",
    ]


def test_panels_stand_one_below_the_other(shown):
    figures.panels([lambda ax: ax.set_xlabel("upper"), lambda ax: ax.set_xlabel("lower")], alt="two", caption="Two.")
    heights = dict(re.findall(r'y="([\d.]+)"[^>]*>(upper|lower)<', shown[0]["image/svg+xml"]))
    at = {name: float(y) for y, name in heights.items()}
    assert at["upper"] < at["lower"]


@pytest.mark.parametrize("alt, caption", [("", "C."), ("a", " ")])
def test_a_figure_without_words_is_refused(alt, caption):
    with pytest.raises(ValueError, match="alt and caption"):
        figures.bars({"a": 1}, alt=alt, caption=caption)


def test_a_question_folds_its_answer_and_carries_the_number(shown):
    page.guess("How long?", 35.4321098, "ms", "It is $a/b$.")
    text = shown[0]["text/markdown"]
    assert text.startswith("**Guess first.** How long?") and 'data-value="35.4321" data-unit="ms"' in text
    assert "\n\n**35.4 ms.** It is $a/b$.\n\n</details>" in text
    with pytest.raises(ValueError, match=r"value must be a finite number \(ms\), got nan"):
        page.guess("How long?", float("nan"), "ms", "It is not.")


# --- drawings -------------------------------------------------------------------------------------------------------------


def texts(shown):
    return [text.strip() for text in TEXT.findall(shown[0]["image/svg+xml"])]


def test_a_request_waits_where_all_seats_are_taken(shown):
    drawings.continuous_batch([("A", 0, 5), ("B", 0, 2), ("C", 1, 4)], 2, alt="a", caption="C.")
    assert {"A", "B", "C (waited 2)"} <= set(texts(shown))  # a seat is free after B's prefill and its two steps


def test_sequences_share_full_blocks_of_a_common_beginning(shown):
    drawings.paged_blocks({"A": (40, ""), "B": (60, "A")}, 16, 8, alt="a", caption="C.")
    assert "A: 40 tokens in blocks 0, 1, 2" in texts(shown) and "B: 60 tokens in blocks 0, 1, 3, 4" in texts(shown)


def test_every_step_reads_one_token_more(shown):
    drawings.cache_growing(5, 3, alt="a", caption="C.")
    assert [t for t in texts(shown) if t.startswith("decode step")] == ["decode step 1", "decode step 2", "decode step 3"]


def test_a_pipeline_ends_after_all_turns_of_all_stages(shown):
    drawings.pipeline_schedule(4, 4, alt="a", caption="C.")
    assert texts(shown).count("4") == 2 * 4  # micro-batch 4, forward and backward on each stage


def test_a_block_names_its_matrices_with_their_sides(shown):
    sides = dict.fromkeys(("q", "k", "v", "o", "gate", "up", "down"), (64, 128))
    drawings.transformer_block(sides, "KV cache: 4 kB", alt="a", caption="C.")
    assert "KV cache: 4 kB" in texts(shown) and shown[0]["image/svg+xml"].count("128") >= 7


def test_the_loop_of_reinforcement_learning_names_its_phases(shown):
    drawings.rl_loop({"Rollout": "a", "Reward": "b", "Reference": "c", "Training": "d"}, alt="a", caption="C.")
    assert {"Rollout", "Reward", "Reference", "Training", "new weights"} <= set(texts(shown))


def test_a_forked_question_looks_at_the_state_and_at_itself(shown):
    drawings.forked_mask(12, [4, 6], alt="a", caption="C.")
    assert {"question 1", "question 2"} <= set(texts(shown)) and "question 3" not in texts(shown)
