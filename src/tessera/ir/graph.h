#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/ir/seat.h"
#include "tessera/ir/tensor.h"

namespace tessera {

class Graph;
struct Node;

/// Element type and, where known, extents of a tensor.
struct TensorType {
  DType dtype = DType::undefined;
  std::optional<Shape> shape;

  bool operator==(const TensorType&) const = default;
};

/// An attribute that the IR does not interpret (sparse tensors, type protos, lists of tensors or graphs): its
/// serialized AttributeProto, kept so that nothing is lost.
struct OpaqueAttribute {
  std::string proto;
};

/// A reference to an attribute of the enclosing function (ref_attr_name); `type` is ONNX's AttributeType.
struct AttributeReference {
  std::string name;
  int type = 0;
};

/// A graph that a node owns: a branch of If, the body of Loop or Scan. Copies are deep. Never empty.
class Region {
 public:
  explicit Region(std::unique_ptr<Graph> graph);
  Region(const Region& other);
  Region(Region&&) noexcept;
  Region& operator=(const Region& other);
  Region& operator=(Region&&) noexcept;
  ~Region();

  Graph& operator*() const { return *graph_; }
  Graph* operator->() const { return graph_.get(); }

 private:
  std::unique_ptr<Graph> graph_;
};

using AttributeValue = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                                    std::vector<std::string>, Tensor, Region, AttributeReference, OpaqueAttribute>;

struct Attribute {
  std::string name;
  AttributeValue value;
  std::string extra;  ///< what the file said beyond name and value (doc string, unknown fields), serialized
};

/// Where a value comes from.
enum class ValueKind {
  input,       ///< given by the caller at each run
  state,       ///< a parameter (or other State): lives between steps, never folded
  constant,    ///< known data that folding may consume
  expression,  ///< small integers (rank 0 or 1) that are expressions over symbols and axis indices; no producer
  result,      ///< of a node
};

/// One use of a value: operand `index` of `node`.
struct Use {
  Node* node = nullptr;
  size_t index = 0;
};

/// The elements of a parameter of the model that a state holds, if rewriting has cut the parameter into several states:
/// `dims` are the parameter's extents, and the state holds as many elements of each dimension as it has, from `begin`.
struct StateOrigin {
  std::string name;
  Dims dims;
  Dims begin;

  bool operator==(const StateOrigin&) const = default;
};

/// A tensor that flows through a graph. Owned by its Graph; addresses are stable.
struct Value {
  std::string name;
  size_t number = 0;  ///< its own in its graph, in the order of creation
  ValueKind kind = ValueKind::result;
  TensorType type;
  Node* producer = nullptr;  ///< for results
  std::vector<Use> uses;     ///< operands of nodes; graph outputs are not listed here
  Tensor data;               ///< initial data of a state, data of a constant
  /// Elements, where shape computation knows them: rank 0 (one element) or rank 1. For integers, int64 semantics.
  std::optional<std::vector<Expr>> content;
  /// A state's: the result that becomes its value after a step; null if the graph does not step it. Set by
  /// Graph::set_next.
  Value* next = nullptr;
  size_t next_of = 0;  ///< the number of states whose next value this is
  /// A state's: its value may differ from run to run, because the graph steps it or because another program that
  /// shares it does. Its initial data say nothing about a run.
  bool changing = false;
  std::optional<StateOrigin> origin;  ///< a state's, if it is not a whole parameter of the model
  std::vector<std::string> rows;      ///< a state's, if rewriting has stacked parameters: their names, in order
  std::string extra;  ///< what the file said beyond name and type (doc string, metadata, unknown fields), serialized
  std::string data_extra;  ///< the same of its initializer (storage form, external location), serialized

  bool has_data() const { return kind == ValueKind::state || kind == ValueKind::constant; }
  /// Whether `data` is what every run sees.
  bool is_fixed() const { return has_data() && !changing; }
  bool has_shape() const { return type.shape.has_value(); }
  /// The extents; an internal error if they are not known.
  const Shape& shape() const;
  size_t rank() const { return shape().size(); }
  DType dtype() const { return type.dtype; }
};

/// One operator. Operands may be null (an optional input left out).
struct Node {
  size_t number = 0;  ///< its own in its graph, in the order in which nodes were added
  std::string op_type;
  std::string domain;  ///< "" is ONNX's own
  std::string name;
  std::string overload;
  std::vector<Value*> inputs;
  std::vector<Value*> outputs;  ///< null where an optional output is not wanted
  std::vector<Attribute> attributes;
  /// What the regions of a node (If, Loop, Scan) call the outer values that they use. The last
  /// captures.size() operands are these values; in the regions each is a value of kind input that is not listed in
  /// `inputs`, named by the entry here.
  std::vector<std::string> captures;
  std::string extra;  ///< what the file said beyond the above (doc string, metadata, device configurations), serialized
  Seat seat;

  /// Operands of the operator itself, without captures.
  size_t operand_count() const { return inputs.size() - captures.size(); }
  Value* input(size_t index) const { return index < inputs.size() ? inputs[index] : nullptr; }
  Value* output(size_t index = 0) const { return index < outputs.size() ? outputs[index] : nullptr; }
  /// The graphs that it owns, in the order of its attributes.
  std::vector<Graph*> regions() const;
  bool is(std::string_view type, std::string_view in_domain = "") const {
    return op_type == type && domain == in_domain;
  }

  const Attribute* find_attribute(std::string_view attribute) const;
  template <typename T>
  const T* get(std::string_view attribute) const {
    const Attribute* found = find_attribute(attribute);
    return found ? std::get_if<T>(&found->value) : nullptr;
  }
  int64_t get_int(std::string_view attribute, int64_t otherwise) const;
  float get_float(std::string_view attribute, float otherwise) const;
  std::string get_string(std::string_view attribute, std::string_view otherwise) const;
  std::vector<int64_t> get_ints(std::string_view attribute, std::vector<int64_t> otherwise = {}) const;
  void set(std::string_view attribute, AttributeValue value);
  void remove_attribute(std::string_view attribute);

  /// "MatMul 'layer.0/q'" or "MatMul producing 'q'" for messages.
  std::string label() const;
};

/// A directed acyclic graph of nodes, in an order in which producers come before consumers. Owns nodes and values.
///
/// All edits keep `Value::uses` and `Value::producer` right.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::string name;
  std::vector<Value*> inputs;   ///< in order; a state that the file also lists as an input is not here
  std::vector<Value*> outputs;  ///< in order
  std::string extra;            ///< what the file said beyond the rest, serialized

  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  const std::deque<std::unique_ptr<Value>>& values() const { return values_; }
  /// Values of a kind, in creation order.
  std::vector<Value*> values_of(ValueKind kind) const;
  Value* find(std::string_view name) const;  ///< null if there is none

  /// A new value. An empty name, or one that is taken, gets a fresh one derived from it.
  Value* add_value(std::string_view name, ValueKind kind, TensorType type = {});
  Value* add_input(std::string_view name, TensorType type);
  Value* add_constant(std::string_view name, Tensor data);
  Value* add_state(std::string_view name, Tensor data);
  /// An int64 expression value: a scalar if `scalar`, else rank 1.
  Value* add_expression(std::string_view name, std::vector<Expr> elements, bool scalar = false);
  Value* constant_int64(std::vector<int64_t> elements, bool scalar = false);
  Value* constant_scalar(DType dtype, double value);  ///< a floating or integer scalar of that type

  /// Appends a node at the end, or before `before`. Results get names from `outputs` (fresh where empty).
  Node* add_node(std::string_view op_type, std::vector<Value*> inputs, const std::vector<std::string>& outputs,
                 std::string_view domain = "", const Node* before = nullptr);
  /// Appends a node whose outputs are already made (kind result, no producer).
  Node* adopt_node(std::unique_ptr<Node> node, const Node* before = nullptr);

  void set_input(Node* node, size_t index, Value* value);
  /// Every use of `from`, graph outputs and states' next values included, becomes a use of `to`.
  void replace_uses(Value* from, Value* to);
  void set_next(Value* state, Value* next);
  void rename(Value* value, std::string_view name);
  /// Removes a node; its results must be unused.
  void erase(Node* node);
  /// Removes an input, state, constant or expression; it must be unused.
  void erase(Value* source);
  /// Removes nodes none of whose results is used, and constants and expressions without uses. States stay unless
  /// `states` is true.
  void erase_dead(bool states = false);
  /// Puts the nodes in an order where producers come first, keeping the present order where it can be kept. Throws a
  /// user error that names the nodes of a cycle.
  void sort();
  /// Puts the nodes in this order, which names each of them once; producers must come before consumers.
  void arrange(const std::vector<Node*>& order);

  bool is_output(const Value* value) const;

  /// Throws if a link is broken, a name is double, an order is wrong, or a rank and its shape disagree. `stage` names
  /// the pass after which it is called. All values that nodes name must be alive.
  void verify(std::string_view stage) const;

  /// How often the functions above have changed the graph so far: its nodes and values, their names, and who uses whom.
  /// Assignments to members of values and nodes, and to `outputs`, do not count.
  uint64_t edits() const { return edits_; }

  /// A deep copy; `map`, if given, receives old value → new value.
  std::unique_ptr<Graph> clone(std::map<const Value*, Value*>* map = nullptr) const;

 private:
  std::string fresh_name(std::string_view wanted);

  std::vector<std::unique_ptr<Node>> nodes_;
  std::deque<std::unique_ptr<Value>> values_;
  std::vector<Value*> stepped_;  ///< states with a next value
  /// Where a node and a value were found last: edits walk, so the next one is near.
  size_t near_node_ = 0, near_value_ = 0;
  uint64_t edits_ = 0;
  size_t made_ = 0;  ///< values so far
  size_t made_nodes_ = 0;
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, Value*, NameHash, std::equal_to<>> by_name_;
  std::unordered_map<std::string, int, NameHash, std::equal_to<>> next_suffix_;
};

/// A model-local function: an operator given by a graph. Its body's inputs and outputs are the function's.
struct Function {
  std::string domain;
  std::string name;
  std::string overload;
  std::unique_ptr<Graph> body;
  std::vector<std::string> attributes;  ///< names without a default
  std::vector<Attribute> defaults;      ///< attributes with one
  std::map<std::string, int64_t> opset_imports;
  std::string extra;
};

/// A whole model: a graph, the operator sets it uses, its functions, and all else that its file said.
struct OnnxModel {
  int64_t ir_version = 10;
  std::map<std::string, int64_t> opset_imports;  ///< domain → version
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::vector<Function> functions;
  std::string extra;   ///< producer, metadata, device configurations, training info, unknown fields, serialized
  std::string source;  ///< path of the file it came from; empty if none

  int64_t opset() const;  ///< of ONNX's own domain
  OnnxModel clone() const;
};

}  // namespace tessera
