#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/check.h"
#include "tessera/onnx/device_annotations.h"

/// Models with device annotations, and what they must do.
namespace tessera::test {

// "SR@0101": one letter per dimension, S for a split one, after which the devices of its shards follow; 01 if none do.
// With two S, both are split into two, over four devices.
inline ShardingSpec spec(const std::string& tensor, const std::string& text) {
  ShardingSpec spec{tensor, {}, {}, {}};
  const std::string letters = text.substr(0, text.find('@'));
  const auto splits = std::count(letters.begin(), letters.end(), 'S');
  const std::string devices = text == letters ? (splits == 2 ? "0123" : "01") : text.substr(letters.size() + 1);
  for (char device : devices) spec.devices.push_back(device - '0');
  for (size_t d = 0; d < letters.size(); ++d)
    if (letters[d] == 'S')
      spec.axes.push_back(
          {static_cast<int64_t>(d), {{std::nullopt, "", splits == 2 ? 2 : static_cast<int64_t>(devices.size())}}});
  return spec;
}

// What nodes say, by the name of their first result.
using Said = std::map<std::string, std::vector<NodeDevices>>;

class DeviceAnnotations : public testing::Test {
 protected:
  Model model(std::string_view text, const std::vector<DeviceConfiguration>& configurations, const Said& said) {
    OnnxModel model = parse_text(text);
    model.ir_version = 11;
    for (Value* state : model.graph->values_of(ValueKind::state)) state->data = ramp(state->data.dims);
    set_device_configurations(model, configurations);
    size_t found = 0;
    const std::function<void(const Graph&)> annotate = [&](const Graph& graph) {
      for (const auto& node : graph.nodes()) {
        for (const Graph* region : node->regions()) annotate(*region);
        if (const auto own = said.find(node->outputs[0]->name); own != said.end()) {
          set_device_annotations(*node, own->second);
          ++found;
        }
      }
    };
    annotate(*model.graph);
    for (const Function& function : model.functions) annotate(*function.body);
    EXPECT_EQ(found, said.size());
    const std::filesystem::path path = folder_.path() / fmt::format("model{}.onnx", count_++);
    export_model(model, path);
    return Model::load(path);
  }

  // One configuration, "c", of so many devices.
  Model model(std::string_view text, int64_t devices, const std::map<std::string, std::vector<ShardingSpec>>& specs) {
    Said said;
    for (const auto& [result, list] : specs) said[result] = {{"c", list, std::nullopt}};
    return model(text, {{"c", devices, {}}}, said);
  }

  // Integers, whose sums are exact.
  static Tensors integers(const Model& model) {
    Tensors inputs;
    for (const TensorInfo& port : model.inputs()) {
      Dims dims;
      for (const std::string& extent : port.shape) dims.push_back(std::stoll(extent));
      Tensor tensor = ramp(dims);
      auto* elements = reinterpret_cast<float*>(tensor.mutable_data());
      for (int64_t i = 0; i < tensor.count(); ++i) elements[i] *= 4;
      inputs.emplace(port.name, std::move(tensor));
    }
    return inputs;
  }

  // The program that follows `configuration`, which must give the answers of a run without it.
  static Program expect_followed(const Model& model, const std::string& configuration = "c") {
    const ConfiguredModel configured = model.configured(configuration);
    EXPECT_THAT(configured.warnings, testing::IsEmpty());
    Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
    EXPECT_TRUE(check_program(program).good());
    const Tensors inputs = integers(model);
    expect_same(Session(program, one_thread()).run(inputs),
                Session(compile(model, Mesh(), {}), one_thread()).run(inputs));
    return program;
  }

  static std::string layout_of(const Program& program, const std::string& tensor) {
    return program.explain(tensor).places.front().layout;
  }

  // What the node of that first result says for the first configuration that it names.
  static std::vector<ShardingSpec> said(const Model& model, const std::string& result) {
    const Value* value = model.impl().model.graph->find(result);
    return device_annotations(*value->producer).at(0).specs;
  }

  // The messages of a model's faults.
  static std::vector<std::string> faults(const Model& model) {
    std::vector<std::string> messages;
    for (const CheckFinding& finding : check_annotations(model)) {
      messages.push_back(finding.message);
      EXPECT_TRUE(finding.rule == "device" || finding.rule == "operator");
    }
    if (!messages.empty() && check_annotations(model).front().rule == "device") {
      EXPECT_THROW(model.configured("c"), Error) << "whoever runs it hears of it, too";
    }
    return messages;
  }

  testing_io::TemporaryFolder folder_;
  int count_ = 0;
};

}  // namespace tessera::test
