#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/data/source_spec.h"
#include "tessera/io/mapped_file.h"

namespace tessera::data {

/// The tokens of a mapped file. A missing, empty or cut file is a user error.
class TokenFile {
 public:
  /// `vocabulary`: how many tokens there are, 0 … vocabulary - 1; 0: as many as the storage can tell apart.
  TokenFile(const SourceSpec& spec, int64_t vocabulary);

  int64_t size() const { return size_; }
  const std::string& name() const { return name_; }

  /// Widens the tokens [begin, begin + count) into `to`. A token outside the vocabulary is a user error that names
  /// file, token and position (counted in tokens from 0).
  void read(int64_t begin, int64_t count, int64_t* to) const;

 private:
  std::string name_;
  Storage storage_;
  int64_t vocabulary_, size_ = 0;
  std::shared_ptr<const MappedFile> file_;
};

}  // namespace tessera::data
