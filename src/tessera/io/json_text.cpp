#include "tessera/io/json_text.h"

#include <set>
#include <string>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

/// Reads a text without keeping it: finds keys that an object has twice. The library's parser with a callback could,
/// but its time grows with the square of an array's length.
class TwiceGiven : public nlohmann::json_sax<Json> {
 public:
  TwiceGiven(std::string_view stage, std::string_view source) : stage_(stage), source_(source) {}

  bool start_object(size_t) override {
    open_.emplace_back();
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool key(string_t& key) override {
    if (!open_.back().insert(key).second) fail(stage_, "{}: '{}' is given twice; give it once", source_, key);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view what = error.what();
    const size_t place = what.find("parse error");
    fail(stage_, "{} is not JSON: {}", source_, place == std::string_view::npos ? what : what.substr(place));
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }

 private:
  std::string_view stage_, source_;
  std::vector<std::set<std::string>> open_;  // keys of the objects around
};

}  // namespace

nlohmann::ordered_json parse_json(std::string_view stage, std::string_view text, std::string_view source) {
  TwiceGiven checked(stage, source);
  Json::sax_parse(text, &checked);
  return Json::parse(text);
}

}  // namespace tessera
