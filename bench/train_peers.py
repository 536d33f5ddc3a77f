#!/usr/bin/env python3
"""Times one training step of GPT-2 small (12 layers, hidden 768, batch 2 x sequence 256, AdamW, clip 1.0) in Tessera and in
its peers, on the same two cores, taking turns.

    python3 -m venv venv && venv/bin/pip install torch transformers onnx onnxscript numpy jax
    venv/bin/python bench/train_peers.py [--tessera build/tessera] [--rounds 3] [--steps 4] [--dtype float32,bfloat16]

--engines names what runs, separated by commas:
    tessera [OPTIONS]            tessera train with these options; --mesh dp=2, fsdp=2 or tp=2 for two ranks
    torch, torch compiled        PyTorch, a GPT-2 of nn.Linear; compiled: the whole step by torch.compile
    torch hf                     Hugging Face's GPT-2, eager
    torch dp, fsdp, tp           two ranks over Gloo: DistributedDataParallel, fully_shard, parallelize_module
    jax; jax dp, fsdp, tp        JAX; two host devices, weights and batch laid out by NamedSharding
One rank has two threads, two ranks have one each. (JAX makes threads of its own, on the same cores.) The cores are the first
two that this process may use: taskset chooses others. An engine that cannot run is left out, and says why. PyTorch updates by
its fused AdamW, but for torch compiled, which fuses the plain one.

Prints, for each dtype, the machine, the peak of its matrix products, the FLOPs of those of a step and the time that the peak
needs for them (the floor). Then for each engine the median step (the slowest rank counts), its share of the peak, the peak
memory of all its processes together (libraries' pages that they share count once), and how far its losses are from those of
the first engine. "peers" says how many times as fast as the fastest peer with as many ranks and the same strategy it is, "one
rank" how many times as fast as the same engine on one rank.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from train_peers_step import BATCH, CLIP, CORES, DECAY, FLOPS, RATE, SEQUENCE

HERE = os.path.dirname(os.path.abspath(__file__))
STRATEGIES = ("dp", "fsdp", "tp")
PEERS = ["torch", "torch compiled", "torch hf", "jax"] + [f"{peer} {s}" for s in STRATEGIES for peer in ("torch", "jax")]
ENGINES = ["tessera"] + [f"tessera --mesh {s}=2" for s in STRATEGIES] + PEERS
LOSSES_AGREE = {"float32": 1e-4, "bfloat16": 5e-3}


class CannotRun(Exception):
    pass


def reason_in(text):
    """The error in what a process wrote: the last line that names one, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.\[\]]*(error|exception)\b", line, re.IGNORECASE)]
    return (errors or lines or ["it wrote no reason"])[-1][:300]


def run_together(commands, environments):
    """Runs one process for each command, and returns their peaks in bytes. If one fails, the others end, too."""
    running, peaks, reason = {}, [], None
    for command, environment in zip(commands, environments):
        errors = tempfile.TemporaryFile("w+")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env={**os.environ, **environment})
        running[process.pid] = process, errors
    while running:
        pid, status, used = os.wait4(-1, 0)
        process, errors = running.pop(pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        peaks.append(used.ru_maxrss * 1024)
        if process.returncode and not reason:
            errors.seek(0)
            end = f"exit code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
            reason = f"{reason_in(errors.read())} ({end})"
            for other, _ in running.values():
                other.kill()
    if reason:
        raise CannotRun(reason)
    return peaks


class Engine:

    def __init__(self, name):
        self.name = name
        self.family, *self.options = name.split()
        if self.family != "tessera" and name not in PEERS:
            sys.exit(f"there is no engine '{name}'; there are {', '.join(ENGINES)}")
        if any(option.startswith("--spawn") for option in self.options):
            sys.exit(f"'{name}': ranks must be threads, since the memory of processes that Tessera starts is not seen here")
        self.strategy, self.alone = "", None  # alone: the name of the same engine on one rank
        mesh = re.search(r" --mesh[ =](\S*)", name)
        if mesh:
            self.strategy = mesh[1].removesuffix("=2")
            if self.strategy not in STRATEGIES:
                sys.exit(f"'{name}': the mesh must be dp=2, fsdp=2 or tp=2")
            self.alone = name.replace(mesh[0], "")
        elif self.options and self.options[0] in STRATEGIES:
            self.strategy, self.alone = self.options[0], self.family
        self.results, self.failed = [], False

    def median(self):
        return statistics.median(time for result in self.results for time in result["times"][1:])

    def run(self, *arguments):
        with tempfile.TemporaryDirectory() as scratch:
            run = self.run_tessera if self.family == "tessera" else self.run_peer
            self.results.append(run(scratch, *arguments))

    def run_tessera(self, scratch, binary, folder, steps, dtype):
        metrics = os.path.join(scratch, "metrics.jsonl")
        command = [binary, "train", os.path.join(folder, "model.onnx"), "--data", os.path.join(folder, "data.npz"),
                   "--steps", str(steps), "--optimizer", f"adamw:weight_decay={DECAY}", "--lr", str(RATE),
                   "--clip", str(CLIP), "--dtype", dtype, "--metrics", metrics, "--quiet", *self.options]
        peaks = run_together([command], [{}])
        with open(metrics) as file:
            lines = [json.loads(line) for line in file]
        return {"times": [BATCH * SEQUENCE / line["tokens_per_s"] for line in lines],
                "losses": [line["loss"] for line in lines], "peak": sum(peaks)}

    def run_peer(self, scratch, _, folder, steps, dtype):
        """Starts a process for each rank; JAX has its ranks in one process."""
        ranks = CORES if self.strategy else 1
        results = [os.path.join(scratch, f"{rank}.json") for rank in range(ranks if self.family == "torch" else 1)]
        worker = os.path.join(HERE, f"train_peers_{self.family}.py")
        peaks = run_together(
            [[sys.executable, worker, self.name, folder, str(steps), dtype, result] for result in results],
            [{"RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": str(CORES // ranks),
              "MEETING": os.path.join(scratch, "meeting"), "GLOO_SOCKET_IFNAME": "lo"} for rank in range(len(results))])
        parts = []
        for result in results:
            with open(result) as file:
                parts.append(json.load(file))
        return {"times": [max(times) for times in zip(*(part["times"] for part in parts))],
                "losses": [statistics.mean(losses) for losses in zip(*(part["losses"] for part in parts))],
                "peak": sum(peaks) - sum(sorted(part["shared"] for part in parts)[:-1])}


def machine():
    with open("/proc/cpuinfo") as file:
        fields = dict(re.findall(r"^(.*?)\s*: (.*)$", file.read().split("\n\n")[0], re.MULTILINE))
    flags = fields.get("flags", "").split()
    kinds = [("AVX-512", "avx512f"), ("AVX-512 BF16", "avx512_bf16"), ("AMX BF16", "amx_bf16")]
    return (f"{fields.get('model name')} (family {fields.get('cpu family')}, model {fields.get('model')}), {CORES} cores, "
            + ", ".join(f"{'with' if flag in flags else 'no'} {name}" for name, flag in kinds))


def peak_flops(tessera, dtype):
    """Of matrix products on all cores, as `tessera bench` measures it, whatever the model."""
    model = os.path.join(os.path.dirname(HERE), "examples", "tiny", "model.onnx")
    done = subprocess.run([tessera, "bench", model, "--json", "--iterations", "1", "--warmup", "0", "--dtype", dtype],
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["floor"]["peak_flops"]


def print_row(engine, group, medians, losses, dtype, peak):
    median = medians[engine.name]
    peers = [medians[other.name] for other in group if other.family != "tessera"]
    ratio = f"{min(peers) / median:5.2f}x peers" if peers else " " * 12
    alone = f"{medians[engine.alone] / median:5.2f}x one rank" if engine.alone in medians else " " * 15
    away = max(abs(a - b) for a, b in zip(engine.results[0]["losses"], losses))
    share = f"{FLOPS / median / peak:4.0%} of the peak" if peak else ""
    print(f"  {engine.name:26s} {median * 1e3:8.0f} ms  {share}  {ratio}  {alone}  "
          f"{max(result['peak'] for result in engine.results) / 2**30:5.2f} GiB  losses differ by {away:.1e}"
          + ("" if away <= LOSSES_AGREE[dtype] else ": TOO MUCH"))


def print_table(engines, dtype, peak):
    floor = f"peak {peak / 1e9:.0f} GFLOP/s, floor {FLOPS / peak * 1e3:.0f} ms" if peak else "no peak was measured"
    print(f"\n{dtype} on {machine()}\n  matrix products: {FLOPS / 1e9:.0f} GFLOP in a step, {floor}")
    engines = [engine for engine in engines if engine.results]
    if not engines:
        return
    losses = engines[0].results[0]["losses"]
    print(f"  losses of {engines[0].name}: " + " ".join(f"{loss:.5f}" for loss in losses))
    medians = {engine.name: engine.median() for engine in engines}
    for strategy in dict.fromkeys(engine.strategy for engine in engines):
        print(f" {strategy + ', two ranks' if strategy else 'one rank'}")
        group = [engine for engine in engines if engine.strategy == strategy]
        for engine in group:
            print_row(engine, group, medians, losses, dtype, peak)


def compare(engines, options, folder, dtype):
    peak = 0
    for _ in range(options.rounds):
        peak = max(peak, peak_flops(options.tessera, dtype))
        for engine in engines:
            if engine.failed:
                continue
            try:
                engine.run(options.tessera, folder, options.steps, dtype)
            except CannotRun as error:
                print(f"{engine.name}, {dtype}: left out: {error}", file=sys.stderr)
                engine.failed, engine.results = True, []
    print_table(engines, dtype, peak)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="of each round, 2 to 16; the first warms up")
    parser.add_argument("--dtype", default="float32,bfloat16")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--folder", help="where the model is kept between runs")
    options = parser.parse_args()
    if not 2 <= options.steps <= 16:
        parser.error("--steps is 2 to 16")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    engines = options.engines.split(",")
    for name in engines:
        Engine(name)  # refuses what it does not know before anything runs
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or scratch
        os.makedirs(folder, exist_ok=True)
        if not all(os.path.exists(os.path.join(folder, name)) for name in ("model.onnx", "weights.npz", "data.npz")):
            subprocess.run([sys.executable, os.path.join(HERE, "train_peers_torch.py"), "prepare", folder], check=True)
        for dtype in options.dtype.split(","):
            compare([Engine(name) for name in engines], options, folder, dtype)


if __name__ == "__main__":
    main()
