#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "plan/deep_model.h"
#include "tessera/compiler/with_states.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/import.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/stages/stages.h"
#include "tessera/train/step.h"

namespace tessera::stages::test {

inline std::filesystem::path models() {
  return std::filesystem::path(TESSERA_TEST_DATA) / "models";
}

/// A decoder of alike layers.
inline OnnxModel deep_text(int layers) {
  return parse_text(tessera::test::deep_model(layers));
}

/// A model for inference, with types.
inline OnnxModel typed(OnnxModel model) {
  rewrite::rewrite_model(model);
  return model;
}

inline Symbols sizes() {
  return {{"batch", 8}, {"batch_size", 8}, {"N", 8}, {"s", 16}, {"sequence", 16}, {"seq", 16}};
}

/// Our training step of a model: AdamW, gradients clipped.
inline OnnxModel step_of(const OnnxModel& model, int micro_batches = 1, const std::string& loss = "cross-entropy") {
  train::StepOptions options;
  options.loss = loss;
  options.clip = 1;
  options.micro_batches = micro_batches;
  if (micro_batches > 1) options.sizes = {{"batch", 8}};
  return std::move(train::make_step(model, options).model);
}

/// A step that PyTorch wrote.
inline OnnxModel framework_step(const std::string& name) {
  return compiler::with_states(import_model(models() / "steps" / name / "model.onnx"), {"*=next.*"});
}

inline Stages found(const OnnxModel& model, StageSettings settings) {
  if (settings.sizes.empty()) settings.sizes = sizes();
  return find_stages(*model.graph, settings);
}

inline Stages found(const OnnxModel& model, int64_t stages) {
  StageSettings settings;
  settings.stages = stages;
  return found(model, settings);
}

inline std::vector<int64_t> counts_of(const Stages& stages) {
  std::vector<int64_t> counts;
  for (const StageInfo& stage : stages.stages) counts.push_back(stage.blocks);
  return counts;
}

/// The stage of the node that makes the value.
inline int stage_of(const OnnxModel& model, const Stages& stages, const std::string& value) {
  const Value* found = model.graph->find(value);
  return found && found->producer ? stages.of(*found->producer) : -2;
}

}  // namespace tessera::stages::test
