#include "tessera/io/npz.h"

#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <set>

#include "tessera/base/bytes_text.h"
#include "tessera/base/error.h"
#include "tessera/io/atomic_file.h"
#include "tessera/io/npy.h"
#include "tessera/ir/pages.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSuffix = ".npy";

/// An array of an archive, as the archive's directory states it.
struct ArrayEntry {
  std::string name;  ///< without ".npy"
  zip_uint64_t index;
  uint64_t size;     ///< inflated
  bool stored;       ///< not deflated
  std::string what;  ///< names file and array in errors
};

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};
using Archive = std::unique_ptr<zip_t, Discard>;
using Entry = std::unique_ptr<zip_file_t, Discard>;

std::string message_of(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string message = zip_error_strerror(&error);
  zip_error_fini(&error);
  return message;
}

Archive open_to_read(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) fail("inputs", "{}: there is no such file; check the path", path.string());
  if (fs::is_directory(path, error)) fail("inputs", "{}: is a folder; name a .npz file", path.string());
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive) return archive;
  if (code == ZIP_ER_NOZIP || code == ZIP_ER_INCONS)
    fail("inputs", "{}: not a complete .npz archive ({}); it may be truncated, write it again with numpy.savez",
         path.string(), message_of(code));
  fail("inputs", "{}: {}", path.string(), message_of(code));
}

void for_each_array(zip_t* archive, const fs::path& path, const NpzOptions& options,
                    const std::function<void(const ArrayEntry&)>& visit) {
  std::set<std::string> seen;
  const zip_int64_t count = zip_get_num_entries(archive, 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    zip_stat_t stat;
    if (zip_stat_index(archive, index, 0, &stat) < 0 || !(stat.valid & ZIP_STAT_SIZE) || !(stat.valid & ZIP_STAT_NAME))
      fail("inputs", "{}: entry {}: {}", path.string(), i, zip_strerror(archive));
    std::string name = stat.name;
    if (!name.ends_with(kSuffix))
      fail("inputs", "{}: '{}': is not a .npy array; a .npz file contains only these", path.string(), name);
    name.resize(name.size() - kSuffix.size());
    if (options.wanted && !options.wanted(name)) continue;
    const bool stored = (stat.valid & ZIP_STAT_COMP_METHOD) && stat.comp_method == ZIP_CM_STORE;
    const ArrayEntry entry{name, index, stat.size, stored, fmt::format("{}: '{}'", path.string(), name)};
    if (!seen.insert(name).second) fail("inputs", "{}: occurs twice; keep one", entry.what);
    visit(entry);
  }
}

/// Refuses arrays beyond a limit, by the sizes that entries state.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t limit) : limit_(limit > 0 ? limit : machine_memory()) {}

  void take(const ArrayEntry& entry) {
    if (entry.size <= limit_ && (taken_ += entry.size) <= limit_) return;
    const ComparedBytes texts = compared_bytes(entry.size, limit_);
    fail("inputs",
         "{}: with its {} the arrays take more than the limit of {}; give smaller ones, or raise the limit "
         "(`memory_limit`)",
         entry.what, texts.first, texts.second);
  }

 private:
  size_t limit_;
  uint64_t taken_ = 0;
};

/// Reads the next bytes of an entry.
void read_bytes(zip_file_t* entry, void* to, uint64_t bytes, const std::string& what) {
  constexpr uint64_t kPiece = uint64_t{1} << 26;
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    const zip_int64_t got = zip_fread(entry, at, std::min(bytes, kPiece));
    if (got < 0) fail("inputs", "{}: {}; the archive is damaged", what, zip_file_strerror(entry));
    if (got == 0) fail("inputs", "{}: truncated, {} bytes are missing", what, bytes);
    at += got;
    bytes -= static_cast<uint64_t>(got);
  }
}

/// One entry of an archive, inflated from its begin to its end.
class EntryReader {
 public:
  EntryReader(zip_t* archive, const ArrayEntry& entry)
      : file_(zip_fopen_index(archive, entry.index, 0)), left_(entry.size), what_(entry.what) {
    if (!file_) fail("inputs", "{}: {}", what_, zip_strerror(archive));
  }

  uint64_t left() const { return left_; }

  void read(void* to, uint64_t bytes) {
    read_bytes(file_.get(), to, bytes, what_);
    left_ -= bytes;
  }

  /// Reads to the end, or until it is told to stop, and keeps nothing.
  void skip_rest(const std::function<bool()>& stops) {
    std::vector<char> piece(std::min<uint64_t>(left_, uint64_t{1} << 20));
    while (left_ > 0) {
      if (stops()) return;
      read(piece.data(), std::min<uint64_t>(left_, piece.size()));
    }
    finish();
  }

  /// Call this after reading everything: makes libzip compare the checksum.
  void finish() {
    char past = 0;
    if (zip_fread(file_.get(), &past, 1) != 0) fail("inputs", "{}: its checksum or size is wrong", what_);
  }

  Entry release() { return std::move(file_); }

 private:
  Entry file_;
  uint64_t left_;
  const std::string& what_;
};

/// Reads no more than the header.
NpyHeader read_header(EntryReader& entry, const std::string& what) {
  std::string bytes(std::min<uint64_t>(kNpyPrefix, entry.left()), '\0');
  entry.read(bytes.data(), bytes.size());
  const size_t start = bytes.size(), size = npy_header_size(bytes, what);
  if (size > start) {
    bytes.resize(start + std::min<uint64_t>(size - start, entry.left()));
    entry.read(bytes.data() + start, bytes.size() - start);
  }
  return parse_npy_header(bytes, what);
}

Tensor read_array(zip_t* archive, const ArrayEntry& from) {
  EntryReader entry(archive, from);
  const NpyHeader header = read_header(entry, from.what);
  const size_t needed = npy_element_bytes(header, entry.left(), from.what);
  // A damaged size may ask for many pages, but pages that the data never fill are never touched.
  Tensor tensor = Tensor::uninitialized(header.dtype, header.dims);
  entry.read(tensor.mutable_data(), needed);
  entry.finish();
  return row_major(header, std::move(tensor));
}

}  // namespace

std::map<std::string, Tensor> read_npz(const fs::path& path, const NpzOptions& options) {
  Archive archive = open_to_read(path);
  MemoryLimit limit(options.memory_limit);
  std::map<std::string, Tensor> tensors;
  for_each_array(archive.get(), path, options, [&](const ArrayEntry& entry) {
    limit.take(entry);
    tensors.emplace(entry.name, read_array(archive.get(), entry));
  });
  return tensors;
}

struct NpzSlices::Impl {
  struct Stored {
    std::shared_ptr<zip_file_t> file;
    std::string what;  // names file and array in errors
    NpyHeader header;
  };
  fs::path path;
  NpzOptions options;
  std::shared_ptr<zip_t> archive;
  std::mutex mutex;  // libzip's objects serve one thread at a time
  std::map<std::string, Stored> stored;
  std::map<std::string, Tensor> whole;
};

NpzSlices::NpzSlices(const fs::path& path, const NpzOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->options = options;
  impl_->archive = open_to_read(path);
  zip_t* archive = impl_->archive.get();
  MemoryLimit limit(options.memory_limit);
  for_each_array(archive, path, options, [&](const ArrayEntry& entry) {
    EntryReader reader(archive, entry);
    const NpyHeader header = read_header(reader, entry.what);
    npy_element_bytes(header, reader.left(), entry.what);
    dims_[entry.name] = header.dims;
    if (entry.stored && !header.fortran_order) {
      impl_->stored.emplace(entry.name, Impl::Stored{reader.release(), entry.what, header});
    } else {
      limit.take(entry);
      impl_->whole.emplace(entry.name, read_array(archive, entry));
    }
  });
}

NpzSlices::~NpzSlices() = default;

Tensor NpzSlices::read(const std::string& name, int64_t index) {
  const Dims& dims = dims_.at(name);
  check(!dims.empty() && index >= 0 && index < dims[0], "a slice lies in its array");
  const Dims rest(dims.begin() + 1, dims.end());
  if (const auto found = impl_->whole.find(name); found != impl_->whole.end()) {
    const Tensor& all = found->second;
    const size_t bytes = all.bytes / static_cast<size_t>(dims[0]);
    return {all.dtype, rest, all.owner, all.data + bytes * static_cast<size_t>(index), bytes};
  }
  const Impl::Stored& stored = impl_->stored.at(name);
  Tensor slice = Tensor::uninitialized(stored.header.dtype, rest);
  const auto begin = static_cast<zip_int64_t>(stored.header.size + slice.bytes * static_cast<size_t>(index));
  const std::lock_guard lock(impl_->mutex);
  if (zip_fseek(stored.file.get(), begin, SEEK_SET) < 0)
    fail("inputs", "{}: {}; the archive is damaged", stored.what, zip_file_strerror(stored.file.get()));
  read_bytes(stored.file.get(), slice.mutable_data(), slice.bytes, stored.what);
  return slice;
}

void NpzSlices::verify(const std::function<bool()>& stops) {
  const std::lock_guard lock(impl_->mutex);
  zip_t* archive = impl_->archive.get();
  for_each_array(archive, impl_->path, impl_->options, [&](const ArrayEntry& entry) {
    if (impl_->stored.contains(entry.name)) EntryReader(archive, entry).skip_rest(stops);
  });
}

void write_npz(const fs::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  AtomicFile file(path);
  if (tensors.empty()) {  // libzip deletes an archive without entries
    constexpr std::string_view kEndOfDirectory = "PK\x05\x06";
    file.write(kEndOfDirectory);
    file.write(std::string(18, '\0'));
    return file.commit();
  }
  int code = 0;
  Archive archive(zip_open(file.temporary().c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
  if (!archive) fail_running("outputs", "{}: {}", path.string(), message_of(code));
  std::vector<Tensor> kept;  // libzip reads the fragments when it closes the archive
  std::vector<std::string> headers;
  kept.reserve(tensors.size());
  headers.reserve(tensors.size());
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    std::string what = fmt::format("{}: '{}'", path.string(), name);
    if (!names.insert(name).second) fail("outputs", "{}: occurs twice; names must differ", what);
    kept.push_back(as_numpy(tensor, what));
    headers.push_back(npy_header(kept.back(), what));
    auto bytes = [](const void* data) { return static_cast<zip_uint8_t*>(const_cast<void*>(data)); };
    zip_buffer_fragment_t fragments[] = {{bytes(headers.back().data()), headers.back().size()},
                                         {bytes(kept.back().data), kept.back().bytes}};
    zip_source_t* source = zip_source_buffer_fragment(archive.get(), fragments, kept.back().bytes ? 2 : 1, 0);
    std::string entry = name + std::string(kSuffix);
    zip_int64_t index = source ? zip_file_add(archive.get(), entry.c_str(), source, ZIP_FL_ENC_UTF_8) : -1;
    if (index < 0) {
      if (source) zip_source_free(source);
      fail("outputs", "{}: {}", what, zip_strerror(archive.get()));
    }
    zip_set_file_compression(archive.get(), static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
    // The first day that the format has, so that the same arrays give the same file.
    constexpr zip_uint16_t kMidnight = 0, kFirstOf1980 = 1 << 5 | 1;
    zip_file_set_dostime(archive.get(), static_cast<zip_uint64_t>(index), kMidnight, kFirstOf1980, 0);
  }
  if (zip_close(archive.get()) < 0) {
    std::string reason = zip_strerror(archive.get());
    fail_running("write", "{}: {}; nothing was changed there", path.string(), reason);
  }
  static_cast<void>(archive.release());  // zip_close freed it
  file.commit();
}

}  // namespace tessera
