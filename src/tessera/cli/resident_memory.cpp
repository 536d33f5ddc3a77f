#include "tessera/cli/resident_memory.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <system_error>

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

int64_t bytes_but_files(std::map<std::string, int64_t>& kinds) {
  return kinds["RssAnon"] + kinds["RssShmem"];
}

void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace

ResidentPeak::ResidentPeak() {
  std::map<std::string, int64_t> now = bytes_by_kind();
  before_ = bytes_but_files(now);
  try {
    looking_ = std::thread([this] { look_on(); });
  } catch (const std::system_error&) {
    reset_peak();
  }
}

void ResidentPeak::look_on() {
  constexpr std::chrono::milliseconds kBetween{2};
  while (looks_) {
    std::map<std::string, int64_t> now = bytes_by_kind();
    seen_ = std::max<int64_t>(seen_, bytes_but_files(now));
    std::this_thread::sleep_for(kBetween);
  }
}

void ResidentPeak::stop_looking() {
  looks_ = false;
  if (looking_.joinable()) looking_.join();
}

void ResidentPeak::pause() {
  std::map<std::string, int64_t> now = bytes_by_kind();
  const bool looked = looking_.joinable();
  stop_looking();
  const int64_t most = looked ? std::max<int64_t>(seen_, bytes_but_files(now)) : now["VmHWM"] - now["RssFile"];
  peak_ = std::max(peak_, most - before_);
}

void ResidentPeak::go_on() {
  reset_peak();
}

}  // namespace tessera::cli
