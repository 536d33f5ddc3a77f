#include "tessera/base/error.h"
#include "tessera/train/step.h"

namespace tessera::train {

Dropout parse_dropout(std::string_view text) {
  if (text == "model") return Dropout::as_stated;
  if (text == "on") return Dropout::on;
  if (text == "off") return Dropout::off;
  fail("train", "the dropout is '{}'; it can be 'model' (as the model says), 'on' or 'off'", text);
}

BatchNorm parse_batch_norm(std::string_view text) {
  if (text == "model") return BatchNorm::as_stated;
  if (text == "train") return BatchNorm::train;
  if (text == "frozen") return BatchNorm::frozen;
  fail("train", "the batch normalization is '{}'; it can be 'model' (as the model says), 'train' or 'frozen'", text);
}

}  // namespace tessera::train
