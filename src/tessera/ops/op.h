#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/rule.h"

namespace tessera::ops {

/// Builds a node's local form on one rank, for operators whose local form is more than the same node on local operands.
/// Extents, offsets and shapes are expressions over symbols and axis indices.
class Localizer {
 public:
  /// A digit of a factor's index, in mixed radix: this rank has the digits offset … offset + extent - 1 of `size`.
  struct Piece {
    Expr size, offset, extent;
  };

  const Node& node;                 ///< the global node
  const Rule& rule;                 ///< its rule
  Graph& graph;                     ///< the local program being built; append here
  std::vector<Value*> inputs;       ///< local operands, already in the layout that the rule requires
  std::vector<TensorType> outputs;  ///< local types of the results
  /// Per factor of the rule: this rank's first element and extent, and whether it is split.
  std::vector<Expr> offsets;
  std::vector<Expr> extents;
  std::vector<bool> split;
  /// Per factor: the pieces that it is a product of, major to minor.
  std::vector<std::vector<Piece>> pieces;
  /// Per factor: this rank's place among those that split it, in the order of their parts; and how many these are.
  std::vector<Expr> places;
  std::vector<int64_t> ranks;
  /// Reduces a value over the ranks that split these factors: what each of them computed from its part of result 0,
  /// which keeps the other dimensions, and has extent 1 for the factors and those that are flat for them
  /// (Factor::flat). The name is for the value in reports; without one it is result 0 itself.
  std::function<Value*(Value* part, const std::vector<int>& factors, Reduction reduction, std::string_view name)>
      reduce;
  /// Gathers a value from the ranks that split these factors, in the order of their parts. It is like the first result,
  /// with extent 1 for the factors, but that dimension `dim` holds `blocks` times `unit` elements over all ranks, of
  /// which each has share(factors, blocks) times `unit`. If it has one dimension more than the result, `dim` is that.
  std::function<Value*(Value* part, const std::vector<int>& factors, size_t dim, const Expr& blocks, const Expr& unit,
                       std::string_view name)>
      gather;
  /// How many of `blocks` are this rank's if those that split these factors divide them as they do a dimension.
  std::function<Expr(const std::vector<int>& factors, const Expr& blocks)> share;
  /// An operand's dimension as this rank's results read it, with what other ranks had of it.
  struct Widened {
    Value* value = nullptr;
    Expr begin;          ///< the first element that is read, counted in the whole dimension; negative: it is padding
    Expr before, after;  ///< elements of padding that are read at either end
  };
  /// Gives `value`, this rank's part of operand `operand` of the global node, the elements of dimension `dim` that this
  /// rank's results read along the halo that runs there, from whichever ranks have them. Padding has the scalar `fill`
  /// as its elements; null: it is left out. If other dimensions of `value` have been widened before, so are those of
  /// the pieces that come from others.
  std::function<Widened(Value* value, size_t operand, size_t dim, Value* fill)> widen;
  /// The iteration or branch of the local program that the node is in (ir/flow.h); null: none.
  Value* around = nullptr;

  /// Appends a node with one result of that type, named after the global result (a fresh name if there are several).
  Value* emit(std::string_view op_type, std::vector<Value*> operands, TensorType type,
              std::vector<Attribute> attributes = {}, std::string_view domain = "");
  /// Appends the node itself on the local operands: same attributes, local result types. Returns its results. If
  /// `outputs` asks for float32 partial sums of 16-bit operands, appends the operator of that name in our domain.
  std::vector<Value*> same();
  /// As same(), with operand `index` replaced by the expression value `content` (rank 1, or a scalar).
  std::vector<Value*> same_with(size_t index, std::vector<Expr> content, bool scalar = false);
  /// Whether a dimension of the node's operand `operand` is a halo that is split.
  bool is_split_halo(size_t operand, size_t dim) const;
  int factor(std::string_view name) const;  ///< index in the rule; -1 if there is none
  /// `addend` on the rank that holds the first shard of factor `f`, zeros on all others, so that it is added to a
  /// partial sum only once. Selects instead of multiplying, so that infinities do not become NaN.
  Value* on_first_shard(Value* addend, int f);
};

/// A local form's last step: elements starts … ends - 1 of `value` along `axes`, in result 0's place with its shape.
Value* sliced(Localizer& local, Value* value, const std::vector<Expr>& starts, const std::vector<Expr>& ends,
              const std::vector<int64_t>& axes, const Shape& shape);

/// `value` where `place` is 0, zeros elsewhere. Selects instead of multiplying, so that infinities do not become NaN.
Value* on_first(Graph& graph, Value* value, const Expr& place);

/// Returns the local results, one per result of the node (null for absent ones).
using LocalizeFn = std::vector<Value*> (*)(Localizer&);

class NodeBuilder;
class GradientBuilder;
struct Example;

/// Gives the gradients of a node's operands (gradient.h).
using GradientFn = void (*)(GradientBuilder&);

/// How an operator moves elements of its operands into its results; moved elements may be cast.
enum class Moves {
  nothing,   ///< results are computed
  some,      ///< every element is one of an operand's, or a filling
  part,      ///< every element is one of operand 0's
  all,       ///< the result has all elements of operand 0, in any order
  in_order,  ///< the result has the elements of operand 0 in their row-major order, under another shape
};

/// An operand whose elements are indices, and the extents below which they stay.
struct Indices {
  size_t operand = 1;
  /// The extent that every element indexes along; of `components`, the one of each component.
  Shape extents;
  bool components = false;  ///< the operand's last dimension holds the components of one index
};

/// Everything the compiler knows about an operator, in one place. Entries use designated initializers; an omitted
/// property does not hold.
struct OpDef {
  std::string_view type;
  std::string_view domain = "";
  /// Sets the results' types and contents from the operands' (newest opset form, see rewrite/upgrade). Throws a user
  /// error naming the node if operands are wrong.
  void (*infer)(Node& node);
  /// The rule of this node; shapes are known.
  Rule (*rule)(const Node& node);
  /// Another rule of the same node, with finer units, for axes that cannot split the units of `rule` evenly
  /// (spmd/decide/finer.h). Null: there is none.
  Rule (*finer_rule)(const Node& node) = nullptr;
  /// Floating-point operations of the whole node; null: none worth counting.
  Expr (*flops)(const Node& node) = nullptr;
  /// Null: the same node on local operands.
  LocalizeFn localize = nullptr;
  /// Null: it has none, and `no_gradient` says why.
  GradientFn gradient = nullptr;
  std::string_view no_gradient = "";
  /// Spells the node out in operators of the opset that we write, and gives their results; none if the node needs no
  /// spelling out. Null: it never does, or cannot be.
  std::vector<Value*> (*body)(NodeBuilder&, const Node&) = nullptr;
  /// Operands that hold what is measured or laid down, and never trained: stored statistics, the tables of a rotary
  /// embedding. A gradient ends at them.
  std::vector<size_t> untrained = {};
  /// Its partial sums of 16-bit operands are float32, so that they are rounded once, after the reduction over ranks.
  /// Its kernel is registered in our domain too, with accumulate = "float32", if its local form is not another
  /// operator.
  bool wide_sums = false;
  /// It works element by element, or only changes the shape; propagation goes through such operators first.
  bool pass_through = false;
  /// Operands whose elements must be known before any run, because the shapes, the rule or the kernel's preparation
  /// read them. The file's data for them are constants, whatever their type, and never States.
  std::vector<size_t> values = {};
  /// For each result, the operands that it is computed from; an empty list means all.
  std::vector<std::vector<size_t>> made_of = {};
  /// Each element of the one result is computed from the operands' elements that broadcasting pairs with it.
  bool elementwise = false;
  /// Exchanging its two operands changes nothing.
  bool commutative = false;
  Moves moves = Moves::nothing;
  /// It takes a part of operand 0, or gives it another shape, as the later operands say. Steps between layouts of one
  /// value consist of such operators.
  bool layout_step = false;
  /// It slides windows over the dimensions after the second, and at least one must fit.
  bool windows = false;
  /// Operands whose elements it does not read, only their type and shape.
  std::vector<size_t> elements_unread = {};
  /// Operands that are float32 whatever the types of the others.
  std::vector<size_t> always_float32 = {};
  /// Operands that broadcast to the result, which does not broadcast to them.
  std::vector<size_t> broadcast_one_way = {};
  /// The number of trailing dimensions of the operands that do not broadcast.
  size_t fixed_dims = 0;
  /// The operand from which indices select the results' elements; a run reads no other elements of it.
  std::optional<size_t> table = {};
  /// It draws random numbers (random.h), and this optional operand tells runs apart.
  std::optional<size_t> counter = {};
  /// Null: it has no indices.
  Indices (*indices)(const Node& node) = nullptr;
  /// Nodes of the operator `type` that tests and documentation try (example.h): a plain one first, then what may go
  /// wrong. Null: no node of it alone can be tried (tests/property/operators_test.cpp says why).
  std::vector<Example> (*examples)(std::string_view type) = nullptr;
};

/// OpDef::no_gradient of local forms.
inline constexpr std::string_view kMadeByPartitioner = "only the partitioner makes it, after differentiation";

/// Null for an unknown operator.
const OpDef* find_op(std::string_view type, std::string_view domain);
/// Whether this node gives float32 partial sums of 16-bit operands (OpDef::wide_sums).
bool has_wide_sums(const Node& node);
/// Whether the operator reads the elements of that operand before any run (OpDef::values).
bool reads_values(const Node& node, size_t operand);
/// Whether the operator reads the elements of that operand at all (OpDef::elements_unread); true for an unknown
/// operator.
bool reads_elements(const Node& node, size_t operand);
/// OpDef::moves; nothing for an unknown operator.
Moves moves_of(const Node& node);
/// OpDef::layout_step; false for an unknown operator.
bool is_layout_step(const Node& node);
/// Every known operator, by domain and type.
std::vector<const OpDef*> all_ops();
/// Whether the sizes of the operator's results depend on the elements of its operands, so that no program can hold it:
/// NonZero, Compress, Unique, NonMaxSuppression. It runs between programs.
bool is_data_sized(const Node& node);
/// Throws a user error for an unknown operator that names the node and a way out.
const OpDef& op_of(const Node& node);

/// Runs the operator's infer; a user error for a result that the operator does not have.
void infer_results(const OpDef& op, Node& node);
/// Runs infer over all nodes in order. After it, every result has a dtype and a shape. `stage` is for messages.
void infer_types(Graph& graph);
/// Floating-point operations and bytes (operands and results, once each) of a node.
Expr flops_of(const Node& node);

}  // namespace tessera::ops
