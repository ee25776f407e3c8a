"""The serving rules once more, in SimPy and in floats: an oracle written without a look at the library's engines.

Every request is a process that announces itself, the engine is a process that sleeps through each step. KV blocks are named objects in a
free list, every request holds the ones it owns, and tokens are counted one request at a time.
"""

import simpy


class Job:
    def __init__(self, number, prompt, output):
        self.number, self.prompt, self.output = number, prompt, output
        self.returned, self.cached, self.owned, self.restart = 0, 0, [], prompt
        self.first_scheduled = self.first_token = self.done = None
        self.thrown_out = 0


def step_seconds(spec, work):
    """Float roofline of a step; work: (new tokens, tokens before them, decoding?, gives a token?) for every request in it."""
    flop_s, byte_s = spec["peak"] * spec["mfu"], spec["bandwidth"] * spec["mbu"]
    tokens = sum(new for new, *_ in work)
    logits = sum(gives for *_, gives in work)
    prompt_pairs = sum(new * past + new * (new + 1) / 2 for new, past, decoding, _ in work if not decoding)
    prompt_kv = sum(new + past for new, past, decoding, _ in work if not decoding)
    decode_kv = sum(new + past for new, past, decoding, _ in work if decoding)
    linear, head = spec["linear_flops"] * tokens / flop_s, spec["head_flops"] * logits / flop_s
    weights, head_weights = spec["layer_bytes"] / byte_s, spec["head_bytes"] / byte_s
    pair, kv = spec["pair_flops"] / flop_s, spec["kv_bytes"] / byte_s
    if spec["form"] == "max":
        return max(linear + head + pair * (prompt_pairs + decode_kv), weights + head_weights + kv * (prompt_kv + decode_kv))
    return max(linear, weights) + max(head, head_weights) + max(pair * prompt_pairs, kv * prompt_kv) + max(pair * decode_kv, kv * decode_kv)


class Server:
    def __init__(self, env, spec, blocks, block_size, max_num_batched_tokens, max_num_seqs, whole_sequence):
        self.env, self.spec = env, spec
        self.free, self.block_size = list(range(blocks)), block_size
        self.max_num_batched_tokens, self.max_num_seqs, self.whole_sequence = max_num_batched_tokens, max_num_seqs, whole_sequence
        self.queue, self.running, self.steps, self.awake = [], [], 0, env.event()

    def missing(self, job, tokens):
        """Blocks to add so that the job's cache can hold so many tokens."""
        count = len(job.owned)
        while count * self.block_size < tokens:
            count += 1
        return count - len(job.owned)

    def give(self, job, count):
        for _ in range(count):
            job.owned.append(self.free.pop())

    def release(self, job):
        self.free += job.owned
        job.owned = []

    def throw_out_last(self):
        job = self.running.pop()
        self.release(job)
        job.cached, job.restart, job.thrown_out = 0, job.prompt + job.returned, job.thrown_out + 1
        self.queue.insert(0, job)
        return job

    def schedule(self):
        budget, chosen, someone_left = self.max_num_batched_tokens, [], False
        for job in list(self.running):
            if job not in self.running:
                continue
            new = min(job.prompt + job.returned - job.cached, budget)
            short = self.missing(job, job.cached + new)
            while short > len(self.free) and job in self.running:
                self.throw_out_last()
                someone_left = True
            if job in self.running:
                self.give(job, short)
                chosen.append((job, new))
                budget -= new
        if not someone_left:
            while self.queue and budget > 0 and len(self.running) < self.max_num_seqs:
                job = self.queue[0]
                known = job.prompt + job.returned
                new = min(known, budget)
                if self.missing(job, known if self.whole_sequence else new) > len(self.free):
                    break
                self.queue.pop(0)
                self.running.append(job)
                self.give(job, self.missing(job, new))
                chosen.append((job, new))
                budget -= new
                if job.first_scheduled is None:
                    job.first_scheduled = self.env.now
        return chosen

    def run(self, total):
        finished = 0
        while finished < total:
            if not (self.queue or self.running):
                yield self.awake
                yield self.env.timeout(0)  # others that arrive at the same instant announce themselves first
                self.awake = self.env.event()
            chosen = self.schedule()
            work = [(new, job.cached, job.cached >= job.restart, job.cached + new == job.prompt + job.returned) for job, new in chosen]
            yield self.env.timeout(step_seconds(self.spec, work))
            self.steps += 1
            for (job, new), (*_, gives) in zip(chosen, work):
                job.cached += new
                if gives:
                    job.returned += 1
                    if job.first_token is None:
                        job.first_token = self.env.now
                    if job.returned == job.output:
                        job.done = self.env.now
                        self.running.remove(job)
                        self.release(job)
                        finished += 1


def announce(env, server, job, at):
    yield env.timeout(at)
    server.queue.append(job)
    if not server.awake.triggered:
        server.awake.succeed()


def simulate(load, spec, blocks, block_size=16, max_num_batched_tokens=4096, max_num_seqs=64, whole_sequence=True):
    """Jobs in order of arrival and the number of steps; load: (seconds, prompt, output) tuples; spec: a StepTime and its machine."""
    env = simpy.Environment()
    server = Server(env, spec, blocks, block_size, max_num_batched_tokens, max_num_seqs, whole_sequence)
    jobs = [Job(i, prompt, output) for i, (_, prompt, output) in enumerate(load)]
    for job, (at, *_) in zip(jobs, load):
        env.process(announce(env, server, job, at))
    env.process(server.run(len(jobs)))
    env.run()
    return jobs, server.steps
