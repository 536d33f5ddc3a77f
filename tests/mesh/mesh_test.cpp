#include "tessera/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(mesh, reads_axes_in_order) {
  Mesh mesh = Mesh::parse("dp=2,tp=4");
  EXPECT_THAT(mesh.axes(), ElementsAre(MeshAxis{"dp", 2}, MeshAxis{"tp", 4}));
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(mesh.str(), "dp=2,tp=4");
  EXPECT_EQ(mesh.find("tp"), 1);
  EXPECT_EQ(mesh.find("pp"), std::nullopt);
}

TEST(mesh, tolerates_spaces) {
  EXPECT_EQ(Mesh::parse(" dp = 2 ,\ttp=4 "), Mesh::parse("dp=2,tp=4"));
}

TEST(mesh, empty_text_is_one_rank) {
  for (const char* text : {"", "  "}) {
    Mesh mesh = Mesh::parse(text);
    EXPECT_EQ(mesh.size(), 1);
    EXPECT_EQ(mesh.str(), "");
    EXPECT_THAT(mesh.coordinates(0), ElementsAre());
    EXPECT_EQ(mesh.rank_of({}), 0);
  }
}

TEST(mesh, ranks_are_row_major) {
  Mesh mesh = Mesh::parse("a=2,b=3,c=2");
  EXPECT_THAT(mesh.coordinates(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(mesh.coordinates(1), ElementsAre(0, 0, 1));
  EXPECT_THAT(mesh.coordinates(7), ElementsAre(1, 0, 1));
  for (int64_t rank = 0; rank < mesh.size(); ++rank) EXPECT_EQ(mesh.rank_of(mesh.coordinates(rank)), rank);
}

TEST(mesh, refuses_ranks_and_coordinates_outside) {
  Mesh mesh = Mesh::parse("a=2,b=3");
  EXPECT_THROW(mesh.coordinates(6), Error);
  EXPECT_THROW(mesh.coordinates(-1), Error);
  EXPECT_THROW(mesh.rank_of({0, 3}), Error);
  EXPECT_THROW(mesh.rank_of({0}), Error);
}

TEST(mesh, allows_the_largest) {
  EXPECT_EQ(Mesh::parse("a=4096,b=4096").size(), int64_t{1} << 24);
}

struct BadMesh {
  const char* text;
  const char* message;
};

class MeshErrors : public testing::TestWithParam<BadMesh> {};

TEST_P(MeshErrors, say_what_is_wrong) {
  try {
    Mesh::parse(GetParam().text);
    FAIL() << "'" << GetParam().text << "' was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("[mesh]"));
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    parse, MeshErrors,
    testing::Values(BadMesh{"tp=0", "axis 'tp' has size 0"}, BadMesh{"tp=-2", "axis 'tp' has size -2"},
                    BadMesh{"tp=99999999999999", "more than 16777216 ranks"},
                    BadMesh{"tp=99999999999999999999", "at most 16777216 ranks"},
                    BadMesh{"tp", "axis 'tp' has no size"}, BadMesh{"tp=", "axis 'tp' has no size"},
                    BadMesh{"=2", "no name"}, BadMesh{"tp=2,tp=3", "axis 'tp' is named twice"},
                    BadMesh{"tp=2x", "'2x'"}, BadMesh{"tp=2.5", "'2.5'"}, BadMesh{"tp=2=3", "'2=3'"},
                    BadMesh{"a=4097,b=4096", "axes up to 'b'"}, BadMesh{"2p=2", "'2p' is not an axis name"},
                    BadMesh{"t p=2", "'t p' is not an axis name"}, BadMesh{"t-p=2", "'t-p'"}, BadMesh{"@tp=2", "'@tp'"},
                    BadMesh{"dp=2,,tp=2", "empty axis"}, BadMesh{"dp=2,", "empty axis"}, BadMesh{",", "empty axis"}));

}  // namespace
}  // namespace tessera
