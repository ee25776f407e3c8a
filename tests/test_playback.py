"""Media in time: against a clock that ticks through capture, model, link, network and player, and against every phase of a look."""

from collections import deque
from fractions import Fraction
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads_book.measured_runs import VoiceRecord, voice_record
from workloads_book.studies.playback import (
    _Delivery,
    arrived_audio,
    chunk_bytes,
    deliveries,
    heard,
    milliseconds_until_full,
    miss_probability,
    next_tick,
    observation_tokens,
    playback,
    smallest_buffer,
)

NETWORK = [5, 5, 50, 5, 5, 5, 5, 5]
ARRIVALS = [38, 58, 123, 98, 118, 138, 158, 178]


def arrivals(network=5, process=12):
    return [way.arrived for way in deliveries(8, 20, process, 1, network)]


# --- the worked example by hand -----------------------------------------------------------------------------------------


def test_the_late_third_chunk_stalls_a_buffer_of_40_ms_for_5_ms():
    assert arrivals(NETWORK) == ARRIVALS
    plays = playback(ARRIVALS, 20, 40)
    assert [play.due for play in plays] == [78 + 20 * i for i in range(8)]
    assert [play.start for play in plays] == [78, 98, 123, 143, 163, 183, 203, 223]
    assert [play.stall for play in plays] == [0, 0, 5, 0, 0, 0, 0, 0]
    assert plays[-1].end == 243


def test_a_buffer_of_60_ms_has_no_stall_and_starts_20_ms_later():
    plays = playback(ARRIVALS, 20, 60)
    assert plays[0].start == 98 and sum(play.stall for play in plays) == 0


def test_45_ms_are_the_least_buffer_without_a_stall():
    assert smallest_buffer(ARRIVALS, 20) == 45
    assert sum(play.stall for play in playback(ARRIVALS, 20, 45)) == 0
    assert sum(play.stall for play in playback(ARRIVALS, 20, 44)) == 1


def test_a_model_slower_than_its_chunks_drifts_by_the_difference_each_chunk():
    """25 ms for 20 ms of sound: after n chunks the buffer must hold 5 (n - 1) ms; eight chunks fit into 40 ms, ten do not."""
    slow = [way.arrived for way in deliveries(10, 20, 25, 1, 5)]
    for n in range(1, 11):
        assert smallest_buffer(slow[:n], 20) == 5 * (n - 1)
    assert not any(play.stall for play in playback(slow[:8], 20, 40))
    assert [play.stall for play in playback(slow, 20, 40)] == [0] * 9 + [5]


def test_public_results_of_the_same_calculation():
    """Finish, first sound and stall of other settings, as bojieli/ai-infra-book lists them in experiment 3-5."""
    for process, network, buffer, first, stall, end in [
        (12, 5, 40, 78, 0, 238),
        (12, NETWORK, 40, 78, 5, 243),
        (25, 5, 40, 91, 0, 251),
        (6, 5, 40, 72, 0, 232),
        (12, 5, 0, 38, 0, 198),
        (12, 5, 100, 138, 0, 298),
        (12, 2, 40, 75, 0, 235),
        (12, NETWORK, 100, 138, 0, 298),
        (25, NETWORK, 40, 91, 15, 266),
    ]:
        plays = playback(arrivals(network, process), 20, buffer)
        assert (plays[0].start, sum(play.stall for play in plays), plays[-1].end) == (first, stall, end)


# --- a clock that ticks -------------------------------------------------------------------------------------------------


def ticking(count, chunk, process, send, network):
    """Times of each chunk from queues and workers that a clock moves on by 1 ms at a time."""
    times = {i: [] for i in range(count)}
    workers = [[deque(), None, 0, process], [deque(), None, 0, send]]  # queue, job, ms left, ms of each job
    flying, now = {}, 0
    while any(len(t) < 4 for t in times.values()):
        if now and now % chunk == 0 and now // chunk <= count:
            times[now // chunk - 1].append(now)
            workers[0][0].append(now // chunk - 1)
        for stage, worker in enumerate(workers):
            while True:
                if worker[1] is not None and worker[2] == 0:
                    times[worker[1]].append(now)
                    if stage == 0:
                        workers[1][0].append(worker[1])
                    else:
                        flying[worker[1]] = network[worker[1]]
                    worker[1] = None
                if worker[1] is None and worker[0]:
                    worker[1] = worker[0].popleft()
                    worker[2] = worker[3][worker[1]]
                    if worker[2] == 0:
                        continue
                break
        for i, left in list(flying.items()):
            if left == 0:
                times[i].append(now)
                del flying[i]
            else:
                flying[i] = left - 1
        for worker in workers:
            worker[2] -= worker[1] is not None
        now += 1
    return [_Delivery(*times[i]) for i in range(count)]


chains = st.integers(1, 6).flatmap(
    lambda n: st.tuples(st.integers(1, 9), *[st.lists(st.integers(0, 15), min_size=n, max_size=n) for _ in range(3)])
)


@given(chains)
def test_deliveries_are_those_of_a_ticking_clock(chain):
    chunk, process, send, network = chain
    assert deliveries(len(process), chunk, process, send, network) == ticking(len(process), chunk, process, send, network)


def played(arrived, durations, buffer):
    """What a player does in each ms: the number of the chunk that sounds, None where it stands still, from the first sound to the end."""
    now, sounding = arrived[0] + buffer, []
    for i, duration in enumerate(durations):
        while arrived[i] > now:
            sounding.append(None)
            now += 1
        sounding += [i] * duration
        now += duration
    return sounding


streams = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 60), min_size=n, max_size=n), st.lists(st.integers(1, 20), min_size=n, max_size=n), st.integers(0, 50)
    )
)


@given(streams)
def test_playback_is_that_of_a_ticking_player(stream):
    arrived, durations, buffer = stream
    plays, sounding = playback(arrived, durations, buffer), played(*stream)
    first = arrived[0] + buffer
    assert plays[-1].end - first == len(sounding)
    for i, play in enumerate(plays):
        assert play.start == first + sounding.index(i)
    assert sum(play.stall for play in plays) == sounding.count(None)


@given(streams)
def test_stalls_are_what_the_buffer_falls_short_of_the_smallest_one(stream):
    arrived, durations, buffer = stream
    stalls = sum(play.stall for play in playback(arrived, durations, buffer))
    assert stalls == max(0, smallest_buffer(arrived, durations) - buffer)


@given(streams)
def test_a_buffer_that_is_too_small_does_not_end_playback_sooner(stream):
    arrived, durations, _ = stream
    least = smallest_buffer(arrived, durations)
    ends = [playback(arrived, durations, buffer)[-1].end for buffer in range(least + 1)]
    assert len(set(ends)) == 1
    assert playback(arrived, durations, least + 7)[-1].end == ends[0] + 7


@given(streams)
def test_the_buffer_is_never_negative_and_empty_where_playback_stands_still(stream):
    arrived, durations, buffer = stream
    plays = playback(arrived, durations, buffer)
    for now, chunk in enumerate(played(*stream), start=arrived[0] + buffer):
        left = arrived_audio(arrived, durations, now) - heard(plays, now)
        assert left >= 0
        assert left == 0 if chunk is None else left > 0
    assert heard(plays, plays[-1].end) == sum(durations)


def test_a_chunk_that_overtakes_an_earlier_one_cannot_be_played_before_it():
    assert [arrived_audio(ARRIVALS, 20, t) for t in (37, 38, 58, 98, 118, 122, 123)] == [0, 20, 40, 40, 40, 40, 100]


# --- interruption -------------------------------------------------------------------------------------------------------


@given(streams, st.integers(0, 200), st.integers(0, 100))
def test_what_is_heard_between_two_times_is_counted_tick_by_tick(stream, start, length):
    arrived, durations, buffer = stream
    first = arrived[0] + buffer
    ticks = [first + i for i, chunk in enumerate(played(*stream)) if chunk is not None]
    assert heard(playback(arrived, durations, buffer), start + length, start) == sum(start <= t < start + length for t in ticks)


@given(st.integers(-500, 500), st.integers(1, 40))
def test_the_next_tick_is_found_by_walking(time, period):
    walking = -period * 500
    while walking < time:
        walking += period
    assert next_tick(time, period) == walking


def test_the_interruption_at_123_ms_is_silent_at_130():
    muted = next_tick(123 + 5, 10)
    assert muted == 130 and heard(playback(ARRIVALS, 20, 40), muted, 123) == 7
    assert heard(playback(ARRIVALS, 20, 60), 120, 115) == 5  # the larger buffer plays on
    assert heard(playback(ARRIVALS, 20, 40), next_tick(65, 10), 60) == 0  # before the first sound


def test_a_command_just_after_a_tick_waits_almost_a_whole_period():
    assert next_tick(Fraction(1201, 10), 10) == 130
    assert next_tick(130, 10) == 130


# --- observation --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(1, 40))
def test_the_chance_of_a_miss_is_that_over_every_phase(duration, period):
    missed = sum(all(look < start or look >= start + duration for look in range(0, 200, period)) for start in range(1, period + 1))
    assert miss_probability(Fraction(duration), period) == Fraction(missed, period)


@given(st.integers(1, 10**6), st.integers(1, 5000), st.integers(1, 2000), st.fractions(Fraction(1, 100), 1))
def test_a_context_is_full_when_its_room_has_been_observed(room, period, tokens, kept):
    time = milliseconds_until_full(Fraction(room), period, tokens, kept)
    assert observation_tokens(time, period, tokens, kept) == room


def test_looking_twice_as_often_fills_twice_as_fast():
    assert observation_tokens(60_000, 250, 400) == 2 * observation_tokens(60_000, 500, 400) == 2 * 48_000


# --- recordings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, chunks, later, first, gaps, beyond",
    [
        ("first", 42, 9, "399.919", ("1.036", "93.889", "94.48"), (0.04800, 1.00700, 1.60500)),
        ("second", 39, 9, "370.459", ("0.782", "93.806", "94.3"), (0.17133, 0.92167, 1.42500)),
    ],
)
def test_recordings_have_the_statistics_that_their_source_states(name, chunks, later, first, gaps, beyond):
    record = voice_record(name)
    n = record.answered
    assert (n, len(record.arrivals) - n) == (chunks, later)
    assert record.arrivals[0] - record.stopped == Fraction(first)
    intervals = [b - a for a, b in zip(record.arrivals[:n], record.arrivals[1:n])]
    assert (min(intervals), median(intervals), max(intervals)) == tuple(map(Fraction, gaps))
    late = sorted(float(interval - duration) for interval, duration in zip(intervals, record.durations))
    assert (late[0], median(late), late[-1]) == pytest.approx(beyond, abs=5e-6)


def test_recorded_chunks_play_from_start_to_end():
    record = voice_record("second")
    plays = playback(record.arrivals, record.durations, smallest_buffer(record.arrivals, record.durations))
    assert plays[-1].end - plays[0].start == sum(record.durations)


# --- bytes, bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rate, chunk, channels, width, expected", [(24_000, 20, 1, 2, 960), (44_100, 10, 2, 2, 1764), (48_000, Fraction(5, 2), 1, 4, 480)]
)
def test_bytes_of_a_chunk_by_hand(rate, chunk, channels, width, expected):
    assert chunk_bytes(rate, chunk, channels, width) == expected


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: chunk_bytes(44_100, 5), "samples in a chunk"),
        (lambda: chunk_bytes(0, 20), r"sample_rate \(samples/s\)"),
        (lambda: deliveries(0, 20, 12, 1, 5), "chunks"),
        (lambda: deliveries(3, 0, 12, 1, 5), r"chunk \(ms\)"),
        (lambda: deliveries(3, 20, -1, 1, 5), r"process \(ms\)"),
        (lambda: deliveries(3, 20, 12, 1, [5, 5]), r"network \(ms\) .* each of 3 chunks, got 2"),
        (lambda: playback([], 20, 40), "number of chunks"),
        (lambda: playback([38, float("inf")], 20, 40), r"arrivals \(ms\)"),
        (lambda: playback([38], 0, 40), r"chunk \(ms\)"),
        (lambda: playback([38], 20, -1), r"buffer \(ms\)"),
        (lambda: playback([38, 58], [20, 20, 20], 0), "each of 2 chunks, got 3"),
        (lambda: smallest_buffer([38, None], 20), r"arrivals \(ms\)"),
        (lambda: arrived_audio([38], 20, float("nan")), r"time \(ms\)"),
        (lambda: heard(playback([38], 20, 0), 5, 10), "end - start"),
        (lambda: next_tick(5, 0), r"period \(ms\)"),
        (lambda: miss_probability(-1, 5), r"duration \(ms\)"),
        (lambda: miss_probability(1, 0), r"period \(ms\)"),
        (lambda: observation_tokens(1, 1, 1, kept=1.5), "kept"),
        (lambda: milliseconds_until_full(1, 1, 1, kept=0), "kept"),
        (lambda: voice_record("third"), "name must be one of"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("durations", [[], [20], [20, 20, 20]])
def test_two_chunks_want_two_durations_or_one_number(durations):
    with pytest.raises(ValueError, match=f"one for each of 2 chunks, got {len(durations)}"):
        playback([0, 20], durations, 0)
    assert playback([0, 20], 20, 0) == playback([0, 20], [20, 20], 0)


def test_a_chunk_that_arrives_as_the_user_starts_is_no_answer_before():
    assert VoiceRecord(0, 10, (5, 10, 15), (1, 1, 1)).answered == 1
