#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/ir/flow.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/sharding.h"

/// Small programs by chance: what operators, layouts and meshes do together that no one thought of. A sharded run must
/// equal the run on one rank.
namespace tessera::random {

/// What is known of a value's elements: magnitudes, and whether they are integers that every order of summation gives
/// exactly.
struct Facts {
  double bound = 0;
  bool exact = true;
};

/// A layout that is asked of the value of that name.
struct Order {
  std::string name;
  Sharding sharding;
};

/// The place of the node that makes the value of that name.
struct Placing {
  std::string name;
  std::vector<PlacedAxis> place;
};

/// A model, its inputs, and its split.
struct Program {
  OnnxModel model;
  std::map<std::string, Tensor> inputs;
  std::map<std::string, int64_t, std::less<>> symbols;
  std::map<std::string, Facts> facts;  ///< of every value
  Mesh mesh;
  std::vector<Order> orders;
  std::vector<Placing> places;
  bool rings = false;   ///< keys of attention, and collectives beside products, go around rings wherever they can
  bool priced = false;  ///< choices follow the seconds of a machine (machine.h)

  Program clone() const;
};

/// Removes nodes on which no output depends, and the annotations and sizes for them.
void tidy(Program& program);

/// Whether what a node makes may be an output: it is not inside a branch or loop.
bool leaves(const flow::Flow& flow, const Node& node);

enum class Operators {
  common,  ///< written by chance
  all,     ///< and those of the property tests' cases, in branches and loops, too
};

/// The program of a seed: 3 to 12 nodes, a mesh of up to 3 axes and 12 ranks, annotations of about half the values; of
/// every third, some nodes at places. With all operators, every fourth has up to 40 nodes, and every eighth NaN and
/// infinities among its sources. The same everywhere.
Program generate(uint64_t seed, Operators operators = Operators::common);

/// The outcome of a program.
enum class Verdict {
  equal,    ///< or within the tolerance where sums round
  refused,  ///< a refusal that is one of property::refusals()
  skipped,  ///< one rank alone does not run it
  failed,
};

struct Outcome {
  Verdict verdict = Verdict::equal;
  std::string message;  ///< of what is not equal
};

/// Runs the program as it was written on one rank, and rewritten and sharded on its mesh, and compares.
Outcome check(const Program& program);

/// A smaller program that fails in the same way: nodes, outputs, annotations, places and axes of the mesh are taken
/// away for as long as it does. A node goes by making its results inputs that hold what one rank computed.
Program shrink(const Program& program, const Outcome& failure);

/// The model's text, sizes, mesh and annotations, as the command line takes them.
std::string describe(const Program& program);

}  // namespace tessera::random
