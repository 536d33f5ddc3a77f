#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using testing::HasSubstr;

std::string complaint(std::string_view type, size_t operands, std::vector<std::string> results) {
  OnnxModel model;
  Graph& graph = *model.graph;
  std::vector<Value*> given = {input(graph, "x", {"2", "6"}), input(graph, "target", {"2"})};
  given.resize(operands);
  Node* loss = graph.add_node(type, given, {results.begin(), results.end()});
  graph.outputs = loss->outputs;
  try {
    lower_losses(model);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    return error.what();
  }
  return "";
}

TEST(LowerLosses, losses_of_another_form_are_errors) {
  EXPECT_EQ(complaint("SoftmaxCrossEntropyLoss", 2, {"loss", "probabilities"}), "");
  EXPECT_THAT(complaint("SoftmaxCrossEntropyLoss", 2, {"loss", "probabilities", "z"}), HasSubstr("a result 3, 'z'"));
  EXPECT_THAT(complaint("NegativeLogLikelihoodLoss", 2, {"loss", "z"}), HasSubstr("a result 2, 'z'"));
  EXPECT_THAT(complaint("NegativeLogLikelihoodLoss", 1, {"loss"}), HasSubstr("needs scores and a target"));
}

}  // namespace
}  // namespace tessera::rewrite
