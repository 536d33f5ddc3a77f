#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mutants/edited_model.h"

/// Programs to be edited: models on meshes, some in stages, in every form in which they can be written.
namespace tessera::mutants {

/// A model, its split, and its inputs.
struct Source {
  std::string label;
  Model model;
  Mesh mesh;
  Plan plan;
  Tensors inputs;
  /// The tolerance of an output, by its name: sums in another order round differently.
  std::map<std::string, double> tolerances;
};

/// Which source, and in which form it is written.
struct Subject {
  /// A row of the table of models, or the seed of a random program.
  size_t model = 0;
  uint64_t random_program = 0;  ///< 0: none
  WriteOptions form;

  std::string str() const;
};

/// The k-th subject, the same everywhere: one in four is a random program.
Subject subject(uint64_t k);

/// Makes sources and keeps those of the table. Null where a random program is one that cannot be split, or has one
/// rank.
class Sources {
 public:
  std::shared_ptr<const Source> of(const Subject& subject);

 private:
  std::map<size_t, std::shared_ptr<const Source>> known_;
};

/// Compiled, once on its mesh, once on one rank.
Program compiled(const Source& source);
Program compiled_whole(const Source& source);

}  // namespace tessera::mutants
