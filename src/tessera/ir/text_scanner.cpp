#include "tessera/ir/text_scanner.h"

#include <algorithm>
#include <charconv>

#include "tessera/ir/dtype.h"

namespace tessera::text {
namespace {

bool starts_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool in_identifier(char c) {
  return starts_identifier(c) || is_digit(c);
}

bool is_not_finite(std::string_view word) {
  return word == "inf" || word == "infinity" || word == "nan";
}

}  // namespace

bool is_plain(std::string_view name) {
  return !name.empty() && starts_identifier(name[0]) && std::all_of(name.begin(), name.end(), in_identifier);
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string quote_name(std::string_view name) {
  return is_plain(name) && dtype_named(name) == DType::undefined ? std::string(name) : quote(name);
}

bool is_floating_literal(std::string_view literal) {
  return literal.find_first_of(".eEin") != std::string_view::npos;
}

void Scanner::fail_at(size_t at, std::string_view message) const {
  std::string_view before = text_.substr(0, at);
  auto line = 1 + std::count(before.begin(), before.end(), '\n');
  size_t start = before.rfind('\n');
  size_t column = start == std::string_view::npos ? at + 1 : at - start;
  const std::string file = source_.empty() ? "" : fmt::format("'{}', ", source_);
  fail("text", "{}line {}, column {}: {}", file, line, column, message);
}

void Scanner::expected(std::string_view what) {
  skip();
  if (at_ == text_.size()) fail_at(at_, fmt::format("expected {}, found the end of the text", what));
  std::string_view found = peek_identifier();
  if (found.empty()) found = text_.substr(at_, 1);
  fail_at(at_, fmt::format("expected {}, found '{}'", what, found));
}

void Scanner::skip() {
  while (at_ < text_.size()) {
    char c = text_[at_];
    if (c == '#')
      at_ = std::min(text_.find('\n', at_), text_.size());
    else if (c == ' ' || c == '\n' || c == '\t' || c == '\r')
      ++at_;
    else
      break;
  }
}

size_t Scanner::position() {
  skip();
  return at_;
}

char Scanner::peek() {
  skip();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool Scanner::take(std::string_view punctuation) {
  skip();
  if (!text_.substr(at_).starts_with(punctuation)) return false;
  at_ += punctuation.size();
  return true;
}

void Scanner::expect(std::string_view punctuation) {
  if (!take(punctuation)) expected(fmt::format("'{}'", punctuation));
}

bool Scanner::at_identifier() {
  return starts_identifier(peek());
}

std::string_view Scanner::peek_identifier() {
  if (!at_identifier()) return {};
  size_t end = at_;
  while (end < text_.size() && in_identifier(text_[end])) ++end;
  return text_.substr(at_, end - at_);
}

bool Scanner::at_number() {
  char c = peek();
  return is_digit(c) || c == '-' || c == '+' || c == '.' || is_not_finite(peek_identifier());
}

std::string Scanner::identifier(std::string_view what) {
  std::string_view word = peek_identifier();
  if (word.empty()) expected(what);
  at_ += word.size();
  return std::string(word);
}

std::string Scanner::quoted(std::string_view what) {
  if (!at_quoted()) expected(what);
  size_t start = at_++;
  std::string inside;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] == '\\') ++at_;
    if (at_ < text_.size()) inside += text_[at_++];
  }
  if (at_ >= text_.size()) fail_at(start, "this quote is never closed");
  ++at_;
  return inside;
}

std::string Scanner::name(std::string_view what) {
  return at_quoted() ? quoted(what) : identifier(what);
}

std::string_view Scanner::number(std::string_view what) {
  if (!at_number()) expected(what);
  size_t start = at_;
  if (text_[at_] == '-' || text_[at_] == '+') ++at_;
  std::string_view word = at_ < text_.size() && starts_identifier(text_[at_]) ? peek_identifier() : "";
  if (is_not_finite(word)) {
    at_ += word.size();
    return text_.substr(start, at_ - start);
  }
  bool digits = false;
  while (at_ < text_.size()) {
    char c = text_[at_], before = text_[at_ - (at_ > 0)];
    bool sign = (c == '-' || c == '+') && (before == 'e' || before == 'E');
    if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !sign) break;
    digits = digits || is_digit(c);
    ++at_;
  }
  if (!digits) fail_at(start, fmt::format("expected {}, found '{}'", what, text_.substr(start, 1)));
  return text_.substr(start, at_ - start);
}

int64_t Scanner::integer(std::string_view what) {
  size_t start = position();
  std::string_view literal = number(what);
  std::string_view digits = literal.substr(literal[0] == '+' ? 1 : 0);
  int64_t value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size())
    fail_at(start, fmt::format("expected {}, found '{}'", what, literal));
  return value;
}

std::string_view Scanner::until(std::string_view stops) {
  skip();
  size_t start = at_;
  int depth = 0;
  for (; at_ < text_.size(); ++at_) {
    char c = text_[at_];
    if (depth == 0 && stops.find(c) != std::string_view::npos) return text_.substr(start, at_ - start);
    if (c == '(') ++depth;
    if (c == ')') --depth;
  }
  fail_at(start, fmt::format("expected one of '{}', found the end of the text", stops));
}

}  // namespace tessera::text
