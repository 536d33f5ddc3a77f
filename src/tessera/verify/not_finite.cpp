#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/ir/aligned.h"
#include "tessera/ir/on_demand.h"
#include "tessera/runtime/rank_programs.h"
#include "tessera/training.h"

/// Finds the first tensor of a step that is not finite: goes back from the loss through tensors that are not finite
/// (from a NaN through NaNs if there are any, else through infinities) to one whose operands are all finite.
///
///     h = Log (x)  NaN;  y = MatMul (h, w)  NaN;  loss = ReduceSum (y)  NaN        loss → y → h, made of a finite x
///
/// An infinity in a constant of the model, as in attention masks, is not a cause.
namespace tessera {
inline namespace v1 {
namespace {

/// The elements of a tensor, by kind.
struct Elements {
  int64_t all = 0, nans = 0, infinities = 0;
  double least = 0, most = 0;  // of the finite elements

  bool are_finite() const { return nans == 0 && infinities == 0; }
};

template <typename T>
Elements elements_as(const Tensor& tensor) {
  Elements made;
  int64_t finite = 0;
  for (const T& element : tensor.as<T>()) {
    const double value = static_cast<float>(element);
    made.nans += std::isnan(value);
    made.infinities += std::isinf(value);
    if (!std::isfinite(value)) continue;
    made.least = finite == 0 ? value : std::min(made.least, value);
    made.most = finite == 0 ? value : std::max(made.most, value);
    ++finite;
  }
  made.all = tensor.count();
  return made;
}

Elements elements_of(const Tensor& given) {
  const Tensor tensor = aligned(made_whole(given));
  switch (tensor.dtype) {
    case DType::float32:
      return elements_as<float>(tensor);
    case DType::float16:
      return elements_as<Float16>(tensor);
    case DType::bfloat16:
      return elements_as<BFloat16>(tensor);
    default:
      return {tensor.count()};
  }
}

/// The operands and the operator of each tensor, from the ranks' programs. Local values that are not tensors of the
/// model, or are partial sums of one, are passed through.
class Origins {
 public:
  explicit Origins(const runtime::RankPrograms& programs) {
    for (const auto& program : programs.programs)
      for (const auto& node : program->graph->nodes())
        for (const Value* result : node->outputs)
          if (const std::string* name = name_of(*program, result)) add(*program, *name, *node);
  }

  struct Maker {
    std::string label;
    std::vector<std::string> operands;
    std::vector<Elements> constants;  // and of parameters that do not change
  };
  /// Null: no node makes it.
  const Maker* find(const std::string& tensor) const {
    const auto found = makers_.find(tensor);
    return found == makers_.end() ? nullptr : &found->second;
  }

 private:
  static const std::string* name_of(const spmd::Program& program, const Value* value) {
    if (!value) return nullptr;
    const auto placement = program.placements.find(value);
    const bool stands = placement != program.placements.end() && !placement->second.sharding.is_partial();
    return stands ? &placement->second.name : nullptr;
  }

  void add(const spmd::Program& program, const std::string& name, const Node& node) {
    if (makers_.contains(name)) return;  // later nodes only change its layout
    Maker maker{fmt::format("{} '{}'", node.op_type, name), {}, {}};
    std::set<const Value*> seen;
    std::vector<const Node*> open = {&node};
    while (!open.empty()) {
      const Node* next = open.back();
      open.pop_back();
      // A partial sum is labelled by the node that made it, not by the reduction that completes it.
      if (next->domain.empty()) maker.label = fmt::format("{} '{}'", next->op_type, name);
      for (const Value* operand : next->inputs) {
        if (!operand || !seen.insert(operand).second) continue;
        const auto initial = program.initial.find(operand);
        if (operand->kind == ValueKind::constant)
          maker.constants.push_back(elements_of(operand->data));
        else if (initial != program.initial.end() && !operand->changing)
          maker.constants.push_back(elements_of(initial->second));
        else if (const std::string* named = name_of(program, operand))
          maker.operands.push_back(*named);
        else if (operand->producer)
          open.push_back(operand->producer);
      }
    }
    const auto is_name = [&](const std::string& operand) { return operand == name; };
    if (std::any_of(maker.operands.begin(), maker.operands.end(), is_name))
      return;  // another layout of an input or parameter
    makers_.emplace(name, std::move(maker));
  }

  std::map<std::string, Maker> makers_;
};

class Search {
 public:
  Search(const Origins& origins, const std::vector<Session::Kept>& kept, const Tensors& inputs, const Tensors& states)
      : origins_(origins) {
    for (const Tensors* given : {&inputs, &states})
      for (const auto& [name, tensor] : *given) elements_.emplace(name, elements_of(tensor));
    for (const auto& [name, tensor] : kept)
      if (elements_.emplace(name, elements_of(tensor)).second) order_.emplace(name, order_.size());
    for (const auto& [name, tensor] : inputs) inputs_.insert(name);
  }

  std::optional<NotFinite> from(std::string_view output) const {
    std::string at(output);
    if (!is_bad(at)) return std::nullopt;
    std::set<std::string> passed;
    while (passed.insert(at).second) {
      const std::optional<std::string> before = source_of(at);
      if (!before) break;
      at = *before;
    }
    return described(at);
  }

 private:
  const Elements* find(const std::string& name) const {
    const auto found = elements_.find(name);
    return found == elements_.end() ? nullptr : &found->second;
  }
  bool is_bad(const std::string& name) const {
    const Elements* elements = find(name);
    return elements && !elements->are_finite();
  }

  // Whether a tensor has infinities because a constant has them.
  bool is_given(const std::string& name) const {
    if (const auto known = given_.find(name); known != given_.end()) return known->second;
    bool& given = given_[name] = false;
    const Origins::Maker* maker = origins_.find(name);
    if (!maker || find(name)->nans > 0) return false;
    bool any = std::any_of(maker->constants.begin(), maker->constants.end(),
                           [](const Elements& constant) { return !constant.are_finite(); });
    for (const std::string& operand : maker->operands) {
      if (!is_bad(operand)) continue;
      if (!is_given(operand)) return false;
      any = true;
    }
    return given = any;
  }

  // The operand to follow: the first that was computed among those with NaNs, for a tensor with NaNs, else among those
  // with infinities.
  std::optional<std::string> source_of(const std::string& name) const {
    const Origins::Maker* maker = origins_.find(name);
    if (!maker) return std::nullopt;
    std::optional<std::string> best;
    const auto rank = [&](const std::string& operand) {
      const bool fits = find(name)->nans > 0 && find(operand)->nans > 0;
      const auto place = order_.find(operand);
      return std::pair(!fits, place == order_.end() ? 0 : place->second + 1);
    };
    for (const std::string& operand : maker->operands)
      if (is_bad(operand) && !is_given(operand) && (!best || rank(operand) < rank(*best))) best = operand;
    return best;
  }

  NotFinite described(const std::string& name) const {
    const Elements& elements = *find(name);
    NotFinite made{name, "", elements.all, elements.nans, elements.infinities, {}};
    const Origins::Maker* maker = origins_.find(name);
    if (!maker) {
      made.made_by = inputs_.contains(name) ? "the input" : "the parameter";
      return made;
    }
    made.made_by = maker->label;
    for (const std::string& operand : maker->operands)
      if (const Elements* of = find(operand))
        made.operands.push_back(fmt::format("'{}' from {:.4g} to {:.4g}", operand, of->least, of->most));
    return made;
  }

  const Origins& origins_;
  std::map<std::string, Elements> elements_;
  std::map<std::string, size_t> order_;  // in which they were made
  std::set<std::string> inputs_;
  mutable std::map<std::string, bool> given_;  // results of is_given
};

}  // namespace

std::optional<NotFinite> first_not_finite(const Program& program, const Session& session, SessionOptions options,
                                          const Tensors& inputs) {
  options.share_states = &session;
  options.keep_all = true;
  Session again(program, options);
  const Tensors states = again.states();
  again.run(inputs);
  const std::vector<Session::Kept> kept = again.kept();
  const auto programs = program.impl().programs, whole = runtime::in_one_graph(*programs);
  const Origins origins(whole ? *whole : *programs);
  const Search search(origins, kept, inputs, states);
  for (const char* output : {"loss", "grad_norm"})
    if (auto found = search.from(output)) return found;
  return std::nullopt;
}

}  // namespace v1
}  // namespace tessera
