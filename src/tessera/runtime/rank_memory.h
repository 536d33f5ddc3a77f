#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/bind/machine.h"
#include "tessera/device/device.h"
#include "tessera/device/memory_limit.h"
#include "tessera/ir/tensor.h"
#include "tessera/runtime/loading_room.h"
#include "tessera/runtime/queues.h"

namespace tessera::runtime {

/// One rank's memory: that of its device and of the host, which limits count (LimitedMemory); or none, in a dry run
/// (PlannedMemory). Used only from the rank's own thread.
class RankMemory {
 public:
  explicit RankMemory(std::shared_ptr<device::Device> device) : device_(std::move(device)) {}
  virtual ~RankMemory() = default;
  /// Memory of the same kind, of another rank state of the same rank.
  virtual std::unique_ptr<RankMemory> another(Communicators& communicators, Queues& queues) const = 0;

  const std::shared_ptr<device::Device>& device() const { return device_; }
  /// The limit of the process, or of the device if that is less: no single tensor may exceed it. Null: none.
  virtual const device::MemoryLimit* limit() const = 0;

  /// Counts memory of the device until the result goes. Waits for room if others are loading, unless it has been
  /// reserved. `what`: for errors.
  virtual std::shared_ptr<const void> hold(size_t bytes, std::string_view what) = 0;
  /// The same for memory of the host.
  virtual std::shared_ptr<const void> hold_on_host(size_t bytes, std::string_view what) = 0;
  /// Waits for room for all that is held until the result goes, so that no rank waits while it holds memory for which
  /// others wait.
  [[nodiscard]] virtual std::shared_ptr<const void> reserve(size_t bytes) = 0;

  /// Memory of the device that other ranks can read, not counted; null in a dry run.
  virtual device::Memory allocate(size_t bytes, const char* what) = 0;
  /// A tensor in memory of the host, which counts until the tensor goes.
  virtual Tensor on_host(DType dtype, Dims dims, std::string_view what) = 0;
  /// The same with the elements that `fill` writes. In a dry run, only small tensors have elements, because kernels are
  /// prepared from them.
  virtual Tensor on_host(DType dtype, Dims dims, std::string_view what, const std::function<void(void*)>& fill) = 0;
  /// The tensor where the device's kernels can read it: itself, or a copy. `name`: for errors.
  virtual Tensor resident(const Tensor& tensor, std::string_view name) = 0;
  /// Writes these bytes of the device: calls `fill` with memory of the host, and copies it.
  virtual void write(void* to, size_t bytes, const std::function<void(void*)>& fill) = 0;
  /// Calls `visit` with these bytes of the device, for the host to read.
  virtual void read(const void* from, size_t bytes, const std::function<void(const void*)>& visit) = 0;
  /// Calls `work`, which needs tensors' elements; does nothing in a dry run.
  virtual void use(const std::function<void()>& work) = 0;

  /// At least `bytes` bytes of the device, 64-byte aligned; the same on each call unless it had to grow.
  std::byte* arena(size_t bytes);
  /// The same in memory of the host, for copies to and from the device; null for no bytes.
  std::byte* staging(size_t bytes);
  /// Bytes of the arena and of the host's copies that a run of this program needs, or that earlier runs have needed.
  size_t bytes_to_run(const bind::MachineProgram& machine) const;
  /// Throws a user error that names the largest of `pieces` if the arena does not fit on the device beside what the
  /// rank keeps there.
  void require_room(const bind::MachineProgram& machine,
                    const std::function<std::vector<device::NamedBytes>()>& pieces) const;
  /// Never frees the arena, because communications that were under way when a run failed may still use it.
  void abandon();

 private:
  std::shared_ptr<device::Device> device_;
  device::Memory arena_;
  std::shared_ptr<const void> arena_held_;  // of the device's memory
  size_t arena_room_ = 0;
  size_t arena_bytes_ = 0;
  std::shared_ptr<std::byte[]> staging_;
  size_t staging_bytes_ = 0;
};

/// The memory of a rank that runs.
class LimitedMemory : public RankMemory {
 public:
  /// All arguments must outlive it. `limit`: of the process. `room`: where ranks that load wait for each other.
  LimitedMemory(std::shared_ptr<device::Device> device, device::MemoryLimit& limit, LoadingRoom& room,
                Communicators& communicators, Queues& queues)
      : RankMemory(std::move(device)), limit_(limit), room_(room), communicators_(communicators), queues_(queues) {}
  std::unique_ptr<RankMemory> another(Communicators& communicators, Queues& queues) const override;

  const device::MemoryLimit* limit() const override;
  std::shared_ptr<const void> hold(size_t bytes, std::string_view what) override;
  std::shared_ptr<const void> hold_on_host(size_t bytes, std::string_view what) override;
  std::shared_ptr<const void> reserve(size_t bytes) override;
  device::Memory allocate(size_t bytes, const char* what) override;
  Tensor on_host(DType dtype, Dims dims, std::string_view what) override;
  Tensor on_host(DType dtype, Dims dims, std::string_view what, const std::function<void(void*)>& fill) override;
  Tensor resident(const Tensor& tensor, std::string_view name) override;
  void write(void* to, size_t bytes, const std::function<void(void*)>& fill) override;
  void read(const void* from, size_t bytes, const std::function<void(const void*)>& visit) override;
  void use(const std::function<void()>& work) override { work(); }

 private:
  device::MemoryLimit& limit_;
  LoadingRoom& room_;
  Communicators& communicators_;
  Queues& queues_;
  std::optional<LoadingRoom::Reservation> reserved_;
  // Loops and branches read their conditions in every iteration: pinned memory is slow to allocate.
  static constexpr size_t kFewBytes = 64;
  std::shared_ptr<std::byte[]> few_bytes();
  std::shared_ptr<std::byte[]> few_bytes_;
};

/// The memory of a rank in a dry run: bytes without addresses.
class PlannedMemory : public RankMemory {
 public:
  /// Refuses any single tensor that exceeds `limit`; null: none.
  explicit PlannedMemory(std::shared_ptr<device::Device> device, const device::MemoryLimit* limit)
      : RankMemory(std::move(device)), limit_(limit) {}
  std::unique_ptr<RankMemory> another(Communicators&, Queues&) const override;

  const device::MemoryLimit* limit() const override { return limit_; }
  std::shared_ptr<const void> hold(size_t, std::string_view) override { return nullptr; }
  std::shared_ptr<const void> hold_on_host(size_t, std::string_view) override { return nullptr; }
  std::shared_ptr<const void> reserve(size_t) override { return nullptr; }
  device::Memory allocate(size_t, const char*) override { return nullptr; }
  Tensor on_host(DType dtype, Dims dims, std::string_view what) override;
  Tensor on_host(DType dtype, Dims dims, std::string_view what, const std::function<void(void*)>& fill) override;
  Tensor resident(const Tensor& tensor, std::string_view) override { return tensor; }
  void write(void*, size_t, const std::function<void(void*)>&) override {}
  void read(const void*, size_t, const std::function<void(const void*)>&) override {}
  void use(const std::function<void()>&) override {}

 private:
  const device::MemoryLimit* limit_;
};

}  // namespace tessera::runtime
