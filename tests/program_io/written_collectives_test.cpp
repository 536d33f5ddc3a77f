// Written programs say of their collectives what the program says, in every form.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "io/temporary_folder.h"
#include "program_io/compiled_models.h"
#include "tessera/program_io/written_program.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::program_io {
namespace {

using test::compile_on;
using testing_io::TemporaryFolder;

// Without what only one rank's shapes need, and without buckets, which functions do not have.
std::string text_of(spmd::CollectiveAttributes all) {
  all.extent.reset();
  all.split_extent.reset();
  all.concat_extent.reset();
  all.bucket.reset();
  return fmt::format("{} over {} of {}: {} root {} dims {} {} {} targets {}", name_of(all.kind),
                     fmt::join(all.axes, ","), all.value, name_of(all.reduction), all.root, all.dim, all.split_dim,
                     all.concat_dim, fmt::join(all.targets, ","));
}

std::multiset<std::string> said_by(const spmd::Program& program) {
  std::multiset<std::string> all;
  for (const auto& node : program.graph->nodes()) {
    const auto kind = spmd::communication_of(*node);
    if (kind && !traits_of(*kind).message) all.insert(text_of(spmd::read_collective(*node, program.mesh)));
  }
  if (program.lowered)
    for (const spmd::LoweredCollective& collective : *program.lowered)
      all.insert(text_of(spmd::read_collective(*collective.statement, program.mesh)));
  return all;
}

TEST(WrittenCollectives, say_what_the_program_says) {
  TemporaryFolder folder;
  for (const auto& [mesh, preset] : {std::pair("dp=2,tp=3", ""), std::pair("tp=2", "megatron+sequence")}) {
    const auto program = compile_on("gpt2", mesh, preset);
    const std::multiset<std::string> expected = said_by(*program);
    ASSERT_GT(expected.size(), 4U);
    for (const v1::Form form : {v1::Form::mpmd, v1::Form::spmd, v1::Form::parallel_for})
      for (const Lower lower : {Lower::collectives, Lower::primitives})
        for (const Order order : {Order::tokens, Order::position}) {
          if (form == v1::Form::parallel_for && order == Order::tokens) continue;
          SCOPED_TRACE(fmt::format("{} form {} lower {} order {}", mesh, static_cast<int>(form),
                                   static_cast<int>(lower), static_cast<int>(order)));
          WriteOptions options;
          options.form = form;
          options.lower = lower;
          options.order = order;
          write_program(*program, "gpt2", folder / "out", options);
          const auto programs = read_program(folder / "out");
          for (const auto& read : programs->programs) {
            const std::multiset<std::string> found = said_by(*read);
            EXPECT_TRUE(std::includes(found.begin(), found.end(), expected.begin(), expected.end()))
                << fmt::format("{}\n\n{}", fmt::join(expected, "\n"), fmt::join(found, "\n"));
          }
        }
  }
}

}  // namespace
}  // namespace tessera::program_io
