#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/generation.h"
#include "tessera/io/npy.h"
#include "tessera/io/npz.h"

namespace tessera {
inline namespace v1 {
namespace {

// "ids_2" before "ids_10".
bool comes_before(const std::string& a, const std::string& b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto number_at = [&](const std::string& text, size_t at) {
    const size_t first = std::min(text.find_first_not_of('0', at), text.size());
    size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    return std::pair(text.substr(std::min(first, end), end - std::min(first, end)), end);
  };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto [x, after_x] = number_at(a, i);
      const auto [y, after_y] = number_at(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      i = after_x;
      j = after_y;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

std::vector<std::vector<int64_t>> read_prompts(const std::filesystem::path& path) {
  std::vector<std::pair<std::string, Tensor>> arrays;
  if (path.extension() == ".npy")
    arrays.emplace_back(path.filename().string(), read_npy(path));
  else
    for (auto& [name, array] : read_npz(path)) arrays.emplace_back(name, std::move(array));
  std::stable_sort(arrays.begin(), arrays.end(),
                   [](const auto& a, const auto& b) { return comes_before(a.first, b.first); });
  std::vector<std::vector<int64_t>> prompts;
  for (const auto& [name, array] : arrays) {
    if (!is_integer(array.dtype) || array.dims.empty() || array.dims.size() > 2)
      fail("generate", "{}: the array '{}' is {} of {} dimensions; prompts are integers [length] or [count, length]",
           path.string(), name, name_of(array.dtype), array.dims.size());
    const std::vector<int64_t> ids = array.to_int64();
    const int64_t count = array.dims.size() == 2 ? array.dims[0] : 1, length = array.dims.back();
    for (int64_t i = 0; i < count; ++i) prompts.emplace_back(ids.begin() + i * length, ids.begin() + (i + 1) * length);
  }
  if (prompts.empty()) fail("generate", "{} holds no prompt", path.string());
  return prompts;
}

}  // namespace v1
}  // namespace tessera
