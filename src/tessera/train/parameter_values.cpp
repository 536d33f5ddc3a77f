#include "tessera/train/parameter_values.h"

#include <optional>

#include "tessera/base/error.h"
#include "tessera/rewrite/literal.h"

namespace tessera::train {
namespace {

Value& parameter_for(const Graph& graph, const std::string& name, DType dtype, const Dims& dims) {
  Value* parameter = graph.find(name);
  const bool is_constant = parameter && parameter->producer && parameter->producer->is("Constant");
  if (!parameter || (!parameter->has_data() && !is_constant))
    fail("train",
         "'{}' is not an initializer of the model's graph, so the model cannot be written with it; write an .npz file",
         name);
  const std::optional<Tensor> was = is_constant ? rewrite::literal(*parameter->producer) : parameter->data;
  if (!was || was->dtype != dtype || was->dims != dims)
    fail(
        "train",
        "'{}' is trained as {} {}, and has another type or shape in the model, so the model cannot be written with it; "
        "write an .npz file",
        name, name_of(dtype), to_string(Shape(dims.begin(), dims.end())));
  return *parameter;
}

}  // namespace

void require_parameter(const Graph& graph, const std::string& name, DType dtype, const Dims& dims) {
  parameter_for(graph, name, dtype, dims);
}

void set_parameter(Graph& graph, const std::string& name, const Tensor& value) {
  Value& parameter = parameter_for(graph, name, value.dtype, value.dims);
  if (!parameter.producer) {
    parameter.data = value;
    return;
  }
  parameter.producer->attributes.clear();
  parameter.producer->set("value", value);
}

}  // namespace tessera::train
