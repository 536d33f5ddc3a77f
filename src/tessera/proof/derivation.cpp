#include "tessera/proof/derivation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/always_equal.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/hash.h"
#include "tessera/mesh/axis_use.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/slice.h"
#include "tessera/proof/exchange.h"
#include "tessera/proof/script.h"
#include "tessera/proof/seats.h"

namespace tessera::proof {
namespace {

// Stands for values that a rank lacks: absent ones, and those on other ranks.
const Number kNothing;

}  // namespace

// One class, because all ranks advance together: the result of a rank's next line depends on how far the others are.
// Collectives (exchange.h), pieces (rope.h) and lines (script.h) are separate.
class Derivation::Walk {
 public:
  Walk(const runtime::RankPrograms& programs, const std::vector<std::vector<Communication>>& communications)
      : programs_(programs), mesh_(programs.mesh()), seats_(mesh_) {
    for (size_t p = 0; p < programs.programs.size(); ++p)
      scripts_.emplace_back(*programs.programs[p], communications[p]);
    // The first pass knows the initial number of a carried value. Each further pass starts with the number that an
    // iteration gave it in the pass before. It distinguishes at least the same ranks, so a pass that distinguishes no
    // more of them is the last.
    for (size_t told_apart = 0;;) {
      pass_once();
      const size_t now = note_carried();
      if (now == told_apart) break;
      told_apart = now;
    }
  }

  void pass_once() {
    ranks_.clear();
    meetings_.clear();
    for (int rank = 0; rank < mesh_.size(); ++rank) ranks_.push_back(begun(rank));
    for (int rank = 0; rank < mesh_.size(); ++rank) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const int rank = runnable_.front();
      runnable_.pop_front();
      while (ranks_[rank].at < script(rank).lines.size() && advance(rank)) {
      }
    }
    for (int rank = 0; rank < mesh_.size(); ++rank)
      check(ranks_[rank].at == script(rank).lines.size(), "ranks whose order was checked reach their ends");
  }

  // Keeps the numbers that iterations give carried values. Returns how many different ones there are in total.
  size_t note_carried() {
    std::map<size_t, std::set<Number>> different;  // by a value's index among the carried ones of its rank
    carried_.resize(ranks_.size());
    for (int rank = 0; rank < mesh_.size(); ++rank) {
      size_t place = 0;
      for (const Script::Line& line : script(rank).lines) {
        if (!flow::is(*line.node, "Next")) continue;
        const Rank& own = ranks_[rank];
        const Number begins = own.held[line.operands[2]].number, made = own.held[line.operands[0]].number;
        carried_[rank][line.operands[2]] = made;
        different[place++].insert(Mixer().add(begins).add(made).number());
      }
    }
    size_t count = 0;
    for (const auto& [place, numbers] : different) count += numbers.size();
    return count;
  }

  Number number(int rank, const Value* value) const {
    return value ? ranks_[rank].held[script(rank).index.at(value)].number : kNothing;
  }
  Number part(int rank, const Value* value) const { return part(script(rank).program, value, ranks_[rank]).number(); }
  Expr extent(int rank, const Value* value, size_t dim) const { return extent(ranks_[rank], value, dim); }

 private:
  // The ranks of a group that have reached its next collective, and the messages under way between them.
  struct Meeting {
    std::vector<char> here;
    size_t here_count = 0;
    std::map<std::pair<int, int>, std::deque<Held>> messages;  // by sender and receiver
  };

  struct Rank {
    size_t at = 0;  // the next line
    std::vector<Held> held;
    std::vector<int64_t> coordinates;
  };

  const Script& script(int rank) const {
    return scripts_[programs_.program_of.empty() ? 0 : programs_.program_of[rank]];
  }

  // --- the ranks' initial values

  Rank begun(int rank) {
    Rank made;
    made.coordinates = mesh_.coordinates(rank);
    const Script& own = script(rank);
    made.held.resize(own.index.size());
    for (const Value* value : own.sources) made.held[own.index.at(value)] = source(own.program, *value, made);
    for (const spmd::Port& port : own.program.inputs)
      if (port.value) made.held[own.index.at(port.value)] = part(own.program, port.value, made).add(port.name).number();
    return made;
  }

  Number source(const spmd::Program& program, const Value& value, const Rank& rank) {
    if (const auto elements = ops::content_of(&value)) return elements_number(value, *elements, rank);
    if (!value.has_data()) return kNothing;
    // Data without a stated part are compared as a whole; all ranks of a program have the same data.
    const bool by_name = value.kind == ValueKind::state && (programs_.placed || scripts_.size() == 1);
    return by_name ? part(program, &value, rank).add(value.name).number() : hashed(value.data);
  }

  // Ranks with the same coordinates along the axes that elements mention have the same elements.
  Number elements_number(const Value& value, const std::vector<Expr>& elements, const Rank& rank) {
    auto [mentioned, unread] = mentioned_.try_emplace(&value);
    if (unread) mentioned->second = mentioned_axes(elements, mesh_);
    std::vector<int64_t> stand;
    for (size_t axis : mentioned->second) stand.push_back(rank.coordinates[axis]);
    auto [known, fresh] = elements_.try_emplace({&value, std::move(stand)});
    if (fresh) {
      Mixer mixer;
      mixer.add("elements").add(name_of(value.dtype())).add(value.rank());
      for (const Expr& element : elements) mixer.add(fingerprint(bound(element, rank)));
      known->second = mixer.number();
    }
    return known->second;
  }

  Expr bound(const Expr& expr, const Rank& rank) const {
    return expr.is_constant() ? expr : bind_rank(expr, mesh_, rank.coordinates);
  }

  Number hashed(const Tensor& data) {
    auto [known, fresh] = hashes_.try_emplace({data.data, data.bytes});
    if (fresh) known->second = data.data ? hash_of_bytes(data.data, data.bytes) : 0;
    Hash type;
    type.add_type(data);
    return Mixer().add("data").add(type.value()).add(known->second).number();
  }

  // The part of a value's global tensor that a rank holds.
  Mixer part(const spmd::Program& program, const Value* value, const Rank& rank) const {
    Mixer mixer;
    auto placed = program.placements.find(value);
    if (placed == program.placements.end()) return mixer;
    for (const DimSharding& dim : placed->second.sharding.dims)
      for (const Part& part : dim.parts)
        for (const AxisRef& axis : part.axes)
          mixer.add(static_cast<uint64_t>(digit_along(axis, mesh_, rank.coordinates)));
    return mixer;
  }

  // --- local steps

  // False if the rank must wait for others.
  bool advance(int rank) {
    Rank& own = ranks_[rank];
    const Script::Line& line = script(rank).lines[own.at];
    if (line.communication) return communicate(rank, *line.communication);
    const Node& node = *line.node;
    if (node.is("Split") && split(own, line)) return true;
    if (const Value* copied = node.is("Identity") ? node.input(0) : choice(own, node))
      finish(own, line, own.held[script(rank).index.at(copied)]);
    else if (auto rope = spliced(own, line))
      finish(own, line, std::move(*rope));
    else if (node.domain == spmd::kCommDomain)
      finish(own, line, told(line, own));
    else if (flow::is(node, "Carry") && !carried_.empty())
      finish(own, line, Mixer().add(operation(own, line)).add(carried_[rank][line.results[0]]).number());
    else
      finish(own, line, operation(own, line));
    return true;
  }

  static Number operation(const Rank& rank, const Script::Line& line) {
    std::vector<Number> operands;
    for (int operand : line.operands) operands.push_back(operand < 0 ? kNothing : rank.held[operand].number);
    return line.step.of(std::move(operands));
  }

  static void finish(Rank& rank, const Script::Line& line, Held made) {
    ++rank.at;
    for (size_t r = line.results.size(); r-- > 1;)
      if (line.results[r] >= 0 && made.number != kNothing)
        rank.held[line.results[r]] = result_of(rank, line, made.number, r);
    if (!line.results.empty() && line.results[0] >= 0) rank.held[line.results[0]] = std::move(made);
  }

  // A result other than the first; it may depend on only some operands.
  static Number result_of(const Rank& rank, const Script::Line& line, const Number& made, size_t result) {
    if (result >= line.made_of.size() || line.made_of[result].empty()) return result_number(made, result);
    Mixer mixer = line.step.begun();
    mixer.add(result);
    for (size_t operand : line.made_of[result])
      mixer.add(operand < line.operands.size() && line.operands[operand] >= 0 ? rank.held[line.operands[operand]].number
                                                                              : kNothing);
    return mixer.number();
  }

  // --- pieces

  Expr extent(const Rank& rank, const Value* value, size_t dim) const { return bound(value->shape()[dim], rank); }

  Rope rope_of(const Rank& rank, const Script::Line& line, size_t operand, size_t dim) const {
    const Held& held = rank.held[line.operands[operand]];
    if (held.rope && held.rope->dim() == dim) return *held.rope;
    return {held.number, dim, extent(rank, line.node->input(operand), dim)};
  }

  // The pieces that Concat and Slice make.
  std::optional<Rope> spliced(const Rank& rank, const Script::Line& line) const {
    const Node& node = *line.node;
    if (node.is("Concat") && node.output()->has_shape()) {
      const size_t dim = ops::normalize_axis(node, node.get_int("axis", 0), node.output()->rank());
      std::optional<Rope> rope;
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (rope)
          rope->append(rope_of(rank, line, i, dim));
        else
          rope = rope_of(rank, line, i, dim);
      return rope;
    }
    if (!node.is("Slice") || !node.input(0)->has_shape()) return std::nullopt;
    const auto begin = integer(rank, node.input(1)), end = integer(rank, node.input(2));
    const auto axis = node.input(3) ? constant(rank, node.input(3)) : std::optional<int64_t>(0);
    const auto step = node.input(4) ? constant(rank, node.input(4)) : std::optional<int64_t>(1);
    if (!begin || !end || !axis || step != 1) return std::nullopt;
    const size_t dim = ops::normalize_axis(node, *axis, node.input(0)->rank());
    const Expr all = extent(rank, node.input(0), dim);
    for (const Expr& bound : {*begin, *end})
      if (!bound.is_constant() && !never_negative(bound)) return std::nullopt;  // negative values count from the end
    const ops::SliceRange range = ops::slice_range(*begin, *end, 1, all);
    return rope_of(rank, line, 0, dim).cut(range.start, range.start + range.count);
  }

  // False if its results' extents are not known.
  bool split(Rank& rank, const Script::Line& line) const {
    const Node& node = *line.node;
    if (!node.input(0)->has_shape()) return false;
    const size_t dim = ops::normalize_axis(node, node.get_int("axis", 0), node.input(0)->rank());
    std::vector<Expr> extents;
    for (const Value* result : node.outputs) {
      if (!result || !result->has_shape()) return false;
      extents.push_back(extent(rank, result, dim));
    }
    std::vector<Held> parts = cut_up(rope_of(rank, line, 0, dim), extents);
    ++rank.at;
    for (size_t r = 0; r < parts.size(); ++r) rank.held[line.results[r]] = std::move(parts[r]);
    return true;
  }

  // A node's statement about the rank's own position.
  Number told(const Script::Line& line, const Rank& rank) const {
    Mixer mixer = line.step.begun();
    if (const Value* result = line.node->output(); result && result->content)
      for (const Expr& element : *result->content) mixer.add(fingerprint(bound(element, rank)));
    else
      for (int64_t coordinate : rank.coordinates) mixer.add(static_cast<uint64_t>(coordinate));
    return mixer.number();
  }

  // --- choices by a rank's own position

  // The operand that a Where selects on this rank; null if that is unknown.
  const Value* choice(const Rank& rank, const Node& node) const {
    if (!node.is("Where")) return nullptr;
    const auto condition = truth(rank, node.input(0));
    const Value* chosen = condition ? node.input(*condition ? 1 : 2) : nullptr;
    return chosen && chosen->type == node.output()->type ? chosen : nullptr;
  }

  std::optional<bool> truth(const Rank& rank, const Value* value, int depth = 0) const {
    constexpr int kDeepest = 10;
    if (depth > kDeepest) return std::nullopt;
    if (const auto known = constant(rank, value)) return *known != 0;
    if (!value || !value->has_shape() || value->rank() > 0) return std::nullopt;
    const Node* node = value->producer;
    if (!node || !node->domain.empty()) return std::nullopt;
    if (node->is("Not")) {
      const auto denied = truth(rank, node->input(0), depth + 1);
      return denied ? std::optional(!*denied) : std::nullopt;
    }
    if (node->is("And") || node->is("Or")) {
      const bool decides = node->is("Or");  // this value of one operand decides, whatever the other one is
      const auto one = truth(rank, node->input(0), depth + 1), other = truth(rank, node->input(1), depth + 1);
      if (one == decides || other == decides) return decides;
      return one && other ? std::optional(!decides) : std::nullopt;
    }
    const auto a = constant(rank, node->input(0)), b = constant(rank, node->input(1));
    if (!a || !b) return std::nullopt;
    if (node->is("Less")) return *a < *b;
    if (node->is("LessOrEqual")) return *a <= *b;
    if (node->is("Greater")) return *a > *b;
    if (node->is("GreaterOrEqual")) return *a >= *b;
    if (node->is("Equal")) return *a == *b;
    return std::nullopt;
  }

  // The only element of an operand that is known before a run.
  std::optional<Expr> integer(const Rank& rank, const Value* value) const {
    const auto elements = ops::content_of(value);
    if (!elements || elements->size() != 1) return std::nullopt;
    return bound(elements->front(), rank);
  }
  std::optional<int64_t> constant(const Rank& rank, const Value* value) const {
    const auto known = integer(rank, value);
    return known ? known->constant() : std::nullopt;
  }

  // --- communications

  // The members of a group that have reached its collective.
  class Group : public Members {
   public:
    Group(const Walk& walk, const std::vector<int>& ranks) : walk_(walk), ranks_(ranks) {}
    size_t count() const override { return ranks_.size(); }
    Held given(size_t member) const override { return walk_.given(ranks_[member]); }
    Held zeros(size_t member) const override { return walk_.zeros(ranks_[member]); }
    Expr operand_extent(size_t member, size_t dim) const override {
      return walk_.extent(ranks_[member], walk_.line_of(ranks_[member]).node->input(0), dim);
    }
    Expr result_extent(size_t member, size_t dim) const override {
      return walk_.extent(ranks_[member], walk_.line_of(ranks_[member]).node->output(), dim);
    }

   private:
    const Walk& walk_;
    const std::vector<int>& ranks_;
  };

  bool communicate(int rank, const Communication& communication) {
    const auto [group, member] = seats_.along(communication.axes)[rank];
    meetings_.resize(seats_.groups().size());
    const std::vector<int>& members = seats_.groups()[group];
    Meeting& meeting = meetings_[group];
    if (communication.is_message()) return pass(rank, communication, meeting);
    meeting.here.resize(members.size());
    if (meeting.here[member]) return false;
    meeting.here[member] = 1;
    if (++meeting.here_count < members.size()) return false;
    std::vector<Held> results = results_of(communication, Group(*this, members));
    for (size_t m = 0; m < members.size(); ++m) {
      finish(ranks_[members[m]], line_of(members[m]), std::move(results[m]));
      if (members[m] != rank) runnable_.push_back(members[m]);
    }
    meeting.here.assign(members.size(), 0);
    meeting.here_count = 0;
    return true;
  }

  const Script::Line& line_of(int rank) const { return script(rank).lines[ranks_[rank].at]; }
  Held given(int rank) const {
    const Script::Line& line = line_of(rank);
    return line.operands.empty() || line.operands[0] < 0 ? Held() : ranks_[rank].held[line.operands[0]];
  }

  bool pass(int rank, const Communication& communication, Meeting& meeting) {
    const bool sends = communication.kind == comm::Kind::send;
    const auto named = bound(sends ? communication.to : communication.from, ranks_[rank]).constant();
    check(named.has_value(), "a bound rank knows its peers");
    const int peer = static_cast<int>(*named);
    Held received;
    if (peer < 0) {
      received = zeros(rank);
    } else if (sends) {
      meeting.messages[{rank, peer}].push_back(given(rank));
      runnable_.push_back(peer);
    } else {
      auto& queue = meeting.messages[{peer, rank}];
      if (queue.empty()) return false;
      received = std::move(queue.front());
      queue.pop_front();
    }
    finish(ranks_[rank], line_of(rank), std::move(received));
    return true;
  }

  // The value of a member that receives nothing; nullopt for a node without a result.
  Held zeros(int rank) const {
    const Value* result = line_of(rank).node->output();
    if (!result || !result->has_shape()) return {};
    Mixer mixer;
    mixer.add("zeros").add(name_of(result->dtype()));
    for (size_t dim = 0; dim < result->rank(); ++dim) mixer.add(fingerprint(extent(ranks_[rank], result, dim)));
    return mixer.number();
  }

  const runtime::RankPrograms& programs_;
  const Mesh& mesh_;
  std::deque<Script> scripts_;  // by program
  std::vector<Rank> ranks_;
  std::deque<int> runnable_;
  Seats seats_;
  std::vector<Meeting> meetings_;  // by group
  std::vector<std::map<int, Number>>
      carried_;  // by rank and value: the number that an iteration gave in the pass before
  std::map<std::pair<const std::byte*, size_t>, uint64_t> hashes_;
  std::map<const Value*, std::vector<size_t>> mentioned_;  // axes of the mesh, by the value whose elements mention them
  std::map<std::pair<const Value*, std::vector<int64_t>>, Number> elements_;
};

Derivation::Derivation(const runtime::RankPrograms& programs,
                       const std::vector<std::vector<Communication>>& communications)
    : walk_(std::make_unique<const Walk>(programs, communications)) {}

Derivation::~Derivation() = default;

Number Derivation::number(int rank, const Value* value) const {
  return walk_->number(rank, value);
}

Number Derivation::part(int rank, const Value* value) const {
  return walk_->part(rank, value);
}

Expr Derivation::extent(int rank, const Value* value, size_t dim) const {
  return walk_->extent(rank, value, dim);
}

}  // namespace tessera::proof
