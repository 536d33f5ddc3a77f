#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera {

/// Keeps a value until the process ends: for memory that another thread or process may still use.
template <typename T>
void keep_for_good(T value) {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::unique_ptr<T>>;  // NB no destructor ever runs
  std::lock_guard lock(mutex);
  kept->push_back(std::make_unique<T>(std::move(value)));
}

/// A value that is kept until the process ends if an exception ends its scope.
template <typename T>
class KeptIfThrown {
 public:
  KeptIfThrown() = default;
  ~KeptIfThrown() {
    if (std::uncaught_exceptions() > exceptions_) keep_for_good(std::move(value_));
  }
  KeptIfThrown(const KeptIfThrown&) = delete;
  KeptIfThrown& operator=(const KeptIfThrown&) = delete;

  T& operator*() { return value_; }

 private:
  T value_{};
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace tessera
