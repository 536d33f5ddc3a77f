#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/mesh/sharding.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/layout/storage.h"

namespace tessera::spmd {

using Hints = std::map<std::string, int64_t, std::less<>>;

/// Why an axis is on a part, for `explain`.
struct Origin {
  std::string by;  ///< "annotation", "preset megatron", "MatMul 'x' from 'w'"
  int round = 0;   ///< 0: annotated; n: the n-th sweep of propagation
};

/// A part of a dimension while layouts are being found: all values' parts are cut globally first, then axes attach.
struct PartState {
  Expr size = 1;
  std::vector<AxisRef> axes;
  std::vector<Origin> origins;  ///< one per axis
  int component = -1;           ///< parts that operators tie together share a component
};

struct DimState {
  std::vector<PartState> parts;  ///< major to minor
  bool open = true;
};

/// Something that has a layout of its own: each use of a source (input, state, constant), each result of a node, and
/// each value that passes between updates of stored states (storage.h) and other nodes.
struct Slot {
  const Value* value = nullptr;
  std::vector<DimState> dims;
  bool annotated = false;      ///< its closed dimensions must be followed
  bool stored = false;         ///< of an update: it has the state's storage layout, and no axis is added
  std::vector<PlacedAxis> at;  ///< where it lives: where its producer runs; for a source's use, where the user runs
  double bytes = 0;            ///< of the global tensor, symbols as hinted

  Sharding sharding() const;
  bool uses(const AxisRef& axis) const;
  bool is_placed_along(const AxisRef& axis) const;
};

/// Where a subfactor runs along an operand or result of its node.
struct Place {
  bool result = false;
  int tensor = 0;
  int slot = 0;
  int dim = 0;
  int part = 0;
};

/// A piece of an operator's factor, as fine as the parts of the dimensions it runs along. Example: n = 192 of a MatMul
/// whose result is reshaped to heads is the two subfactors 6 and 32.
struct SubFactor {
  int factor = 0;
  int index = 0;  ///< 0 is the major-most piece of its factor
  Expr size = 1;
  bool splittable = true;  ///< it need not be whole; for lookups and indices, it is the major-most piece
  std::vector<Place> places;
};

struct NodeLayout {
  const Node* node = nullptr;
  const ops::OpDef* op = nullptr;
  ops::Moves moves = ops::Moves::nothing;  ///< ops::moves_of(node)
  ops::Rule rule;
  std::vector<int> operand_slots;  ///< -1 for absent operands and expressions
  std::vector<int> result_slots;
  std::vector<SubFactor> subfactors;
  std::vector<PlacedAxis> at;  ///< it runs only on the ranks there, and splits nothing over these axes
  bool updates = false;        ///< it updates stored states, and is split as they are
  bool wide_sums = false;      ///< its partial sums of 16-bit operands are float32
};

/// The number of the subfactor that runs along a part of an operand's dimension; -1 if none does.
int subfactor_along(const NodeLayout& node, size_t operand, size_t dim, size_t part);

/// The first result that is not absent.
size_t first_result(const NodeLayout& node);
/// The layout of a node's first result, were it to have one element along these factors and along those that are flat
/// for them.
Sharding without_factors(Sharding result, const NodeLayout& node, const std::vector<int>& factors);
/// The axes that split these factors, the first factor's major.
std::vector<AxisRef> axes_along(const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                                const std::vector<int>& factors);

/// The nodes that run on only some ranks.
using Places = std::map<const Node*, std::vector<PlacedAxis>>;

bool overlaps(const std::vector<PlacedAxis>& place, const AxisRef& axis);

/// The parts of every value of a graph, and how operators tie them together.
///
/// Construction refines: a cut of a dimension (a suffix product such as 32 of 192 = 6·32) crosses every operator along
/// the factor that runs there, until nothing changes. A cut that does not divide the extent is not carried over. If a
/// dimension's parts then do not line up with an operator's factors, those factors stay whole there.
class Layout {
 public:
  /// `cuts`: further parts by value, from annotations with explicit parts. `storage`: of states, which updates follow.
  /// `finer`: nodes that take their operator's finer rule.
  Layout(const Graph& graph, const Hints& hints, const std::multimap<const Value*, Sharding>& cuts = {},
         const Places& places = {}, const Storage& storage = {}, const std::set<const Node*>& finer = {});

  std::vector<Slot> slots;
  std::vector<NodeLayout> nodes;  ///< in graph order
  std::map<const Value*, std::vector<int>>
      of_value;                              ///< all slots of a value; for a result, its producer's slot is first
  std::vector<std::pair<int, int>> borders;  ///< slot of an update's result, and slot of its other readers
  std::vector<bool> blocked;                 ///< per component: some operator needs it whole, or has windows on it

  /// From now on, partial sums of 16-bit operands have these operands' type, not float32.
  void narrow_sums();

  int output_slot(const Value* value) const { return of_value.at(value).front(); }
  size_t index_of(const Node* node) const { return index_of_.at(node->number); }  ///< among `nodes`
  const NodeLayout& of(const Node* node) const { return nodes[index_of(node)]; }
  /// The Carry whose layout a node must use, because it gets the carried value at the end of an iteration or of the
  /// loop (ir/flow.h); null for other nodes.
  static const Node* carry_of(const Node& node);

 private:
  void make_slots(const Graph& graph, const Hints& hints, const Places& places, const Storage& storage,
                  const std::set<const Node*>& finer);
  void refine(const std::multimap<const Value*, Sharding>& cuts);
  void align();
  void tie_carried();
  void connect();

  std::vector<size_t> index_of_;  // by the nodes' numbers
};

/// The annotated states and their movements (a transpose): the annotation also binds these.
ValueSet ordered_states(const Layout& layout);

/// The layout of operand or result `tensor` of a node that splits its subfactors over `axes`. Dimensions without a
/// subfactor are whole. Partial sums, which a split contraction leaves, are not in it.
Sharding laid_out(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                  bool result, size_t tensor);

}  // namespace tessera::spmd
