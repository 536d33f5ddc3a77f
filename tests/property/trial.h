#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "property/refusal_list.h"
#include "property/subject.h"
#include "tessera/spmd/layout/propagate.h"

namespace tessera::property {

/// Runs a subject on meshes under annotations and compares with its run on one rank. Differences are failures of the
/// current test, told with everything that repeats them.
class Trials {
 public:
  explicit Trials(const Subject& subject);

  /// An annotated run by the operators' first rules, and one by the finer rules of those that have them; both also with
  /// rings where keys are gathered (passes/ring_attention.h) and beside products (passes/collective_products.h). Closed
  /// annotations of inputs, states and outputs must also hold in the program.
  void run(const Mesh& mesh, const std::vector<spmd::Annotation>& annotations);

  /// Every sharding of one annotatable value at a time on 1-D meshes of 1 to 5 ranks.
  void run_single(size_t factorings);
  /// Random annotations on several values, on `count` 2-D meshes.
  void run_random(size_t count);

  int right() const { return right_; }
  int in_rings() const { return in_rings_; }
  size_t product_rings() const { return product_rings_; }
  int refused() const { return refused_; }

 private:
  void run(const Mesh& mesh, const std::vector<spmd::Annotation>& annotations, const std::set<const Node*>& finer);
  void compare(const Mesh& mesh, const std::vector<spmd::Annotation>& annotations,
               std::shared_ptr<const spmd::Program> program);
  bool given_up() const { return failures_ >= kMostFailures; }
  void fail(const Mesh& mesh, const std::vector<spmd::Annotation>& annotations, const std::string& what);

  static constexpr int kMostFailures = 3;  // of one subject: more say little more

  const Subject& subject_;
  std::set<const Node*> finer_;  // the nodes that have finer rules
  runtime::Executor::Tensors expected_;
  std::set<std::string> compared_;  // programs, as text: many annotations propagate to one
  int right_ = 0, in_rings_ = 0, refused_ = 0, failures_ = 0;
  size_t product_rings_ = 0;
};

/// The program for a mesh under annotations; the nodes in `finer` take their operators' finer rules.
std::shared_ptr<spmd::Program> compile(const Subject& subject, const Mesh& mesh,
                                       const std::vector<spmd::Annotation>& annotations,
                                       const std::set<const Node*>& finer = {});

/// "element 3 is 2, not 1"; empty if `actual` is within the bound of `expected`.
std::string difference(const Tensor& actual, const Tensor& expected, Bound bound);

}  // namespace tessera::property
