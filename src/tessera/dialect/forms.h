#pragma once

#include "tessera/dialect/body.h"

/// The forms of collectives, one per file: each writes a function's body and returns its result (null: none).
namespace tessera::dialect {

Value* ring_reduce_scatter(Body& body);      // ring_reduce_scatter.cpp
Value* ring_all_gather(Body& body);          // ring_all_gather.cpp
Value* ring_all_reduce(Body& body);          // all_reduce.cpp
Value* doubling_all_reduce(Body& body);      // doubling_all_reduce.cpp
Value* hierarchical_all_reduce(Body& body);  // all_reduce.cpp
Value* float32_reduction(Body& body);        // all_reduce.cpp
Value* exchange_reduce_scatter(Body& body);  // exchange_reduce_scatter.cpp
Value* tree_broadcast(Body& body);           // tree.cpp
Value* tree_reduce(Body& body);              // tree.cpp
Value* direct_scatter(Body& body);           // direct.cpp
Value* direct_gather(Body& body);            // direct.cpp
Value* direct_permute(Body& body);           // direct.cpp
Value* pairwise_all_to_all(Body& body);      // pairwise_all_to_all.cpp
Value* dissemination_barrier(Body& body);    // barrier.cpp
Value* axis_index(Body& body);               // position.cpp
Value* neighbor(Body& body);                 // position.cpp

}  // namespace tessera::dialect
