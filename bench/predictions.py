#!/usr/bin/env python3
"""Compares predicted with measured times over many plans, and prints a table.

    python3 bench/predictions.py [--models DIR] [--only TEXT] [--machine FILE] [--iterations 15] [--json FILE]

Each row is one `tessera bench` or `tessera train` with --machine: the file is measured first unless it is given, and what
a plan needs beyond it is measured by the command itself, once. "Error" is predicted / measured - 1, of the median of the
runs; "memory" is the planned peak of the process with rank 0, relative to the most by which it has grown since before it
loaded the weights, pages of files left out; minus 1, too. Rows over Gloo run in two network
namespaces, joined by a link of limited rate (needs root, `ip` and `tc`); without these, they are left out and
named. DIR holds NAME/model.onnx as bench/export_models.py writes them.

"uncertain" is the share of operators' time whose measurements did not agree.

The summary: the median and the worst error, the operators that differ most in the worst row, and on which processor.
"""
import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = 600  # seconds that a command may take

# model, sizes
RUNS = [("gpt2-small", "batch=1,sequence=128"), ("bert-base", "batch=1,sequence=128"),
        ("llama-300m", "batch=1,sequence=128"), ("resnet50", "batch=1"), ("gpt2-small", "batch=4,sequence=64")]
# ranks, options
MESHES = [("1 rank", ["--threads", "1"]), ("1 rank, all cores", []), ("tp=2", ["--mesh", "tp=2"]),
          ("dp=2", ["--mesh", "dp=2"]), ("tp=4", ["--mesh", "tp=4"]), ("tp=2, processes", ["--mesh", "tp=2", "--spawn", "2"])]
TRAININGS = [("gpt, one rank", []), ("gpt, dp=2", ["--mesh", "dp=2"]), ("gpt, zero1 dp=2", ["--mesh", "dp=2", "--preset", "zero1"]),
             ("gpt, fsdp=2", ["--mesh", "dp=2", "--preset", "fsdp"]), ("gpt, tp=2", ["--mesh", "tp=2"]),
             ("gpt, dp=2,tp=2", ["--mesh", "dp=2,tp=2"])]
RATES = ["1gbit", "100mbit"]


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def row_of(name, found, measured):
    predicted, process = found["predicted"], found["process"]
    return {"plan": name, "predicted_ms": predicted["step_ms"], "measured_ms": measured,
            "error": predicted["step_ms"] / measured - 1, "extrapolated": predicted["extrapolated"],
            "uncertain": predicted["uncertain"], "operators": predicted.get("operators", []),
            "peak_bytes": process["peak_bytes"], "resident_bytes": process["resident_bytes"],
            "memory_error": process["peak_bytes"] / process["resident_bytes"] - 1}


def bench_rows(arguments, machine):
    for model, sizes in RUNS:
        path = os.path.join(arguments.models, model, "model.onnx")
        if not os.path.exists(path):
            print(f"left out: {path} does not exist", file=sys.stderr)
            continue
        for mesh, options in MESHES:
            name = f"{model} {sizes}, {mesh}"
            if arguments.only not in name or (mesh == "dp=2" and "batch=1" in sizes):
                continue
            command = [arguments.tessera, "bench", path, "--shapes", sizes, *options, "--machine", machine, "--json",
                       "--iterations", str(arguments.iterations)]
            run(command)  # measures what the file lacks
            found = run(command)
            yield row_of(name, found, found["latency_ms"]["median"])


def small_llama(folder, layers, hidden):
    """A Llama of 8 heads and 2048 tokens, and a text: their paths."""
    model, text = os.path.join(folder, "llama.onnxtxt"), os.path.join(folder, "corpus.txt")
    with open(model, "w") as file:
        subprocess.run([os.path.join(ROOT, "examples", "train_tiny", "llama.sh"), str(layers), str(hidden), "8", "2048"],
                       stdout=file, check=True)
    with open(text, "w") as file:
        file.write("all of this is the same text, and nobody minds.\n" * 4000)
    return model, text


def train_rows(arguments, machine, folder):
    model, text = small_llama(folder, 6, 512)
    for name, options in TRAININGS:
        if arguments.only not in name:
            continue
        command = [arguments.tessera, "train", model, "--data", text, "--batch", "4", "--sequence", "128", "--steps",
                   str(arguments.iterations), "--output", "logits", "--init", "*=normal:0.02", "--optimizer", "adamw",
                   "--clip", "1", *options, "--machine", machine, "--json"]
        run(command)
        found = run(command)
        yield row_of(name, found, found["measured"]["step_ms"])


@contextlib.contextmanager
def namespaces(rate):
    """Two network namespaces whose link has that rate; yields their names."""
    names = ["tessera_predict_a", "tessera_predict_b"]
    # What passes at full speed after a pause: a millisecond, since timers are not finer.
    burst = int(rate.removesuffix("mbit").removesuffix("gbit")) * (125 if rate.endswith("mbit") else 125_000)
    commands = [["ip", "netns", "add", names[0]], ["ip", "netns", "add", names[1]],
                ["ip", "link", "add", "tpa", "netns", names[0], "type", "veth", "peer", "name", "tpb", "netns", names[1]]]
    for side, device in enumerate(["tpa", "tpb"]):
        inside = ["ip", "netns", "exec", names[side]]
        commands += [inside + ["ip", "addr", "add", f"10.77.0.{side + 1}/24", "dev", device],
                     inside + ["ip", "link", "set", device, "up"], inside + ["ip", "link", "set", "lo", "up"],
                     inside + ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", str(burst),
                               "latency", "50ms"]]
    def delete():
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    delete()  # an interrupted run may have left them
    try:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
        yield names
    finally:
        delete()


def on_two_hosts(command, rate, port):
    """Runs a command as two ranks over Gloo, in namespaces whose link has that rate; what rank 0 prints. Each rank
    has half of the cores to itself: the system would let both share one while the others rest, after they have waited."""
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    with namespaces(rate) as names:
        ranks = []
        for rank, space in enumerate(names):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                               MASTER_ADDR="10.77.0.1", MASTER_PORT=str(port))
            own = ",".join(str(core) for core in cores[rank * half:][:half] or cores)
            ranks.append(subprocess.Popen(["ip", "netns", "exec", space, "taskset", "-c", own, *command], env=environment,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        said = [process.communicate(timeout=LIMIT) for process in ranks]
    if any(process.returncode for process in ranks):
        sys.exit(f"{' '.join(command)}\n{said[0][1]}{said[1][1]}")
    return said[0][0]


def gloo_rows(arguments, machine):
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        print("left out: rows over Gloo, which need root, ip and tc", file=sys.stderr)
        return
    for rate in RATES:
        for model, sizes in [RUNS[0], RUNS[1]]:
            name = f"{model} {sizes}, tp=2 over Gloo at {rate}"
            path = os.path.join(arguments.models, model, "model.onnx")
            if arguments.only not in name or not os.path.exists(path):
                continue
            own = machine + "." + rate  # links differ
            shutil.copy(machine, own) if not os.path.exists(own) else None
            command = [arguments.tessera, "bench", path, "--shapes", sizes, "--mesh", "tp=2", "--threads", "1", "--machine", own, "--json",
                       "--iterations", str(max(3, arguments.iterations // 3)), "--warmup", "1", "--engine", "gloo"]
            on_two_hosts(command, rate, 29777)  # measures what the file lacks
            found = json.loads(on_two_hosts(command, rate, 29777))
            yield row_of(name, found, found["latency_ms"]["median"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=os.path.join(ROOT, "bench", "models"))
    parser.add_argument("--tessera", default=os.path.join(ROOT, "build", "tessera"))
    parser.add_argument("--machine", default="", help="a machine file; by default, this machine is calibrated")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--json", default="", help="a file for all figures")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        machine = os.path.join(folder, "machine.json")
        if arguments.machine:
            shutil.copy(arguments.machine, machine)
        else:
            subprocess.run([arguments.tessera, "calibrate", "-o", machine, "--quiet"], check=True)
        print(f"{'plan':58} {'predicted':>10} {'measured':>10} {'error':>8} {'computed':>9} {'uncertain':>9} "
              f"{'memory':>8}")
        for made in (bench_rows(arguments, machine), train_rows(arguments, machine, folder),
                     gloo_rows(arguments, machine)):
            for row in made:
                rows.append(row)
                print(f"{row['plan']:58} {row['predicted_ms']:8.2f}ms {row['measured_ms']:8.2f}ms "
                      f"{100 * row['error']:7.1f}% {100 * row['extrapolated']:8.1f}% "
                      f"{100 * row['uncertain']:8.1f}% {100 * row['memory_error']:7.1f}%", flush=True)
        processor = json.load(open(machine))["processor"]
    if not rows:
        sys.exit("no row is left")
    errors = sorted(abs(row["error"]) for row in rows)
    worst = max(rows, key=lambda row: abs(row["error"]))
    print(f"{len(rows)} plans on {processor}, {socket.gethostname()}: error {100 * statistics.median(errors):.1f} % in the "
          f"median, {100 * errors[-1]:.1f} % at worst")
    memory = sorted(abs(row["memory_error"]) for row in rows)
    print(f"memory: error {100 * statistics.median(memory):.1f} % in the median, {100 * memory[-1]:.1f} % at worst")
    print(f"worst: {worst['plan']}")
    for each in worst["operators"][:5]:
        print(f"  {each['op']}: predicted {each['predicted_ms']:.2f} ms, measured {each['measured_ms']:.2f} ms")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
