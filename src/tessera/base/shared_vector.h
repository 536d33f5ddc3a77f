#pragma once

#include <atomic>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace tessera {

/// A vector whose copies share one buffer until one of them is changed: for lists that are copied often and changed
/// seldom, such as the dimensions of a sharding. Used like std::vector.
///
/// Each access that could change elements (operator[], begin(), back(), … of an object that is not const) first makes
/// the buffer its own. So such references and iterators must not be used after the vector has been copied.
template <typename T>
class SharedVector {
 public:
  using value_type = T;
  using iterator = typename std::vector<T>::iterator;
  using const_iterator = typename std::vector<T>::const_iterator;

  SharedVector() = default;
  SharedVector(std::vector<T> elements) {  // NOLINT: vectors are lists of elements
    if (!elements.empty()) held_ = std::make_shared<std::vector<T>>(std::move(elements));
  }
  SharedVector(std::initializer_list<T> elements) : SharedVector(std::vector<T>(elements)) {}
  explicit SharedVector(size_t count) : SharedVector(std::vector<T>(count)) {}
  SharedVector(size_t count, const T& element) : SharedVector(std::vector<T>(count, element)) {}

  const std::vector<T>& get() const {
    static const std::vector<T> none;
    return held_ ? *held_ : none;
  }
  operator const std::vector<T>&() const { return get(); }  // NOLINT: where a list is read, this is one
  /// Equal if they share a buffer; otherwise their elements may still be equal.
  const void* identity() const { return held_.get(); }

  size_t size() const { return held_ ? held_->size() : 0; }
  bool empty() const { return size() == 0; }
  const T& operator[](size_t index) const { return (*held_)[index]; }
  const T& at(size_t index) const { return get().at(index); }
  const T& front() const { return held_->front(); }
  const T& back() const { return held_->back(); }
  const_iterator begin() const { return get().begin(); }
  const_iterator end() const { return get().end(); }

  T& operator[](size_t index) { return own()[index]; }
  T& at(size_t index) { return own().at(index); }
  T& front() { return own().front(); }
  T& back() { return own().back(); }
  iterator begin() { return own().begin(); }
  iterator end() { return own().end(); }

  void push_back(T element) { own().push_back(std::move(element)); }
  template <typename... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    return own().emplace_back(std::forward<Arguments>(arguments)...);
  }
  iterator insert(const_iterator at, T element) {
    const auto index = at - std::as_const(*this).begin();
    return own().insert(own().begin() + index, std::move(element));
  }
  iterator erase(const_iterator at) {
    const auto index = at - std::as_const(*this).begin();
    return own().erase(begin() + index);
  }
  void resize(size_t count) { own().resize(count); }
  void reserve(size_t count) { own().reserve(count); }
  void clear() { held_.reset(); }

  friend bool operator==(const SharedVector& a, const SharedVector& b) {
    return a.held_ == b.held_ || a.get() == b.get();
  }

 private:
  // The buffer, which no other vector shares.
  std::vector<T>& own() {
    if (!held_)
      held_ = std::make_shared<std::vector<T>>();
    else if (held_.use_count() > 1)
      held_ = std::make_shared<std::vector<T>>(*held_);
    else
      acquire();
    return *held_;
  }

  // Orders what other threads did with the buffer, until they let it go, before what this one does from here on.
  void acquire() const {
#ifdef TESSERA_THREAD_SANITIZER  // knows no fences; counting acquires, too
    const std::shared_ptr<std::vector<T>> counted = held_;
#else
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
  }

  std::shared_ptr<std::vector<T>> held_;
};

}  // namespace tessera
