#include "tessera/cli/command.h"

namespace tessera::cli {

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all = {
      {"inspect", "describe a model: inputs, outputs, parameters, operators, FLOPs", make_inspect},
      {"run", "run a model, or a written program, over a mesh of ranks", make_run},
      {"generate", "continue texts with a decoder over a mesh of ranks, token by token", make_generate},
      {"train", "train a model over a mesh of ranks: loss, gradients and optimizer in one step", make_train},
      {"shard", "split a model over a mesh and write the program, or print the plan", make_shard},
      {"annotate", "write a plan into a model, as ONNX's device annotations", make_annotate},
      {"infer", "complete a model's device annotations", make_infer},
      {"check", "prove that the ranks' programs fit together, without running them", make_check},
      {"verify", "compare N ranks with one device, with expected outputs, or with ONNX Runtime", make_verify},
      {"bench", "time a model over a mesh: latency, operators, communication, the floor; or collectives alone",
       make_bench},
      {"explain", "explain why a tensor has its layout, and what that costs", make_explain},
      {"info", "print version, instruction sets, engines, presets", make_info},
  };
  return all;
}

}  // namespace tessera::cli
