#pragma once

#include <memory>
#include <utility>

namespace tessera::bind {

/// A map in two layers: its own entries override those of a layer below, which several objects share and which does not
/// change. A binding for other sizes holds only the places, extents and views that differ from the first binding's.
template <typename Map>
class Layered {
 public:
  using Key = typename Map::key_type;
  using Mapped = typename Map::mapped_type;

  Layered() = default;
  explicit Layered(std::shared_ptr<const Map> below) : below_(std::move(below)) {}

  /// Null if there is no such entry.
  const Mapped* find(const Key& key) const {
    if (auto own = own_.find(key); own != own_.end()) return &own->second;
    if (!below_) return nullptr;
    auto shared = below_->find(key);
    return shared == below_->end() ? nullptr : &shared->second;
  }
  const Mapped& set(const Key& key, Mapped value) { return own_.insert_or_assign(key, std::move(value)).first->second; }

  const Map& own() const { return own_; }
  const Map& below() const {
    static const Map none;
    return below_ ? *below_ : none;
  }

  /// Moves the own entries to the layer below, which must be empty. Pointers to entries stay valid.
  void share() { below_ = std::make_shared<const Map>(std::exchange(own_, {})); }
  /// A map of the shared entries only.
  Layered fresh() const { return Layered(below_); }

 private:
  std::shared_ptr<const Map> below_;
  Map own_;
};

}  // namespace tessera::bind
