#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/sim/simulate.h"

/// Which ranks' communications belong together: every start of a collective or message takes part in transfers that
/// others start, too.
namespace tessera::sim {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// An event of a timeline, by class and index.
struct Cause {
  int of_class = -1, event = -1;  ///< -1: none
};

/// A way out of a class, or into it, that a transfer takes.
struct End {
  int of_class = -1;
  bool enters = false;
  auto operator<=>(const End&) const = default;
};

/// A transfer in which classes take part: of a collective, or of a message from one class to another.
struct Meeting {
  int id = 0;
  Transfer transfer;
  std::set<int> missing;     ///< classes that must start before it moves
  std::vector<int> members;  ///< classes
  std::vector<End> ends;     ///< the sender's and the receiver's; of a collective, both ways of each member
  Cause last;                ///< the last start
  double began = kNever, ended = kNever;
  double left = 0;              ///< seconds, without contention
  double shared = 0;            ///< seconds lost to other transfers, before it or on its links
  int previous = -1;            ///< the meeting before it of the same group, or of the same sender and receiver
  std::map<int, double> chain;  ///< by class: the longest chain to its start
};

/// The meetings of a simulation so far. The first communication of a member over a group meets the first ones of the
/// group's other members, its second one their second ones, and so on.
///
/// Example: ranks 0 and 1 of `tp` are classes 0 and 1. The first AllReduce of each gives meeting 0, which class 0 and
/// class 1 must start; the second of each gives meeting 1, whose `previous` is 0.
class MeetingRegistry {
 public:
  /// Both must outlive it.
  MeetingRegistry(const std::vector<ClassProgram>& programs, const Setting& setting)
      : programs_(programs), setting_(setting), met_(programs.size()) {}

  /// The meetings in which the class takes part when it starts that step: none (a message to nobody), one, or two (a
  /// permute, in which a rank sends and receives). Each call counts as one start. References to meetings end here.
  std::vector<int> next_of(int of_class, int step);

  Meeting& operator[](int id) { return meetings_[static_cast<size_t>(id)]; }
  const Meeting& operator[](int id) const { return meetings_[static_cast<size_t>(id)]; }
  const std::vector<Meeting>& all() const { return meetings_; }

 private:
  /// The classes that a message leaves and enters; -1: it is a collective.
  struct Way {
    int from = -1, to = -1;
  };
  /// The classes of the ranks of a group.
  struct Group {
    std::set<int> classes;
    std::string name;
  };

  std::vector<int> permute(int of_class, const bind::Step& step, const std::string& axes, const Transfer& transfer);
  int next(int of_class, const std::string& name, const std::string& side, const std::set<int>& needed,
           const std::set<int>& members, const Transfer& transfer, const Way& way);
  int numbered(const std::string& name, int64_t number, const std::set<int>& needed, const std::set<int>& members,
               const Transfer& transfer, const Way& way);
  const Group& group_over(int rank, const std::vector<std::string>& axes);
  int class_of(int rank) const { return rank < 0 ? -1 : setting_.class_of[static_cast<size_t>(rank)]; }

  const std::vector<ClassProgram>& programs_;
  const Setting& setting_;
  std::vector<Meeting> meetings_;
  std::vector<std::map<std::string, int64_t>> met_;                   // by class and name: starts so far
  std::map<std::string, std::map<int64_t, int>> ids_;                 // by name and number
  std::map<std::pair<int, std::vector<std::string>>, Group> groups_;  // by a rank, and axes
};

}  // namespace tessera::sim
