#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/device/memory_limit.h"
#include "tessera/ir/tensor.h"
#include "tessera/runtime/loading_room.h"
#include "tessera/runtime/queues.h"

namespace tessera::runtime {

/// Where one rank's tensors are: in memory of its device and of the host, which limits count (LimitedMemory); or
/// nowhere, where ranks are only planned (PlannedMemory). Used only from the rank's own thread.
class RankMemory {
 public:
  explicit RankMemory(std::shared_ptr<device::Device> device) : device_(std::move(device)) {}
  virtual ~RankMemory() = default;
  /// Memory of the same kind, of another rank state of the same rank.
  virtual std::unique_ptr<RankMemory> another(Communicators& communicators, Queues& queues) const = 0;

  const std::shared_ptr<device::Device>& device() const { return device_; }
  /// Of the process, or of the device if that is less: no single tensor may exceed it. Null: none.
  virtual const device::MemoryLimit* limit() const = 0;

  /// Counts memory of the device, and of the process. Waits for room if others are loading, and nothing is reserved.
  /// `what`: for errors.
  virtual std::shared_ptr<const void> hold(size_t bytes, std::string_view what) = 0;
  /// The same of the host.
  virtual std::shared_ptr<const void> hold_on_host(size_t bytes, std::string_view what) = 0;
  /// Waits for room for what is held until the result goes: at once, so that no rank waits while it holds what others
  /// wait for.
  [[nodiscard]] virtual std::shared_ptr<const void> reserve(size_t bytes) = 0;

  /// Memory of the device that others may read, not counted; null where ranks are only planned.
  virtual device::Memory allocate(size_t bytes, const char* what) = 0;
  /// A tensor in memory of the host, which is counted until it goes.
  virtual Tensor on_host(DType dtype, Dims dims, std::string_view what) = 0;
  /// The same with the elements that `fill` writes; where ranks are only planned, only small tensors have them, from
  /// which kernels are prepared.
  virtual Tensor on_host(DType dtype, Dims dims, std::string_view what, const std::function<void(void*)>& fill) = 0;
  /// The tensor where the device's kernels can read it: itself, or a copy. `name`: for errors.
  virtual Tensor resident(const Tensor& tensor, std::string_view name) = 0;
  /// Calls `fill` with memory of the host for these bytes of the device, and makes it theirs.
  virtual void write(void* to, size_t bytes, const std::function<void(void*)>& fill) = 0;
  /// Calls `visit` with these bytes of the device, for the host to read.
  virtual void read(const void* from, size_t bytes, const std::function<void(const void*)>& visit) = 0;
  /// Calls `work`, which needs tensors' elements; does nothing where ranks are only planned.
  virtual void use(const std::function<void()>& work) = 0;

  /// At least `bytes` bytes of the world's memory, 64-byte aligned; the same on each call unless it had to grow.
  std::byte* arena(size_t bytes);
  /// The same of the host, for copies to and from the device; null for no bytes.
  std::byte* staging(size_t bytes);
  /// Bytes of the arena and of the host's copies: the most that earlier runs and one of this program need.
  size_t bytes_to_run(const bind::MachineProgram& machine) const;
  /// Throws a user error that names the largest of `pieces` if the device has no room for the arena beside what the
  /// rank keeps there.
  void require_room(const bind::MachineProgram& machine,
                    const std::function<std::vector<device::NamedBytes>()>& pieces) const;
  /// Leaves the arena in memory for good, for communications that were under way as a run failed.
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

/// Of a rank that runs.
class LimitedMemory : public RankMemory {
 public:
  /// All arguments must outlive it. `limit`: the process'. `room`: where ranks that load wait for each other.
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

/// Of a rank that is only planned.
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
