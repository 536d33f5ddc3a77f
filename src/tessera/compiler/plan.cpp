#include "tessera/plan.h"

#include <array>

#include "tessera/base/error.h"
#include "tessera/compiler/open_mesh.h"
#include "tessera/io/json_text.h"
#include "tessera/mesh/mesh.h"

namespace tessera {
inline namespace v1 {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value, std::string_view source, std::string_view key, std::string_view example) {
  if (!value.is_string())
    fail("plan", "{}: '{}' has type {}, but must be a string, as {}", source, key, value.type_name(), example);
  return value.get<std::string>();
}

struct ComputeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array kComputeNames = {
    ComputeName{"float32", DType::float32}, ComputeName{"fp32", DType::float32},
    ComputeName{"float", DType::float32},   ComputeName{"bfloat16", DType::bfloat16},
    ComputeName{"bf16", DType::bfloat16},   ComputeName{"float16", DType::float16},
    ComputeName{"fp16", DType::float16},
};

const Json& list_of(const Json& list, std::string_view source, std::string_view key, std::string_view example) {
  if (!list.is_array())
    fail("plan", "{}: '{}' has type {}, but must be a list of strings, as {}", source, key, list.type_name(), example);
  return list;
}

void read_list(std::vector<Plan::Annotation>& into, const Json& list, std::string_view source, std::string_view key,
               std::string_view example) {
  for (const Json& entry : list_of(list, source, key, example))
    into.push_back({text_of(entry, source, key, example), fmt::format("plan file {}", source)});
}

void read_shapes(Plan& plan, const Json& sizes, std::string_view source) {
  if (!sizes.is_object())
    fail("plan", R"({}: 'shapes' has type {}, but must map symbols to sizes, as {{"batch": 8}})", source,
         sizes.type_name());
  for (const auto& [symbol, size] : sizes.items()) {
    if (!size.is_number_integer())
      fail("plan", "{}: the size of '{}' has type {}, but must be a whole number", source, symbol, size.type_name());
    plan.shapes[symbol] = size.get<int64_t>();
  }
}

int64_t bytes_of(const Json& value, std::string_view source, std::string_view key) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0)
    fail("plan", "{}: '{}' must be a number of bytes, 0 or more, as 65536", source, key);
  return value.get<int64_t>();
}

int micro_batches_of(const Json& value, std::string_view source) {
  constexpr int64_t kMost = 1 << 24;
  if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kMost)
    fail("plan", "{}: 'micro_batches' must be the number of parts of a batch, 1 or more, as 4", source);
  return value.get<int>();
}

// Whether each axis of `mesh` is the axis of `open` at its position, with the same size unless that is open.
void require_fits(const std::string& mesh, const std::string& open) {
  const Mesh given = Mesh::parse(mesh), ones = compiler::close_sizes(open, 1), twos = compiler::close_sizes(open, 2);
  bool fits = given.axes().size() == ones.axes().size();
  for (size_t a = 0; fits && a < ones.axes().size(); ++a) {
    const bool any = ones.axes()[a].size != twos.axes()[a].size;
    fits = given.axes()[a].name == ones.axes()[a].name && (any || given.axes()[a].size == ones.axes()[a].size);
  }
  if (!fits)
    fail("mesh", "the model is annotated for a mesh {}, which {} does not match; give its open sizes", open, mesh);
}

}  // namespace

Plan Plan::from_json(std::string_view text, std::string_view source) {
  const Json json = parse_json("plan", text, source);
  if (!json.is_object())
    fail("plan", R"({}: a plan is an object, as {{"presets": "megatron"}}, not {})", source, json.type_name());
  Plan plan;
  for (const auto& [key, value] : json.items()) {
    if (key == "mesh")
      plan.mesh = text_of(value, source, key, R"("tp=2")");
    else if (key == "presets")
      plan.presets = text_of(value, source, key, R"("dp+megatron")");
    else if (key == "annotations")
      read_list(plan.annotations, value, source, key, R"(["h.*.weight=[-,tp]"])");
    else if (key == "places")
      read_list(plan.places, value, source, key, R"(["h.1.*=pp:1"])");
    else if (key == "states")
      for (const Json& entry : list_of(value, source, key, R"(["*=next.*"])"))
        plan.states.push_back(text_of(entry, source, key, R"(["*=next.*"])"));
    else if (key == "store")
      read_list(plan.storage, value, source, key, R"(["*=[dp,...]"])");
    else if (key == "keep_gathered")
      for (const Json& entry : list_of(value, source, key, R"(["head*"])"))
        plan.keep_gathered.push_back(text_of(entry, source, key, R"(["head*"])"));
    else if (key == "recompute")
      plan.recompute = text_of(value, source, key, R"("full")");
    else if (key == "ring_attention")
      plan.ring_attention = text_of(value, source, key, R"("always")");
    else if (key == "overlap")
      plan.overlap = text_of(value, source, key, R"("off")");
    else if (key == "partial_sums")
      plan.partial_sums = text_of(value, source, key, R"("operands")");
    else if (key == "bucket_bytes")
      plan.bucket_bytes = bytes_of(value, source, key);
    else if (key == "micro_batches")
      plan.micro_batches = micro_batches_of(value, source);
    else if (key == "pipeline")
      plan.pipeline = text_of(value, source, key, R"("1f1b")");
    else if (key == "stages")
      plan.stages = text_of(value, source, key, R"("7,9,9,7")");
    else if (key == "max_reshard_bytes")
      plan.max_reshard_bytes = bytes_of(value, source, key);
    else if (key == "shapes")
      read_shapes(plan, value, source);
    else if (key == "dtype")
      plan.dtype = dtype_named(text_of(value, source, key, R"("bfloat16")"), source);
    else
      fail("plan",
           "{}: a plan has no key '{}'; its keys are: mesh, presets, annotations, places, states, "
           "store, keep_gathered, recompute, ring_attention, overlap, partial_sums, bucket_bytes, micro_batches, "
           "pipeline, stages, max_reshard_bytes, shapes, dtype",
           source, key);
  }
  return plan;
}

DType Plan::dtype_named(std::string_view name, std::string_view source) {
  for (const ComputeName& known : kComputeNames)
    if (known.name == name) return known.dtype;
  fail("plan",
       "{}: models compute in float32 (fp32), bfloat16 (bf16) or float16 (fp16), not in '{}'; name one of these",
       source, name);
}

std::string Plan::to_json() const {
  nlohmann::json json = nlohmann::json::object();  // keys in the order of the alphabet
  if (!mesh.empty()) json["mesh"] = mesh;
  if (!presets.empty()) json["presets"] = presets;
  for (const Annotation& annotation : annotations) json["annotations"].push_back(annotation.text);
  for (const Annotation& place : places) json["places"].push_back(place.text);
  if (!states.empty()) json["states"] = states;
  for (const Annotation& store : storage) json["store"].push_back(store.text);
  if (!keep_gathered.empty()) json["keep_gathered"] = keep_gathered;
  if (!recompute.empty()) json["recompute"] = recompute;
  if (!ring_attention.empty()) json["ring_attention"] = ring_attention;
  if (!overlap.empty()) json["overlap"] = overlap;
  if (!partial_sums.empty()) json["partial_sums"] = partial_sums;
  if (bucket_bytes) json["bucket_bytes"] = *bucket_bytes;
  if (micro_batches > 0) json["micro_batches"] = micro_batches;
  if (!pipeline.empty()) json["pipeline"] = pipeline;
  if (!stages.empty()) json["stages"] = stages;
  if (max_reshard_bytes) json["max_reshard_bytes"] = *max_reshard_bytes;
  for (const auto& [symbol, size] : shapes) json["shapes"][symbol] = size;
  if (dtype) json["dtype"] = name_of(*dtype);
  try {
    return json.dump(2);
  } catch (const Json::exception& error) {
    fail("plan", "the plan cannot be written as JSON: {}; rename tensors whose names are not UTF-8", error.what());
  }
}

Plan Plan::over(const Plan& weaker) const {
  Plan both = *this;
  if (!mesh.empty() && compiler::has_open_sizes(weaker.mesh)) require_fits(mesh, weaker.mesh);
  if (both.presets.empty()) both.presets = weaker.presets;
  if (both.recompute.empty()) both.recompute = weaker.recompute;
  if (both.ring_attention.empty()) both.ring_attention = weaker.ring_attention;
  if (both.overlap.empty()) both.overlap = weaker.overlap;
  if (both.partial_sums.empty()) both.partial_sums = weaker.partial_sums;
  if (!both.bucket_bytes) both.bucket_bytes = weaker.bucket_bytes;
  if (both.micro_batches == 0) both.micro_batches = weaker.micro_batches;
  if (both.pipeline.empty()) both.pipeline = weaker.pipeline;
  if (both.stages.empty()) both.stages = weaker.stages;
  if (!both.max_reshard_bytes) both.max_reshard_bytes = weaker.max_reshard_bytes;
  if (!both.dtype) both.dtype = weaker.dtype;
  if (both.mesh.empty()) both.mesh = weaker.mesh;
  both.annotations.insert(both.annotations.end(), weaker.annotations.begin(), weaker.annotations.end());
  both.places.insert(both.places.end(), weaker.places.begin(), weaker.places.end());
  both.states.insert(both.states.end(), weaker.states.begin(), weaker.states.end());
  both.storage.insert(both.storage.end(), weaker.storage.begin(), weaker.storage.end());
  both.keep_gathered.insert(both.keep_gathered.end(), weaker.keep_gathered.begin(), weaker.keep_gathered.end());
  both.shapes.insert(weaker.shapes.begin(), weaker.shapes.end());
  return both;
}

}  // namespace v1
}  // namespace tessera
