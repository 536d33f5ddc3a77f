// Edits of a model's statements about itself: the parts and types of its values, and the work of its functions.
#include <algorithm>
#include <array>

#include "mutants/mutators.h"

namespace tessera::mutants {
namespace {

using Infos = google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>;

std::vector<onnx::ValueInfoProto*> described(EditedModel& model, bool with_metadata) {
  std::vector<onnx::ValueInfoProto*> all;
  for (const Scope& scope : model.scopes()) {
    if (!scope.graph) continue;
    for (Infos* infos :
         {scope.graph->mutable_value_info(), scope.graph->mutable_input(), scope.graph->mutable_output()})
      for (onnx::ValueInfoProto& info : *infos)
        if (!with_metadata || info.metadata_props_size() > 0) all.push_back(&info);
  }
  return all;
}

std::string* entry(onnx::ValueInfoProto& info, std::string_view key) {
  for (auto& each : *info.mutable_metadata_props())
    if (each.key() == key) return each.mutable_value();
  return nullptr;
}

std::string strip_one(EditedModel& model, Random& random) {
  auto all = described(model, true);
  if (all.empty()) return "";
  onnx::ValueInfoProto* info = random.one_of(all);
  info->clear_metadata_props();
  return "'" + info->name() + "' does not say what it is a part of";
}

std::string take_anothers_note(EditedModel& model, Random& random, std::string_view key) {
  auto all = described(model, true);
  if (all.size() < 2) return "";
  onnx::ValueInfoProto *info = random.one_of(all), *other = random.one_of(all);
  std::string *own = entry(*info, key), *its = entry(*other, key);
  if (!own || !its || *own == *its) return "";
  *own = *its;
  return "'" + info->name() + "' says that its " + std::string(key) + " is " + *its;
}

std::string change_name(EditedModel& model, Random& random) {
  return take_anothers_note(model, random, "tessera.value");
}
std::string change_global(EditedModel& model, Random& random) {
  return take_anothers_note(model, random, "tessera.global");
}
std::string change_sharding(EditedModel& model, Random& random) {
  return take_anothers_note(model, random, "tessera.sharding");
}

std::string drop_partial(EditedModel& model, Random& random) {
  std::vector<onnx::ValueInfoProto*> partial;
  for (onnx::ValueInfoProto* info : described(model, true))
    if (std::string* sharding = entry(*info, "tessera.sharding");
        sharding && sharding->find("partial") != std::string::npos)
      partial.push_back(info);
  if (partial.empty()) return "";
  onnx::ValueInfoProto* info = random.one_of(partial);
  std::string* sharding = entry(*info, "tessera.sharding");
  sharding->resize(sharding->find(" partial"));
  return "'" + info->name() + "' says that it is whole";
}

std::string change_type(EditedModel& model, Random& random) {
  auto all = described(model, false);
  std::erase_if(all, [](const onnx::ValueInfoProto* info) {
    return !info->type().has_tensor_type() || info->type().tensor_type().shape().dim_size() == 0;
  });
  if (all.empty()) return "";
  onnx::ValueInfoProto* info = random.one_of(all);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  const int dims = tensor->shape().dim_size();
  auto* dim = tensor->mutable_shape()->mutable_dim(static_cast<int>(random.below(static_cast<size_t>(dims))));
  if (random.one_in(4))
    dim->set_dim_param(odd_extent(random));
  else if (dim->has_dim_value())
    dim->set_dim_value(dim->dim_value() + 1);
  else
    dim->set_dim_param(dim->dim_param() + " + 1");
  return "'" + info->name() + "' says that it has other extents";
}

std::string change_element_type(EditedModel& model, Random& random) {
  auto all = described(model, false);
  std::erase_if(all, [](const onnx::ValueInfoProto* info) { return !info->type().has_tensor_type(); });
  if (all.empty()) return "";
  onnx::ValueInfoProto* info = random.one_of(all);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  constexpr std::array kTypes = {onnx::TensorProto::FLOAT,  onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16,
                                 onnx::TensorProto::DOUBLE, onnx::TensorProto::INT32,   onnx::TensorProto::INT64,
                                 onnx::TensorProto::INT8,   onnx::TensorProto::BOOL};
  const auto other = kTypes[random.below(kTypes.size())];
  if (tensor->elem_type() == other) return "";
  tensor->set_elem_type(other);
  return "'" + info->name() + "' says that its elements are " + onnx::TensorProto::DataType_Name(other);
}

std::string change_rank(EditedModel& model, Random& random) {
  auto all = described(model, false);
  std::erase_if(all, [](const onnx::ValueInfoProto* info) { return !info->type().has_tensor_type(); });
  if (all.empty()) return "";
  onnx::ValueInfoProto* info = random.one_of(all);
  auto* shape = info->mutable_type()->mutable_tensor_type()->mutable_shape();
  if (random.one_in(2) || shape->dim_size() == 0)
    shape->add_dim()->set_dim_value(1);
  else
    shape->mutable_dim()->RemoveLast();
  return "'" + info->name() + "' says that it has " + std::to_string(shape->dim_size()) + " dimensions";
}

std::string change_function_note(EditedModel& model, Random& random) {
  std::vector<std::string*> notes;
  for (onnx::FunctionProto& function : *model.proto.mutable_functions())
    for (auto& each : *function.mutable_metadata_props())
      if (each.key() == "tessera.function") notes.push_back(each.mutable_value());
  if (notes.size() < 2) return "";
  std::string *a = random.one_of(notes), *b = random.one_of(notes);
  if (*a == *b) return "";
  std::swap(*a, *b);
  return "two functions say that they do what the other does";
}

std::string strip_function_notes(EditedModel& model, Random&) {
  bool any = false;
  for (onnx::FunctionProto& function : *model.proto.mutable_functions()) {
    any |= function.metadata_props_size() > 0;
    function.clear_metadata_props();
  }
  return any ? "functions do not say what they do" : "";
}

}  // namespace

void strip_notes(EditedModel& model) {
  for (const Scope& scope : model.scopes()) {
    if (!scope.graph) continue;
    scope.graph->clear_value_info();
    for (Infos* infos : {scope.graph->mutable_input(), scope.graph->mutable_output()})
      for (onnx::ValueInfoProto& info : *infos) info.clear_metadata_props();
  }
}

std::vector<Mutator> note_mutators() {
  return {
      {.name = "say nothing of a value", .edit_model = strip_one},
      {.name = "say that a value is a part of another", .edit_model = change_name},
      {.name = "say that a value is a part of another type", .edit_model = change_global},
      {.name = "say that a value is another part", .edit_model = change_sharding},
      {.name = "say that a partial value is whole", .edit_model = drop_partial},
      {.name = "say that a value has other extents", .edit_model = change_type},
      {.name = "say that a value has other elements", .edit_model = change_element_type},
      {.name = "say that a value has other dimensions", .edit_model = change_rank},
      {.name = "say that a function is another", .edit_model = change_function_note},
      {.name = "say nothing of functions", .edit_model = strip_function_notes},
  };
}

}  // namespace tessera::mutants
