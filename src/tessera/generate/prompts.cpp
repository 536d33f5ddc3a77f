#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "tessera/base/counted.h"
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

// What tokenizers write beside ids.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNoPrompts = {{
    {"attention_mask", "a mask"},
    {"position_ids", "positions"},
    {"token_type_ids", "types of tokens"},
}};

using Arrays = std::vector<std::pair<std::string, Tensor>>;

const Tensor* named(const Arrays& arrays, std::string_view name) {
  for (const auto& [own, array] : arrays)
    if (own == name) return &array;
  return nullptr;
}

// Where the ones of a row of an attention mask begin and end. Decoders' tokenizers pad at the left, others at the
// right.
std::pair<int64_t, int64_t> shown(const std::vector<int64_t>& mask, int64_t row, int64_t length,
                                  const std::string& path) {
  const auto begin = mask.begin() + row * length, end = begin + length;
  const auto is_hidden = [](int64_t element) { return element == 0; };
  const auto first = std::find_if_not(begin, end, is_hidden), last = std::find_if(first, end, is_hidden);
  if (const auto other = std::find_if(begin, end, [](int64_t element) { return element != 0 && element != 1; });
      other != end)
    fail("generate",
         "{}: the array 'attention_mask' holds {} for prompt {}; it must hold 1 for each token, and 0 for "
         "padding",
         path, *other, row);
  if (!std::all_of(last, end, is_hidden))
    fail("generate",
         "{}: the array 'attention_mask' hides tokens in the middle of prompt {}; padding must be before or after a "
         "prompt; or give each prompt as an array of its own",
         path, row);
  return {first - begin, last - begin};
}

void add_prompts(std::vector<std::vector<int64_t>>& prompts, const std::string& name, const Tensor& array,
                 const Tensor* mask, const std::string& path) {
  if (!is_integer(array.dtype) || array.dims.empty() || array.dims.size() > 2)
    fail("generate", "{}: the array '{}' is {} of {}; prompts are integers [length] or [count, length]", path, name,
         name_of(array.dtype), counted(array.dims.size(), "dimension"));
  if (mask && ((!is_integer(mask->dtype) && mask->dtype != DType::boolean) || mask->dims != array.dims))
    fail("generate", "{}: the array 'attention_mask' is {} [{}]; it must be integers or bools [{}], as '{}' is", path,
         name_of(mask->dtype), fmt::join(mask->dims, ", "), fmt::join(array.dims, ", "), name);
  const std::vector<int64_t> ids = array.to_int64(), mask_elements = mask ? mask->to_int64() : std::vector<int64_t>{};
  const int64_t count = array.dims.size() == 2 ? array.dims[0] : 1, length = array.dims.back();
  for (int64_t i = 0; i < count; ++i) {
    const auto [first, end] = mask ? shown(mask_elements, i, length, path) : std::pair<int64_t, int64_t>(0, length);
    const auto begin = ids.begin() + i * length;
    prompts.emplace_back(begin + first, begin + end);
  }
}

}  // namespace

std::vector<std::vector<int64_t>> read_prompts(const std::filesystem::path& path) {
  Arrays arrays;
  if (path.extension() == ".npy")
    arrays.emplace_back(path.filename().string(), read_npy(path));
  else
    for (auto& [name, array] : read_npz(path)) arrays.emplace_back(name, std::move(array));
  std::stable_sort(arrays.begin(), arrays.end(),
                   [](const auto& a, const auto& b) { return comes_before(a.first, b.first); });
  std::vector<std::vector<int64_t>> prompts;
  if (const Tensor* ids = named(arrays, "input_ids")) {
    add_prompts(prompts, "input_ids", *ids, named(arrays, "attention_mask"), path.string());
  } else {
    for (const auto& [name, what] : kNoPrompts)
      if (named(arrays, name))
        fail("generate", "{}: the array '{}' is {}, not a prompt; keep the ids alone, or name them 'input_ids'",
             path.string(), name, what);
    for (const auto& [name, array] : arrays) add_prompts(prompts, name, array, nullptr, path.string());
  }
  if (prompts.empty()) fail("generate", "{} contains no prompt", path.string());
  return prompts;
}

}  // namespace v1
}  // namespace tessera
