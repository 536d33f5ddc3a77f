#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera::codec {

/// Bytes of a file, from `offset` on.
struct ByteRange {
  size_t offset = 0;
  size_t length = 0;
};

/// A serialized ModelProto without the large elements of its graph's initializers.
struct Skeleton {
  std::string bytes;                 ///< omitted raw_data is present, but empty
  std::map<int, ByteRange> cut_raw;  ///< index of the initializer → where its raw_data is in the file
};

/// Walks the wire format of a serialized ModelProto and leaves out raw_data of at least `threshold` bytes, so that
/// large weights are neither parsed nor copied, and do not count towards protobuf's limit of 2 GiB. A user error naming
/// `source` if the bytes are not well-formed.
Skeleton cut_large_raw(std::string_view model, const std::string& source, size_t threshold = 4096);

}  // namespace tessera::codec
