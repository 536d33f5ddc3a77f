// The prover against a brute-force oracle: random programs, one communication of which is changed, are run. Every one
// that hangs, fails or gives another answer must be refused. TESSERA_MUTANTS=N tries N of them, TESSERA_RANDOM_SEED=S
// begins at seed S.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <set>

#include "io/temporary_folder.h"
#include "random/mutate.h"
#include "random/random_program.h"
#include "random/settings.h"
#include "sample.h"
#include "tessera/base/error.h"
#include "tessera/compiler/compile.h"
#include "tessera/program_io/normal_form.h"
#include "tessera/program_io/written_program.h"
#include "tessera/proof/prove.h"
#include "tessera/runtime/executor.h"

namespace tessera::random {
namespace {

constexpr uint64_t kMutantShares = 2;

using Programs = std::shared_ptr<const runtime::RankPrograms>;
using Tensors = runtime::Executor::Tensors;

std::shared_ptr<spmd::Program> compile(const Program& program) {
  compiler::CompileOptions options;
  options.mesh = program.mesh;
  for (const auto& [symbol, value] : program.symbols) options.shapes[symbol] = value;
  for (const Order& order : program.orders)
    options.annotations.push_back({order.name, order.sharding.str(program.mesh), "annotation"});
  for (const Placing& placing : program.places)
    options.places.push_back({placing.name, print_place(placing.place, program.mesh), "place"});
  options.product_rings = program.rings ? compiler::ProductRings::always : compiler::ProductRings::never;
  if (program.orders.empty()) options.presets = "dp:" + program.mesh.axes().front().name;
  return compiler::compile(program.model, options).program;
}

// The same over Send and Recv.
Programs lowered(const spmd::Program& program) {
  testing_io::TemporaryFolder folder;
  WriteOptions options;
  options.lower = Lower::primitives;
  program_io::write_program(program, "random", folder / "out", options);
  return program_io::read_program(folder / "out");
}

Tensors run(const Programs& programs, const Program& program, std::chrono::milliseconds patience) {
  runtime::ExecutorOptions options;
  options.threads_per_rank = 1;
  options.world.timeout = patience;
  return runtime::Executor(programs, options).run(program.inputs);
}

bool same(const Tensors& a, const Tensors& b) {
  for (const auto& [name, tensor] : a) {
    const Tensor& other = b.at(name);
    if (tensor.dims != other.dims || tensor.dtype != other.dtype) return false;
    if (tensor.bytes > 0 && std::memcmp(tensor.data, other.data, tensor.bytes) != 0) return false;
  }
  return true;
}

/// A mutant may ask for any amount of memory; it fails beyond this. (A sanitizer maps more than it uses.)
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr rlim_t kMostBytes = rlim_t{8} << 30;
  const rlimit limit{kMostBytes, kMostBytes};
  setrlimit(RLIMIT_AS, &limit);
#endif
}

// Whether running a mutant gives the right answer. In a process of its own: it may write where it must not.
bool is_harmless(const Programs& mutant, const Program& program, const Tensors& expected,
                 std::chrono::milliseconds patience) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    limit_memory();
    try {
      if (same(expected, run(mutant, program, patience))) code = 0;
    } catch (const std::exception&) {
    }
    _exit(code);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class Mutants : public testing::TestWithParam<uint64_t> {};

TEST_P(Mutants, that_hang_or_corrupt_are_refused) {
  const uint64_t wanted = number_from("TESSERA_MUTANTS", test::sample<uint64_t>(120, 400)) / kMutantShares;
  uint64_t seed = number_from("TESSERA_RANDOM_SEED", kFirstSeed) + GetParam();
  uint64_t tried = 0, harmful = 0, strict = 0;
  for (; tried < wanted; seed += kMutantShares) {
    SCOPED_TRACE(testing::Message() << "repeat it with TESSERA_RANDOM_SEED=" << seed
                                    << " TESSERA_MUTANTS=" << kMutantShares);
    Program program = generate(seed, Operators::all);
    if (program.mesh.size() == 1) continue;
    std::shared_ptr<const runtime::RankPrograms> right;
    Tensors expected;
    try {
      const auto compiled = compile(program);
      right = seed / kMutantShares % 2 ? lowered(*compiled) : runtime::RankPrograms::same(compiled);
      expected = run(std::make_shared<runtime::RankPrograms>(apart(*right)), program, std::chrono::seconds(30));
    } catch (const Error&) {
      continue;  // random_programs_test.cpp says which may be refused
    }
    std::mt19937_64 random(seed);
    for (int attempt = 0; attempt < 4 && tried < wanted; ++attempt) {
      auto mutant = std::make_shared<runtime::RankPrograms>(apart(*right));
      const proof::Report untouched = proof::prove(*mutant);
      EXPECT_TRUE(untouched.good()) << untouched.findings.front().message << "\n" << describe(program);
      auto change = mutate(*mutant, random);
      if (!change) continue;
      ++tried;
      proof::Report report = proof::prove(*mutant);
      strict += !report.good();
      bool harmless = is_harmless(mutant, program, expected, std::chrono::milliseconds(200));
      // A busy machine does not prove a hang.
      if (report.good() && !harmless) harmless = is_harmless(mutant, program, expected, std::chrono::seconds(10));
      harmful += !harmless;
      if (!report.good()) {
        EXPECT_FALSE(report.findings.front().places.empty());
        continue;
      }
      if (!harmless)
        ADD_FAILURE() << "a mutant that " << *change
                      << " is taken for right, but hangs, fails or gives another answer\n"
                      << describe(program);
    }
  }
  std::cout << "  " << tried << " mutants, " << harmful << " hang or corrupt, " << strict << " refused\n";
  EXPECT_GT(harmful * 2, tried);  // else the changes prove little
}

INSTANTIATE_TEST_SUITE_P(Share, Mutants, testing::Range(uint64_t{0}, kMutantShares));

// Normal forms are made by passes that take values away and make new ones, perhaps at their addresses.
TEST(NormalForm, has_layouts_of_its_own_values_only) {
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + 10; ++seed) {
    const Program program = generate(seed, Operators::all);
    Programs written;
    try {
      written = lowered(*compile(program));
    } catch (const Error&) {
      continue;
    }
    for (const auto& one : written->programs) {
      const spmd::Program normal = program_io::normal_form(*one);
      std::set<const Value*> own;
      for (const auto& value : normal.graph->values()) own.insert(value.get());
      for (const auto& [value, placement] : normal.placements) EXPECT_TRUE(own.contains(value)) << placement.name;
    }
  }
}

}  // namespace
}  // namespace tessera::random
