#include "tessera/bind/outputs.h"

#include "tessera/ir/flow_role.h"

namespace tessera::bind {

size_t skip_of(const Box& part, const Value* value) {
  return bytes_of(value->dtype(), part.count() ? part.first() : 0);
}

bool is_staged(const device::Device& device, const Box& part) {
  return !device.uses_host_memory() && !part.contiguous();
}

Destinations results_in_outputs(const Subject& subject, const Values& values) {
  Destinations direct;
  if (subject.options.keep_all || !subject.device().uses_host_memory()) return direct;
  const auto& outputs = subject.program.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value* value = outputs[i].value;
    if (!value) continue;  // it is on other ranks
    const Value* root = values.home(value);
    if (root->kind != ValueKind::result || direct.contains(root) || !values.sizes().writes(value)) continue;
    if (flow::role_of(*root->producer) == flow::Role::carry) continue;  // its buffer changes
    const Box part = values.sizes().part(value);
    if (part.contiguous()) direct[root] = {Location::Where::output, i, nullptr, skip_of(part, value)};
  }
  return direct;
}

std::vector<HostCopy> copies_of_outputs(const Subject& subject, const Values& values, const Places& places) {
  std::vector<HostCopy> copies;
  const auto& outputs = subject.program.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value* value = outputs[i].value;
    if (!value || !values.sizes().writes(value)) continue;
    const Location& made = *places.find(value);
    if (made.where == Location::Where::output && made.index == i) continue;
    CopiedBox part(values.sizes().part(value), value->dtype());
    HostCopy copy{.port = i, .place = made, .box = std::move(part.box), .element = part.unit};
    copy.bytes = static_cast<size_t>(copy.box.count()) * copy.element;
    copy.staged = is_staged(subject.device(), copy.box);
    copies.push_back(std::move(copy));
  }
  return copies;
}

}  // namespace tessera::bind
