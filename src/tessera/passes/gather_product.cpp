#include "tessera/passes/gather_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/ir/value_map.h"
#include "tessera/mesh/group.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/passes/near_members.h"
#include "tessera/passes/product_pieces.h"
#include "tessera/passes/ring_collective.h"

namespace tessera::passes {
namespace {

using spmd::Program;

bool is_port(const Program& program, const Value* value) {
  return std::any_of(program.outputs.begin(), program.outputs.end(),
                     [&](const spmd::Port& port) { return port.value == value; });
}

// A product that reads what depends on the gather by two of its operands needs all blocks for each piece.
void leave_out_those_that_read_twice(std::vector<Node*>& products, const Graph& graph, const Value* whole) {
  if (products.empty()) return;
  ValueSet dependent;
  dependent.insert(whole);
  const auto depends = [&](const Value* operand) { return dependent.contains(operand); };
  const auto gather = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                                   [&](const auto& node) { return node.get() == whole->producer; });
  size_t ahead = products.size();
  for (auto node = gather; ahead > 0 && ++node != graph.nodes().end();) {
    if (std::any_of((*node)->inputs.begin(), (*node)->inputs.end(), depends))
      for (const Value* result : (*node)->outputs) dependent.insert(result);
    ahead -= static_cast<size_t>(std::count(products.begin(), products.end(), node->get()));
  }
  std::erase_if(products, [&](const Node* product) {
    return std::count_if(product->inputs.begin(), product->inputs.end(), depends) > 1;
  });
}

// Whether no two members of a group have the same part of a value.
bool differs_on(const Program& program, const Value* value, const std::vector<AxisRef>& axes) {
  const auto placed = program.placements.find(value);
  if (placed == program.placements.end()) return false;
  // Groups may be large, so most are answered without a look at each member.
  const std::vector<AxisRef> split = placed->second.sharding.axes();
  const auto is_split = [&](const AxisRef& axis) { return std::find(split.begin(), split.end(), axis) != split.end(); };
  if (std::all_of(axes.begin(), axes.end(), is_split)) return true;
  std::set<std::vector<int64_t>> parts;
  for (const int rank : group_of(0, axes, program.mesh)) {
    std::vector<int64_t> part;
    for (const AxisRef& axis : split) part.push_back(digit_along(axis, program.mesh, program.mesh.coordinates(rank)));
    if (!parts.insert(std::move(part)).second) return false;
  }
  return true;
}

// Walks from a gathered value to the products that read it.
class Readers {
 public:
  Readers(const Program& program, const flow::Flow& flow, const std::vector<AxisRef>& axes)
      : program_(program), flow_(flow), axes_(axes) {}

  void visit(const Value* value, size_t dim) {
    for (const Use& use : value->uses) {
      if (std::count_if(use.node->inputs.begin(), use.node->inputs.end(),
                        [&](const Value* operand) { return operand == value; }) > 1)
        continue;
      const bool multiplies = is_product(*use.node);
      if ((!multiplies && !is_movement(*use.node)) || flow_.of(use.node) >= 0) continue;
      const auto along = along_operand(*use.node, use.index, dim);
      if (!along) continue;
      if (!multiplies) {
        visit(use.node->outputs[0], *along->result);
      } else if (along->result || differs_on(program_, use.node->outputs[0], axes_)) {
        products.push_back(use.node);
      } else {
        same_terms = true;
      }
    }
  }

  std::vector<Node*> products;
  bool same_terms = false;  ///< a product that sums over the dimension has the same result on several members

 private:
  const Program& program_;
  const flow::Flow& flow_;
  const std::vector<AxisRef>& axes_;
};

class GatherRewrite {
 public:
  GatherRewrite(Program& program, const GatherProduct& site, const RingForm& form)
      : program_(program),
        graph_(*program.graph),
        site_(site),
        size_(site.gather->outputs[0]->shape()[site.dim]),
        units_(units_or_members(site.axes, form, size_)),
        members_(program, site.axes, size_, {}),
        ring_(program, units_.far, size_, form),
        near_(program, units_.near, site.value) {}

  void run() {
    find_readers(*site_.gather, site_.dim, {});
    std::vector<const Node*> products;
    for (const Reader& reader : readers_) products.push_back(reader.product);
    const Node* first = first_of(products);
    std::stable_partition(readers_.begin(), readers_.end(),
                          [&](const auto& reader) { return reader.product == first; });
    begin(first_of(all_users(*site_.gather)));
    for (Reader& reader : readers_) finish(reader);
    for (Node* move : moves_)
      if (move->outputs[0]->uses.empty() && !is_kept(move->outputs[0])) erase(move);
    replace_gather();
    record_ring(program_, site_.value, "AllGather", axes_text(site_.axes, program_.mesh));
    for (const auto& [value, name] : names_) graph_.rename(value, name);
  }

 private:
  using Blocks = std::vector<std::vector<Value*>>;  // by offset, then by piece

  // A product that reads the gathered value after these movements, and what it has of its result so far.
  struct Reader {
    Node* product = nullptr;
    size_t operand = 0;
    Along along;
    std::vector<std::pair<const Node*, Along>> moves = {};
    Blocks parts = {};
    Value* sum = nullptr;
  };

  void find_readers(const Node& maker, size_t dim, const std::vector<std::pair<const Node*, Along>>& moves) {
    for (const Use& use : maker.outputs[0]->uses) {
      const bool multiplies = std::find(site_.products.begin(), site_.products.end(), use.node) != site_.products.end();
      if (!multiplies && !is_movement(*use.node)) continue;
      const auto along = along_operand(*use.node, use.index, dim);
      if (!along) continue;
      if (multiplies) {
        readers_.push_back({use.node, use.index, *along, moves, Blocks(static_cast<size_t>(ring_.members()))});
        continue;
      }
      auto further = moves;
      further.emplace_back(use.node, *along);
      find_readers(*use.node, *along->result, further);
      moves_.push_back(use.node);  // those that come last first
    }
  }

  static std::vector<const Node*> all_users(const Node& node) {
    std::vector<const Node*> users;
    for (const Use& use : node.outputs[0]->uses) users.push_back(use.node);
    return users;
  }

  // The one that the graph has first; null if there is none.
  const Node* first_of(const std::vector<const Node*>& nodes) const {
    if (nodes.empty()) return nullptr;
    return std::find_if(
               graph_.nodes().begin(), graph_.nodes().end(),
               [&](const auto& node) { return std::find(nodes.begin(), nodes.end(), node.get()) != nodes.end(); })
        ->get();
  }

  std::vector<Value*>& at(Blocks& blocks, int64_t offset) const {
    return blocks[static_cast<size_t>(offset + ring_.before())];
  }

  // All messages; between them, if nothing else reads the value before, the pieces of the first product.
  void begin(const Node* first) {
    Reader& reader = readers_.front();
    const bool leads = is_first(reader, first);
    const Node* before = leads ? reader.product : first;
    Value* own = site_.gather->inputs[0];
    shards_.resize(static_cast<size_t>(ring_.members()));
    blocks_.resize(static_cast<size_t>(ring_.members()));
    const Expr start = ring_.piece(0, 0).begin;
    for (int64_t p = 0; p < ring_.pieces(); ++p) {
      const ops::Interval piece = ring_.piece(0, p);
      add(0, p,
          ring_.pieces() == 1 ? own : sliced(graph_, own, site_.dim, {piece.begin - start, piece.end - start}, before),
          before);
    }
    for_each_piece([&](int64_t offset, int64_t p) {
      if (offset <= 0 && offset > -ring_.before()) pass_on(offset - 1, p, BlockRing::Way::forth, before);
      if (offset >= 0 && offset < ring_.behind()) pass_on(offset + 1, p, BlockRing::Way::back, before);
      if (leads) multiply(reader, offset, p);
    });
  }

  // Whether nothing needs the gathered value before this product does.
  bool is_first(const Reader& reader, const Node* first) const {
    if (first == reader.product) return true;
    const auto is_its_own = [](const auto& move) { return move.first->outputs[0]->uses.size() == 1; };
    if (reader.moves.empty() || reader.moves.front().first != first ||
        !std::all_of(reader.moves.begin(), reader.moves.end(), is_its_own))
      return false;
    std::vector<const Node*> others = all_users(*site_.gather);
    std::erase(others, first);
    others.push_back(reader.product);
    return first_of(others) == reader.product;
  }

  // Sends a piece of the block before this one on, and receives the piece of this one.
  void pass_on(int64_t offset, int64_t p, BlockRing::Way way, const Node* before) {
    const bool forth = way == BlockRing::Way::forth;
    const BlockRing::Message message{site_.value,
                                     fmt::format("ring{}_{}{}", forth ? "" : "_back", std::abs(offset),
                                                 ring_.pieces() == 1 ? "" : fmt::format("_{}", p)),
                                     way};
    Value* last = at(shards_, forth ? offset + 1 : offset - 1)[static_cast<size_t>(p)];
    ring_.send(message, last, before);
    Shape shape = last->shape();
    shape[site_.dim] =
        near_.count() == 1 ? ring_.piece(offset, p).count() : members_.piece(offset * near_.count(), 0).count();
    add(offset, p, ring_.receive(message, {last->dtype(), std::move(shape)}, before), before);
  }

  // A piece that this member has now: its own, or received.
  void add(int64_t offset, int64_t p, Value* shard, const Node* before) {
    at(shards_, offset).push_back(shard);
    at(blocks_, offset).push_back(near_.gathered(shard, site_.dim, ring_.piece(offset, p).count(), before));
  }

  // In the order in which they arrive.
  template <typename Each>
  void for_each_piece(const Each& each) const {
    for (int64_t step = 0; step <= std::max(ring_.before(), ring_.behind()); ++step)
      for (int64_t p = 0; p < ring_.pieces(); ++p) {
        if (step <= ring_.before()) each(-step, p);
        if (step > 0 && step <= ring_.behind()) each(step, p);
      }
  }

  // Adds the product of a piece.
  void multiply(Reader& reader, int64_t offset, int64_t p) {
    const ops::Interval elements = ring_.piece(offset, p);
    Value* piece = at(blocks_, offset)[static_cast<size_t>(p)];
    for (const auto& [move, along] : reader.moves)
      piece = on_piece(program_, *move, along, elements, {{0, piece}}, reader.product);
    Value* made =
        on_piece(program_, *reader.product, reader.along, elements, {{reader.operand, piece}}, reader.product);
    at(reader.parts, offset).push_back(made);
    if (reader.along.result) return;
    ops::NodeBuilder b(graph_, reader.product->outputs[0]->name, reader.product);
    reader.sum = reader.sum ? b.add(reader.sum, made) : made;
  }

  void finish(Reader& reader) {
    if (at(reader.parts, 0).empty()) for_each_piece([&](int64_t offset, int64_t p) { multiply(reader, offset, p); });
    const Value* result = reader.product->outputs[0];
    put(reader.along.result
            ? joined(program_, ring_, reader.parts, *reader.along.result, result->type, result->name, reader.product)
            : reader.sum,
        reader.product);
  }

  bool is_kept(const Value* value) const { return is_port(program_, value) || value->next_of > 0; }

  // The blocks joined, for nodes that read them whole.
  void replace_gather() {
    const Value* whole = site_.gather->outputs[0];
    if (whole->uses.empty() && !is_kept(whole)) return erase(site_.gather);
    put(joined(program_, ring_, blocks_, site_.dim, whole->type, whole->name, first_of(all_users(*site_.gather))),
        site_.gather);
  }

  // A value in the stead of a node's result.
  void put(Value* value, Node* maker) {
    Value* old = maker->outputs[0];
    take_place(program_, old, value);
    names_.emplace_back(value, old->name);
    erase(maker);
  }

  void erase(Node* node) {
    program_.placements.erase(node->outputs[0]);
    graph_.erase(node);
  }

  Program& program_;
  Graph& graph_;
  const GatherProduct& site_;
  const Expr size_;  // of the dimension
  const GroupUnits units_;
  const BlockRing members_;  // all of the group
  const BlockRing ring_;
  const NearMembers near_;
  std::vector<Reader> readers_;
  std::vector<Node*> moves_;
  Blocks shards_, blocks_;  // what this member passes on, and what products read
  std::vector<std::pair<Value*, std::string>> names_;
};

}  // namespace

ProductsAlong products_along(const Program& program, const flow::Flow& flow, const Value* whole, size_t dim,
                             const std::vector<AxisRef>& axes) {
  Readers readers(program, flow, axes);
  readers.visit(whole, dim);
  leave_out_those_that_read_twice(readers.products, *program.graph, whole);
  return {std::move(readers.products), readers.same_terms};
}

std::variant<GatherProduct, std::string> gather_product(const Program& program, const flow::Flow& flow, Node* gather) {
  auto collective = ring_collective(program, flow, *gather);
  if (auto* why = std::get_if<std::string>(&collective)) return std::move(*why);
  auto& [dim, axes, value] = std::get<RingCollective>(collective);
  ProductsAlong readers = products_along(program, flow, gather->outputs[0], dim, axes);
  if (!readers.products.empty())
    return GatherProduct{gather, dim, std::move(axes), std::move(value), std::move(readers.products)};
  return readers.same_terms ? "members would add the terms of one product in different orders" : "no product reads it";
}

void decompose(spmd::Program& program, const GatherProduct& site, const RingForm& form) {
  GatherRewrite(program, site, form).run();
}

}  // namespace tessera::passes
