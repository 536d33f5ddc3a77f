#include "tessera/data/token_file.h"

#include <cstring>

#include "tessera/base/error.h"

namespace tessera::data {
namespace {

int64_t bytes_per_token(Storage storage) {
  switch (storage) {
    case Storage::uint8:
      return 1;
    case Storage::uint16:
      return 2;
    case Storage::uint32:
      return 4;
    case Storage::npz:
      break;
  }
  fail_running("internal", "an .npz file holds arrays, not tokens");
}

template <typename Stored>
void widen(const std::byte* from, int64_t count, int64_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    Stored token;
    std::memcpy(&token, from + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
    to[i] = token;
  }
}

}  // namespace

TokenFile::TokenFile(const SourceSpec& spec, int64_t vocabulary)
    : name_(spec.path.string()),
      storage_(spec.storage),
      vocabulary_(vocabulary),
      file_(MappedFile::open(spec.path, "data")) {
  const int64_t width = bytes_per_token(storage_), bytes = static_cast<int64_t>(file_->size());
  if (bytes == 0) fail("data", "{}: is empty; give a file with tokens", name_);
  if (bytes % width != 0)
    fail("data",
         "{}: its {} bytes are not a whole number of uint{} tokens; it is truncated, or has another type (:uint8, "
         ":uint16, :uint32)",
         name_, bytes, 8 * width);
  size_ = bytes / width;
}

void TokenFile::read(int64_t begin, int64_t count, int64_t* to) const {
  check(begin >= 0 && count >= 0 && begin <= size_ - count, "tokens are read within their file");
  const std::byte* from = file_->data() + begin * bytes_per_token(storage_);
  switch (storage_) {
    case Storage::uint8:
      widen<uint8_t>(from, count, to);
      break;
    case Storage::uint16:
      widen<uint16_t>(from, count, to);
      break;
    case Storage::uint32:
      widen<uint32_t>(from, count, to);
      break;
    case Storage::npz:
      break;
  }
  if (vocabulary_ == 0) return;
  for (int64_t i = 0; i < count; ++i)
    if (to[i] >= vocabulary_)
      fail("data",
           "{}: token {} at position {} is outside the vocabulary of {} (0 to {}); the file is made for another "
           "tokenizer, or has another type (:uint8, :uint16, :uint32)",
           name_, to[i], begin + i, vocabulary_, vocabulary_ - 1);
}

}  // namespace tessera::data
