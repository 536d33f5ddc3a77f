#include "tessera/proof/replicas.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "tessera/ir/always_equal.h"
#include "tessera/proof/boundaries.h"
#include "tessera/proof/derivation.h"
#include "tessera/proof/seats.h"

namespace tessera::proof {
namespace {

class Replicas {
 public:
  Replicas(const runtime::RankPrograms& programs, const std::vector<std::vector<Communication>>& communications,
           Report& report)
      : programs_(programs),
        mesh_(programs.mesh()),
        communications_(communications),
        derivation_(programs, communications),
        report_(report) {}

  void run() {
    compare_decisions();
    for (size_t port = 0; port < programs_.programs.front()->outputs.size(); ++port) compare_output(port);
    compare_states();
  }

 private:
  Number number(int rank, const Value* value) const { return derivation_.number(rank, value); }

  void compare_output(size_t port) {
    std::map<Number, int> first;  // for each part, a rank that has it
    for (int rank = 0; rank < mesh_.size() && report_.good(); ++rank) {
      const Value* value = output(rank, port);
      if (!value) continue;
      const std::string& name = programs_.of(rank).outputs[port].name;
      const auto [other, fresh] = first.emplace(derivation_.part(rank, value), rank);
      if (fresh) continue;
      const Value* known = output(other->second, port);
      if (number(other->second, known) == number(rank, value)) {
        if (same_type(other->second, known, rank, value)) continue;
        report_.findings.push_back(
            {"output",
             fmt::format("the output '{}' is {}{} on rank {}, and {}{} on rank {}; give them one type", name,
                         name_of(known->dtype()), to_string(known->shape()), other->second, name_of(value->dtype()),
                         to_string(value->shape()), rank),
             {{other->second, ""}, {rank, ""}}});
        return;
      }
      report(other->second, known, rank, value, fmt::format("the output '{}'", name),
             programs_.placed ? "" : fmt::format("; gather it, or give `own` {} if each rank has its own", name));
    }
  }

  bool same_type(int at_a, const Value* a, int at_b, const Value* b) const {
    if (a->dtype() != b->dtype() || !a->has_shape() || !b->has_shape() || a->rank() != b->rank()) return false;
    for (size_t dim = 0; dim < a->rank(); ++dim)
      if (!equal_as_extents(derivation_.extent(at_a, a, dim), derivation_.extent(at_b, b, dim))) return false;
    return true;
  }

  const Value* output(int rank, size_t port) const { return programs_.of(rank).outputs[port].value; }

  void compare_states() {
    std::map<std::pair<std::string, Number>, int> first;  // for each name and part, a rank that holds it
    for (int rank = 0; rank < mesh_.size(); ++rank)
      for (const Value* state : programs_.of(rank).graph->values_of(ValueKind::state)) {
        if (!state->next || !report_.good()) continue;
        // Without stated layouts, states with equal initial data count as one.
        const Number began = programs_.placed ? derivation_.part(rank, state) : number(rank, state);
        const auto [other, fresh] = first.emplace(std::pair(state->name, began), rank);
        const Value* known = fresh ? state : programs_.of(other->second).graph->find(state->name);
        if (number(other->second, known->next) == number(rank, state->next)) continue;
        report(other->second, known->next, rank, state->next, fmt::format("the state '{}', after a step,", state->name),
               "");
      }
  }

  // Ranks that communicate in a branch or body must all decide to run it, or none.
  void compare_decisions() {
    std::vector<flow::Flow> flows;
    std::vector<std::vector<Meeting>> meetings;
    for (const auto& program : programs_.programs) flows.push_back(flow::flow_of(*program->graph));
    for (size_t p = 0; p < flows.size(); ++p)
      meetings.push_back(meetings_of(*programs_.programs[p], flows[p], communications_[p]));
    Seats seats(mesh_);
    std::map<int, size_t> met;                                                      // by rank
    std::map<std::tuple<int, size_t, size_t>, std::pair<int, const Value*>> first;  // by group, meeting and decision
    for (int rank = 0; rank < mesh_.size(); ++rank)
      for (const Meeting& meeting : meetings[programs_.program_of.empty() ? 0 : programs_.program_of[rank]]) {
        const size_t ordinal = met[rank]++;
        const int group = static_cast<int>(seats.along(meeting.axes)[rank].group);
        const std::vector<const Value*> deciding = decisions(*meeting.region);
        for (size_t d = 0; d < deciding.size() && report_.good(); ++d) {
          const auto [other, fresh] = first.emplace(std::tuple(group, ordinal, d), std::pair(rank, deciding[d]));
          const auto& [known_rank, known] = other->second;
          if (fresh || number(known_rank, known) == number(rank, deciding[d])) continue;
          const auto [why, node] = known && deciding[d] ? where_they_part(known_rank, known, rank, deciding[d])
                                                        : std::pair(std::string("one has none"), std::string());
          report_.findings.push_back(
              {"control",
               fmt::format("not proved: {} of {} is not the same on ranks {} and {}, which communicate in it: {}, and "
                           "no collective makes it equal again",
                           d == 0 && meeting.region->is_loop() ? "the trip count" : "the condition",
                           meeting.region->begin->label(), known_rank, rank, why),
               {{known_rank, node}, {rank, node}}});
        }
      }
  }

  static std::vector<const Value*> decisions(const flow::FlowRegion& region) {
    if (!region.is_loop()) return {region.begin->input(0)};
    return {region.begin->input(0), region.begin->input(1), region.end->input(1)};
  }

  void report(int a, const Value* at_a, int b, const Value* at_b, const std::string& what, const std::string& fix) {
    const auto [why, node] = where_they_part(a, at_a, b, at_b);
    report_.findings.push_back(
        {"output",
         fmt::format("not proved: {} is not the same on ranks {} and {}: {}, and no collective makes it equal again{}",
                     what, a, b, why, fix),
         {{a, node}, {b, node}}});
  }

  // Traces differing values back to the cause, and to the node that uses it.
  std::pair<std::string, std::string> where_they_part(int a, const Value* at_a, int b, const Value* at_b) const {
    std::string user;
    while (at_a->producer && at_b->producer) {
      const Node &one = *at_a->producer, &other = *at_b->producer;
      user = one.label();
      if (one.op_type != other.op_type || one.inputs.size() != other.inputs.size())
        return {fmt::format("{} makes it on rank {}, and {} on rank {}", one.label(), a, other.label(), b), user};
      const Value *next_a = nullptr, *next_b = nullptr;
      for (size_t i = 0; i < one.inputs.size() && !next_a; ++i)
        if (one.inputs[i] && other.inputs[i] && number(a, one.inputs[i]) != number(b, other.inputs[i]))
          next_a = one.inputs[i], next_b = other.inputs[i];
      if (!next_a)
        return {fmt::format("{} gives each rank a different part, or computes differently on each", user), user};
      at_a = next_a;
      at_b = next_b;
    }
    const std::string_view kind = at_a->kind == ValueKind::state      ? "the data of '{}' differ"
                                  : at_a->kind == ValueKind::constant ? "the constant '{}' differs"
                                  : at_a->kind == ValueKind::input    ? "each rank takes its own part of the input '{}'"
                                                                      : "'{}' differs with the rank";
    const std::string by = user.empty() ? "" : fmt::format(", which {} uses", user);
    return {fmt::format(fmt::runtime(kind), at_a->name) + by, user};
  }

  const runtime::RankPrograms& programs_;
  const Mesh& mesh_;
  const std::vector<std::vector<Communication>>& communications_;
  const Derivation derivation_;
  Report& report_;
};

}  // namespace

void check_replicas(const runtime::RankPrograms& programs,
                    const std::vector<std::vector<Communication>>& communications, Report& report) {
  Replicas(programs, communications, report).run();
}

}  // namespace tessera::proof
