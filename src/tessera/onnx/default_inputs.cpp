#include "tessera/onnx/default_inputs.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kept.pb.h"
#include "tessera/onnx/type_codec.h"

namespace tessera {

std::vector<DefaultInput> default_inputs(const OnnxModel& model) {
  constexpr int64_t kFirstVersion = 4;
  std::vector<DefaultInput> found;
  if (model.ir_version < kFirstVersion) return found;
  kept::Graph kept;
  check(kept.ParseFromString(model.graph->extra), "what was kept of a graph can be read back");
  for (const kept::InfoSlot& slot : kept.input()) {
    Value* value = model.graph->find(slot.name());
    if (!value || !value->has_data()) continue;
    onnx::ValueInfoProto info;
    check(info.ParseFromString(value->extra), "what was kept of an input can be read back");
    TensorType declared = codec::type_of(info);
    found.push_back({value, declared.shape ? std::move(declared) : value->type});
  }
  return found;
}

void make_inputs(OnnxModel& model, const std::vector<std::string>& names) {
  const std::vector<DefaultInput> known = default_inputs(model);
  for (const std::string& name : names) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const DefaultInput& input) { return input.value->name == name; });
    if (found == known.end() || found->value->kind == ValueKind::input)
      fail("inputs", "'{}' is not an initializer that the model also lists as an input, so it cannot be given", name);
    Value& value = *found->value;
    value.kind = ValueKind::input;
    value.type = found->type;
    value.data = {};
    value.data_extra.clear();
    value.content.reset();
    model.graph->inputs.push_back(&value);
  }
}

}  // namespace tessera
