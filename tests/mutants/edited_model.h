#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tessera/onnx.pb.h"
#include "tessera/tessera.h"

/// Models of written programs as messages of the wire format, for edits such as any tool, or hand, might make.
namespace tessera::mutants {

/// Draws that are the same everywhere for a seed.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  size_t below(size_t count) { return static_cast<size_t>(engine_() % count); }
  bool one_in(size_t count) { return below(count) == 0; }
  template <typename List>
  auto& one_of(List& list) {
    return list[below(list.size())];
  }
  uint64_t seed() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

/// A list of nodes: a graph's, that of a graph within a node, or a function's.
struct Scope {
  google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes = nullptr;
  onnx::GraphProto* graph = nullptr;        ///< null in a function
  onnx::FunctionProto* function = nullptr;  ///< null in a graph
};

/// A model under edit, and its program.
struct EditedModel {
  onnx::ModelProto proto;
  WriteOptions form;
  Mesh mesh;

  /// Functions' last. Pointers are good until nodes are added or removed.
  std::vector<Scope> scopes();
  bool has_tokens() const { return form.order == Order::tokens; }
  /// A stated type as text, "1[batch,64]"; "" if the model does not state it.
  std::string type_of(const std::string& value) const;
  /// A name that nothing has.
  std::string fresh(const std::string& name) const;
};

/// A node, and where it stands.
struct Site {
  EditedModel& model;
  Scope scope;
  int index = 0;

  onnx::NodeProto& node() const { return *scope.nodes->Mutable(index); }
  bool in_function() const { return scope.function != nullptr; }
};

std::vector<Site> sites(EditedModel& model);

/// Finds a node again in another model of the program: by operator and by name, or by its results.
struct NodeKey {
  std::string function, op_type, name, result;
};
NodeKey key_of(const Site& site);
std::optional<Site> find(EditedModel& model, const NodeKey& key);
std::string label(const onnx::NodeProto& node);

// --- what nodes are

/// "AllReduce" of "AllReduce" and of the function "AllReduce_ring_tp_sum".
std::string base_of(const onnx::NodeProto& node);
/// Whether it is of the dialect and communicates, or is a call of a function that does.
bool communicates(const onnx::NodeProto& node);
/// Whether it gives its first operand to other ranks, and computes its first result from theirs.
bool has_operand(const onnx::NodeProto& node);
bool has_result(const onnx::NodeProto& node);
onnx::AttributeProto* attribute(onnx::NodeProto& node, std::string_view name);
void set_text(onnx::NodeProto& node, const std::string& name, const std::string& text);

// --- steps of edits

/// Whether the graph or function gives the value as an output.
bool is_output(const Scope& scope, const std::string& value);
/// Makes all readers of `from` in the scope, and in graphs within it, read `to`. Outputs stay.
void replace_uses(const Scope& scope, const std::string& from, const std::string& to);
/// Removes the node; readers of its first result read `operand`, which takes over the result's name if that is an
/// output.
void replace_by(const Site& site, const std::string& operand);
/// Takes the node out of the chain of tokens. False if its tokens are the chain's ends.
bool unthread(const Site& site);
/// Adds a node to the scope, after the one at `index`; later nodes move on.
onnx::NodeProto& insert_after(const Scope& scope, int index, onnx::NodeProto node);
/// Puts the node at `index`, which communicates and has tokens as last operand and result, or gets them, into the chain
/// of tokens, after the node before it. False if there is no chain to join.
bool thread(EditedModel& model, const Scope& scope, int index);

struct Interposed {
  std::string from, to;
};
/// Makes room between a node's first result and its readers: a node that is then inserted must make `to` from `from`.
/// One of the two keeps the result's name, and with it its type and metadata; outputs keep theirs.
Interposed interpose(const Site& site, bool new_one_has_the_name);

/// A node that makes an int64 tensor.
onnx::NodeProto constant(const std::string& result, const std::vector<int64_t>& elements, bool scalar);

}  // namespace tessera::mutants
