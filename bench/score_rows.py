"""Rows of published measurements as what was run: a model, a plan, a machine, and the time of a step."""

from __future__ import annotations

import dataclasses
import re

from score_models import Model


class LeftOut(Exception):
    """A row that cannot be scored; says why."""


@dataclasses.dataclass(frozen=True)
class Case:
    model: Model
    machine: str  # a name of share/tessera/machines
    gigabits: float  # between hosts, of a host; 0: as the machine's file says
    host: int  # ranks of a host; 0: as the machine's file says
    devices: int
    replicas: int  # data parallelism, of which `sharded` ranks share states
    sharded: int
    preset: str  # of data parallelism: dp, zero1 or fsdp
    tp: int
    sequence: bool  # parallelism between the products of tensor parallelism
    pp: int
    chunks: int  # of a stage
    schedule: str  # 1f1b, interleaved, zb1p, zb2p, zbv or redis
    per_rank: int  # samples of a microbatch
    micro_batches: int
    dtype: str
    recompute: str
    attention: str  # "stored": with its scores in memory, as before FlashAttention; "flash1"; "": as the machine says
    overlap: bool  # of data parallelism's communication and computation
    rings: bool  # tensor parallelism's communication goes around rings beside its products
    gradient_bytes: int  # of gradients, for each parameter
    keeps_outputs: bool  # of stages, until the backward pass
    eager: bool  # each element-wise operator of a feed-forward layer is a kernel, whose result it holds
    power: float  # of the rate of products: the system's share of the machine's power
    capacity: float  # bytes of a device; 0: as the machine's file says
    bandwidth: float  # of the memory, as a share of the machine's
    seconds: float | None  # measured; None: not published
    memory: float | None  # bytes, measured; infinite: it did not fit

    @property
    def flops(self) -> float:
        """Of the model, for a step and device."""
        tokens = self.micro_batches * self.per_rank * self.replicas * self.model.sequence
        return self.model.flops_per_token * tokens / self.devices


# What `system` says: the machine, Gbit/s of a host's links to others, ranks of a host, and the peak that a utilization
# refers to. Jean Zay has four 100 Gbit/s adapters in a host (its user manual); 45 % of these are fitted on the group
# "BLOOM search: GBS Variations" only.
SYSTEMS = [
    (r"A100.*\(JZ\)", "a100-80gb", 180, 8, 312e12),
    (r"A100.*400Gbps", "a100-80gb", 400, 8, 312e12),
    (r"[Aa]100", "a100-80gb", 0, 0, 312e12),
    (r"H100-80G, 800Gbps", "h100-sxm", 800, 8, 989.4e12),
    (r"(?<!G)[Hh]100", "h100-sxm", 0, 0, 989.4e12),
    (r"GH-96", "h100-sxm", 800, 4, 989.4e12),
    (r"v5e", "tpu-v5e", 0, 0, 197e12),
    (r"v5p", "tpu-v5p", 0, 0, 459e12),
]

# layers, hidden, ffn, heads, kv, vocabulary of models whose rows do not print them.
SIZES = {
    "GPT-6.2B": (30, 4096, 16384, 32, 32, 0),
    "LLAMA2-34B": (48, 8192, 22016, 64, 8, 32000),
}
# Heads by hidden size of the BLOOM search, whose tables do not print all (chronicles-prequel.md, "Best TFLOPs").
BLOOM_HEADS = {14400: 96, 13824: 96}
# The model of arXiv 2411.05288, table 1, by stages: layers, hidden, heads.
BY_STAGES = {8: (32, 3072, 24), 16: (48, 4096, 32), 32: (64, 5120, 40)}

# What sources say of their programs, which their rows do not: whether attention stores scores, and communication waits
# for computation. Megatron-DeepSpeed of 2022 has kernels for the softmax alone, and reduces gradients at the end; in
# arXiv 2401.10241 the weights' gradients take half of the forward pass' time, and memory is that of stored scores.
# The first FlashAttention was the fastest until July 2023.
FLASH1 = r"llm-foundry"
STORED = r"bigscience|sailor|2401\.10241|2205\.05198|2104\.04473"
DEEPSPEED = r"bigscience|sailor"
WAITING = r"bigscience|sailor|2205\.05198|2104\.04473"

SCHEDULES = {"": "1f1b", "1f1b": "1f1b", "1f1b-i": "interleaved", "1f1b-interleaved": "interleaved",
             "interleaved1f1b": "interleaved", "zb-1p": "zb1p", "zb-h1": "zb1p", "zbb": "zb1p", "zero-bubble": "zb1p",
             "zb-2p": "zb2p", "zb-h2": "zb2p", "zb-v": "zbv", "zbv": "zbv"}


def whole(row: dict, key: str, otherwise: int | None = None) -> int:
    text = (row.get(key) or "").strip()
    if not text or text in ("?", "n/a", "-"):
        if otherwise is None:
            raise LeftOut(f"no {key}")
        return otherwise
    try:
        number = float(text)
    except ValueError:
        raise LeftOut(f"{key} is '{text}'") from None
    if number < 1 or number != int(number):
        raise LeftOut(f"{key} is {text}")
    return int(number)


def number(row: dict, key: str) -> float | None:
    try:
        value = float((row.get(key) or "").strip())
    except ValueError:
        return None
    return value if value > 0 else None


def system_of(row: dict):
    for pattern, *facts in SYSTEMS:
        if re.search(pattern, row["system"]):
            return facts
    raise LeftOut(f"no machine file for {row['system']}")


def maxtext_sizes(billions: int):
    """As MaxText scales its model of 1 billion: heads and feed-forward layers double first, then what a token has, then
    the layers. Returns layers, hidden, ffn, heads, kv, vocabulary."""
    cycles, rest = divmod(billions.bit_length() - 1, 3)
    wide, embedding = 2 ** (cycles + (rest > 0)), 2 ** (cycles + (rest > 1))
    return 16 * 2**cycles, 2048 * embedding, 7168 * wide, 16 * wide, 16 * wide, 32000


def sizes_of(row: dict):
    """layers, hidden, ffn, heads, kv, vocabulary; 0: to be found."""
    name, keys = row["model"], ("layers", "hidden", "ffn", "heads", "kv", "vocab")
    printed = tuple(whole(row, key, 0) for key in keys)
    known = SIZES.get(name, (0,) * 6)
    if match := re.fullmatch(r"maxtext-(\d+)B", name):
        known = maxtext_sizes(int(match[1]))
    if "2411.05288" in row["src"] and (stages := BY_STAGES.get(whole(row, "pp", 0))):
        layers, hidden, heads = stages
        known = (layers, hidden, 4 * hidden, heads, heads, 0)
    if "bigscience" in row["src"] and printed[1] in BLOOM_HEADS:
        known = (0, 0, 0, BLOOM_HEADS[printed[1]], 0, 0)
    return [p or k for p, k in zip(printed, known)]


def heads_of(hidden: int, tp: int) -> int:
    """As many as make them about 128 wide."""
    possible = [n for n in range(tp, hidden // 32 + 1, tp) if hidden % n == 0 and hidden // n % 2 == 0]
    if not possible:
        raise LeftOut(f"no number of heads divides hidden {hidden} and is a multiple of {tp}")
    return min(possible, key=lambda n: abs(hidden / n - 128))


def model_of(row: dict, tp: int, pp: int) -> Model:
    name = row["model"]
    if re.search(r"MoE|Mixtral|DeepSeek|OSS|_[aA]\d+[bB]|Qwen3-235B|Qwen3-30B", name):
        raise LeftOut("a mixture of experts")
    layers, hidden, ffn, heads, kv, vocabulary = sizes_of(row)
    if not hidden or not ffn:
        raise LeftOut("no sizes of the model")
    gpt = ffn == 4 * hidden and not re.search(r"llama|nanotron|qwen|mistral|maxtext", name, re.I)
    vocabulary = vocabulary or (50304 if gpt else 0)
    if not vocabulary:
        raise LeftOut("no vocab")
    if not layers:
        if not (match := re.search(r"(\d+(?:\.\d+)?)B", name)):
            raise LeftOut("no layers")
        of_layer = Model(1, hidden, ffn, 1, 1, vocabulary, 1, gpt).layer_parameters
        layers = max(1, round((float(match[1]) * 1e9 - vocabulary * hidden) / of_layer / pp)) * pp
    heads = heads or heads_of(hidden, tp)
    head_size = 128 if name.startswith("maxtext") else 0
    if not head_size and hidden % heads:
        raise LeftOut(f"{heads} heads do not divide hidden {hidden}")
    tied = pp == 1 and bool(re.match(r"MPT|nanotron|maxtext", name))
    return Model(layers, hidden, ffn, heads, kv or heads, vocabulary, whole(row, "seq"), gpt, tied, head_size)


def sharding_of(row: dict, replicas: int, host: int, slice_size: int):
    """The preset and how many of the replicas share states."""
    text = row["shard"].strip().lower()
    if "slice" in text:
        return "fsdp", min(slice_size, replicas)
    if match := re.match(r"fsdp\s*(\d+)", text):
        return "fsdp", min(int(match[1]), replicas)
    if text.startswith("hsdp"):
        return "fsdp", min(host or 8, replicas)
    if text.startswith(("fsdp", "full_shard", "zero-3", "zero3")):
        return "fsdp", replicas
    if re.match(r"zero-?[12]|.*dist-opt", text):
        return "zero1", replicas
    if text in ("", "-", "ddp", "dp", "zero-0", "zero0", "no_shard"):
        return "dp", replicas
    raise LeftOut(f"shard '{row['shard']}'")


def degrees_of(row: dict):
    """Devices, tensor parallelism, stages, replicas."""
    devices, pp = whole(row, "gpus"), whole(row, "pp", 1)
    match = re.search(r"\btp(\d+)", row["shard"])
    tp = whole(row, "tp", int(match[1]) if match else 1)
    for key, what in (("cp", "context parallelism"), ("ep", "expert parallelism")):
        if whole(row, key, 1) > 1:
            raise LeftOut(f"{what} ({key} {row[key]})")
    if devices % (tp * pp):
        raise LeftOut(f"tp {tp} x pp {pp} does not divide {devices} devices")
    replicas = whole(row, "dp", devices // (tp * pp))
    if replicas * tp * pp != devices:
        raise LeftOut(f"dp {replicas} x tp {tp} x pp {pp} is not {devices} devices")
    return devices, tp, pp, replicas


def batches_of(row: dict, replicas: int):
    """Samples of a microbatch and rank, and microbatches."""
    match = re.search(r"(\d+) microbatches of size (\d+)", row["note"])
    per_rank = whole(row, "mbs", int(match[2]) if match else None)
    batch = whole(row, "gbs", replicas * per_rank * (int(match[1]) if match else 1))
    if batch < replicas * per_rank:
        raise LeftOut(f"gbs {batch} is less than dp {replicas} x mbs {per_rank}")
    return per_rank, round(batch / (replicas * per_rank))


def seconds_of(row: dict, model: Model, devices: int, samples: int, peak: float) -> float | None:
    tokens = samples * model.sequence
    if (seconds := number(row, "step_s")) is not None:
        return seconds
    if (rate := number(row, "tok_s_gpu")) is not None:
        return tokens / rate / devices
    flops = model.flops_per_token * tokens / devices
    if (rate := number(row, "tflops_gpu")) is not None:
        return flops / (rate * 1e12)
    if (share := number(row, "mfu_pct")) is not None:
        return flops / (share / 100 * peak)
    return None


def dtype_of(row: dict) -> str:
    text = row["precision"].lower()
    if "fp8" in text or "fp4" in text:
        raise LeftOut("products in 8 or 4 bits")
    return "float16" if text == "fp16" else "float32" if text in ("fp32", "float32", "tf32") else "bf16"


def recompute_of(row: dict) -> str:
    text = row["recompute"].lower()
    if "offload" in text:
        raise LeftOut(f"activations are offloaded ({row['recompute']})")
    return "full" if "full" in text else "selective" if "selective" in text else "none"


def attention_of(row: dict) -> str:
    return "stored" if re.search(STORED, row["src"]) else "flash1" if re.search(FLASH1, row["src"]) else ""


def gradient_bytes_of(row: dict) -> int:
    """Megatron-LM accumulates gradients in 32 bits if it computes in bfloat16, and in 16 if in float16, as the authors
    of arXiv 2401.10241 and 2411.05288 let it (their examples/pretrain_zero_bubble.sh); DeepSpeed in 16, the BLOOM
    search until 28 February. nanotron has both: the backward pass of a microbatch leaves all gradients in 16 bits,
    which then are added to those in 32 bits (its optim/gradient_accumulator.py)."""
    if "nanotron" in row["src"]:
        return 6
    if re.search(r"2401\.10241|2411\.05288", row["src"]):
        return 2
    if not re.search(DEEPSPEED, row["src"]):
        return 4
    match = re.search(r"\b(\d\d-\d\d)\b", row["note"])
    return 4 if match and match[1] >= "02-28" else 2


def memory_of(row: dict) -> float | None:
    """Bytes; infinite: it did not fit. Table 5 of arXiv 2411.05288 counts in GiB: its authors' artifact prints 16.01 GB
    for the run that the table gives 14.9."""
    if row["mem_gb"].strip().upper() == "OOM":
        return float("inf")
    measured = number(row, "mem_gb")
    return measured and measured * (2**30 if "2411.05288" in row["src"] else 1e9)


def power_of(row: dict) -> float:
    """An H100 takes 700 W. Rates of large products fall with the power that a system grants it."""
    match = re.search(r"H100.*?(\d+)W", row["system"])
    return int(match[1]) / 700 if match else 1.0


def capacity_of(row: dict) -> float:
    """Of systems such as "A100-80GB", "H100-80G" and "GH-96"."""
    match = re.search(r"\b(?:GH-(\d+)|[A-Z]+\d+-(\d+)GB?)\b", row["system"])
    return int(match[1] or match[2]) * 1e9 if match else 0.0


def bandwidth_of(row: dict) -> float:
    """An H100 with 96 GB of HBM2e has six stacks, of which the A100's five move 2.04 TB/s; with HBM3, it has 3.35 TB/s
    (NVIDIA's datasheets)."""
    return 2.04 / 5 * 6 / 3.35 if re.search(r"H100.*HBM2e", row["system"]) else 1.0


def schedule_of(row: dict, pp: int) -> tuple[str, int]:
    """The schedule and the chunks of a stage."""
    chunks = whole(row, "vp", 1)
    text = re.sub(r"\s*\(.*", "", row["schedule"].lower())
    if pp == 1:
        return "1f1b", 1
    if "2411.05288" in row["src"] and "Baseline" not in row["set"]:
        if "Redis" in row["set"]:
            return "redis", 1
        raise LeftOut(f"the vocabulary is split over stages ({row['set']})")
    if text not in SCHEDULES:
        raise LeftOut(f"schedule {row['schedule']}")
    schedule = SCHEDULES[text]
    if schedule == "1f1b" and chunks > 1:
        schedule = "interleaved"
    return schedule, chunks


def case_of(row: dict) -> Case:
    """Throws LeftOut."""
    machine, gigabits, host, peak = system_of(row)
    if "LoRA" in row["set"] or "SFT" in row["set"]:
        raise LeftOut("not a pretraining step")
    dtype, recompute = dtype_of(row), recompute_of(row)
    devices, tp, pp, replicas = degrees_of(row)
    model = model_of(row, tp, pp)
    if tp > 1 and (model.heads % tp or model.kv % tp):
        raise LeftOut(f"tp {tp} does not divide {model.kv} heads of keys")
    schedule, chunks = schedule_of(row, pp)
    if schedule == "interleaved" and chunks == 1:
        chunks = max(1, (model.layers + 2) // pp) if "layers/stage" in row["note"] else 2
    if pp > model.layers:
        raise LeftOut(f"{pp} stages of {model.layers} layers")
    per_rank, micro_batches = batches_of(row, replicas)
    preset, sharded = sharding_of(row, replicas, host, 256)
    seconds = seconds_of(row, model, devices, replicas * per_rank * micro_batches, peak)
    memory = memory_of(row)
    if seconds is None and memory is None:
        raise LeftOut("no measurement")
    plain = "sequence parallel" not in row["note"] and re.search(rf"{WAITING}|2401\.10241|2411\.05288", row["src"])
    return Case(model, machine, gigabits, host, devices, replicas, sharded, preset, tp, tp > 1 and not plain, pp,
                chunks, schedule, per_rank, micro_batches, dtype, recompute, attention_of(row),
                not re.search(WAITING, row["src"]), bool(re.search("async TP", row["note"], re.I)),
                gradient_bytes_of(row), bool(re.search(DEEPSPEED, row["src"])), "nanotron" in row["src"],
                power_of(row), capacity_of(row), bandwidth_of(row), seconds, memory)
