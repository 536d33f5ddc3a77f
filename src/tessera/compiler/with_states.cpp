#include "tessera/compiler/with_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/pairing.h"
#include "tessera/ir/glob.h"

namespace tessera::compiler {
namespace {

class StateMaker {
 public:
  explicit StateMaker(Graph& graph) : graph_(graph) {}

  void make(const std::string& text) {
    const Pairing pairing = Pairing::parse(text);
    std::vector<Value*> matched;
    for (const auto& value : graph_.values())
      if (value->has_data() && glob_matches(pairing.state, value->name)) matched.push_back(value.get());
    if (matched.empty())
      fail("state", "'{}' matches no initializer of the model{}", pairing.state, nearest_names(names(), pairing.state));
    size_t made = 0;
    for (Value* value : matched) {
      if (!pairing.next) {
        change(*value);
        ++made;
      } else if (Value* next = graph_.find(pairing.next_of(value->name)); next && graph_.is_output(next)) {
        pair(*value, *next);
        ++made;
      }
    }
    if (made == 0)
      fail("state",
           "'{}' pairs no initializer with an output: '{}', for example, would need the output '{}', but the model's "
           "outputs are: {}",
           text, matched.front()->name, pairing.next_of(matched.front()->name), outputs());
  }

  void drop_outputs() {
    std::set<const Value*> next;
    for (const auto& value : graph_.values()) next.insert(value->next);
    std::erase_if(graph_.outputs, [&](const Value* output) { return next.contains(output); });
  }

 private:
  static void change(Value& state) {
    if (state.dtype() == DType::string) fail("state", "'{}' holds strings, which cannot change", state.name);
    state.kind = ValueKind::state;
    state.content.reset();
    state.changing = true;
  }

  void pair(Value& state, Value& next) {
    if (state.next && state.next != &next)
      fail("state", "'{}' has two next values, '{}' and '{}'; name one", state.name, state.next->name, next.name);
    const auto differ = [](const Expr& a, const Expr& b) { return a.is_constant() && b.is_constant() && !(a == b); };
    const bool shaped = state.has_shape() && next.has_shape();
    if ((next.dtype() != DType::undefined && next.dtype() != state.dtype()) ||
        (shaped &&
         (state.rank() != next.rank() || !std::equal(state.shape().begin(), state.shape().end(), next.shape().begin(),
                                                     [&](const Expr& a, const Expr& b) { return !differ(a, b); }))))
      fail("state", "the state '{}' is {} {}, but its next value '{}' is {} {}; they must have one type", state.name,
           name_of(state.dtype()), to_string(state.shape()), next.name, name_of(next.dtype()),
           next.has_shape() ? to_string(next.shape()) : "");
    change(state);
    graph_.set_next(&state, &next);
  }

  std::vector<std::string_view> names() const {
    std::vector<std::string_view> names;
    for (const auto& value : graph_.values())
      if (value->has_data()) names.push_back(value->name);
    return names;
  }

  std::string outputs() const {
    constexpr size_t kMost = 8;
    std::string text;
    for (size_t i = 0; i < graph_.outputs.size() && i < kMost; ++i)
      text += fmt::format("{}'{}'", i ? ", " : "", graph_.outputs[i]->name);
    return text + (graph_.outputs.size() > kMost ? ", …" : "");
  }

  Graph& graph_;
};

}  // namespace

OnnxModel with_states(const OnnxModel& model, const std::vector<std::string>& patterns) {
  OnnxModel own = model.clone();
  StateMaker maker(*own.graph);
  for (const std::string& pattern : patterns) maker.make(pattern);
  maker.drop_outputs();
  return own;
}

}  // namespace tessera::compiler
