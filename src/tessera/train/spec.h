#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::train {

/// "NAME:key=1.5,key=2": what a user says of a loss, an optimizer or a schedule.
class Spec {
 public:
  /// Throws a user error, stage `stage`, for text of another form.
  Spec(std::string_view text, std::string_view stage);

  const std::string& name() const { return name_; }
  bool has(std::string_view key) const;
  /// The number of a key, or `otherwise` if it is not given.
  double number(std::string_view key, double otherwise);
  bool flag(std::string_view key, bool otherwise) { return number(key, otherwise ? 1 : 0) != 0; }
  /// Throws a user error if a key was given that nobody has asked for.
  void finish() const;

 private:
  std::string name_, stage_;
  std::map<std::string, double, std::less<>> numbers_;
  std::vector<std::string> asked_;
};

}  // namespace tessera::train
