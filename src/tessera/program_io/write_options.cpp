#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/write.h"

namespace tessera {
inline namespace v1 {
namespace {

// The words of each option, in the order of its enumerators.
constexpr std::array<std::string_view, 3> kForm = {"mpmd", "spmd", "parallel-for"};
constexpr std::array<std::string_view, 2> kLower = {"collectives", "primitives"};
constexpr std::array<std::string_view, 2> kOrder = {"tokens", "position"};
constexpr std::array<std::string_view, 3> kRankId = {"input", "op", "constant"};
constexpr std::array<std::string_view, 2> kRankType = {"integer", "opaque"};
constexpr std::array<std::string_view, 3> kDialect = {"tessera", "ort", "tensorrt"};

template <typename Option, size_t count>
void read(const std::map<std::string, std::string>& words, const char* name,
          const std::array<std::string_view, count>& known, Option& option) {
  auto said = words.find(name);
  if (said == words.end()) return;
  auto found = std::find(known.begin(), known.end(), said->second);
  if (found == known.end())
    fail("write", "{} cannot be '{}'; it is one of {}", name, said->second, fmt::join(known, ", "));
  option = static_cast<Option>(found - known.begin());
}

template <typename Option, size_t count>
std::string word(const std::array<std::string_view, count>& known, Option option) {
  return std::string(known.at(static_cast<size_t>(option)));
}

// Programs for other engines have only one order, and one way to know the rank; requests for others are errors.
void require_only(const std::map<std::string, std::string>& words, const std::string& name, std::string_view only) {
  auto said = words.find(name);
  if (said == words.end() || said->second == only) return;
  fail("write", "`dialect={}` requires `{}={}`; leave out `{}={}`, or `dialect`", words.at("dialect"), name, only, name,
       said->second);
}

}  // namespace

WriteOptions WriteOptions::from_words(const std::map<std::string, std::string>& words) {
  WriteOptions options;
  read(words, "form", kForm, options.form);
  read(words, "lower", kLower, options.lower);
  read(words, "order", kOrder, options.order);
  read(words, "rank_id", kRankId, options.rank_id);
  read(words, "rank_type", kRankType, options.rank_type);
  read(words, "dialect", kDialect, options.dialect);
  if (options.dialect != Dialect::tessera) {
    require_only(words, "order", word(kOrder, Order::position));
    require_only(words, "rank_id", word(kRankId, RankIdentity::constant));
  }
  return options;
}

std::map<std::string, std::string> WriteOptions::words() const {
  return {{"form", word(kForm, form)},
          {"lower", word(kLower, lower)},
          {"order", word(kOrder, order)},
          {"rank_id", word(kRankId, rank_id)},
          {"rank_type", word(kRankType, rank_type)},
          {"dialect", word(kDialect, dialect)}};
}

}  // namespace v1
}  // namespace tessera
