#pragma once

#include <map>
#include <string>

namespace tessera {
inline namespace v1 {

/// How many models a written program is: one per class of ranks with equal programs, each rank's weights cut out in
/// files of their own (mpmd); one that every rank runs, which cuts its part out of whole weights (spmd); or one whose
/// only node, a ParallelFor, holds what every rank runs, with whole inputs, weights and outputs (parallel_for).
enum class Form { mpmd, spmd, parallel_for };
/// The form of a written program's collectives: nodes of domain tessera.comm, or calls of ONNX functions in the model,
/// which consist of Send, Recv and ONNX's own operators.
enum class Lower { collectives, primitives };
/// What orders communication in a written model: a token that passes through it, or the positions of the nodes.
enum class Order { tokens, position };
/// How a written model learns the number of the rank that runs it: from an input "tessera.rank", from RankId and
/// AxisIndex nodes, or as a constant, with one model per rank.
enum class RankIdentity { input, op, constant };
/// The type of a rank's number in a written model: an int64 scalar, or a handle (ONNX's opaque type Rank of domain
/// tessera.comm) that only the dialect's operators read. A handle cannot be a constant.
enum class RankType { integer, opaque };

/// The operators of written collectives; docs/dialects.md says what each dialect can express. Only `tessera` has
/// tokens, and operators that return the rank: models of the others are ordered by position, with one model per rank
/// where they depend on it.
enum class Dialect { tessera, ort, tensorrt };

/// The form of a written program. All forms give the same bits, except where primitives add in another order.
struct WriteOptions {
  Lower lower = Lower::collectives;
  Order order = Order::tokens;
  RankIdentity rank_id = RankIdentity::op;
  RankType rank_type = RankType::integer;
  Form form = Form::mpmd;
  Dialect dialect = Dialect::tessera;  ///< others: by position, the rank folded in, of collectives only: their programs
                                       ///< are compiled with Plan::ring_attention "never", Plan::overlap "off"

  /// {"lower": "primitives", "rank_id": "op"}, as on the command line and in manifests; missing keys keep their
  /// defaults. Throws a user error for an invalid word.
  static WriteOptions from_words(const std::map<std::string, std::string>& words);
  std::map<std::string, std::string> words() const;
};

}  // namespace v1
}  // namespace tessera
