// A mesh whose links are known: the program changes, its answers do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "api/small_model.h"
#include "tessera/check.h"
#include "tessera/collectives.h"
#include "tessera/compare.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// Two hosts of `near` ranks.
Topology two_hosts(const std::string& axis, int64_t near) {
  Topology topology;
  topology.axes = {{axis, {{near, 1e-6, 5e9, "shared memory"}, {2, 5e-5, 1.25e8, "ethernet"}}}};
  return topology;
}

std::vector<std::string> kinds(const Program& program) {
  std::vector<std::string> names;
  for (const CollectiveSummary& entry : program.summary().collectives) names.push_back(entry.kind);
  return names;
}

TEST(KnownLinks, make_collectives_hierarchical_and_say_so) {
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, test::kPair));
  const Mesh mesh = Mesh::parse("tp=8");
  const Program flat = compile(model, mesh), program = compile(model, mesh, {}, {{}, nullptr, two_hosts("tp", 4)});
  EXPECT_THAT(kinds(flat), ElementsAre("all_reduce"));
  EXPECT_THAT(kinds(program), ElementsAre("reduce_scatter", "all_reduce", "all_gather"));
  EXPECT_THAT(program.summary().collectives[0].axes, ElementsAre("tp:(2)4"));
  EXPECT_THAT(program.summary().collectives[1].axes, ElementsAre("tp:(1)2"));
  EXPECT_THAT(program.summary().notes, Contains(HasSubstr("all-reduce over tp is hierarchical: 4 by shared memory, "
                                                          "then 2 by ethernet; predicted")));
  EXPECT_THAT(flat.summary().notes, testing::Not(Contains(HasSubstr("hierarchical"))));
  EXPECT_THAT(stages(), Contains("hierarchical"));
}

TEST(KnownLinks, must_fit_the_mesh) {
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, test::kPair));
  EXPECT_THAT(
      [&] {
        compile(model, Mesh::parse("tp=4"), {}, {{}, nullptr, two_hosts("tp", 4)});
      },
      testing::ThrowsMessage<Error>(HasSubstr("the levels of axis 'tp' join 4 x 2 ranks")));
}

TEST(KnownLinks, do_not_change_the_answers_of_models) {
  for (const char* name : {"mlp", "gpt2", "llama"}) {
    const fs::path folder = fs::path(TESSERA_TEST_DATA) / "models" / name;
    const Model model = Model::load(folder / "model.onnx");
    const Tensors inputs = read_tensors(folder / "inputs_0.npz", "input", model.inputs());
    const Tensors expected = read_tensors(folder / "outputs_0.npz", "output", model.outputs());
    for (const auto& [mesh, near] : {std::pair{"tp=4", 2}, std::pair{"tp=6", 3}}) {
      SCOPED_TRACE(std::string(name) + " on " + mesh);
      const Program program = compile(model, Mesh::parse(mesh), {}, {{}, nullptr, two_hosts("tp", near)});
      EXPECT_THAT(kinds(program), Contains("reduce_scatter"));
      for (const CheckFinding& finding : check_program(program).findings) ADD_FAILURE() << finding.message;
      SessionOptions options;
      options.threads_per_rank = 1;
      for (const Difference& difference : compare(expected, Session(program, options).run(inputs)))
        EXPECT_TRUE(difference.pass) << difference.name << " " << difference.max_rel;
    }
  }
}

TEST(KnownLinks, are_in_the_written_program) {
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, test::kPair));
  const Program program = compile(model, Mesh::parse("tp=4"), {}, {{}, nullptr, two_hosts("tp", 2)});
  program.write(folder / "out");
  const Program read = Program::read(folder / "out");
  EXPECT_EQ(kinds(read), kinds(program));
  const Tensors inputs = {{"x", test::ramp({5, 8})}};
  const Tensor expected = Session(program).run(inputs).at("y"), actual = Session(read).run(inputs).at("y");
  ASSERT_EQ(actual.dims, expected.dims);
  EXPECT_EQ(std::memcmp(actual.data, expected.data, expected.bytes), 0);
}

TEST(MeasureCollectives, says_what_it_measures_next) {
  std::vector<std::string> said;
  MeasureOptions options;
  options.kinds = {"all_reduce", "barrier"};
  options.most = 4096;
  options.seconds = 0;
  options.per_host = 2;  // tp crosses hosts
  options.begins = [&](const std::string& what) {
    if (said.empty() || said.back() != what) said.push_back(what);
  };
  measure_collectives(Mesh::parse("tp=4"), options);
  // A fit that misses is made from further rounds.
  EXPECT_THAT(said, testing::IsSupersetOf({"all_reduce over tp", "barrier over tp", "all_reduce by levels over tp",
                                           "all_reduce over tp:(1)2", "barrier over tp:(2)2"}));
}

}  // namespace
}  // namespace tessera
