// Allowed refusals: each reason has an example here, and this folder's tests allow no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "property/trial.h"
#include "tessera/base/error.h"

namespace tessera::property {
namespace {

// The message with which a sharding of `value` is refused.
std::string refusal(const Subject& subject, std::string_view mesh_text, const Value* value, std::string_view text) {
  Mesh mesh = Mesh::parse(mesh_text);
  try {
    compile(subject, mesh, {{value, parse_sharding(text, value->shape(), mesh, value->name), "test"}});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "nothing is refused";
}

bool is_listed(const std::string& message) {
  for (const Refusal& reason : refusals())
    if (message.find(reason.message) != std::string::npos) return true;
  return false;
}

// Heads of 4 are 2 of the pairs, and 5 ranks do not divide 3 of such twos.
TEST(Refusals, PartsThatCutAcrossThoseOfAnOperator) {
  Builder builder("heads");
  Value* hidden = builder.input("2 12");
  Subject subject = builder.output(builder.node("Reshape", {hidden, builder.ints({2, 3, 4})})).done();
  std::string message = refusal(subject, "x=5", hidden, "[-, 6{x}*2]");
  EXPECT_TRUE(is_listed(message)) << message;
  EXPECT_THAT(message, testing::HasSubstr(hidden->name));
}

TEST(Refusals, AreOfOneKind) {
  EXPECT_EQ(refusals().size(), 1u) << "give each new reason an example above";
}

}  // namespace
}  // namespace tessera::property
