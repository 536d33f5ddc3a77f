#pragma once

#include "tessera/comm/local/region.h"

namespace tessera::comm {

/// A region between processes: an unnamed file (memfd) of many terabytes, of which only touched pages exist, and which
/// all map at one address. It vanishes with the last process that has it open or mapped, however that ends.
///
///     [ header | taken by all | buffers of rank 0 | buffers of rank 1 | … ]     all parts of one size
///
/// One atomic counter deals out the memory of take(); each process deals out its own rank's buffers by itself. So
/// nobody holds a lock that another process may wait for.
class SharedRegion : public Region {
 public:
  /// A new file for the ranks of one world; closed on exec. Throws a running error if the system refuses it.
  static int create(int ranks);

  /// Maps a file that create() made. `rank`: the one whose buffers this process allocates, or -1.
  SharedRegion(int file, int rank);
  ~SharedRegion() override;
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  std::byte* take(size_t bytes) override;
  std::shared_ptr<std::byte[]> allocate(int rank, size_t bytes, const char* what) override;
  bool holds(const void* address) const override;
  bool is_between_processes() const override { return true; }

  int ranks() const;
  /// The object that the region's maker has put there for the others.
  void* root() const;
  void set_root(void* root);

 private:
  struct Header;
  struct Own;  // this process' part; outlives the region object if buffers do

  std::shared_ptr<Own> own_;
  Header* header_ = nullptr;
};

}  // namespace tessera::comm
