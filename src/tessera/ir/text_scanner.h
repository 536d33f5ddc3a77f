#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera::text {

/// Whether the name needs no quotes in ONNX text: letters, digits and '_', not starting with a digit.
bool is_plain(std::string_view name);
/// The name, in quotes if it is not plain (or is empty, or is the name of a type).
std::string quote_name(std::string_view name);
std::string quote(std::string_view text);

/// Reads ONNX text piece by piece; blanks and comments between pieces are skipped.
class Scanner {
 public:
  /// `source`: the file that the text is from, for messages; empty: none.
  explicit Scanner(std::string_view text, std::string_view source = {}) : text_(text), source_(source) {}

  /// Throws a user error that names the place of byte `at`.
  [[noreturn]] void fail_at(size_t at, std::string_view message) const;
  /// Throws a user error at the next piece: "expected WHAT, found …".
  [[noreturn]] void expected(std::string_view what);

  size_t position();  ///< of the next piece
  char peek();        ///< '\0' at the end
  bool at_end() { return peek() == '\0'; }
  bool take(std::string_view punctuation);
  void expect(std::string_view punctuation);

  /// Calls item() for each item of a list, which reads it: items between commas, up to `close`, which is taken.
  template <typename Item>
  void items(std::string_view close, Item&& item) {
    if (take(close)) return;
    do item();
    while (take(","));
    if (!take(close)) expected(fmt::format("',' or '{}'", close));
  }

  bool at_identifier();
  bool at_quoted() { return peek() == '"'; }
  bool at_name() { return at_identifier() || at_quoted(); }
  bool at_number();                    ///< also "inf" and "nan"
  std::string_view peek_identifier();  ///< empty if none is next
  std::string identifier(std::string_view what);
  std::string quoted(std::string_view what);
  /// An identifier or a quoted name.
  std::string name(std::string_view what);
  /// The literal as written: digits, sign, point and exponent, or a signed "inf" or "nan".
  std::string_view number(std::string_view what);
  int64_t integer(std::string_view what);
  /// Everything up to the next of `stops` outside parentheses; for expressions.
  std::string_view until(std::string_view stops);

 private:
  void skip();

  std::string_view text_, source_;
  size_t at_ = 0;
};

/// Whether a literal is a floating one: it has a point or an exponent, or is not finite.
bool is_floating_literal(std::string_view literal);

}  // namespace tessera::text
