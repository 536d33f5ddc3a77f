// Numbers that say which part a rank has: indices, the ends of slices, extents, offsets, constants, and where weights
// lie.
#include <algorithm>
#include <cstring>

#include "mutants/mutators.h"

namespace tessera::mutants {
namespace {

bool is_axis_index(const Site& site) {
  return !site.in_function() && site.node().domain() == "tessera.comm" && base_of(site.node()) == "AxisIndex";
}
bool is_slice(const Site& site) {
  return site.node().op_type() == "Slice";
}
bool has_integers(const onnx::TensorProto& tensor) {
  return tensor.data_type() == onnx::TensorProto::INT64 && tensor.data_location() != onnx::TensorProto::EXTERNAL;
}
bool has_floats(const onnx::TensorProto& tensor) {
  return tensor.data_type() == onnx::TensorProto::FLOAT && tensor.data_location() != onnx::TensorProto::EXTERNAL;
}
bool is_external(const onnx::TensorProto& tensor) {
  return tensor.data_location() == onnx::TensorProto::EXTERNAL;
}

std::string other_axis(const Site& site, Random& random) {
  std::vector<std::string> others;
  for (const MeshAxis& axis : site.model.mesh.axes()) others.push_back(axis.name);
  onnx::AttributeProto* axis = attribute(site.node(), "axis");
  if (!axis) {  // a function, whose name has it
    std::vector<std::string> functions;
    for (const auto& function : site.model.proto.functions())
      if (function.name().starts_with("AxisIndex") && function.name() != site.node().op_type())
        functions.push_back(function.name());
    if (functions.empty()) return "";
    site.node().set_op_type(random.one_of(functions));
    return "an axis index becomes " + site.node().op_type();
  }
  std::erase(others, axis->s());
  if (others.empty()) return "";
  const std::string what = "'" + site.node().output(0) + "' is the index along ";
  axis->set_s(random.one_of(others));
  return what + axis->s();
}

// n - 1 - i, or 0 - i, i + 1.
std::string other_index(const Site& site, Random& random) {
  const std::string name = site.node().output(0);
  int64_t size = 1;
  for (const MeshAxis& axis : site.model.mesh.axes())
    if (name == "@" + axis.name) size = axis.size;
  const bool invert = random.one_in(2);
  const int64_t number = invert ? size - 1 : 1;
  const Interposed at = interpose(site, random.one_in(2));
  onnx::NodeProto node;
  node.set_op_type(invert ? "Sub" : "Add");
  const std::string number_name = site.model.fresh("number");
  node.add_input(number_name);
  node.add_input(at.from);
  node.add_output(at.to);
  insert_after(site.scope, site.index, constant(number_name, {number}, true));
  insert_after(site.scope, site.index + 1, node);
  return "'" + name + "' is " + (invert ? "inverted" : "one more");
}

// Given numbers of another slice.
std::string other_slice(const Site& site, Random& random) {
  std::vector<onnx::NodeProto*> others;
  for (const Site& other : sites(site.model))
    if (other.node().op_type() == "Slice" && &other.node() != &site.node() && !other.in_function() &&
        other.scope.nodes == site.scope.nodes)
      others.push_back(&other.node());
  if (others.empty()) return "";
  onnx::NodeProto& other = *random.one_of(others);
  const auto i = static_cast<int>(1 + random.below(3));
  if (site.node().input_size() <= i || other.input_size() <= i || site.node().input(i) == other.input(i)) return "";
  site.node().set_input(i, other.input(i));
  return label(site.node()) + " has input " + std::to_string(i) + " of " + label(other);
}

// The end moves with the beginning, so that extents stay.
std::string shift_slice(const Site& site, Random& random) {
  if (site.in_function() || site.node().input_size() < 3) return "";
  const std::string number = site.model.fresh("number");
  const int64_t by = random.one_in(2) ? 1 : -1;
  const std::string what = label(site.node()) + " takes what is " + std::to_string(by) + " further";
  int at = site.index - 1;
  insert_after(site.scope, at++, constant(number, {by}, false));
  for (int i : {1, 2}) {
    onnx::NodeProto& slice = *site.scope.nodes->Mutable(at + 1);
    onnx::NodeProto add;
    add.set_op_type("Add");
    add.add_input(slice.input(i));
    add.add_input(number);
    add.add_output(site.model.fresh("shifted"));
    slice.set_input(i, add.output(0));
    insert_after(site.scope, at++, add);
  }
  return what;
}

std::vector<int64_t> integers_of(const onnx::TensorProto& tensor) {
  if (!tensor.has_raw_data()) return {tensor.int64_data().begin(), tensor.int64_data().end()};
  std::vector<int64_t> all(tensor.raw_data().size() / sizeof(int64_t));
  std::memcpy(all.data(), tensor.raw_data().data(), all.size() * sizeof(int64_t));
  return all;
}

std::string change_integers(onnx::TensorProto& tensor, Random& random) {
  std::vector<int64_t> all = integers_of(tensor);
  if (all.empty()) return "";
  const size_t i = random.below(all.size());
  const int64_t before = all[i];
  switch (random.below(4)) {
    case 0:
      std::swap(all[i], all[(i + 1) % all.size()]);
      break;
    case 1:
      all[i] *= 2;
      break;
    case 2:
      ++all[i];
      break;
    default:
      --all[i];
  }
  if (all[i] == before) return "";
  tensor.clear_int64_data();
  tensor.set_raw_data(all.data(), all.size() * sizeof(int64_t));
  return "element " + std::to_string(i) + " is " + std::to_string(all[i]) + " and not " + std::to_string(before);
}

std::string change_floats(onnx::TensorProto& tensor, Random& random) {
  std::vector<float> all(tensor.float_data().begin(), tensor.float_data().end());
  if (tensor.has_raw_data()) {
    all.resize(tensor.raw_data().size() / sizeof(float));
    std::memcpy(all.data(), tensor.raw_data().data(), all.size() * sizeof(float));
  }
  if (all.empty()) return "";
  const size_t i = random.below(all.size());
  const float before = all[i];
  all[i] = random.one_in(2) ? all[i] * 2 : all[i] + 1;
  if (all[i] == before) return "";
  tensor.clear_float_data();
  tensor.set_raw_data(all.data(), all.size() * sizeof(float));
  return "element " + std::to_string(i) + " is " + std::to_string(all[i]) + " and not " + std::to_string(before);
}

std::string change_an_initializer(EditedModel&, onnx::TensorProto& tensor, Random& random) {
  const std::string what = has_integers(tensor) ? change_integers(tensor, random) : change_floats(tensor, random);
  return what.empty() ? "" : "'" + tensor.name() + "': " + what;
}

bool is_constant(const Site& site) {
  return site.node().op_type() == "Constant" && attribute(site.node(), "value");
}

std::string change_a_constant(const Site& site, Random& random) {
  onnx::TensorProto& tensor = *attribute(site.node(), "value")->mutable_t();
  const std::string what = has_integers(tensor) ? change_integers(tensor, random)
                           : has_floats(tensor) ? change_floats(tensor, random)
                                                : "";
  return what.empty() ? "" : label(site.node()) + ": " + what;
}

std::string change_initializer_type(EditedModel&, onnx::TensorProto& tensor, Random&) {
  if (tensor.dims_size() == 0) {
    tensor.add_dims(1);
    return "'" + tensor.name() + "' gets a dimension";
  }
  if (tensor.dims_size() > 1 && tensor.dims(0) != tensor.dims(1)) {
    tensor.mutable_dims()->SwapElements(0, 1);
    return "'" + tensor.name() + "' has its extents exchanged";
  }
  return "";
}

std::string* entry_of(onnx::TensorProto& tensor, std::string_view key) {
  for (auto& entry : *tensor.mutable_external_data())
    if (entry.key() == key) return entry.mutable_value();
  return nullptr;
}

std::string move_external(EditedModel&, onnx::TensorProto& tensor, Random& random) {
  std::string* offset = entry_of(tensor, "offset");
  if (!offset) return "";
  const int64_t by = random.one_in(2) ? 64 : 4;
  const int64_t now = std::stoll(*offset);
  *offset = std::to_string(now >= by && random.one_in(2) ? now - by : now + by);
  return "'" + tensor.name() + "' lies at byte " + *offset + " and not " + std::to_string(now);
}

std::string exchange_external(EditedModel& model, onnx::TensorProto& tensor, Random& random) {
  std::vector<onnx::TensorProto*> others;
  for (onnx::TensorProto& other : *model.proto.mutable_graph()->mutable_initializer())
    if (is_external(other) && other.name() != tensor.name() &&
        *entry_of(other, "length") == *entry_of(tensor, "length"))
      others.push_back(&other);
  if (others.empty()) return "";
  onnx::TensorProto& other = *random.one_of(others);
  std::swap(*tensor.mutable_external_data(), *other.mutable_external_data());
  return "'" + tensor.name() + "' and '" + other.name() + "' have each other's data";
}

std::string other_file(EditedModel&, onnx::TensorProto& tensor, Random& random) {
  std::string* location = entry_of(tensor, "location");
  if (!location) return "";
  const std::string now = *location;
  *location = "weights/" + std::to_string(random.below(4)) + ".bin";
  return *location == now ? "" : "'" + tensor.name() + "' lies in " + *location + " and not " + now;
}

std::string embed(EditedModel&, onnx::TensorProto& tensor, Random& random) {
  const std::string* length = entry_of(tensor, "length");
  if (!length || tensor.data_type() != onnx::TensorProto::FLOAT) return "";
  std::vector<float> elements(std::stoull(*length) / sizeof(float));
  for (float& element : elements) element = static_cast<float>(random.below(7)) / 8;
  tensor.clear_external_data();
  tensor.clear_data_location();
  tensor.set_raw_data(elements.data(), elements.size() * sizeof(float));
  return "'" + tensor.name() + "' has other elements, in the model";
}

std::string exchange_initializers(EditedModel& model, onnx::TensorProto& tensor, Random& random) {
  std::vector<onnx::TensorProto*> others;
  for (onnx::TensorProto& other : *model.proto.mutable_graph()->mutable_initializer())
    if (other.name() != tensor.name() && model.type_of(other.name()) == model.type_of(tensor.name()))
      others.push_back(&other);
  if (others.empty()) return "";
  onnx::TensorProto& other = *random.one_of(others);
  const std::string what = "'" + tensor.name() + "' and '" + other.name() + "' exchange names";
  const std::string name = tensor.name();
  tensor.set_name(other.name());
  other.set_name(name);
  return what;
}

bool any_tensor(const onnx::TensorProto&) {
  return true;
}
bool has_numbers(const onnx::TensorProto& tensor) {
  return has_integers(tensor) || has_floats(tensor);
}

}  // namespace

std::vector<Mutator> number_mutators() {
  return {
      {"take the index along another axis", is_axis_index, other_axis},
      {"change an index", is_axis_index, other_index},
      {"give a slice another's numbers", is_slice, other_slice},
      {"shift a slice", is_slice, shift_slice},
      {"change a constant", is_constant, change_a_constant},
      {.name = "change an initializer", .fits_tensor = has_numbers, .edit_tensor = change_an_initializer},
      {.name = "change an initializer's extents", .fits_tensor = has_numbers, .edit_tensor = change_initializer_type},
      {.name = "exchange initializers", .fits_tensor = any_tensor, .edit_tensor = exchange_initializers},
      {.name = "move external data", .fits_tensor = is_external, .edit_tensor = move_external},
      {.name = "exchange external data", .fits_tensor = is_external, .edit_tensor = exchange_external},
      {.name = "take external data of another file", .fits_tensor = is_external, .edit_tensor = other_file},
      {.name = "put other weights into the model", .fits_tensor = is_external, .edit_tensor = embed},
  };
}

}  // namespace tessera::mutants
