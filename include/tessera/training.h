#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tessera.h"

/// Training steps: a model, its loss, their gradients and an optimizer as one model whose states step.
namespace tessera {
inline namespace v1 {

/// What a training step is made of, in the words of `tessera train` (docs/training.md).
struct Training {
  /// "cross-entropy", "cross-entropy:label_smoothing=0.1,ignore_index=-100", "mse", "bce", "bce-with-logits", or "output":
  /// the model's own scalar.
  std::string loss = "cross-entropy";
  std::string output;              ///< the tensor that the loss takes; empty: the model's first output
  std::string labels = "labels";   ///< the input that it is compared with; a new one if the model has none
  /// "sgd", "adam", "adamw", "lamb", "lion", "adafactor" or "muon"; "adamw:beta1=0.9,beta2=0.95,eps=1e-8,weight_decay=0.1".
  std::string optimizer = "adamw";
  /// "3e-4", or "warmup=10,peak=3e-4,cosine=100,min=3e-5".
  std::string learning_rate = "1e-3";
  std::vector<float> learning_rates;  ///< one for each step, in place of `learning_rate`; the last stays
  double clip = 0;                    ///< largest norm of all gradients together; 0: any
  int micro_batches = 1;              ///< a batch is cut into so many, one after the other
  std::vector<std::string> freeze;    ///< patterns of parameters that do not train
  std::vector<std::string> no_decay;  ///< patterns of parameters without weight decay; "vectors": of fewer dimensions than 2
  std::vector<std::pair<std::string, double>> rate_factors;  ///< pattern, and what its learning rates are multiplied by
  double average = 0;      ///< decay of an exponential moving average of the parameters; 0: none
  std::string loss_scale;  ///< "", a number, or "dynamic:init=65536,growth=2,backoff=0.5,interval=2000"
  DType compute = DType::float32;  ///< of forward and backward; parameters and optimizer stay float32
  SymbolSizes sizes;               ///< of the model's symbols, the whole batch; others stay open
};

/// The model of one step, and what its states are.
struct TrainingStep {
  /// Outputs "loss", "grad_norm" and "learning_rate". "train.step" counts steps; gradients are named "grad.PARAMETER".
  Model model;
  std::vector<std::string> parameters;  ///< that train
  std::vector<std::string> optimizer;   ///< what the optimizer and the moving average keep: "PARAMETER.momentum"
  std::vector<std::string> notes;       ///< what the caller may not have meant

  /// Writes the step as plain ONNX, which any engine runs: each state is an initializer NAME, and its value after the
  /// step an output "next.NAME". Tensors beyond a gigabyte together go to a file beside it. Throws a user error for a
  /// path that cannot be written.
  void write(const std::filesystem::path& path) const;
};

/// Throws user errors that name the tensor, operator or word that is wrong.
TrainingStep training_step(const Model& model, const Training& training);

}  // namespace v1
}  // namespace tessera
