#include "tessera/spmd/collective_attributes.h"

#include <algorithm>
#include <array>
#include <set>

#include "tessera/base/error.h"
#include "tessera/mesh/group.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {
namespace {

template <typename... Args>
[[noreturn]] void invalid(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
  fail("dialect", "{}: {}", node.label(), fmt::format(format, std::forward<Args>(args)...));
}

// Calls visit(name, field, required) for each attribute that an operator may have. The schema, the reader and the
// writer all follow this list.
template <typename Attributes, typename Visit>
void for_each_attribute(Collective kind, Attributes& all, const Visit& visit) {
  const CollectiveTraits& traits = traits_of(kind);
  visit("axes", all.axes, true);
  visit("value", all.value, false);
  if (traits.message) visit("step", all.step, false);
  if (kind == Collective::recv) visit("dtype", all.dtype, true);
  if (traits.reduces) visit("reduction", all.reduction, false);
  const bool exchanges = traits.block == BlockSide::both, has_blocks = traits.block != BlockSide::none && !exchanges;
  if (exchanges) visit("concat_dim", all.concat_dim, true);
  if (exchanges) visit("split_dim", all.split_dim, true);
  if (has_blocks) visit("dim", all.dim, true);
  if (traits.root != RootRole::none) visit("root", all.root, true);
  if (kind == Collective::permute) visit("targets", all.targets, true);
  if (traits.joins) visit(kBucketAttribute, all.bucket, false);
  if (exchanges) visit(kSplitExtentAttribute, all.split_extent, false);
  if (exchanges) visit(kConcatExtentAttribute, all.concat_extent, false);
  if (has_blocks) visit(kExtentAttribute, all.extent, false);
}

AttributeKind kind_of(const std::vector<std::string>&) {
  return AttributeKind::texts;
}
AttributeKind kind_of(const std::vector<int64_t>&) {
  return AttributeKind::integers;
}
AttributeKind kind_of(const std::string&) {
  return AttributeKind::text;
}
AttributeKind kind_of(Reduction) {
  return AttributeKind::text;
}
AttributeKind kind_of(const std::optional<Expr>&) {
  return AttributeKind::text;
}
AttributeKind kind_of(int64_t) {
  return AttributeKind::integer;
}
AttributeKind kind_of(DType) {
  return AttributeKind::integer;
}
AttributeKind kind_of(const std::optional<int64_t>&) {
  return AttributeKind::integer;
}

// Reads a value into its field, which determines its kind.
class Reader {
 public:
  Reader(const Node& node, std::string_view name, const AttributeValue& value)
      : node_(node), name_(name), value_(value) {}

  template <typename Field>
  void read(Field& field) const {
    field = std::get<Field>(value_);
  }
  void read(std::optional<int64_t>& field) const { field = std::get<int64_t>(value_); }
  void read(Reduction& field) const {
    const auto& name = std::get<std::string>(value_);
    const auto reduction = reduction_named(name);
    if (!reduction) invalid(node_, "its reduction '{}' does not exist; use sum, max, min or mean", name);
    field = *reduction;
  }
  void read(std::optional<Expr>& field) const {
    const auto& text = std::get<std::string>(value_);
    field = Expr::parse(text);
    if (!field)
      invalid(node_, "its {} '{}' is not an expression; write one over axis indices, as 4 + @tp", name_, text);
  }
  void read(DType& field) const {
    const auto number = std::get<int64_t>(value_);
    field = static_cast<DType>(number);
    if (static_cast<int64_t>(field) != number || bits_of(field) == 0)
      invalid(node_, "its dtype is {}; give the number of one of ONNX's types", number);
  }

 private:
  const Node& node_;
  std::string_view name_;
  const AttributeValue& value_;
};

// Adds a value, unless it is the default that a reader assumes.
class Writer {
 public:
  void add(std::string_view name, const std::string& text) {
    if (!text.empty()) put(name, text);
  }
  void add(std::string_view name, const std::optional<Expr>& expr) {
    if (expr) put(name, expr->str());
  }
  void add(std::string_view name, const std::optional<int64_t>& number) {
    if (number) put(name, *number);
  }
  void add(std::string_view name, Reduction reduction) { put(name, std::string(name_of(reduction))); }
  void add(std::string_view name, DType dtype) { put(name, static_cast<int64_t>(dtype)); }
  void add(std::string_view name, int64_t number) { put(name, number); }
  void add(std::string_view name, const std::vector<int64_t>& numbers) { put(name, numbers); }
  void add(std::string_view name, const std::vector<std::string>& texts) { put(name, texts); }

  std::vector<Attribute> take() { return std::move(attributes_); }

 private:
  void put(std::string_view name, AttributeValue value) {
    attributes_.push_back({std::string(name), std::move(value), ""});
  }

  std::vector<Attribute> attributes_;
};

// Operand and result have equally many dimensions.
void require_dims(const Node& node, const CollectiveAttributes& all) {
  const Value* tensor = node.input(0) ? node.input(0) : node.output(0);
  const BlockSide block = traits_of(all.kind).block;
  if (block == BlockSide::none || !tensor || !tensor->has_shape()) return;
  const auto require = [&](std::string_view name, int64_t dim) {
    if (tensor->rank() == 0) invalid(node, "its {} is {}, but its operand is a scalar; give it a dimension", name, dim);
    if (dim < 0 || dim >= static_cast<int64_t>(tensor->rank()))
      invalid(node, "its {} is {}; its operand has the dimensions 0 to {}", name, dim, tensor->rank() - 1);
  };
  if (block != BlockSide::both) return require("dim", all.dim);
  require("split_dim", all.split_dim);
  require("concat_dim", all.concat_dim);
  if (all.split_dim == all.concat_dim)
    invalid(node, "its split_dim and concat_dim are both {}; name two dimensions", all.split_dim);
}

int64_t members_of(const Node& node, const std::vector<std::string>& axes, const Mesh& mesh) {
  int64_t members = 1;
  for (const std::string& axis : axes) {
    try {
      members *= parse_axis(axis, mesh).size;
    } catch (const Error&) {
      invalid(node, "its axes: '{}' is not an axis of the mesh {}; name one of its axes", axis, mesh.str());
    }
  }
  return members;
}

void require_targets(const Node& node, const std::vector<int64_t>& targets, int64_t members) {
  if (static_cast<int64_t>(targets.size()) != members)
    invalid(node, "it has {} targets; give one for each of the {} members", targets.size(), members);
  std::vector<bool> taken(static_cast<size_t>(members), false);
  for (const int64_t target : targets) {
    if (target < -1 || target >= members)
      invalid(node, "one of its targets is {}; use a member from 0 to {}, or -1 for none", target, members - 1);
    if (target >= 0 && taken[static_cast<size_t>(target)])
      invalid(node, "two members send to member {}; at most one may", target);
    if (target >= 0) taken[static_cast<size_t>(target)] = true;
  }
}

// Extents hold for any member, so they are expressions over its indices along the mesh's axes.
void require_axes_of(const Node& node, std::string_view name, const std::optional<Expr>& extent, const Mesh& mesh) {
  if (!extent) return;
  std::set<std::string> symbols;
  extent->collect_symbols(symbols);
  for (const std::string& symbol : symbols)
    if (symbol.starts_with('@') && !mesh.find(symbol.substr(1)))
      invalid(node, "its {} '{}' names the axis '{}', which the mesh {} does not have; name one of its axes", name,
              *node.get<std::string>(name), symbol.substr(1), mesh.str());
}

}  // namespace

std::optional<Collective> communication_of(const Node& node) {
  return node.domain == kCommDomain ? collective_of_op(node.op_type) : std::nullopt;
}

std::span<const AttributeSchema> attributes_of(Collective kind) {
  static const auto tables = [] {
    std::vector<std::vector<AttributeSchema>> all;
    const CollectiveAttributes none;
    for (const CollectiveTraits& traits : collectives()) {
      std::vector<AttributeSchema>& table = all.emplace_back();
      for_each_attribute(traits.kind, none, [&](std::string_view name, const auto& field, bool required) {
        table.push_back({name, kind_of(field), required});
      });
    }
    return all;
  }();
  return tables[static_cast<size_t>(kind)];
}

CollectiveAttributes read_collective(const Node& node) {
  const auto kind = communication_of(node);
  check(kind.has_value(), node.label() + " communicates");
  check_attributes(node, node.op_type, attributes_of(*kind), kOrderAttribute);
  CollectiveAttributes all;
  all.kind = *kind;
  for_each_attribute(*kind, all, [&](std::string_view name, auto& field, bool) {
    if (const Attribute* attribute = node.find_attribute(name)) Reader(node, name, attribute->value).read(field);
  });
  require_dims(node, all);
  return all;
}

CollectiveAttributes read_collective(const Node& node, const Mesh& mesh) {
  CollectiveAttributes all = read_collective(node);
  const int64_t members = members_of(node, all.axes, mesh);
  if (all.root < 0 || all.root >= members)
    invalid(node, "its root is member {}; the group has the members 0 to {}", all.root, members - 1);
  if (all.kind == Collective::permute) require_targets(node, all.targets, members);
  require_axes_of(node, kExtentAttribute, all.extent, mesh);
  require_axes_of(node, kSplitExtentAttribute, all.split_extent, mesh);
  require_axes_of(node, kConcatExtentAttribute, all.concat_extent, mesh);
  return all;
}

std::vector<Attribute> written(const CollectiveAttributes& attributes) {
  Writer writer;
  for_each_attribute(attributes.kind, attributes,
                     [&](std::string_view name, const auto& field, bool) { writer.add(name, field); });
  return writer.take();
}

MemberExtents member_extents(const CollectiveAttributes& attributes, const Node& node) {
  const auto extent = [&](const std::optional<Expr>& stated, size_t is_result, int64_t dim) {
    const Value* tensor = is_result ? node.output(0) : node.input(0);
    return stated ? *stated : tensor->shape()[static_cast<size_t>(dim)];
  };
  switch (traits_of(attributes.kind).block) {
    case BlockSide::operand:
      return {.block = extent(attributes.extent, false, attributes.dim)};
    case BlockSide::result:
      return {.block = extent(attributes.extent, true, attributes.dim)};
    case BlockSide::both:
      return {.split = extent(attributes.split_extent, true, attributes.split_dim),
              .concat = extent(attributes.concat_extent, false, attributes.concat_dim)};
    case BlockSide::none:
      break;
  }
  return {};
}

std::optional<Reduction> reduction_named(std::string_view name) {
  for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min, Reduction::mean})
    if (name == name_of(reduction)) return reduction;
  return std::nullopt;
}

}  // namespace tessera::spmd
