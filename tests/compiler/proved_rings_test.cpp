// Collectives in rings beside products (passes/collective_products.h), as they are and made wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "passes/product_rings.h"
#include "spmd/compiled.h"
#include "tessera/passes/product_pieces.h"
#include "tessera/proof/meaning.h"
#include "tessera/proof/prove.h"

namespace tessera::compiler {
namespace {

using Orders = spmd::Compiled::Orders;

using proof::departure;
using proof::Meaning;
using proof::meaning_of;

const Orders kGatheredRows = {{"x", "[t, -]"}, {"w", "[-, t]"}, {"y", "[-, t]"}};
const Orders kScatteredRows = {{"x", "[-, t]"}, {"w", "[t, -]"}, {"y", "[t, -]"}};
const Orders kSummedRows = {{"x", "[-, t]"}, {"w", "[t, -]"}, {"y", "[-, -]"}};

std::shared_ptr<spmd::Program> proved_ring(const Orders& orders, const passes::RingForm& form) {
  constexpr std::string_view text = "m (float[11, 8] x, float[8, 8] w) => (float[11, 8] y) { y = MatMul (x, w) }";
  auto program = std::make_shared<spmd::Program>(spmd::Compiled(text, "t=4", orders).program());
  EXPECT_FALSE(passes::put_products_in_rings(*program, form).empty());
  return program;
}

bool is_ring_proved(const std::shared_ptr<spmd::Program>& program) {
  return proof::prove(*runtime::RankPrograms::same(program)).good();
}

std::vector<Node*> ring_nodes(const spmd::Program& program, std::string_view op_type) {
  std::vector<Node*> found;
  for (const auto& node : program.graph->nodes())
    if (node->op_type == op_type) found.push_back(node.get());
  return found;
}

// Two operands change places, of one node or of two.
void exchange_operands(Graph& graph, Node* a, size_t i, Node* b, size_t j) {
  Value *one = a->inputs[i], *other = b->inputs[j];
  graph.set_input(a, i, other);
  graph.set_input(b, j, one);
}

TEST(ProvedRings, are_proved) {
  for (const Orders& orders : {kGatheredRows, kScatteredRows, kSummedRows})
    for (const passes::RingForm& form : {passes::RingForm{}, {true, 1}, {false, 2}, {true, 3}})
      EXPECT_TRUE(is_ring_proved(proved_ring(orders, form))) << str(form);
}

TEST(ProvedRings, lose_no_message) {
  for (const Orders& orders : {kGatheredRows, kScatteredRows}) {
    const auto program = proved_ring(orders, {true, 1});
    program->graph->erase(ring_nodes(*program, "Send").back());
    EXPECT_FALSE(is_ring_proved(program));
  }
}

// A member that waits for its block before it sends its own waits for all others, which do so, too.
TEST(ProvedRings, send_before_they_wait) {
  for (const Orders& orders : {kGatheredRows, kScatteredRows, kSummedRows}) {
    const auto program = proved_ring(orders, {});
    Node *send = ring_nodes(*program, "Send").front(), *receive = ring_nodes(*program, "Recv").front();
    auto moved = std::make_unique<Node>(*receive);
    moved->outputs = {program->graph->add_value("early", ValueKind::result, receive->outputs[0]->type)};
    Value* early = program->graph->adopt_node(std::move(moved), send)->outputs[0];
    program->graph->replace_uses(receive->outputs[0], early);
    program->graph->erase(receive);
    const proof::Report report = proof::prove(*runtime::RankPrograms::same(program));
    ASSERT_FALSE(report.good());
    EXPECT_EQ(report.findings.front().rule, "cycle");
  }
}

// A block that is not passed on: each member takes its own for the one that it should have received.
TEST(ProvedRings, mean_something_else_without_a_permutation) {
  for (const Orders& orders : {kGatheredRows, kScatteredRows, kSummedRows}) {
    const auto program = proved_ring(orders, {});
    const Meaning was = meaning_of(*program);
    Node *send = ring_nodes(*program, "Send").front(), *receive = ring_nodes(*program, "Recv").front();
    program->graph->replace_uses(receive->outputs[0], send->inputs[0]);
    program->graph->erase(send);
    program->graph->erase(receive);
    EXPECT_TRUE(departure(*program, was));
  }
}

TEST(ProvedRings, pass_messages_on_in_order) {
  const auto program = proved_ring(kGatheredRows, {false, 2});
  const std::vector<Node*> sends = ring_nodes(*program, "Send");
  std::swap(sends[0]->attributes, sends[1]->attributes);
  EXPECT_FALSE(is_ring_proved(program));
}

// A written program is compared with what it was.
TEST(ProvedRings, mean_something_else_with_pieces_exchanged) {
  const auto gathers = proved_ring(kGatheredRows, {});
  const Meaning joined = meaning_of(*gathers);
  Node* concat = ring_nodes(*gathers, "Concat").front();
  exchange_operands(*gathers->graph, concat, 0, concat, 1);
  EXPECT_TRUE(departure(*gathers, joined));
  exchange_operands(*gathers->graph, concat, 0, concat, 1);
  EXPECT_FALSE(departure(*gathers, joined));
  const std::vector<Node*> products = ring_nodes(*gathers, "MatMul");
  exchange_operands(*gathers->graph, products[0], 0, products[1], 0);
  EXPECT_TRUE(departure(*gathers, joined));

  const auto scatters = proved_ring(kScatteredRows, {});
  const Meaning summed = meaning_of(*scatters);
  const std::vector<Node*> sums = ring_nodes(*scatters, "Add");
  exchange_operands(*scatters->graph, sums[0], 1, sums[1], 1);
  EXPECT_TRUE(departure(*scatters, summed));

  const auto reduces = proved_ring(kSummedRows, {});
  const Meaning reduced = meaning_of(*reduces);
  const std::vector<Node*> terms = ring_nodes(*reduces, "MatMul");
  exchange_operands(*reduces->graph, terms[0], 1, terms[1], 1);
  EXPECT_TRUE(departure(*reduces, reduced));
}

// Without a statement of what the program was, the check derives that all ranks return the same sum.
TEST(ProvedRings, give_replicas_the_same_sum) {
  const auto program = proved_ring(kSummedRows, {});
  Node* gather = ring_nodes(*program, "AllGather").front();
  Value* own = gather->inputs[0];
  Node* concat = program->graph->add_node("Concat", {own, own, own, own}, {"mine"}, "", gather);
  concat->set("axis", int64_t{0});
  concat->outputs[0]->type = gather->outputs[0]->type;
  passes::take_place(*program, gather->outputs[0], concat->outputs[0]);
  program->placements.erase(gather->outputs[0]);
  program->graph->erase(gather);
  EXPECT_FALSE(is_ring_proved(program));
}

}  // namespace
}  // namespace tessera::compiler
