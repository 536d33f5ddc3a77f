#!/usr/bin/env python3
"""Times tessera's collectives over MPI and Gloo beside raw calls of the same libraries, taking turns, and prints ratios.

    python3 bench/adapters.py [--ranks 2] [--rounds 5] [--seconds 0.05] [--engines mpi,gloo] [--json FILE]

Wants nothing but a build (`make`, with bench/ built) and, for MPI, mpirun. A round runs each program once; of each
collective and size, the median over the rounds counts. Raw MPI is run twice: as blocking calls, and as nonblocking ones
that are waited for at once, which are other algorithms in Open MPI and what an adapter with deadlines must use. A ratio
above 1 says that the library by itself takes longer than through tessera.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
KINDS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]


def mpirun(ranks, command):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    whole = ["mpirun", "--oversubscribe", "-n", str(ranks), *command]
    return subprocess.run(whole, env=environment, capture_output=True, text=True, check=True).stdout


def processes(ranks, command_of, variables_of):
    """Starts a process for each rank; what rank 0 prints."""
    running = []
    for rank in range(ranks):
        running.append(subprocess.Popen(command_of(rank), env=dict(os.environ, **variables_of(rank)),
                                        stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, text=True))
    said = running[0].communicate()[0]
    if any(process.wait() != 0 for process in running):
        sys.exit("a rank failed")
    return said


def lines(text):
    """{(collective, bytes): microseconds} of what bench_collectives_* print."""
    times = {}
    for line in text.splitlines():
        kind, size, microseconds = line.split()
        if kind in KINDS:
            times[kind, int(size)] = float(microseconds)
    return times


def ours(text):
    return {(entry["collective"], entry["bytes"]): entry["seconds"] * 1e6 for entry in json.loads(text)["times"]
            if entry["collective"] in KINDS}


def ways(arguments, folder, port):
    """By engine: what is compared, each a function that measures once."""
    least, most, seconds = str(arguments.least), str(arguments.most), str(arguments.seconds)
    bench = [os.path.join(BUILD, "tessera"), "bench", "comm", "--json", "--mesh", f"all={arguments.ranks}", "--min",
             least, "--max", most, "--seconds", seconds, "--collectives", ",".join(KINDS)]
    raw_mpi = [os.path.join(BUILD, "bench", "bench_collectives_mpi"), least, most, seconds]
    raw_gloo = os.path.join(BUILD, "bench", "bench_collectives_gloo")

    def gloo_alone():
        meet = tempfile.mkdtemp(dir=folder)
        return lines(processes(arguments.ranks, lambda rank: [raw_gloo, str(rank), str(arguments.ranks), meet, least,
                                                              most, seconds], lambda rank: {}))

    def gloo_ours():
        port[0] += 1
        return ours(processes(arguments.ranks, lambda rank: bench,
                              lambda rank: {"RANK": str(rank), "WORLD_SIZE": str(arguments.ranks),
                                            "LOCAL_WORLD_SIZE": str(arguments.ranks), "MASTER_ADDR": "127.0.0.1",
                                            "MASTER_PORT": str(port[0])}))

    return {"mpi": {"tessera": lambda: ours(mpirun(arguments.ranks, bench)),
                    "blocking": lambda: lines(mpirun(arguments.ranks, raw_mpi)),
                    "nonblocking": lambda: lines(mpirun(arguments.ranks, raw_mpi + ["nonblocking"]))},
            "gloo": {"tessera": gloo_ours, "raw": gloo_alone}}


def size_text(size):
    for unit, text in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {text}"
    return str(size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="of measuring at each point, at least")
    parser.add_argument("--least", type=int, default=1 << 10, help="bytes of the smallest tensor")
    parser.add_argument("--most", type=int, default=1 << 26, help="bytes of the largest")
    parser.add_argument("--engines", default="mpi,gloo")
    parser.add_argument("--json", help="a file for the figures")
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        every = ways(arguments, folder, [20000 + os.getpid() % 10000])
        for engine in arguments.engines.split(","):
            samples = {way: collections.defaultdict(list) for way in every[engine]}
            for _ in range(arguments.rounds):
                for way, measure in every[engine].items():
                    for point, microseconds in measure().items():
                        samples[way][point].append(microseconds)
            others = [way for way in samples if way != "tessera"]
            print(f"| {engine} | bytes | tessera µs | " + " | ".join(f"{way} µs | ratio" for way in others) + " |")
            print("|---" * (3 + 2 * len(others)) + "|")
            for kind, size in samples["tessera"]:
                times = {way: statistics.median(samples[way][kind, size]) for way in samples}
                found.append({"engine": engine, "collective": kind, "bytes": size, **times})
                cells = [f"{times[way]:.1f} | {times[way] / times['tessera']:.2f}" for way in others]
                print(f"| {kind} | {size_text(size)} | {times['tessera']:.1f} | " + " | ".join(cells) + " |", flush=True)
            print()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
