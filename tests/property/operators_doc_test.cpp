// docs/operators.md says what the registry knows. TESSERA_UPDATE_GOLDENS=1 writes it anew.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "property/cases.h"
#include "tessera/base/error.h"
#include "tessera/kernels/kernel.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/lower/functions.h"
#include "tessera/rewrite/lower/lower.h"

namespace tessera::property {
namespace {

const std::string kPage = std::string(TESSERA_SOURCE) + "/docs/operators.md";

/// Types that a group of them has a word for.
struct TypeGroup {
  std::string_view name;
  std::vector<DType> types;
};
const std::vector<TypeGroup>& type_groups() {
  static const std::vector<TypeGroup> all = {
      {"floats", {DType::float32, DType::float64, DType::float16, DType::bfloat16}},
      {"integers",
       {DType::int8, DType::int16, DType::int32, DType::int64, DType::uint8, DType::uint16, DType::uint32,
        DType::uint64}},
      {"bool", {DType::boolean}},
      {"8-bit floats", {DType::float8e4m3fn, DType::float8e4m3fnuz, DType::float8e5m2, DType::float8e5m2fnuz}},
      {"4- and 2-bit types", {DType::int4, DType::uint4, DType::int2, DType::uint2, DType::float4e2m1}},
  };
  return all;
}

// Whether the node of a case computes where its first operand, and all of its type, are of type `dtype`.
bool computes(const Subject& subject, DType dtype) {
  const std::unique_ptr<Graph> graph = subject.graph->clone();
  Node& node = *graph->nodes().front();
  const auto first = std::find_if(node.inputs.begin(), node.inputs.end(), [](const Value* v) { return v != nullptr; });
  if (first == node.inputs.end()) return false;
  const DType was = (*first)->dtype();
  try {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Value* value = node.inputs[i];
      if (!value || value->dtype() != was || (ops::reads_values(node, i) && i > 0)) continue;
      value->type.dtype = dtype;
      if (value->has_data()) value->data = Tensor::zeros(dtype, value->data.dims);
    }
    for (Value* result : node.outputs)
      if (result) result->type = {};
    ops::infer_results(ops::op_of(node), node);
    const kernels::KernelEntry* entry = kernels::find_kernel(node.op_type, node.domain);
    if (!entry) return false;
    kernels::PrepareContext context{node, {}, {}, {}};
    for (const Value* value : node.inputs) {
      context.inputs.push_back(value ? kernels::TensorDesc{value->dtype(), subject.dims_of(value)}
                                     : kernels::TensorDesc());
      context.known.push_back(value && value->has_data() ? value->data.data : nullptr);
    }
    for (const Value* value : node.outputs)
      context.outputs.push_back(value ? kernels::TensorDesc{value->dtype(), subject.dims_of(value)}
                                      : kernels::TensorDesc());
    kernels::prepare_kernel(*entry, context);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string types_of(const std::vector<const Subject*>& subjects) {
  std::vector<std::string> words;
  for (const TypeGroup& group : type_groups()) {
    std::vector<std::string> some;
    for (DType dtype : group.types)
      if (std::any_of(subjects.begin(), subjects.end(), [&](const Subject* s) { return computes(*s, dtype); }))
        some.emplace_back(name_of(dtype));
    if (some.size() == group.types.size())
      words.emplace_back(group.name);
    else
      words.insert(words.end(), some.begin(), some.end());
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string title(std::string_view domain, std::string_view type) {
  return domain.empty() ? std::string(type) : fmt::format("{}.{}", domain, type);
}

std::string text_now() {
  using Key = std::pair<std::string_view, std::string_view>;
  const std::vector<Subject> all = all_cases();
  std::map<Key, std::vector<const Subject*>> cases;
  for (const Subject& subject : all) {
    const Node& node = *subject.graph->nodes().front();
    if (const ops::OpDef* op = ops::find_op(node.op_type, node.domain))
      cases[{op->domain, op->type}].push_back(&subject);
  }
  std::string text = R"(# Operators

This page is made from the registry (`tests/property/operators_doc_test.cpp`); it lists what Tessera computes of ONNX's
default domain, opsets 1 to 28, and its own operators. `tessera inspect model.onnx` says whether a model needs others.

- **Rule**: how one example of the operator can be split, as `operands -> results`. Each letter is a dimension that can be
  split over ranks, alike wherever it stands; 1 is a dimension that must be whole. A word after the bar says what else
  a split costs: `sum` and its like reduce the results (so does `update`, unless it moves less to gather the updates),
  `lookup` and `target` work on a part of a table, `norm`, `moment`, `winner` and `weighted` reduce within the operator,
  `top`, `scan` and `total` gather a few elements of each rank within it, `units` gathers a state at each step, `halo`
  fetches what windows reach beyond a rank's part, `whole` gathers the operand. Other attributes and shapes may give
  another rule.
- **Gradient**: whether `tessera train` differentiates it.
- **Types**: of the first operand, and of those that share its type.

| operator | rule of an example | gradient | types |
|---|---|---|---|
)";
  std::vector<const ops::OpDef*> known = ops::all_ops();
  std::sort(known.begin(), known.end(), [](const ops::OpDef* a, const ops::OpDef* b) {
    return std::pair(a->domain, a->type) < std::pair(b->domain, b->type);
  });
  for (const ops::OpDef* op : known) {
    const auto found = cases.find({op->domain, op->type});
    if (found == cases.end() || !kernels::find_kernel(op->type, op->domain)) continue;
    const Node& example = *found->second.front()->graph->nodes().front();
    std::string rule = op->rule(example).str();
    for (size_t at = 0; (at = rule.find('|', at)) != std::string::npos; at += 2) rule.insert(at, 1, '\\');
    text += fmt::format("| {} | `{}` | {} | {} |\n", title(op->domain, op->type), rule, op->gradient ? "yes" : "–",
                        types_of(found->second));
  }
  text += R"(
## Lowered to others

Tessera replaces these before it splits a model, so that they have the rules, types and gradients of what they become:

)";
  std::set<std::string> lowered;
  for (const rewrite::Lowering* lowering : rewrite::all_lowerings())
    lowered.insert(title(lowering->domain, lowering->op_type) + (lowering->applies ? " (some forms)" : ""));
  for (const Function& function : rewrite::known_functions())
    if (function.domain != "tessera")
      lowered.insert(title(function.domain, function.name));  // calls of other functions
  text += fmt::format("{}.\n", fmt::join(lowered, ", "));
  text += R"(
Einsum, the losses, random operators, BatchNormalization that trains, If, Loop and Scan are rewritten as well
([random.md](random.md), [control-flow.md](control-flow.md)).

## Between programs

The sizes of the results of NonZero, Compress, Unique and NonMaxSuppression depend on the elements of their operands. They
run between the parts of a model, on whole tensors ([values.md](values.md)).

## Not supported

- Strings, and what works on text: StringConcat, StringNormalizer, StringSplit, RegexFullMatch, TfIdfVectorizer; Equal and
  Cast of strings.
- Complex numbers as a type. (DFT and STFT hold them as pairs.)
- Sequences as inputs and outputs of a model, and in loops that a computed condition ends; SequenceMap. (Others
  are lowered: their tensors are known one by one.) Optionals and maps.
- ImageDecoder.
- The domains ai.onnx.ml and ai.onnx.preview, and the optimizers of ai.onnx.preview.training
  ([training.md](training.md) has its own).
- Arithmetic in floats of 8 bits, and in types of 4 and 2 bits: these are stored, cast, quantized and dequantized, and
  codes of 4 bits are multiplied in blocks ([quantization.md](quantization.md)). Only there are they split, in pairs.
)";
  return text;
}

TEST(OperatorsDoc, is_what_the_registry_says) {
  const std::string now = text_now();
  if (std::getenv("TESSERA_UPDATE_GOLDENS")) std::ofstream(kPage) << now;
  std::ifstream in(kPage);
  std::ostringstream written;
  written << in.rdbuf();
  EXPECT_TRUE(written.str() == now) << "TESSERA_UPDATE_GOLDENS=1 writes docs/operators.md anew";
}

}  // namespace
}  // namespace tessera::property
