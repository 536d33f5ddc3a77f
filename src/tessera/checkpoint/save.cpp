#include "tessera/checkpoint/save.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <set>
#include <system_error>

#include "tessera/base/descriptor.h"
#include "tessera/base/error.h"
#include "tessera/io/atomic_file.h"
#include "tessera/io/crc32.h"
#include "tessera/io/mapped_file.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kAlignment = 64;

// What the system refused; becomes a text that is returned.
struct Refused : std::runtime_error {
  Refused(const fs::path& path, int error)
      : runtime_error(fmt::format("{}: {}", path.string(), std::generic_category().message(error))) {}
};

// Runs an action that writes, and returns why it failed. Broken invariants pass through.
std::optional<std::string> failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Refused& error) {
    return error.what();
  } catch (const Defect& error) {
    return error.what();
  } catch (const fs::filesystem_error& error) {
    return error.what();
  } catch (const Error& error) {  // of AtomicFile and MappedFile
    if (error.stage() == "internal") throw;
    return error.what();
  }
  return std::nullopt;
}

// File systems that cannot flush return EINVAL, which is not our failure.
void flush(int descriptor, const fs::path& path) {
  if (fsync(descriptor) < 0 && errno != EINVAL) throw Refused(path, errno);
}

void flush_folder(const fs::path& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) throw Refused(path, errno);
  flush(folder.get(), path);
}

// Gives a finished folder its name; what had the name before comes out under the hidden one.
void rename_over(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST) throw Refused(to, errno);
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  // A file system that cannot exchange: the old one leaves first.
  fs::path old = from;
  old += ".old";
  fs::remove_all(old);
  fs::rename(to, old);
  fs::rename(from, to);
  fs::rename(old, from);
}

// The tables of all ranks as one.
Manifest joined(const fs::path& partial, const Facts& facts, int64_t ranks) {
  Manifest all{facts, {}};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const fs::path path = partial / rank_table(rank);
    const auto text = MappedFile::open(path, "checkpoint");
    Manifest table = parse_manifest(text->view(), path.string());
    check(table.facts.step == facts.step, "ranks save the same step");
    if (table.facts.run != facts.run)
      throw Defect(
          fmt::format("{}: belongs to run '{}', but this is run '{}'", path.string(), table.facts.run, facts.run));
    for (auto& [name, tensor] : table.tensors) {
      const auto [known, added] = all.tensors.emplace(name, tensor);
      if (added) continue;
      StoredTensor& joint = known->second;
      check(joint.dtype == tensor.dtype && joint.dims == tensor.dims, "ranks save the same type of a tensor");
      joint.pieces.insert(joint.pieces.end(), tensor.pieces.begin(), tensor.pieces.end());
    }
  }
  return all;
}

// Removes all files but those named.
void keep_only(const fs::path& folder, const std::set<std::string>& names) {
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!names.contains(entry.path().filename().string())) others.push_back(entry.path());
  for (const fs::path& path : others) fs::remove_all(path);
}

// The step of ".step-000120.partial", or of another hidden folder of that step.
std::optional<int64_t> step_of_hidden(const std::string& name) {
  if (!name.starts_with('.')) return std::nullopt;
  return step_of(std::string_view(name).substr(1, name.find('.', 1) - 1));
}

// Removes a checkpoint under a hidden name, so that one that is half removed does not count.
void remove_checkpoint(const fs::path& path) {
  const fs::path hidden = path.parent_path() / fmt::format(".{}.removed", path.filename().string());
  fs::remove_all(hidden);
  fs::rename(path, hidden);
  fs::remove_all(hidden);
}

// Removes the other checkpoints than that of `step` that are not kept, and what killed processes have left.
void prune(const fs::path& folder, int64_t step, int64_t keep, const std::function<bool(int64_t)>& may_go) {
  std::vector<int64_t> others;
  std::vector<fs::path> litter;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (const auto other = step_of(name); other && *other != step && may_go(*other) && entry.is_directory())
      others.push_back(*other);
    if (step_of_hidden(name)) litter.push_back(entry.path());
  }
  for (const fs::path& path : litter) fs::remove_all(path);
  std::sort(others.rbegin(), others.rend());
  if (keep > 0)
    for (size_t i = static_cast<size_t>(keep - 1); i < others.size(); ++i)
      remove_checkpoint(folder / folder_name(others[i]));
}

}  // namespace

void require_writable(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    fail("checkpoint", "{}: {}; name a folder for checkpoints", folder.string(),
         error ? error.message() : "is not a folder");
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    fail("checkpoint", "{}: {}; name a folder that can be written", folder.string(),
         std::generic_category().message(errno));
}

RankFile::RankFile(const fs::path& folder, int64_t step, int64_t rank, const std::string& run)
    : partial_(partial_folder(folder, step, run)), file_(rank_file(rank)), table_(rank_table(rank)) {
  manifest_.facts.step = step;
  manifest_.facts.run = run;
  failure_ = failure_of([&] {
    fs::create_directories(partial_);
    fs::remove(partial_ / table_);  // of an attempt that was killed
    descriptor_ = open((partial_ / file_).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw Refused(partial_ / file_, errno);
    const std::string header = rank_header(run);
    write(header.data(), header.size());
  });
}

RankFile::~RankFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (finished_) return;
  std::error_code ignored;  // a destructor can do no more
  fs::remove(partial_ / file_, ignored);
  fs::remove(partial_ / table_, ignored);
  // The folder stays, for another rank may be about to open its file there; discard() removes it.
}

void RankFile::write(const void* data, size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t written = ::write(descriptor_, at, std::min(bytes, size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Refused(partial_ / file_, errno);
    at += written;
    bytes -= static_cast<size_t>(written);
    position_ += static_cast<uint64_t>(written);
  }
}

void RankFile::add(const TensorType& tensor, const Region& region, const void* elements) {
  check(!finished_, "pieces are added before the file is finished");
  if (bits_of(tensor.dtype) < 8)
    fail("checkpoint", "'{}': a state of type {} cannot be saved; types of whole bytes can", tensor.name,
         name_of(tensor.dtype));
  check(region.begin.size() == tensor.dims.size() && common(region, Region::whole(tensor.dims)) == region,
        "a piece lies in its tensor");
  StoredTensor& stored =
      manifest_.tensors.try_emplace(tensor.name, StoredTensor{tensor.dtype, tensor.dims, {}}).first->second;
  check(stored.dtype == tensor.dtype && stored.dims == tensor.dims, "the pieces of a tensor have one type");
  const size_t bytes = bytes_of(tensor.dtype, region.count());
  if (failure_) return;
  failure_ = failure_of([&] {
    constexpr std::array<char, kAlignment> kZeros{};
    write(kZeros.data(), static_cast<size_t>(-position_ % kAlignment));
    stored.pieces.push_back({file_, position_, bytes, update_crc32(0, elements, bytes), region});
    write(elements, bytes);
  });
}

std::optional<std::string> RankFile::finish() {
  check(!finished_, "a file is finished once");
  if (!failure_)
    failure_ = failure_of([&] {
      flush(descriptor_, partial_ / file_);
      write_file(partial_ / table_, print_manifest(manifest_));
    });
  finished_ = !failure_;
  return failure_;
}

Outcome commit(const fs::path& folder, const Facts& facts, int64_t ranks, int64_t keep) {
  check(ranks >= 1, "a checkpoint has ranks");
  const fs::path partial = partial_folder(folder, facts.step, facts.run);
  std::optional<std::string> failure;
  Manifest manifest;
  failure = failure_of([&] { manifest = joined(partial, facts, ranks); });
  if (!failure) {
    for (const auto& [name, tensor] : manifest.tensors)
      if (const auto wrong = wrong_cover(tensor))
        fail_running("internal", "checkpoint of '{}': {}; this is a bug in tessera", name, *wrong);
    failure = failure_of([&] {
      write_file(partial / kManifestFile, print_manifest(manifest));
      std::set<std::string> files = {std::string(kManifestFile)};
      for (int64_t rank = 0; rank < ranks; ++rank) files.insert(rank_file(rank));
      keep_only(partial, files);
      flush_folder(partial);
      rename_over(partial, folder / folder_name(facts.step));
      flush_folder(folder);
    });
  }
  if (failure) {
    discard(folder, facts.step, facts.run);
    return {false, *failure};
  }
  const auto leftover = failure_of([&] { prune(folder, facts.step, keep, [](int64_t) { return true; }); });
  return {true, leftover.value_or("")};
}

void discard(const fs::path& folder, int64_t step, const std::string& run) {
  std::error_code ignored;  // hidden, and removed by the next one that is saved
  fs::remove_all(partial_folder(folder, step, run), ignored);
}

std::optional<std::string> tidy(const fs::path& folder, int64_t step, int64_t keep) {
  return failure_of([&] { prune(folder, step, keep, [&](int64_t other) { return other < step; }); });
}

}  // namespace tessera::checkpoint
