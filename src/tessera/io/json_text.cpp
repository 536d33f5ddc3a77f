#include "tessera/io/json_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {

nlohmann::ordered_json parse_json(std::string_view stage, std::string_view text, std::string_view source) {
  using Json = nlohmann::ordered_json;
  std::vector<std::vector<std::string>> open;
  const auto once = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key) {
      auto key = parsed.get<std::string>();
      if (std::find(open.back().begin(), open.back().end(), key) != open.back().end())
        fail(stage, "{}: '{}' is given twice; give it once", source, key);
      open.back().push_back(std::move(key));
    }
    return true;
  };
  try {
    return Json::parse(text, once);
  } catch (const Json::parse_error& error) {
    const std::string_view what = error.what();
    const size_t place = what.find("parse error");
    fail(stage, "{} is not JSON: {}", source, place == std::string_view::npos ? what : what.substr(place));
  }
}

}  // namespace tessera
