#include "tessera/dialect/group.h"

#include "tessera/mesh/group.h"

namespace tessera::dialect {
namespace {

// Ranks from one value of the axis to the next.
int64_t stride_of(const AxisRef& axis, const Mesh& mesh) {
  int index = *mesh.find(axis.axis);
  int64_t stride = mesh.axes()[index].size / (axis.pre * axis.size);
  for (size_t a = static_cast<size_t>(index) + 1; a < mesh.axes().size(); ++a) stride *= mesh.axes()[a].size;
  return stride;
}

}  // namespace

std::vector<std::string> all_axes(const Mesh& mesh) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  return names;
}

GroupDigits digits_of(const std::vector<std::string>& axes, const Mesh& mesh) {
  GroupDigits group;
  group.ranks = mesh.size();
  for (const std::string& name : axes) {
    AxisRef axis = parse_axis(name, mesh);
    GroupDigits::Digit digit{axis.size, stride_of(axis, mesh)};
    group.size *= digit.size;
    if (digit.size == 1) continue;
    if (!group.digits.empty() && group.digits.back().stride == digit.size * digit.stride)
      group.digits.back() = {group.digits.back().size * digit.size, digit.stride};
    else
      group.digits.push_back(digit);
  }
  return group;
}

Expr rank_expression(const Mesh& mesh) {
  Expr rank = 0;
  for (const MeshAxis& axis : mesh.axes()) rank = rank * axis.size + Expr::axis_index(axis.name);
  return rank;
}

std::vector<Expr> on_members(const Expr& extent, const std::vector<std::string>& axes, const Mesh& mesh) {
  std::vector<Expr> members = {extent};
  for (const std::string& name : axes) {
    AxisRef axis = parse_axis(name, mesh);
    int64_t minor = mesh.axes()[*mesh.find(axis.axis)].size / (axis.pre * axis.size);
    std::vector<Expr> next;
    for (const Expr& member : members)
      for (int64_t digit = 0; digit < axis.size; ++digit)
        next.push_back(member.substitute([&](std::string_view symbol) -> std::optional<Expr> {
          if (symbol != "@" + axis.axis) return std::nullopt;
          if (axis.is_whole(mesh)) return Expr(digit);
          return Expr::axis_index(axis.axis) + (digit - index_along(axis, mesh)) * minor;
        }));
    members = std::move(next);
  }
  return members;
}

Expr sum_over_members(const Expr& extent, const std::vector<std::string>& axes, const Mesh& mesh) {
  Expr sum = 0;
  for (const Expr& member : on_members(extent, axes, mesh)) sum = sum + member;
  return sum;
}

}  // namespace tessera::dialect
