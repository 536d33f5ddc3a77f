#include "tessera/bind/sources.h"

#include <fmt/format.h>

#include "tessera/base/error.h"

namespace tessera::bind {
namespace {

void require_numbers(const Subject& subject) {
  if (subject.device().uses_host_memory()) return;
  for (const auto& value : subject.graph().values())
    if (value->dtype() == DType::string)
      fail("bind", "'{}' has elements of type string, which the device '{}' cannot hold; use the cpu", value->name,
           subject.device().name());
}

}  // namespace

bool is_in_input(const device::Device& device, const Box& part) {
  return device.uses_host_memory() && part.contiguous();
}

Sources place_sources(const Subject& subject, const Values& values, const Uses& uses,
                      const std::map<const Value*, size_t>& slot_of, Arena& arena, Places& places,
                      KnownElements& known) {
  require_numbers(subject);
  Sources sources;
  for (size_t i = 0; i < subject.program.inputs.size(); ++i) {
    const Value* value = subject.program.inputs[i].value;
    Box part = values.sizes().part(value);
    if (is_in_input(subject.device(), part)) {
      places.put(value, {Location::Where::input, i, nullptr, skip_of(part, value)});
      continue;
    }
    constexpr int kBefore = -1;  // the first action
    const Location place = places.put(
        value, arena.add_place(bytes_of(value->dtype(), part.count()), {kBefore, uses.last(values.home(value))},
                               {value, fmt::format("'{}'", value->name)}));
    CopiedBox copied(std::move(part), value->dtype());
    HostCopy copy{.port = i, .place = place, .box = std::move(copied.box), .element = copied.unit};
    copy.bytes = static_cast<size_t>(copy.box.count()) * copy.element;
    copy.staged = is_staged(subject.device(), copy.box);
    sources.inputs.push_back(std::move(copy));
  }
  for (const auto& [state, slot] : slot_of) places.put(state, {Location::Where::state, slot, nullptr, 0});
  for (const auto& value : subject.graph().values()) {
    if (value->kind == ValueKind::constant) {
      places.put(value.get(), known.place_constant(value.get()));
    } else if (value->kind == ValueKind::expression) {
      std::vector<int64_t> elements = values.sizes().numbers(*value->content);
      places.put(value.get(), known.place_expression(value.get(), elements));
      sources.elements.emplace(value.get(), std::move(elements));
    }
  }
  return sources;
}

}  // namespace tessera::bind
