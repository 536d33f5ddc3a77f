#include "tessera/io/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tessera/base/checked.h"
#include "tessera/base/error.h"
#include "tessera/io/atomic_file.h"

namespace tessera {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Descr {
  DType dtype;
  std::string_view name;  // without the byte order
};

constexpr std::array kDescrs = {
    Descr{DType::float32, "f4"},   Descr{DType::float64, "f8"},     Descr{DType::float16, "f2"},
    Descr{DType::int64, "i8"},     Descr{DType::int32, "i4"},       Descr{DType::int16, "i2"},
    Descr{DType::int8, "i1"},      Descr{DType::uint64, "u8"},      Descr{DType::uint32, "u4"},
    Descr{DType::uint16, "u2"},    Descr{DType::uint8, "u1"},       Descr{DType::boolean, "b1"},
    Descr{DType::complex64, "c8"}, Descr{DType::complex128, "c16"},
};

DType dtype_of(std::string_view descr, std::string_view what) {
  if (descr == "bfloat16" || descr == "<V2" || descr == "|V2") return DType::bfloat16;
  if (descr.size() < 2) fail("inputs", "{}: '{}' is not an element type", what, descr);
  char order = descr[0];
  std::string_view name = descr.substr(1);
  if (name.starts_with('O'))
    fail("inputs", "{}: an array of Python objects; give it a number type, as in a.astype('float32')", what);
  if (name.starts_with('U') || name.starts_with('S'))
    fail("inputs", "{}: an array of strings ('{}'); only numbers and bools can be read", what, descr);
  for (const Descr& row : kDescrs) {
    if (row.name != name) continue;
    if (order == '>' && bits_of(row.dtype) > 8)
      fail("inputs", "{}: big-endian elements ('{}'); save a.astype('<{}')", what, descr, name);
    if (order == '<' || order == '|' || order == '=' || order == '>') return row.dtype;
  }
  fail("inputs", "{}: the element type '{}' is not supported; save floats, integers or bools", what, descr);
}

// Reads the Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } in any order of keys.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  NpyHeader parse() {
    NpyHeader header;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!take('}')) {
      std::string key = quoted();
      expect(':');
      if (key == "descr") {
        if (peek() == '[') fail("inputs", "{}: a structured array; save its fields as arrays of their own", what_);
        header.dtype = dtype_of(quoted(), what_);
        descr = true;
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
        order = true;
      } else if (key == "shape") {
        header.dims = tuple();
        shape = true;
      } else {
        wrong(fmt::format("the key '{}'", key));
      }
      if (!take(',') && peek() != '}') wrong("a missing comma");
    }
    if (!descr || !order || !shape) wrong("a missing descr, fortran_order or shape");
    if (peek() != '\0') wrong("text after the dictionary");
    return header;
  }

 private:
  [[noreturn]] void wrong(std::string_view found) {
    fail("inputs", "{}: its .npy header has {}; write the file again with numpy.save", what_, found);
  }

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) wrong(fmt::format("no '{}' at byte {}", c, at_));
  }

  std::string quoted() {
    char quote = peek();
    if (quote != '\'' && quote != '"') wrong(fmt::format("no string at byte {}", at_));
    size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) wrong("an unterminated string");
    std::string inside(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return inside;
  }

  bool boolean() {
    peek();
    for (auto [word, value] : {std::pair{std::string_view("True"), true}, {"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    wrong("a fortran_order that is neither True nor False");
  }

  Dims tuple() {
    Dims dims;
    expect('(');
    while (!take(')')) {
      peek();
      int64_t extent = 0;
      auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) wrong("a shape that is not a tuple of extents");
      at_ = static_cast<size_t>(end - text_.data());
      take('L');  // as Python 2 wrote them
      dims.push_back(extent);
      if (!take(',') && peek() != ')') wrong("a shape without a closing parenthesis");
    }
    return dims;
  }

  std::string_view text_, what_;
  size_t at_ = 0;
};

// Column-major to row-major: walks the result in order, and the source by the reversed strides.
Tensor from_fortran(const NpyHeader& header, const std::byte* source) {
  Tensor tensor = Tensor::zeros(header.dtype, header.dims);
  size_t item = bytes_of(header.dtype, 1), rank = header.dims.size();
  std::vector<size_t> stride(rank);
  size_t step = item;
  for (size_t d = 0; d < rank; ++d) {
    stride[d] = step;
    step *= static_cast<size_t>(header.dims[d]);
  }
  Dims index(rank, 0);
  size_t offset = 0;
  std::byte* target = tensor.mutable_data();
  for (int64_t i = 0, count = tensor.count(); i < count; ++i, target += item) {
    std::memcpy(target, source + offset, item);
    for (size_t d = rank; d-- > 0;) {
      offset += stride[d];
      if (++index[d] < header.dims[d]) break;
      offset -= stride[d] * static_cast<size_t>(header.dims[d]);
      index[d] = 0;
    }
  }
  return tensor;
}

}  // namespace

size_t npy_header_size(std::string_view prefix, std::string_view what) {
  if (!prefix.starts_with(kMagic)) fail("inputs", "{}: no .npy data; write it with numpy.save or numpy.savez", what);
  constexpr size_t kMost = size_t{1} << 20;
  auto byte = [&](size_t i) -> size_t {
    if (i >= prefix.size()) fail("inputs", "{}: truncated within its header", what);
    return static_cast<unsigned char>(prefix[i]);
  };
  size_t version = byte(6), length = 0, start = 10;
  if (version == 1) {
    length = byte(8) | byte(9) << 8;
  } else if (version == 2 || version == 3) {
    length = byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
    start = 12;
  } else {
    fail("inputs", "{}: .npy version {} is not supported; versions 1 to 3 are", what, version);
  }
  if (length > kMost) fail("inputs", "{}: a .npy header of {} bytes; the file is damaged", what, length);
  return start + length;
}

NpyHeader parse_npy_header(std::string_view bytes, std::string_view what) {
  const size_t size = npy_header_size(bytes.substr(0, kNpyPrefix), what), start = bytes[6] == 1 ? 10 : 12;
  if (size > bytes.size()) fail("inputs", "{}: truncated within its header", what);
  NpyHeader header = HeaderParser(bytes.substr(start, size - start), what).parse();
  header.size = size;
  return header;
}

size_t npy_element_bytes(const NpyHeader& header, size_t present, std::string_view what) {
  const auto count = count_if_fits(header.dims);
  const bool empty = std::find(header.dims.begin(), header.dims.end(), 0) != header.dims.end();
  if (!count && !empty)
    fail("inputs", "{}: its extents [{}] are larger than any memory", what, fmt::join(header.dims, ", "));
  const size_t needed = bytes_of(header.dtype, count_of(header.dims));
  if (present != needed)
    fail("inputs", "{}: {} bytes of elements, but {} of shape [{}] takes {}; the file is {}", what, present,
         name_of(header.dtype), fmt::join(header.dims, ", "), needed, present < needed ? "truncated" : "damaged");
  return needed;
}

Tensor row_major(const NpyHeader& header, Tensor stored) {
  return header.fortran_order && header.dims.size() > 1 ? from_fortran(header, stored.data) : stored;
}

Tensor parse_npy(std::string_view bytes, std::string_view what) {
  const NpyHeader header = parse_npy_header(bytes, what);
  const size_t needed = npy_element_bytes(header, bytes.size() - header.size, what);
  return row_major(header, Tensor::copy_of(header.dtype, header.dims, bytes.data() + header.size, needed));
}

std::string npy_header(const Tensor& tensor, std::string_view what) {
  const Descr* found = nullptr;
  for (const Descr& row : kDescrs)
    if (row.dtype == tensor.dtype) found = &row;
  if (!found) fail("outputs", "{}: numpy has no {}; cast it to another type in the model", what, name_of(tensor.dtype));
  std::string shape;
  for (int64_t extent : tensor.dims) shape += fmt::format("{}, ", extent);
  if (tensor.dims.size() > 1) shape.resize(shape.size() - 2);
  if (tensor.dims.size() == 1) shape.pop_back();
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 bits_of(tensor.dtype) == 8 ? '|' : '<', found->name, shape);
  constexpr size_t kPrefix = 10, kAlignment = 64;  // numpy aligns the elements this way
  text.resize((kPrefix + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - kPrefix, ' ');
  text.back() = '\n';
  if (text.size() > 0xffff) fail("outputs", "{}: {} dimensions are too many for .npy", what, tensor.dims.size());
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return header + text;
}

Tensor as_numpy(const Tensor& tensor, std::string_view what) {
  if (tensor.dtype != DType::bfloat16) {
    npy_header(tensor, what);  // throws for types that numpy lacks
    return tensor;
  }
  Tensor wide = Tensor::zeros(DType::float32, tensor.dims);
  auto source = tensor.as<uint16_t>();
  auto* target = reinterpret_cast<uint32_t*>(wide.mutable_data());
  for (size_t i = 0; i < source.size(); ++i) target[i] = static_cast<uint32_t>(source[i]) << 16;
  return wide;
}

Tensor read_npy(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("inputs", "{}: cannot be opened; check the path", path.string());
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) fail("inputs", "{}: cannot be read; it may be a folder", path.string());
  return parse_npy(bytes, path.string());
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  Tensor numpy = as_numpy(tensor, path.string());
  AtomicFile file(path);
  file.write(npy_header(numpy, path.string()));
  file.write(numpy.data, numpy.bytes);
  file.commit();
}

}  // namespace tessera
