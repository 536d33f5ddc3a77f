#include "tessera/cli/resident_memory.h"

#include <fstream>
#include <string>

namespace tessera::cli {

int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  int64_t bytes = 0;
  for (std::string word; status >> word;)
    if (int64_t kibibytes = 0; (word == "RssAnon:" || word == "RssShmem:") && status >> kibibytes)
      bytes += kibibytes << 10;
  return bytes;
}

}  // namespace tessera::cli
