#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/bounds.h"

namespace tessera::train {

/// "NAME:key=1.5,key=2": the user's text for a loss, an optimizer or a schedule. A loss may name a tensor before the
/// keys: "NAME:TENSOR,key=2".
class Spec {
 public:
  /// Throws a user error, stage `stage`, for text of another form.
  Spec(std::string_view text, std::string_view stage, bool may_name_tensor = false);

  const std::string& name() const { return name_; }
  const std::string& tensor() const { return tensor_; }  ///< empty: none is named
  bool has(std::string_view key) const;
  /// The number of a key, or `otherwise` if it is not given. Throws a user error for a word that is not a number, and
  /// for a number out of bounds.
  double number(std::string_view key, double otherwise, const Bounds& bounds = {});
  /// The same for whole numbers.
  int64_t whole(std::string_view key, int64_t otherwise, const Bounds& bounds = {});
  /// "true", "false", 1 or 0.
  bool flag(std::string_view key, bool otherwise);
  /// The word of a key, or `otherwise` if it is not given.
  std::string word(std::string_view key, std::string_view otherwise);
  /// Throws a user error if a key was given that has not been read.
  void finish() const;

 private:
  [[noreturn]] void refuse(std::string_view key, std::string_view word, const std::string& wanted) const;

  std::string text_, name_, tensor_, stage_;
  std::map<std::string, std::string, std::less<>> words_;
  std::vector<std::string> asked_;
};

}  // namespace tessera::train
