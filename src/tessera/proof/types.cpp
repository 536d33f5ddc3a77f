#include <fmt/format.h>

#include <map>
#include <optional>
#include <random>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/op.h"
#include "tessera/proof/layouts.h"
#include "tessera/spmd/layout/sizes.h"

namespace tessera::proof {
namespace {

constexpr size_t kSamples = 2;    // sizes of the symbols to check
constexpr size_t kMostTried = 8;  // most sizes that are tried: some may be too small for windows
constexpr int64_t kLargest = 24;

std::set<std::string> symbols_of(const spmd::Program& program) {
  std::set<std::string> symbols;
  for (const auto& value : program.graph->values()) {
    if (value->has_shape())
      for (const Expr& extent : value->shape()) extent.collect_symbols(symbols);
    if (value->content)
      for (const Expr& element : *value->content) element.collect_symbols(symbols);
  }
  std::erase_if(symbols, [](const std::string& name) { return name.starts_with('@'); });
  return symbols;
}

// The program's own demands: extents that must be equal, and inputs and outputs that must not be empty. Stated types of
// other values demand nothing, since they are to be proved.
spmd::SizeDemands demands_of(const spmd::Program& program) {
  spmd::SizeDemands demands;
  demands.equal = program.equal_extents;
  std::set<std::string> known;
  auto demand = [&](const Value* value) {
    auto placed = value ? program.placements.find(value) : program.placements.end();
    if (placed == program.placements.end() || !placed->second.global.shape) return;
    for (const Expr& extent : *placed->second.global.shape)
      if (!extent.is_constant() && known.insert(extent.str()).second)
        demands.at_least.push_back({extent, 1, placed->second.name});
  };
  for (const auto& value : program.graph->values())
    if (!value->producer) demand(value.get());
  for (const spmd::Port& port : program.outputs) demand(port.value);
  return demands;
}

// Sizes at which the program runs, according to its demands: near the hints, and near random sizes, which are the same
// in every run.
std::vector<Symbols> samples_of(const spmd::Program& program) {
  const std::set<std::string> names = symbols_of(program);
  const spmd::SizeDemands demands = demands_of(program);
  std::vector<Symbols> samples;
  std::mt19937 random(20);  // NOLINT: the same proof every time
  for (size_t attempt = 0; attempt < kMostTried; ++attempt) {
    Symbols wished;
    for (const std::string& name : names) {
      auto hint = program.hints.find(name);
      bool hinted = attempt == 0 && hint != program.hints.end();
      wished[name] = hinted ? hint->second : 1 + static_cast<int64_t>(random() % kLargest);
    }
    spmd::Sizes sizes = spmd::sizes_that_run(demands, {}, wished);
    if (sizes.unmet.empty()) samples.push_back(std::move(sizes.of));
    if (names.empty()) break;
  }
  return samples;
}

// " (where batch=3)"
std::string sizes_text(const Symbols& symbols) {
  std::string text;
  for (const auto& [name, size] : symbols) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, size);
  return text.empty() ? text : " (where " + text + ")";
}

// Whether a rank's extents are equal at these sizes. An expression may have no value at them.
bool same_at(const Shape& a, const Shape& b, const Mesh& mesh, int64_t rank, const Symbols& symbols) {
  const std::vector<int64_t> coordinates = mesh.coordinates(rank);
  const auto at = [&](const Expr& extent) -> std::optional<int64_t> {
    try {
      return bind_rank(extent, mesh, coordinates).evaluate(symbols);
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Expr& x, const Expr& y) { return at(x) == at(y); });
}

class TypeCheck {
 public:
  TypeCheck(const spmd::Program& program, int64_t rank, const Symbols& symbols, Report& report)
      : program_(program), rank_(rank), symbols_(symbols), report_(report) {}

  /// False if an operator does not support these sizes; others may work.
  bool run() {
    walk();
    return fits_;
  }

 private:
  void walk() {
    std::map<const Value*, Value*> bound;
    auto graph = program_.graph->clone(&bound);
    for (const auto& value : graph->values()) bind(*value);
    for (const auto& value : program_.graph->values()) {
      auto found = program_.placements.find(value.get());
      if (found == program_.placements.end()) continue;
      const spmd::Placement& placed = found->second;
      const Value* own = bound.at(value.get());
      Shape expected;
      for (const Expr& extent : local_shape(placed.sharding, program_.mesh)) expected.push_back(bind(extent));
      if (!own->has_shape() || own->shape() == expected) continue;
      return report(
          own->producer,
          fmt::format("'{}' is stated as {} of '{}' {}, which is {} on rank {}, but has the shape {}{}", own->name,
                      placed.sharding.str(program_.mesh), placed.name, to_string(*placed.global.shape),
                      to_string(expected), rank_, to_string(own->shape()), sizes()));
    }
    for (const auto& node : graph->nodes())
      if (node->domain != spmd::kCommDomain && !infer(*node)) return;
  }

  int64_t bind(const Expr& expr) const {
    return bind_rank(expr, program_.mesh, program_.mesh.coordinates(rank_)).evaluate(symbols_);
  }

  void bind(Value& value) const {
    if (value.has_shape())
      for (Expr& extent : *value.type.shape) extent = bind(extent);
    if (value.content)
      for (Expr& element : *value.content) element = bind(element);
    const bool readable = value.kind == ValueKind::constant && !value.content && value.rank() <= 1 &&
                          value.data.count() <= 64 && is_integer(value.dtype()) && bits_of(value.dtype()) >= 8;
    if (readable) {
      auto elements = value.data.to_int64();
      value.content.emplace(elements.begin(), elements.end());
    }
  }

  // Whether the results have their stated types.
  bool infer(Node& node) {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (!op) return true;
    std::vector<TensorType> stated;
    for (const Value* result : node.outputs) stated.push_back(result ? result->type : TensorType());
    try {
      op->infer(node);
    } catch (const Error& error) {
      fits_ = false;
      report(&node,
             fmt::format("{} does not fit its operands on rank {}: {}{}", node.label(), rank_, error.what(), sizes()));
      return false;
    }
    for (size_t r = 0; r < stated.size(); ++r) {
      Value* result = node.outputs[r];
      if (!result || result->type == stated[r]) continue;
      report(&node, fmt::format("{} makes '{}' {} on rank {}, where {} is stated{}", node.label(), result->name,
                                text_of(result->type), rank_, text_of(stated[r]), sizes()));
      return false;
    }
    return true;
  }

  std::string sizes() const { return sizes_text(symbols_); }

  void report(const Node* node, std::string message) {
    report_.findings.push_back({"type", std::move(message), {{rank_, node ? node->label() : std::string()}}});
  }

  const spmd::Program& program_;
  int64_t rank_;
  const Symbols& symbols_;
  Report& report_;
  bool fits_ = true;
};

}  // namespace

std::string text_of(const TensorType& type) {
  return fmt::format("{}{}", type.dtype == DType::undefined ? "" : name_of(type.dtype),
                     type.shape ? to_string(*type.shape) : "");
}

Finding misstated(const Value& value, const TensorType& stated, int64_t rank, const std::string& where) {
  const std::string label = value.producer ? value.producer->label() : "";
  TensorType said = stated, found = value.type;
  if (said.dtype != DType::undefined && said.dtype != found.dtype) said.shape = found.shape = std::nullopt;
  return {"type",
          fmt::format("'{}' is stated as {}, but {} {}{}", value.name, text_of(said),
                      label.empty() ? "the program takes" : label + " makes it", text_of(found), where),
          {{rank, label}}};
}

void check_stated(const spmd::Program& program, const std::map<std::string, TensorType>& stated, int64_t rank,
                  Report& report) {
  if (stated.empty()) return;
  std::optional<std::vector<Symbols>> samples;  // of sizes, if they are needed
  auto look_at = [&](const Value& value) {
    const auto said = stated.find(value.name);
    if (said == stated.end() || !said->second.shape) return;
    if (!samples) samples = samples_of(program);
    for (const Symbols& symbols : *samples)
      if (report.good() && !same_at(*said->second.shape, value.shape(), program.mesh, rank, symbols))
        report.findings.push_back(
            misstated(value, said->second, rank, fmt::format(" on rank {}{}", rank, sizes_text(symbols))));
  };
  for (const spmd::Port& port : program.inputs) look_at(*port.value);
  for (const auto& node : program.graph->nodes())
    for (const Value* result : node->outputs)
      if (result) look_at(*result);
}

void check_values(const spmd::Program& program, int64_t rank, Report& report) {
  for (const auto& node : program.graph->nodes())
    for (size_t i = 0; i < node->operand_count(); ++i) {
      const Value* operand = node->inputs[i];
      if (!operand || !ops::reads_values(*node, i)) continue;
      if (!operand->producer && operand->kind != ValueKind::input && !operand->changing) continue;
      return report.findings.push_back(
          {"type",
           fmt::format("{} reads its operand {} ('{}') before the run, but it is computed during the run; make it a "
                       "constant, or compute it from shapes",
                       node->label(), i, operand->name),
           {{rank, node->label()}}});
    }
}

void check_types(const spmd::Program& program, int64_t rank, Report& report) {
  size_t looked_at = 0;
  Report misfit;
  for (const Symbols& symbols : samples_of(program)) {
    Report found;
    if (!TypeCheck(program, rank, symbols, found).run()) {
      if (misfit.good()) misfit = found;
      continue;
    }
    report.findings.insert(report.findings.end(), found.findings.begin(), found.findings.end());
    if (!report.good() || ++looked_at == kSamples) return;
  }
  if (looked_at == 0 && misfit.good())
    misfit.findings.push_back(
        {"type",
         "not proved: no sizes were found that all stated extents allow; if the program is right, "
         "write it again with `shapes` at which it runs",
         {{rank, ""}}});
  if (looked_at == 0) report.findings.insert(report.findings.end(), misfit.findings.begin(), misfit.findings.end());
}

}  // namespace tessera::proof
