// How libFuzzer changes models: as messages, because most changed bytes make no model any more. One change replaces,
// drops, repeats or swaps what a random message below the graph holds:
//
//     node { op_type: "Concat" input: "x" input: "y" … }   →   node { op_type: "Concat" input: "x" input: "x" … }
//
// Names are replaced by names and operators by operators of the same model, or of the other one that is crossed with
// it; numbers by those at which arithmetic and shapes go wrong. Bytes are changed, too, one time in 16.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <limits>
#include <random>

#include "tessera/onnx.pb.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::minstd_rand;

size_t below(Random& random, size_t count) {
  return std::uniform_int_distribution<size_t>(0, count - 1)(random);
}

template <typename T>
const T& any(Random& random, const std::vector<T>& of) {
  return of[below(random, of.size())];
}

/// One field of one message, and the element if it is repeated.
struct Place {
  Message* message = nullptr;
  const FieldDescriptor* field = nullptr;
  int index = -1;

  int count() const { return reflection().FieldSize(*message, field); }
  const Reflection& reflection() const { return *message->GetReflection(); }
};

/// Names of tensors stand in several fields: a use may take any of them.
std::string_view kind_of(const FieldDescriptor* field) {
  const std::string& name = field->full_name();
  if (name == "onnx.NodeProto.input" || name == "onnx.NodeProto.output" || name == "onnx.ValueInfoProto.name" ||
      name == "onnx.TensorProto.name")
    return "tensor";
  return name;
}

void collect(Message& message, std::vector<Place>& places) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const Reflection& reflection = *message.GetReflection();
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!field->is_repeated()) {
      places.push_back({&message, field, -1});
      if (is_message) collect(*reflection.MutableMessage(&message, field), places);
      continue;
    }
    const int count = reflection.FieldSize(message, field);
    for (int i = 0; i < count; ++i) {
      if (is_message || i < 8 || i + 2 > count) places.push_back({&message, field, i});
      if (is_message) collect(*reflection.MutableRepeatedMessage(&message, field, i), places);
    }
  }
}

template <typename T>
T number(Random& random, T now) {
  using Limits = std::numeric_limits<T>;
  static const std::vector<T> interesting = {0,
                                             1,
                                             2,
                                             3,
                                             4,
                                             5,
                                             7,
                                             8,
                                             9,
                                             16,
                                             100,
                                             255,
                                             T(1 << 16),
                                             T(1 << 30),
                                             Limits::max(),
                                             Limits::lowest(),
                                             Limits::max() / 2};
  switch (below(random, 4)) {
    case 0:
      return any(random, interesting);
    case 1:
      return static_cast<T>(
          0 - static_cast<std::conditional_t<std::is_integral_v<T>, uint64_t, T>>(any(random, interesting)));
    case 2:
      return std::is_integral_v<T> ? static_cast<T>(static_cast<uint64_t>(now) + 1) : Limits::quiet_NaN();
    default:
      return std::is_integral_v<T> ? static_cast<T>(static_cast<uint64_t>(now) - 1) : Limits::infinity();
  }
}

/// Overwrites one number of a tensor's bytes.
std::string changed_bytes(Random& random, std::string bytes) {
  const size_t width = any(random, std::vector<size_t>{1, 2, 4, 8});
  if (bytes.size() < width) return std::string(width, '\1');
  if (below(random, 8) == 0) return bytes.substr(0, bytes.size() - width);
  auto value = number<int64_t>(random, 0);
  bytes.replace(width * below(random, bytes.size() / width), width, reinterpret_cast<const char*>(&value), width);
  return bytes;
}

class Mutation {
 public:
  /// `donor` provides the inserted content; it may be the model itself.
  Mutation(tessera::onnx::ModelProto& model, tessera::onnx::ModelProto& donor, Random& random) : random_(random) {
    collect(*model.mutable_graph(), places_);
    for (auto& function : *model.mutable_functions()) collect(function, places_);
    if (&donor == &model) {
      donors_ = places_;
    } else {
      collect(*donor.mutable_graph(), donors_);
    }
  }

  void run() {
    if (places_.empty() || donors_.empty()) return;
    const Place place = any(random_, places_);
    if (place.index >= 0 && below(random_, 3) == 0) return rearrange(place);
    if (below(random_, 16) == 0) return place.reflection().ClearField(place.message, place.field);
    if (place.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) return replace_message(place);
    replace_scalar(place);
  }

 private:
  void rearrange(const Place& place) {
    const Reflection& reflection = place.reflection();
    const int count = place.count();
    const int other = static_cast<int>(below(random_, static_cast<size_t>(count)));
    switch (below(random_, 3)) {
      case 0:
        reflection.SwapElements(place.message, place.field, place.index, other);
        return;
      case 1:
        reflection.SwapElements(place.message, place.field, place.index, count - 1);
        reflection.RemoveLast(place.message, place.field);
        return;
      default:
        append_copy(place);
    }
  }

  static void append_copy(const Place& place) {
    const Reflection& reflection = place.reflection();
    Message* message = place.message;
    switch (place.field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        std::unique_ptr<Message> copy(reflection.GetRepeatedMessage(*message, place.field, place.index).New());
        copy->CopyFrom(reflection.GetRepeatedMessage(*message, place.field, place.index));
        reflection.AddAllocatedMessage(message, place.field, copy.release());
        return;
      }
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.AddString(message, place.field,
                                    reflection.GetRepeatedString(*message, place.field, place.index));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection.AddInt64(message, place.field,
                                   reflection.GetRepeatedInt64(*message, place.field, place.index));
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.AddInt32(message, place.field,
                                   reflection.GetRepeatedInt32(*message, place.field, place.index));
      default:
        return;
    }
  }

  /// A message of the same type from elsewhere; a node is rather added before another than put in its place.
  void replace_message(const Place& place) {
    std::vector<const Place*> alike;
    for (const Place& donor : donors_)
      if (donor.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
          donor.field->message_type() == place.field->message_type())
        alike.push_back(&donor);
    if (alike.empty()) return;
    const Place& donor = *any(random_, alike);
    const Message& given = donor.index < 0
                               ? donor.reflection().GetMessage(*donor.message, donor.field)
                               : donor.reflection().GetRepeatedMessage(*donor.message, donor.field, donor.index);
    std::unique_ptr<Message> copy(given.New());
    copy->CopyFrom(given);  // the place may lie in it, or it in the place
    Message* here = place.index < 0
                        ? place.reflection().MutableMessage(place.message, place.field)
                        : place.reflection().MutableRepeatedMessage(place.message, place.field, place.index);
    if (auto* node = dynamic_cast<tessera::onnx::NodeProto*>(here); node && below(random_, 2) == 0) {
      auto& put = dynamic_cast<tessera::onnx::NodeProto&>(
          *copy);  // the operator and attributes, for the operands that are here
      put.mutable_input()->CopyFrom(node->input());
      put.mutable_output()->CopyFrom(node->output());
    }
    here->CopyFrom(*copy);
  }

  void replace_scalar(const Place& place) {
    const Reflection& reflection = place.reflection();
    Message* message = place.message;
    const FieldDescriptor* field = place.field;
    const bool one = place.index < 0;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string now = string_at(place);
        const std::string put =
            field->type() == FieldDescriptor::TYPE_BYTES ? changed_bytes(random_, now) : name(place);
        return one ? reflection.SetString(message, field, put)
                   : reflection.SetRepeatedString(message, field, place.index, put);
      }
      case FieldDescriptor::CPPTYPE_INT64:
        return one ? reflection.SetInt64(message, field, number(random_, reflection.GetInt64(*message, field)))
                   : reflection.SetRepeatedInt64(
                         message, field, place.index,
                         number(random_, reflection.GetRepeatedInt64(*message, field, place.index)));
      case FieldDescriptor::CPPTYPE_INT32: {  // mostly types
        const auto put = below(random_, 2) ? static_cast<int32_t>(below(random_, 24)) : number<int32_t>(random_, 1);
        return one ? reflection.SetInt32(message, field, put)
                   : reflection.SetRepeatedInt32(message, field, place.index, put);
      }
      case FieldDescriptor::CPPTYPE_FLOAT:
        return one ? reflection.SetFloat(message, field, number<float>(random_, 0))
                   : reflection.SetRepeatedFloat(message, field, place.index, number<float>(random_, 0));
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto* values = field->enum_type();
        const auto* put = values->value(static_cast<int>(below(random_, static_cast<size_t>(values->value_count()))));
        if (one) reflection.SetEnum(message, field, put);
        return;
      }
      default:
        return;
    }
  }

  static std::string string_at(const Place& place) {
    return place.index < 0 ? place.reflection().GetString(*place.message, place.field)
                           : place.reflection().GetRepeatedString(*place.message, place.field, place.index);
  }

  std::string name(const Place& place) {
    if (below(random_, 16) == 0) return "";
    std::vector<const Place*> alike;
    for (const Place& donor : donors_)
      if (donor.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && kind_of(donor.field) == kind_of(place.field))
        alike.push_back(&donor);
    return alike.empty() ? "" : string_at(*any(random_, alike));
  }

  std::vector<Place> places_, donors_;
  Random& random_;
};

bool parse(tessera::onnx::ModelProto& model, const uint8_t* data, size_t size) {
  return model.ParseFromArray(data, static_cast<int>(size)) && model.has_graph();
}

/// Bytes written; 0 if they do not fit.
size_t write(const tessera::onnx::ModelProto& model, uint8_t* data, size_t max_size) {
  const size_t size = model.ByteSizeLong();
  if (size > max_size || !model.SerializeToArray(data, static_cast<int>(size))) return 0;
  return size;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  Random random(seed);
  tessera::onnx::ModelProto model;
  if (below(random, 16) == 0 || !parse(model, data, size)) return LLVMFuzzerMutate(data, size, max_size);
  for (size_t left = 1 + below(random, 3); left > 0; --left) Mutation(model, model, random).run();
  const size_t written = write(model, data, max_size);
  return written ? written : LLVMFuzzerMutate(data, size, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data, size_t size, const uint8_t* other, size_t other_size,
                                            uint8_t* out, size_t max_size, unsigned seed) {
  Random random(seed);
  tessera::onnx::ModelProto model, donor;
  if (!parse(model, data, size) || !parse(donor, other, other_size)) return 0;
  for (size_t left = 1 + below(random, 3); left > 0; --left) Mutation(model, donor, random).run();
  return write(model, out, max_size);
}
