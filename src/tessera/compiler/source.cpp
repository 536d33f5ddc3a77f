#include "tessera/compiler/source.h"

#include "tessera/base/error.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::compiler {

Source::Source(std::filesystem::path read_from, OnnxModel read, std::vector<uint64_t> of_files)
    : path(std::move(read_from)), model(std::move(read)), files(std::move(of_files)) {}

const OnnxModel& Source::rewritten() const {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  if (rewritten_) return *rewritten_;
  OnnxModel copy = model.clone();
  try {
    rewrite::rewrite_model(copy);
  } catch (const Error&) {
    error_ = std::current_exception();
    throw;
  }
  return rewritten_.emplace(std::move(copy));
}

std::optional<Obstacle> Source::obstacle() const {
  try {
    rewritten();
  } catch (const ops::NotInOneProgram& error) {
    return Obstacle{error.needs(), error.what()};
  } catch (const Error&) {
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tessera::compiler
