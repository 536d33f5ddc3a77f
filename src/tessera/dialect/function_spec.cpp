#include "tessera/dialect/function_spec.h"

#include <nlohmann/json.hpp>

#include "tessera/dialect/schema.h"
#include "tessera/onnx/metadata.h"

namespace tessera::dialect {
namespace {

using Json = nlohmann::json;

// Calls visit(key, field) for every field.
template <typename AnySpec, typename Visit>
void for_each_field(AnySpec& spec, const Visit& visit) {
  visit("op", spec.op);
  visit("form", spec.form);
  visit("axes", spec.axes);
  visit("float32", spec.float32);
  visit("boolean", spec.boolean);
  visit("dim", spec.dim);
  visit("concat_dim", spec.concat_dim);
  visit("root", spec.root);
  visit("offset", spec.offset);
  visit("targets", spec.targets);
}

}  // namespace

void state_spec(Function& function, const Spec& spec) {
  Json all, usual;
  const Spec nothing;
  for_each_field(spec, [&](const char* key, const auto& field) { all[key] = field; });
  for_each_field(nothing, [&](const char* key, const auto& field) { usual[key] = field; });
  Json stated = {{"reduction", name_of(spec.reduction)}};
  for (const auto& [key, field] : all.items())
    if (field != usual[key]) stated[key] = field;
  set_metadata(function, kFunctionKey, stated.dump());
}

std::optional<Spec> stated_spec(const Function& function) {
  const auto text = get_metadata(function, kFunctionKey);
  const Json stated = text ? Json::parse(*text, nullptr, false) : Json();
  if (!stated.is_object()) return std::nullopt;
  try {
    Spec spec;
    for_each_field(spec, [&](const char* key, auto& field) {
      if (stated.contains(key)) stated.at(key).get_to(field);
    });
    const auto reduction = spmd::reduction_named(stated.value("reduction", "sum"));
    if (!reduction) return std::nullopt;
    spec.reduction = *reduction;
    return spec;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace tessera::dialect
