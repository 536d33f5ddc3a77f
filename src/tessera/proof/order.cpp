#include "tessera/proof/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "tessera/base/error.h"
#include "tessera/proof/agreement.h"
#include "tessera/proof/boundaries.h"
#include "tessera/proof/seats.h"

namespace tessera::proof {
namespace {

// The progress of one group's ranks.
struct Group {
  std::vector<std::string> axes;
  std::vector<int> members;
  int64_t done = 0;        // collectives that all members have finished
  std::vector<char> here;  // members that wait at the next collective
  size_t here_count = 0;
  std::map<std::pair<int, int>, std::deque<int>> messages;  // by sender and receiver (members): statements

  std::string str() const {
    constexpr size_t kShown = 8;
    std::vector<int> shown(members.begin(), members.begin() + std::min(members.size(), kShown));
    return fmt::format("{{{}{}}} over {}", fmt::join(shown, ","), members.size() > kShown ? ",…" : "",
                       fmt::join(axes, ","));
  }
};

class Walk {
 public:
  Walk(const runtime::RankPrograms& programs, const std::vector<std::vector<Communication>>& communications,
       Report& report)
      : programs_(programs),
        mesh_(programs.mesh()),
        communications_(communications),
        statements_(mesh_, communications),
        report_(report),
        seats_(mesh_) {
    for (int rank = 0; rank < mesh_.size(); ++rank) coordinates_.push_back(mesh_.coordinates(rank));
    at_.resize(mesh_.size());
    seat_ranks();
  }

  void run() {
    for (int rank = 0; rank < mesh_.size(); ++rank) runnable_.push_back(rank);
    while (!runnable_.empty() && report_.good()) {
      int rank = runnable_.front();
      runnable_.pop_front();
      while (report_.good() && at_[rank] < trace(rank).size() && step(rank)) {
      }
    }
    if (report_.good()) report_unreceived();
    if (report_.good()) report_stuck();
  }

 private:
  int program_of(int rank) const { return programs_.program_of.empty() ? 0 : programs_.program_of[rank]; }
  const std::vector<Communication>& trace(int rank) const { return communications_[program_of(rank)]; }
  const Communication& next(int rank) const { return trace(rank)[at_[rank]]; }
  int statement(int rank) { return statements_.of(program_of(rank), at_[rank], coordinates_[rank]); }
  Place place(int rank) const {
    return {rank, at_[rank] < trace(rank).size() ? next(rank).node->label() : std::string()};
  }
  // The rank must not have ended.
  const Seats::Seat& seat(int rank) const { return (*seats_of_[program_of(rank)][at_[rank]])[rank]; }

  void seat_ranks() {
    for (const auto& program : communications_) {
      auto& seats = seats_of_.emplace_back();
      for (const Communication& communication : program) {
        seats.push_back(&seats_.along(communication.axes));
        while (groups_.size() < seats_.groups().size()) {
          Group group{communication.axes, seats_.groups()[groups_.size()], 0, {}, 0, {}};
          group.here.resize(group.members.size());
          groups_.push_back(std::move(group));
        }
      }
    }
  }

  // Whether the rank passes its next communication; if not, it waits.
  bool step(int rank) {
    const Communication& communication = next(rank);
    const Seats::Seat& at = seat(rank);
    Group& group = groups_[at.group];
    if (communication.kind == comm::Kind::send) return send(rank, group, at.member);
    if (communication.kind == comm::Kind::recv) return receive(rank, group, at.member);
    if (group.here[at.member]) return false;  // it is waiting already; another event woke it
    group.here[at.member] = 1;
    if (++group.here_count < group.members.size()) return false;
    if (!agree(group)) return false;
    if (communication.node->domain == flow::kDomain && !nothing_under_way(rank, group)) return false;
    group.here.assign(group.members.size(), 0);
    group.here_count = 0;
    ++group.done;
    for (int member : group.members) {
      ++at_[member];
      if (member != rank) runnable_.push_back(member);
    }
    return true;
  }

  // When a branch or an iteration ends, every message between its ranks has been received.
  bool nothing_under_way(int rank, const Group& meeting) {
    const auto meets = [&](int member) {
      return std::find(meeting.members.begin(), meeting.members.end(), member) != meeting.members.end();
    };
    for (const Group& group : groups_)
      for (const auto& [pair, queue] : group.messages) {
        if (!meets(group.members[pair.first]) || !meets(group.members[pair.second])) continue;
        const Statement& sent = statements_[queue.front()];
        report_.findings.push_back(
            {"message",
             fmt::format("rank {} sends {} to rank {}, which has not received it at {} of {}; a branch or body must "
                         "receive what is sent in it, and nothing else",
                         group.members[pair.first], described(sent), group.members[pair.second], next(rank).value,
                         next(rank).node->label()),
             {place(rank), {group.members[pair.first], sent.communication->node->label()}}});
        return false;
      }
    return true;
  }

  bool send(int rank, Group& group, int member) {
    int stated = statement(rank);
    int64_t to = statements_[stated].to;
    if (!is_member(rank, group, to)) return false;
    ++at_[rank];
    if (to < 0) return true;
    group.messages[{member, static_cast<int>(to)}].push_back(stated);
    int receiver = group.members[to];
    if (waits_for_message(receiver, group, member)) runnable_.push_back(receiver);
    return true;
  }

  bool waits_for_message(int rank, const Group& group, int sender) {
    if (at_[rank] >= trace(rank).size() || next(rank).kind != comm::Kind::recv) return false;
    return &groups_[seat(rank).group] == &group && statements_[statement(rank)].from == sender;
  }

  bool receive(int rank, Group& group, int member) {
    const Statement& wanted = statements_[statement(rank)];
    if (!is_member(rank, group, wanted.from)) return false;
    if (wanted.from >= 0) {
      auto found = group.messages.find({static_cast<int>(wanted.from), member});
      if (found == group.messages.end()) return false;
      auto& queue = found->second;
      const Statement& sent = statements_[queue.front()];
      const bool compared = !matched_.emplace(queue.front(), statement(rank)).second;
      if (auto why = compared ? std::nullopt : mismatch(sent, wanted)) {
        int sender = group.members[wanted.from];
        report_.findings.push_back(
            {"message",
             fmt::format(
                 "rank {} expects a different message from rank {} in group {} than the one sent next: {}: {} at the "
                 "receiver, {} at the sender",
                 rank, sender, group.str(), *why, described(wanted), described(sent)),
             {{rank, wanted.communication->node->label()}, {sender, sent.communication->node->label()}}});
        return false;
      }
      queue.pop_front();
      if (queue.empty()) group.messages.erase(found);
    }
    ++at_[rank];
    return true;
  }

  bool is_member(int rank, const Group& group, int64_t peer) {
    if (peer >= -1 && peer < static_cast<int64_t>(group.members.size())) return true;
    report_.findings.push_back({"message",
                                fmt::format("rank {}: {} names a rank that is not in the group {}", rank,
                                            next(rank).node->label(), group.str()),
                                {place(rank)}});
    return false;
  }

  static std::string described(const Statement& statement) {
    return fmt::format("{} ({})", statement.communication->node->label(), statement.communication->str());
  }

  bool agree(const Group& group) {
    std::vector<int> stated;
    for (int member : group.members) stated.push_back(statement(member));
    if (!agreed_.insert({static_cast<int>(group.members.size()), stated}).second) return true;
    std::vector<const Statement*> members;
    std::vector<std::vector<int64_t>> coordinates;
    for (size_t m = 0; m < stated.size(); ++m) {
      members.push_back(&statements_[stated[m]]);
      coordinates.push_back(coordinates_[group.members[m]]);
    }
    auto clash = disagreement(members, coordinates, mesh_);
    if (!clash) return true;
    int a = group.members[clash->a], b = group.members[clash->b];
    Finding finding{clash->rule, "", {place(a)}};
    if (a != b) {
      finding.places.push_back(place(b));
      finding.message = fmt::format(
          "ranks {} and {} do not fit together in collective #{} of group {}: {}: {} on rank {}, {} on rank {}", a, b,
          group.done + 1, group.str(), clash->why, described(*members[clash->a]), a, described(*members[clash->b]), b);
    } else {
      finding.message = fmt::format("rank {} cannot run {}, collective #{} of group {}: {}", a,
                                    described(*members[clash->a]), group.done + 1, group.str(), clash->why);
    }
    report_.findings.push_back(std::move(finding));
    return false;
  }

  void report_unreceived() {
    for (const Group& group : groups_)
      for (const auto& [pair, queue] : group.messages) {
        int sender = group.members[pair.first], receiver = group.members[pair.second];
        if (at_[receiver] < trace(receiver).size()) continue;  // the receiver did not get that far
        const Statement& sent = statements_[queue.front()];
        report_.findings.push_back({"message",
                                    fmt::format("rank {} sends {} to rank {}, which ends without receiving it", sender,
                                                described(sent), receiver),
                                    {{sender, sent.communication->node->label()}, {receiver, ""}}});
        return;
      }
  }

  // --- ranks that never reach their ends

  bool is_stuck(int rank) const { return at_[rank] < trace(rank).size(); }

  template <typename Visit>
  void for_each_awaited(int rank, Visit visit) {
    const Communication& communication = next(rank);
    const Seats::Seat& at = seat(rank);
    const Group& group = groups_[at.group];
    if (communication.kind == comm::Kind::recv) {
      visit(group.members[statements_[statement(rank)].from]);
      return;
    }
    for (size_t m = 0; m < group.members.size(); ++m)
      if (!group.here[m]) visit(group.members[m]);
  }

  void report_stuck() {
    std::vector<int> stuck;
    for (int rank = 0; rank < mesh_.size(); ++rank)
      if (is_stuck(rank)) stuck.push_back(rank);
    if (stuck.empty()) return;
    for (int rank : stuck) {
      int ended = -1;
      for_each_awaited(rank, [&](int other) {
        if (ended < 0 && !is_stuck(other)) ended = other;
      });
      if (ended < 0) continue;
      const Group& group = groups_[seat(rank).group];
      report_.findings.push_back(
          {"cycle",
           fmt::format("rank {} waits for rank {} at {} ({}), {} of group {}, but rank {} ends without reaching it",
                       rank, ended, next(rank).node->label(), next(rank).str(), position(rank, group), group.str(),
                       ended),
           {place(rank), {ended, ""}}});
      return;
    }
    std::vector<int> cycle = shortest_cycle(stuck);
    Finding finding{"cycle", fmt::format("{} ranks wait in a cycle:", cycle.size()), {}};
    for (size_t i = 0; i < cycle.size(); ++i) {
      int rank = cycle[i];
      const Group& group = groups_[seat(rank).group];
      finding.message += fmt::format("{} rank {} at {} ({}), {} of group {}, for rank {}", i == 0 ? "" : ";", rank,
                                     next(rank).node->label(), next(rank).str(), position(rank, group), group.str(),
                                     cycle[(i + 1) % cycle.size()]);
      finding.places.push_back(place(rank));
    }
    report_.findings.push_back(std::move(finding));
  }

  std::string position(int rank, const Group& group) const {
    return next(rank).kind == comm::Kind::recv ? "a message" : fmt::format("collective #{}", group.done + 1);
  }

  // Searches breadth-first from every stuck rank. Each waits for another stuck rank, so there is a cycle. All members
  // of a group wait for the same ranks, so a search follows each group's edges only once.
  std::vector<int> shortest_cycle(const std::vector<int>& stuck) {
    std::vector<int> best;
    for (int start : stuck) {
      if (!best.empty() && best.size() <= 2) break;  // no cycle is shorter than two ranks
      std::vector<int> from(mesh_.size(), -1), depth(mesh_.size(), 0);
      std::vector<char> followed(groups_.size());
      std::deque<int> frontier = {start};
      bool closed = false;
      while (!frontier.empty() && !closed) {
        int rank = frontier.front();
        frontier.pop_front();
        if (!best.empty() && depth[rank] + 1 >= static_cast<int>(best.size())) break;
        if (next(rank).kind != comm::Kind::recv) {
          char& known = followed[seat(rank).group];
          if (known) continue;
          known = 1;
        }
        for_each_awaited(rank, [&](int other) {
          if (closed) return;
          if (other == start) {
            best.clear();
            for (int step = rank; step != -1; step = from[step]) best.insert(best.begin(), step);
            closed = true;
          } else if (from[other] == -1) {
            from[other] = rank;
            depth[other] = depth[rank] + 1;
            frontier.push_back(other);
          }
        });
      }
    }
    check(!best.empty(), "ranks that all wait for one another wait in a cycle");
    return best;
  }

  const runtime::RankPrograms& programs_;
  const Mesh& mesh_;
  const std::vector<std::vector<Communication>>& communications_;
  Statements statements_;
  Report& report_;
  std::vector<std::vector<int64_t>> coordinates_;  // by rank
  std::vector<size_t> at_;                         // by rank: its next communication
  std::deque<int> runnable_;
  Seats seats_;
  std::vector<std::vector<const std::vector<Seats::Seat>*>> seats_of_;  // by program and communication, then rank
  std::vector<Group> groups_;
  std::set<std::pair<int, std::vector<int>>> agreed_;  // sets of statements that were compared as one collective
  std::set<std::pair<int, int>> matched_;              // the same for sent and received messages
};

}  // namespace

void check_order(const runtime::RankPrograms& programs, const std::vector<std::vector<Communication>>& communications,
                 Report& report) {
  std::vector<std::vector<Communication>> bounded;
  for (size_t p = 0; p < communications.size(); ++p)
    bounded.push_back(with_boundaries(*programs.programs[p], communications[p]));
  Walk(programs, bounded, report).run();
}

}  // namespace tessera::proof
