#pragma once

#include <memory>
#include <utility>

namespace tessera::bind {

/// A map in two layers: entries of its own override those below, which several objects share and nobody changes. A
/// binding for other sizes has the places, extents and views that differ from the first binding's in its own layer.
template <typename Map>
class Layered {
 public:
  using Key = typename Map::key_type;
  using Mapped = typename Map::mapped_type;

  Layered() = default;
  explicit Layered(std::shared_ptr<const Map> below) : below_(std::move(below)) {}

  /// Null: there is no such entry.
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

  /// Moves the own entries below, where there are none yet. Pointers to entries stay good.
  void share() { below_ = std::make_shared<const Map>(std::exchange(own_, {})); }
  /// The shared entries alone.
  Layered fresh() const { return Layered(below_); }

 private:
  std::shared_ptr<const Map> below_;
  Map own_;
};

}  // namespace tessera::bind
