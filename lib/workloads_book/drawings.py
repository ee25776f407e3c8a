"""Drawings that serve one idea each: what the four kinds of `figures` cannot show. Each takes what the page computed."""

from .figures import BLUE, GOLD, GREEN, GREY, INK, ORANGE, PAPER, PINK, SIZE, figure


def _box(ax, x, y, wide, high, text="", color=PAPER, edge=INK, hatch="", size=10, style="-"):
    """A rectangle with a text in its middle, which stands on a patch of paper where the box is filled."""
    from matplotlib.patches import Rectangle

    filled = color != PAPER
    frame = dict(facecolor=color, edgecolor=PAPER if hatch else edge, hatch=hatch, linewidth=1.2, linestyle=style)
    ax.add_patch(Rectangle((x, y), wide, high, **frame))
    if text:
        patch = dict(boxstyle="square,pad=0.15", facecolor=PAPER, edgecolor="none") if filled else None
        ax.text(x + wide / 2, y + high / 2, text, ha="center", va="center", fontsize=size, bbox=patch)


def _arrow(ax, start, end, text="", bend=0.0, size=10):
    """An arrow with a text beside its middle."""
    how = dict(arrowstyle="-|>", color=INK, linewidth=1.3, shrinkA=1, shrinkB=1, connectionstyle=f"arc3,rad={bend}")
    ax.annotate("", xy=end, xytext=start, arrowprops=how)
    if text:
        ax.annotate(text, ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2), (4, 3), textcoords="offset points", fontsize=size)


def _blank(ax, width, height):
    ax.set(xlim=(0, width), ylim=(0, height), xticks=[], yticks=[])
    ax.grid(visible=False)
    for side in ax.spines.values():
        side.set_visible(False)


def transformer_block(shapes, cache, *, alt, caption):
    """One layer of a decoder with its weight matrices; the area of a matrix is its number of weights.

    Args:
        shapes: {name: (rows, columns)} of q, k, v, o, gate, up, down.
        cache: text at the KV cache.
    """

    @figure(alt=alt, caption=caption, size=(SIZE[0], 6.4))
    def _(ax):
        _blank(ax, 10, 13.9)
        largest = max(side for shape in shapes.values() for side in shape)
        unit = 3.0 / largest
        colors = dict(q=BLUE, k=ORANGE, v=ORANGE, o=BLUE, gate=GREEN, up=GREEN, down=GREEN)

        def matrix(name, x, y):
            rows, columns = shapes[name]
            wide, high = columns * unit, rows * unit
            _box(ax, x - wide / 2, y - high / 2, wide, high, color=colors[name])
            ax.text(x, y - high / 2 - 0.12, f"$W_\\mathrm{{{name}}}$  {rows:,} × {columns:,}", ha="center", va="top", fontsize=10)

        ax.text(5, 0.15, "hidden states in", ha="center", fontsize=10)
        _arrow(ax, (5, 0.55), (5, 1.05))
        _box(ax, 3.9, 1.05, 2.2, 0.5, "norm")
        for name, x in (("q", 2.0), ("k", 5.0), ("v", 8.0)):
            matrix(name, x, 2.75)
        _box(ax, 5.6, 3.75, 4.1, 0.5, cache, style="--")
        _box(ax, 0.4, 3.75, 4.6, 0.5, "softmax of $q k$, times $v$")
        _arrow(ax, (5.6, 4.0), (5.0, 4.0))
        matrix("o", 2.7, 5.35)
        _box(ax, 6.2, 5.0, 2.9, 0.5, "add the input")
        _arrow(ax, (4.1, 5.25), (6.2, 5.25))
        _box(ax, 3.9, 6.35, 2.2, 0.5, "norm")
        _arrow(ax, (6.8, 5.5), (5.6, 6.35))
        for name, x in (("gate", 2.2), ("up", 7.4)):
            matrix(name, x, 8.1)
        _box(ax, 2.2, 9.1, 5.6, 0.5, "SiLU of gate, times up")
        matrix("down", 2.7, 11.75)
        _box(ax, 6.2, 11.5, 2.9, 0.5, "add the input")
        _arrow(ax, (3.4, 11.75), (6.2, 11.75))
        _arrow(ax, (7.6, 12.0), (7.6, 12.9))
        ax.text(7.6, 13.0, "hidden states out", ha="center", fontsize=10)


def cache_growing(prompt, answer, *, alt, caption):
    """What each decode step reads: the cache of all tokens before it, a token longer each time."""

    @figure(alt=alt, caption=caption, size=(SIZE[0], 0.8 + 0.34 * (answer + 1)))
    def _(ax):
        _blank(ax, prompt + answer + 4.4, answer + 1.7)
        for step in range(answer + 1):
            y = answer + 0.5 - step
            for token in range(prompt + step):
                new = step and token == prompt + step - 1
                old = token < prompt
                color, hatch = (BLUE, "") if old else (ORANGE, "//")
                if step == 0:
                    color, hatch = BLUE, ".."
                _box(ax, 4.2 + token, y, 0.92, 0.72, color=color, hatch=hatch if not new else "xx")
            ax.text(4.0, y + 0.36, "prefill" if step == 0 else f"decode step {step}", ha="right", va="center", fontsize=10)
        ax.text(4.2, answer + 1.4, "keys and values in the cache, one column a token", fontsize=10)


def continuous_batch(requests, seats, *, alt, caption):
    """Seats of a batch over steps: a request takes a free seat at once, first its prefill, then a token a step.

    Args:
        requests: [(name, arrival step, decode steps)].
        seats: how many sequences run at once (max_num_seqs).
    """
    free, played = [0] * seats, []
    for i, (name, arrival, steps) in enumerate(requests):
        seat = min(range(seats), key=lambda s: (max(free[s], arrival), s))
        start = max(free[seat], arrival)
        free[seat] = start + 1 + steps
        played.append((i, name, seat, arrival, start, steps))

    @figure(alt=alt, caption=caption, size=(SIZE[0], 1.3 + 0.5 * seats))
    def _(ax):
        colors, hatches = (BLUE, ORANGE, GREEN, PINK, GOLD, GREY), ("", "//", "..", "\\\\", "--", "xx")
        for i, name, seat, arrival, start, steps in played:
            ax.barh(seat, 1, 0.7, left=start, color=PAPER, edgecolor=INK, linewidth=1.2)
            ax.text(start + 0.5, seat, "P", ha="center", va="center", fontsize=10)
            ax.barh(seat, steps, 0.7, left=start + 1, color=colors[i % 6], hatch=hatches[i % 6], edgecolor=PAPER, linewidth=0.8)
            waited = f" (waited {start - arrival})" if start > arrival else ""
            box = dict(boxstyle="square,pad=0.12", facecolor=PAPER, edgecolor="none")
            ax.text(start + 1 + steps / 2, seat, name + waited, ha="center", va="center", fontsize=10, bbox=box)
        ax.set(xlabel="step of the engine", xlim=(0, max(free)), ylim=(seats - 0.5, -0.5))
        ax.set_yticks(range(seats), [f"seat {s + 1}" for s in range(seats)])
        ax.grid(axis="y", visible=False)


def paged_blocks(sequences, block, blocks, *, alt, caption):
    """A pool of KV blocks and the sequences in it: full blocks, the half-empty last one of each, shared ones, free ones.

    Args:
        sequences: {name: (tokens, names of blocks it shares at its beginning)}: a name in the second place shares
            its full blocks.
        block: tokens a block; blocks: how many the pool has.
    """
    place, at, tables = {}, 0, {}
    for name, (tokens, shared) in sequences.items():
        own = [b for b in tables.get(shared, []) if place[b][1] == block][: tokens // block]
        left = tokens - block * len(own)
        while left > 0:
            place[at] = (name, min(block, left))
            own = [*own, at]
            left, at = left - block, at + 1
        tables[name] = own

    @figure(alt=alt, caption=caption, size=(SIZE[0], 3.4))
    def _(ax):
        columns = 8
        rows = -(-blocks // columns)
        _blank(ax, 10, rows + 0.62 * len(sequences) + 1.4)
        colors = dict(zip(sequences, (BLUE, ORANGE, GREEN, PINK)))
        hatches = dict(zip(sequences, ("", "//", "..", "\\\\")))
        for i in range(blocks):
            x, y = 0.3 + 1.2 * (i % columns), rows - 1 - i // columns + 0.2
            _box(ax, x, y, 1.1, 0.8, edge=GREY, style="-" if i in place else ":")
            if i in place:
                owner, filled = place[i]
                _box(ax, x, y, 1.1 * filled / block, 0.8, color=colors[owner], hatch=hatches[owner])
            box = dict(boxstyle="square,pad=0.1", facecolor=PAPER, edgecolor="none")
            ax.text(x + 0.55, y + 0.4, str(i), ha="center", va="center", fontsize=10, bbox=box)
        for n, (name, own) in enumerate(tables.items()):
            y = rows + 0.5 + 0.62 * (len(tables) - 1 - n)
            _box(ax, 0.3, y + 0.05, 0.4, 0.36, color=colors[name], hatch=hatches[name])
            ax.text(0.85, y + 0.22, f"{name}: {sequences[name][0]} tokens in blocks {', '.join(map(str, own))}", va="center", fontsize=10)
        ax.text(0.3, rows + 0.62 * len(tables) + 0.75, f"block tables ({block} tokens a block)", fontsize=10)


def pipeline_schedule(stages, batches, *, alt, caption, backward=2):
    """A pipeline of stages that works through micro-batches, forward then backward (GPipe), with the bubble left white.

    Args:
        stages: how many; batches: micro-batches of a step.
        backward: time of a backward pass in forward passes.
    """

    @figure(alt=alt, caption=caption, size=(SIZE[0], 1.5 + 0.45 * stages))
    def _(ax):
        turn = batches + stages - 1
        for stage in range(stages):
            for batch in range(batches):
                ax.barh(stage, 1, 0.8, left=stage + batch, color=BLUE, edgecolor=PAPER, linewidth=1)
                start = turn + backward * (stages - 1 - stage + batch)
                ax.barh(stage, backward, 0.8, left=start, color=ORANGE, hatch="//", edgecolor=PAPER, linewidth=1)
                for x, wide in ((stage + batch, 1), (start, backward)):
                    box = dict(boxstyle="square,pad=0.08", facecolor=PAPER, edgecolor="none")
                    ax.text(x + wide / 2, stage, str(batch + 1), ha="center", va="center", fontsize=9, bbox=box)
        ax.barh(0, 0, color=BLUE, label="forward")
        ax.barh(0, 0, color=ORANGE, hatch="//", edgecolor=PAPER, label="backward")
        ax.set(xlabel="time (forward passes of one micro-batch)", xlim=(0, (1 + backward) * turn), ylim=(stages - 0.5, -0.5))
        ax.set_yticks(range(stages), [f"stage {s + 1}" for s in range(stages)])
        ax.grid(visible=False)
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def rl_loop(phases, *, alt, caption):
    """The loop of a step of reinforcement learning.

    Args:
        phases: {name: text below it} of rollout, reward, reference, training, in the order of the loop.
    """

    @figure(alt=alt, caption=caption, size=(SIZE[0], 3.5))
    def _(ax):
        _blank(ax, 10, 9.1)
        ax.set_ylim(1.4, 9.1)
        places = [(0.4, 6.4), (5.6, 6.4), (5.6, 2.6), (0.4, 2.6)]
        colors = (ORANGE, GREY, GREEN, BLUE)
        for (name, below), (x, y), color in zip(phases.items(), places, colors):
            _box(ax, x, y, 4.0, 1.9, edge=color)
            ax.text(x + 2.0, y + 1.45, name, ha="center", va="center", fontsize=11, fontweight="bold")
            ax.text(x + 2.0, y + 0.65, below, ha="center", va="center", fontsize=10)
        _arrow(ax, (4.4, 7.35), (5.6, 7.35))
        _arrow(ax, (7.6, 6.4), (7.6, 4.5))
        _arrow(ax, (5.6, 3.55), (4.4, 3.55))
        _arrow(ax, (2.4, 4.5), (2.4, 6.4))
        for text, x, y, side in (
            ("answers", 5.0, 8.65, "center"),
            ("scored answers", 7.8, 5.4, "left"),
            ("advantages,\nlog-probabilities", 5.0, 2.1, "center"),
            ("new weights", 2.6, 5.4, "left"),
        ):
            ax.text(x, y, text, ha=side, va="center", fontsize=10)


def forked_mask(state, questions, *, alt, caption):
    """Which position sees which when questions fork from one state: everybody the state, a question besides it only itself.

    Args:
        state: tokens of the shared state.
        questions: tokens of each question.
    """

    @figure(alt=alt, caption=caption, size=(4.2, 4.0))
    def _(ax):
        starts = [state + sum(questions[:i]) for i in range(len(questions))]
        total = state + sum(questions)
        ax.fill([0, 0, state], [0, state, state], color=BLUE, linewidth=0)
        for start, long in zip(starts, questions):
            ax.fill([0, 0, state, state], [start, start + long, start + long, start], color=ORANGE, linewidth=0)
            ax.fill([start, start, start + long], [start, start + long, start + long], color=GREEN, linewidth=0)
        for at in starts:
            ax.axhline(at, color=INK, linewidth=0.6)
            ax.axvline(at, color=INK, linewidth=0.6)
        middles = [start + long / 2 for start, long in zip(starts, questions)]
        names = ["state", *(f"question {i}" for i in range(1, len(questions) + 1))]
        ax.set_yticks([state / 2, *middles], names)
        ax.set_xticks([state / 2, *middles], ["state", *(str(i) for i in range(1, len(questions) + 1))])
        ax.set(xlim=(0, total), ylim=(total, 0), aspect="equal", xlabel="keys", ylabel="queries")
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.grid(visible=False)


def fluid_queue(*, alt, caption):
    """A queue as a tank: inflow, level, outflow at the rate of the cards, and what they cannot keep."""

    @figure(alt=alt, caption=caption, size=(4.8, 2.2))
    def _(ax):
        ax.bar(3.6, 1.6, 2.4, bottom=0.2, fill=False, edgecolor=INK, linewidth=1.5)
        ax.bar(3.6, 0.8, 2.4, bottom=0.2, color=BLUE, edgecolor=BLUE, hatch="--", linewidth=0)
        ax.bar(7.2, 1.0, 2.0, bottom=0.5, fill=False, edgecolor=GREEN, linewidth=2)
        for start, end in ((0.6, 2.3), (4.9, 6.1), (8.3, 9.6)):
            ax.annotate("", (end, 1.0), (start, 1.0), arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.5})
        for x, y, text in (
            (1.3, 1.3, "arrivals λ"),
            (3.6, 1.4, "backlog Q"),
            (7.2, 1.0, "cards μ"),
            (9.1, 1.3, "done"),
            (7.2, 0.2, "unused rate is lost"),
        ):
            ax.text(x, y, text, ha="center", va="center", color=INK, fontsize=11)
        ax.set(xlim=(-0.3, 9.9), ylim=(0, 2))
        ax.set_axis_off()


def patch_grids(side, patch, merge, *, alt, caption):
    """A square image cut into patches, and the same square cut into visual tokens, one of them marked in both."""

    @figure(alt=alt, caption=caption, size=(3.6, 6.8), axes=(2, 1))
    def _(above, below):
        for ax, cell, what in ((above, patch, "patches"), (below, patch * merge, "visual tokens")):
            n, marked = side // cell, merge * patch // cell
            ax.vlines(range(n + 1), 0, n, color=BLUE, linewidth=0.5)
            ax.hlines(range(n + 1), 0, n, color=BLUE, linewidth=0.5)
            left, low = 7 * marked, 12 * marked
            ax.fill_between([left, left + marked], low, low + marked, facecolor=ORANGE, edgecolor=INK)
            if marked > 1:
                ax.vlines(range(left + 1, left + marked), low, low + marked, color=INK, linewidth=0.8)
                ax.hlines(range(low + 1, low + marked), left, left + marked, color=INK, linewidth=0.8)
            ax.set(aspect="equal", xticks=[], yticks=[], xlabel=f"{n} × {n} = {n * n:,} {what}")
            ax.grid(visible=False)
            ax.spines[:].set_visible(False)


def training_walk(chain, steps, *, alt, caption):
    """Forward pass, backward pass and update of a row of layers: who reads what again, and where weight gradients go."""

    @figure(alt=alt, caption=caption, size=(4.8, 3.4))
    def _(ax):
        place = {op.name: i for i, op in enumerate(chain)}

        def arrow(start, end, color, style="-"):
            ax.annotate("", end, start, arrowprops=dict(arrowstyle="->", color=color, lw=1.5, ls=style))

        for name, i in place.items():
            ax.text(i, 2, name, ha="center", va="center")
            if i:
                arrow((i - 0.72, 2), (i - 0.28, 2), BLUE)
        for s in steps:
            i = place[s.name]
            ax.text(i, 1, "1" if s.name == "loss" else f"d{s.name}", ha="center", va="center")
            for name in s.input_gradients:
                arrow((i - 0.28, 1), (place[name] + 0.34, 1), ORANGE)
            for name in s.needs:
                arrow((place[name] + 0.06, 1.84), (i - 0.08, 1.16), GREY, "--")
            if s.weight_gradient:
                ax.text(i, 0.34, f"dW{s.name[1:]}", ha="center", va="center")
                arrow((i, 0.84), (i, 0.5), GREEN, ":")
        last = len(chain) - 2
        ax.plot([0.7, last + 0.3], [0.12, 0.12], color=GREEN, lw=3)
        ax.text((1 + last) / 2, -0.02, "update of all weights", ha="center", va="top")
        ax.text(-0.4, 2.3, "forward", color=BLUE)
        ax.text(-0.4, 1.28, "backward", color=ORANGE)
        ax.set(xlim=(-0.5, last + 1.5), ylim=(-0.4, 2.6))
        ax.axis("off")


def packed_masks(splits, pairs, *, alt, caption):
    """Causal masks of documents that share a sequence: {name: their lengths}, with the number of pairs of each split."""

    @figure(alt=alt, caption=caption, size=(3.6, 6.6), axes=(len(splits), 1))
    def _(*axes):
        for ax, (name, lengths) in zip(axes, splits.items()):
            start = 0
            for length in lengths:
                corner = [start, start, start + length], [start, start + length, start + length]
                ax.fill(*corner, facecolor=BLUE, hatch="//", edgecolor=PAPER, linewidth=0)
                start += length
            ax.plot([0, start, start, 0, 0], [0, 0, start, start, 0], color=INK, lw=1)
            text = f"{name}\n{pairs[name] / 1e6:.1f} million pairs"
            ax.text(0.97 * start, 0.1 * start, text, ha="right", va="center")
            ax.set(xlabel="key (token)", ylabel="query (token)", xlim=(0, start), ylim=(start, 0), aspect="equal")
            ax.set_xticks([0, start], ["0", f"{start:,}"])
            ax.set_yticks([0, start], ["0", f"{start:,}"])
            ax.grid(visible=False)


def role_graph(roles, places, carried, *, alt, caption):
    """Roles of a training loop and the data that pass between them; the edge to the next round is dashed.

    Args:
        roles: `round_schedule.Role`s; an arrow leads from the writer of each piece of data to every reader.
        places: {name of a role: (x, y)} in a field of 10 by 10.
        carried: the data that a round hands to a later one.
    """
    writer = {data: role.name for role in roles for data in role.writes}

    @figure(alt=alt, caption=caption, size=(SIZE[0], 4.2))
    def _(ax):
        _blank(ax, 10, 10)
        frame = dict(boxstyle="round,pad=0.45", facecolor=PAPER, edgecolor=BLUE, linewidth=1.6)
        words = dict(ha="center", va="center", fontsize=10)
        boxes = {name: ax.text(x, y, name, bbox=frame, **words).get_bbox_patch() for name, (x, y) in places.items()}
        for role in roles:
            for data in (d for d in role.reads if d in writer):
                (x0, y0), (x1, y1) = places[writer[data]], places[role.name]
                look = dict(color=ORANGE, linestyle="--") if data == carried else dict(color=INK)
                ends = dict(patchA=boxes[writer[data]], patchB=boxes[role.name], shrinkA=0, shrinkB=1)
                ax.annotate("", (x1, y1), (x0, y0), arrowprops=dict(arrowstyle="-|>", linewidth=1.3, **look, **ends))
                patch = dict(boxstyle="square,pad=0.1", facecolor=PAPER, edgecolor="none")
                ax.text((x0 + x1) / 2, (y0 + y1) / 2, data.replace(" ", "\n"), bbox=patch, **words)


def ratios_by_publisher(groups, *, alt, caption):
    """Each class on a line of its own: a dot for each publisher's median, as large as its rows are many, and the 80% band.

    Args:
        groups: {class: ({publisher: [ratio, ...]}, band or None)}.
    """
    from statistics import median

    @figure(alt=alt, caption=caption, size=(SIZE[0], 0.9 + 0.52 * len(groups)))
    def _(ax):
        for line, (name, (ratios, band)) in enumerate(groups.items()):
            if band:
                ax.plot([band.low, band.high], [line, line], color=GREY, linewidth=6, alpha=0.45, solid_capstyle="butt")
                ax.plot([band.middle] * 2, [line - 0.2, line + 0.2], color=INK, linewidth=2)
            for own in ratios.values():
                ax.plot([median(own)], [line], marker="o", linestyle="none", color=BLUE, alpha=0.75, markersize=3 + len(own) ** 0.4)
            ax.text(0.0, line - 0.3, name, va="bottom", fontsize=10)
        ax.axvline(1, color=ORANGE, linestyle="--", linewidth=1.2)
        ax.set(xlabel="bound over measured time (1: on the roof)", xlim=(0, 1.05), ylim=(len(groups) - 0.5, -0.9), yticks=[])
