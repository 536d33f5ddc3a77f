#include "tessera/io/mapped_regions.h"

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace tessera {
namespace {

/// A place in the list, which is never taken out of it again, so that a handler may go through the list at any moment.
/// Free places are used again.
struct MappedPlace {
  std::atomic<uintptr_t> begin = 0, end = 0;  ///< equal: it is free
  std::string path;                           ///< written while it is free
  dev_t device = 0;
  ino_t inode = 0;
  MappedPlace* next = nullptr;

  bool is_free() const { return begin == end; }
};

std::atomic<MappedPlace*> first_place = nullptr;

std::mutex& changing_places() {
  static auto* one = new std::mutex;  // files may be closed while the process ends
  return *one;
}

MappedPlace* free_place() {
  for (MappedPlace* place = first_place; place; place = place->next)
    if (place->is_free()) return place;
  auto* place = new MappedPlace;
  place->next = first_place;
  first_place = place;
  return place;
}

uintptr_t number_of_address(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

}  // namespace

void note_mapped(const MappedRegion& region) {
  if (region.size == 0) return;
  const std::lock_guard lock(changing_places());
  MappedPlace* place = free_place();
  place->path = region.path;
  place->device = region.device;
  place->inode = region.inode;
  place->begin = UINTPTR_MAX;  // nobody finds it half changed
  place->end = number_of_address(region.begin) + region.size;
  place->begin = number_of_address(region.begin);
}

void note_unmapped(const void* begin) {
  const std::lock_guard lock(changing_places());
  for (MappedPlace* place = first_place; place; place = place->next)
    if (!place->is_free() && place->begin == number_of_address(begin)) place->begin = place->end.load();
}

inline namespace v1 {

const char* mapped_file_at(const void* address) {
  for (const MappedPlace* place = first_place; place; place = place->next)
    if (place->begin <= number_of_address(address) && number_of_address(address) < place->end)
      return place->path.c_str();
  return nullptr;
}

}  // namespace v1

bool is_mapped(const std::filesystem::path& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return false;
  const std::lock_guard lock(changing_places());
  for (const MappedPlace* place = first_place; place; place = place->next)
    if (!place->is_free() && place->device == status.st_dev && place->inode == status.st_ino) return true;
  return false;
}

}  // namespace tessera
