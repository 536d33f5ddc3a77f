#include "tessera/cli/command.h"

namespace tessera::cli {

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all = {
      {"inspect", "Describes a model: inputs, outputs, parameters, operators, FLOPs.", make_inspect, {}},
      {"run",
       "Runs a model, or a written program, over a mesh of ranks.",
       make_run,
       {"mesh", "preset", "annotate", "shapes", "inputs", "outputs", "fetch", "dtype", "threads", "memory-limit"}},
      {"generate",
       "Continues texts with a decoder over a mesh of ranks, token by token.",
       make_generate,
       {"mesh", "preset", "prompt", "text", "max-new", "stop", "temperature", "top-p", "dtype", "outputs"}},
      {"train",
       "Trains a model over a mesh of ranks: loss, gradients and optimizer in one step.",
       make_train,
       {"data", "batch", "sequence", "steps", "loss", "optimizer", "lr", "mesh", "checkpoints", "resume"}},
      {"shard",
       "Splits a model over a mesh and writes the program, or prints the plan.",
       make_shard,
       {"mesh", "preset", "annotate", "plan", "shapes", "output", "dry-run", "form", "dialect", "max-reshard-bytes"}},
      {"annotate",
       "Writes a plan into a model, as ONNX's device annotations.",
       make_annotate,
       {"mesh", "preset", "annotate", "place", "plan", "name", "output"}},
      {"infer", "Completes a model's device annotations.", make_infer, {}},
      {"check",
       "Proves that the ranks' programs fit together, without running them.",
       make_check,
       {"mesh", "preset", "annotate", "plan", "shapes", "configuration", "own", "accept"}},
      {"verify",
       "Compares N ranks with one device, with expected outputs, or with ONNX Runtime.",
       make_verify,
       {"mesh", "preset", "annotate", "shapes", "inputs", "expected", "against", "outputs", "rtol", "atol"}},
      {"bench",
       "Times a model over a mesh: latency, operators, communication, the floor; or collectives alone.",
       make_bench,
       {"mesh", "preset", "shapes", "dtype", "inputs", "iterations", "warmup", "grow", "profile", "threads"}},
      {"calibrate", "Measures what this machine's kernels, memory and links take, for --machine.", make_calibrate, {}},
      {"simulate",
       "Predicts the time of a step on a machine that need not be there, for a mesh of any size.",
       make_simulate,
       {"mesh", "preset", "train", "cluster", "shapes", "dtype", "slow", "scale", "trace"}},
      {"explain",
       "Explains why a tensor has its layout, and what that costs.",
       make_explain,
       {"mesh", "preset", "annotate", "plan", "shapes"}},
      {"info", "Prints version, instruction sets, engines and presets.", make_info, {}},
  };
  return all;
}

}  // namespace tessera::cli
