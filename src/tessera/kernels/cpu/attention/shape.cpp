#include "tessera/kernels/cpu/attention/shape.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/ir/attention_window.h"
#include "tessera/kernels/cpu/library/extents.h"
#include "tessera/kernels/cpu/library/require.h"
#include "tessera/kernels/view.h"

namespace tessera::kernels {
namespace {

HeadsLayout four_dimensional(int64_t heads, int64_t positions, int64_t width) {
  return {heads * positions * width, positions * width, width};
}

void read_mask(const PrepareContext& context, AttentionShape& shape) {
  shape.mask_keys = shape.keys();
  if (!context.has_input(3)) return;
  const Dims& dims = context.inputs[3].dims;
  Dims mask = dims;
  mask.insert(mask.begin(), 4 - std::min<size_t>(mask.size(), 4), 1);
  const bool fits = dims.size() >= 1 && mask.size() == 4 && (mask[0] == 1 || mask[0] == shape.batch) &&
                    (mask[1] == 1 || mask[1] == shape.q_heads) && (mask[2] == 1 || mask[2] == shape.queries) &&
                    mask[3] <= shape.keys();
  if (!fits)
    fail("kernel", "{}: attn_mask of extents {} does not broadcast to [{}, {}, {}, {}]", context.node.label(),
         text_of(dims), shape.batch, shape.q_heads, shape.queries, shape.keys());
  shape.mask_keys = mask[3];
  shape.mask = four_dimensional(mask[1], mask[2], mask[3]);
  if (mask[0] == 1) shape.mask.batch = 0;
  if (mask[1] == 1) shape.mask.head = 0;
  if (mask[2] == 1) shape.mask.position = 0;
}

AttentionPlace place_of(const PrepareContext& context, int64_t q_heads, int64_t kv_heads, int64_t queries) {
  const Node& node = context.node;
  if (!context.has_input(7)) {
    if (kv_heads == 0 ? q_heads != 0 : q_heads % kv_heads != 0)
      fail("kernel", "{}: {} query heads do not divide into groups for {} key heads", node.label(), q_heads, kv_heads);
    return {0, queries, 0, 0, kv_heads == 0 ? 0 : q_heads / kv_heads};
  }
  constexpr int64_t most = int64_t{1} << 31;  // so that products of two fit
  const std::vector<int64_t> given = context.known_ints(7);
  const bool possible = std::all_of(given.begin(), given.end(), [](int64_t n) { return n >= 0 && n < most; });
  if (given.size() != 5 || !possible)
    fail("kernel", "{}: its place is [{}]; it must be five numbers from 0 to {}", node.label(), text_of(given),
         most - 1);
  const AttentionPlace place{given[0], given[1], given[2], given[3], given[4]};
  if (place.first_query + queries > place.queries)
    fail("kernel", "{}: its place says that its {} queries begin at {} of {}", node.label(), queries, place.first_query,
         place.queries);
  if (place.first_head + q_heads > place.group * kv_heads)
    fail("kernel", "{}: its place says that its {} query heads begin at {}, but {} key heads in groups of {} have {}",
         node.label(), q_heads, place.first_head, kv_heads, place.group, place.group * kv_heads);
  return place;
}

}  // namespace

int64_t AttentionShape::first_sharing(int64_t kv_head) const {
  return std::clamp<int64_t>(kv_head * place.group - place.first_head, 0, q_heads);
}

int64_t AttentionShape::count_sharing(int64_t kv_head) const {
  return first_sharing(kv_head + 1) - first_sharing(kv_head);
}

int64_t AttentionShape::most_sharing() const {
  int64_t most = 0;
  for (int64_t head = 0; head < kv_heads; ++head) most = std::max(most, count_sharing(head));
  return most;
}

Heads heads_of(const Node& node, const TensorDesc& desc, std::string_view attribute) {
  const auto& [dims, strides, offset] = view_of(desc);
  if (dims.size() == 4) return {dims[0], dims[1], dims[2], dims[3], {strides[0], strides[1], strides[2]}};
  const int64_t heads = node.get_int(attribute, 0);
  if (dims.size() != 3 || !node.find_attribute(attribute) || (heads == 0 ? dims[2] != 0 : dims[2] % heads != 0))
    fail("kernel",
         "{}: an operand of extents {} is not [batch, heads, positions, width], nor [batch, positions, "
         "heads·width] with attribute '{}' dividing the last one",
         node.label(), text_of(dims), attribute);
  const int64_t width = heads == 0 ? 0 : dims[2] / heads;
  return {dims[0], heads, dims[1], width, {strides[0], width, strides[1]}};
}

AttentionShape attention_shape(const PrepareContext& context) {
  const Node& node = context.node;
  const Heads q = heads_of(node, context.inputs.at(0), "q_num_heads");
  const Heads k = heads_of(node, context.inputs.at(1), "kv_num_heads");
  const Heads v = heads_of(node, context.inputs.at(2), "kv_num_heads");
  // A rank without heads of its own has operands without elements; their widths mean nothing.
  const bool widths_differ = q.heads * q.width > 0 && k.heads * k.width > 0 && q.width != k.width;
  if (q.batch != k.batch || q.batch != v.batch || k.heads != v.heads || k.positions != v.positions || widths_differ)
    fail("kernel",
         "{}: Q {}, K {} and V {} do not fit; batches, key and value positions, and the widths of queries and "
         "keys must agree",
         node.label(), text_of(context.inputs[0].dims), text_of(context.inputs[1].dims),
         text_of(context.inputs[2].dims));
  AttentionShape shape{};
  shape.place = place_of(context, q.heads, k.heads, q.positions);
  shape.batch = q.batch;
  shape.q_heads = q.heads;
  shape.kv_heads = k.heads;
  shape.queries = q.positions;
  shape.fresh = k.positions;
  shape.width = q.width;
  shape.value_width = v.width;
  shape.q = q.layout;
  shape.k = k.layout;
  shape.v = v.layout;
  shape.y = heads_of(node, context.outputs.at(0), "q_num_heads").layout;
  if (context.has_input(4) != context.has_input(5))
    fail("kernel", "{}: past_key and past_value must be given together", node.label());
  if (context.has_input(4)) {
    const Dims &past_key = context.inputs[4].dims, &past_value = context.inputs[5].dims;
    if (context.has_input(6)) fail("kernel", "{}: nonpad_kv_seqlen does not go with past_key", node.label());
    if (past_key.size() != 4 || past_value.size() != 4 || past_key[2] != past_value[2] || past_key[0] != k.batch ||
        past_value[0] != k.batch || past_key[1] != k.heads || past_value[1] != k.heads || past_key[3] != k.width ||
        past_value[3] != v.width)
      fail("kernel", "{}: past_key {} and past_value {} do not fit K and V", node.label(), text_of(past_key),
           text_of(past_value));
    shape.past = past_key[2];
  }
  require_dims(context, 6, "nonpad_kv_seqlen", {shape.batch});
  if (context.has_input(6) && context.inputs[6].dtype != DType::int64)
    fail("kernel", "{}: nonpad_kv_seqlen is {}; it must be int64", node.label(), name_of(context.inputs[6].dtype));
  require_dims(context, attention_sinks, "the sinks", {shape.q_heads});
  shape.sinks = context.has_input(attention_sinks) ? context.inputs[attention_sinks].dtype : DType::undefined;
  if (shape.sinks != DType::undefined && shape.sinks != DType::float32 && shape.sinks != context.inputs[0].dtype)
    fail("kernel", "{}: its sinks are {}; they must be float32, or as Q", node.label(), name_of(shape.sinks));
  const float by_width = 1.0f / std::sqrt(static_cast<float>(std::max<int64_t>(shape.width, 1)));
  shape.scale = node.get_float("scale", by_width);
  shape.softcap = node.get_float("softcap", 0);
  shape.causal = node.get_int("is_causal", 0) != 0;
  shape.left_window = window_of(node, "left_window_size");
  shape.right_window = window_of(node, "right_window_size");
  shape.threads = context.threads;
  read_mask(context, shape);
  return shape;
}

}  // namespace tessera::kernels
