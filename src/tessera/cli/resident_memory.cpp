#include "tessera/cli/resident_memory.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

namespace tessera::cli {
namespace {

// "VmHWM" and so on, in bytes.
std::map<std::string, int64_t> bytes_by_kind() {
  std::map<std::string, int64_t> bytes;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word.ends_with(":") && (word.starts_with("Vm") || word.starts_with("Rss")))
      if (int64_t kibibytes = 0; status >> kibibytes) bytes[word.substr(0, word.size() - 1)] = kibibytes << 10;
  return bytes;
}

void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace

ResidentPeak::ResidentPeak() {
  std::map<std::string, int64_t> now = bytes_by_kind();
  before_ = now["RssAnon"] + now["RssShmem"];
  reset_peak();
}

void ResidentPeak::pause() {
  std::map<std::string, int64_t> now = bytes_by_kind();
  peak_ = std::max(peak_, now["VmHWM"] - now["RssFile"] - before_);
}

void ResidentPeak::go_on() {
  reset_peak();
}

}  // namespace tessera::cli
