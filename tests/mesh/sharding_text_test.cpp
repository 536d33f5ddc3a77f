#include <gtest/gtest.h>

#include "tessera/mesh/sharding.h"

namespace tessera {
namespace {

// What str() prints is read back as the same layout, whatever the parts' sizes are.
TEST(ShardingText, reads_back_as_the_same_layout) {
  Mesh mesh = Mesh::parse("dp=2,tp=4");
  Expr b = Expr::symbol("b"), s = Expr::symbol("s");
  const std::vector<AxisRef> dp = {AxisRef::whole(mesh.axes()[0])}, tp = {AxisRef::whole(mesh.axes()[1])};
  const std::vector<AxisRef> half = {{"tp", 2, 2}};
  const std::vector<DimSharding> dims = {
      {{{b, dp}}, false},
      {{{2 * b, dp}}, false},
      {{{b * s, dp}, {3, tp}}, false},
      {{{3, {}}, {s + 1, tp}}, false},
      {{{floordiv(s, 2), dp}, {64, half}}, false},
      {{{min(s, 8) * b, tp}}, false},
      {{{192, {}}}, false},
  };
  for (const DimSharding& dim : dims) {
    Sharding sharding{{dim}, {}};
    std::string text = sharding.str(mesh);
    EXPECT_TRUE(same_layout(parse_sharding(text, {dim.size()}, mesh, "x"), sharding)) << text;
  }
}

}  // namespace
}  // namespace tessera
