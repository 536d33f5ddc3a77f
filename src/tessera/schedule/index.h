#pragma once

#include "tessera/schedule/table.h"

/// Where a table computes, sends and receives what: the first part of its check. Each action is found in constant time.
namespace tessera::schedule {

/// The cells of all ranks in one list, rank by rank, without idle ones.
struct CellList {
  struct Entry {
    Cell cell;
    int64_t rank = 0, slot = 0;
  };
  std::vector<Entry> cells;
  std::vector<int64_t> begin;  ///< by rank, its first cell; one more, the end

  explicit CellList(const PipelineTable& table);
  /// "rank 1, slot 4, '1I2'".
  std::string place(int64_t cell) const;
};

/// For each kind of work, stage and micro-batch, the cell that does it, or -1.
class Index {
 public:
  /// Throws the errors of check_pipeline that are about single cells: wrong ranks, cells that are missing or twice
  /// there.
  Index(const PipelineTable& table, const CellList& list);

  int64_t forward(int64_t stage, int64_t micro_batch) const { return at(Work::forward, stage, micro_batch); }
  /// Of I or B.
  int64_t input_gradient(int64_t stage, int64_t micro_batch) const;
  /// Of W or B.
  int64_t weight_gradient(int64_t stage, int64_t micro_batch) const;
  int64_t at(Work work, int64_t stage, int64_t micro_batch) const {
    return cells_[static_cast<size_t>(work)][static_cast<size_t>(stage * micro_batches_ + micro_batch)];
  }

  bool trains() const { return trains_; }
  bool communicates() const { return communicates_; }  ///< it has cells that send or receive

 private:
  void add(const CellList& list, const PipelineTable& table, const Action& action, int64_t cell);
  void require_complete(const PipelineTable& table) const;

  int64_t micro_batches_;
  bool trains_ = false, communicates_ = false;
  std::vector<std::vector<int64_t>> cells_;  // by work, then stage and micro-batch
};

/// What a cell waits for besides its rank's previous one.
struct Message {
  int64_t from = -1, to = -1;  ///< the cell that makes the value, and the one that needs it
  bool crosses = false;        ///< from one rank to another
  int64_t leaves = -1;         ///< if it crosses, the cell after which it leaves: SEND_F, or `from`
  int64_t taken = -1;          ///< and the one at which a place for it is free: RECV_F, or `to`
  int64_t link = -1;           ///< and the link that it takes: twice the lower stage, plus 1 for gradients
};
std::vector<Message> messages_of(const PipelineTable& table, const CellList& list, const Index& index);

}  // namespace tessera::schedule
