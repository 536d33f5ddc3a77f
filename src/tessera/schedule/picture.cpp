// Tables as text and as drawings.
#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/schedule/table.h"

namespace tessera::schedule {
namespace {

// "F3" where a rank has one stage, else "2F3".
std::string label_of(const Action& action, bool one_stage) {
  const std::string text = text_of(action);
  return one_stage ? text.substr(text.find_first_not_of("0123456789")) : text;
}

bool one_stage_a_rank(const PipelineTable& table) {
  return table.stages == std::ssize(table.ranks);
}

// Label and columns of each cell that computes, where F, I and W take a column each and messages no time.
struct Column {
  size_t begin = 0, size = 0;
  std::string label;
};

std::vector<std::vector<Column>> columns_of(const PipelineTable& table) {
  const auto ranks = static_cast<double>(table.ranks.size()), share = static_cast<double>(table.stages) / ranks;
  const PipelineTimes times = time_pipeline(table, even_pipeline_costs(table, share, share, share, 0));
  std::vector<std::vector<Column>> rows;
  for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
    std::vector<Column>& row = rows.emplace_back();
    for (size_t slot = 0; slot < table.ranks[rank].size(); ++slot) {
      const Cell& each = table.ranks[rank][slot];
      if (each.idle() || !computes(each.first.work)) continue;
      std::string label = label_of(each.first, one_stage_a_rank(table));
      if (each.overlapped()) label += "+" + label_of(each.second, one_stage_a_rank(table));
      const auto begin = static_cast<size_t>(std::lround(times.start[rank][slot]));
      row.push_back({begin, static_cast<size_t>(std::lround(times.end[rank][slot])) - begin, std::move(label)});
    }
  }
  return rows;
}

// The part of a row from column `first` on; cells that begin before have their label there only.
std::string band_of(const std::vector<Column>& row, size_t first, size_t count, size_t width) {
  std::string text(count * width, ' ');
  for (size_t column = 0; column < count; ++column) text[column * width] = '.';
  for (const Column& each : row)
    for (size_t column = std::max(first, each.begin); column < std::min(first + count, each.begin + each.size);
         ++column) {
      const size_t at = (column - first) * width;
      text[at] = ' ';
      if (column == each.begin)
        text.replace(at, each.label.size(), each.label);
      else if (column == first)
        text[at] = '-';
    }
  text.resize(count * width);  // labels at the end
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

struct Look {
  Work work;
  std::string_view color, word;
};
constexpr std::array kLooks = {Look{Work::forward, "#7aa6da", "F: forward"},
                               Look{Work::backward, "#c79fd0", "B: both gradients"},
                               Look{Work::input_gradient, "#8fc08f", "I: input gradient"},
                               Look{Work::weight_gradient, "#e7c547", "W: weight gradients"}};

const Look& look_of(Work work) {
  return *std::find_if(kLooks.begin(), kLooks.end(), [&](const Look& each) { return each.work == work; });
}

class Drawing {
 public:
  Drawing(const PipelineTable& table, const PipelineTimes& times)
      : table_(table), scale_(times.step > 0 ? std::clamp<double>(cell_width(times), 1e-9, 1e9) : 1) {
    const double width = kLeft + times.step * scale_ + 10;
    const auto rows = static_cast<double>(table.ranks.size());
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        std::max(width, 620.0), kTop + rows * kRow + 10);
    legend();
    for (size_t rank = 0; rank < table.ranks.size(); ++rank) row(rank, times);
    text_ += "</svg>\n";
  }
  std::string take() { return std::move(text_); }

 private:
  static constexpr double kLeft = 56, kTop = 30, kRow = 24, kBar = 20;

  // Pixels for a unit of time, so that the shortest cell has room for its label.
  double cell_width(const PipelineTimes& times) const {
    double shortest = times.step;
    for (size_t rank = 0; rank < table_.ranks.size(); ++rank)
      for (size_t slot = 0; slot < table_.ranks[rank].size(); ++slot)
        if (const double time = times.end[rank][slot] - times.start[rank][slot]; time > 0)
          shortest = std::min(shortest, time);
    return std::min(26 / shortest, 30000 / times.step);
  }

  void legend() {
    double x = kLeft;
    for (const Look& each : kLooks) {
      text_ += fmt::format(
          "<rect x=\"{}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"18\">{}</text>\n", x,
          each.color, x + 16, each.word);
      x += 130;
    }
  }

  void row(size_t rank, const PipelineTimes& times) {
    const double y = kTop + static_cast<double>(rank) * kRow;
    text_ += fmt::format(
        "<text x=\"6\" y=\"{:.0f}\">rank {}</text><rect x=\"{}\" y=\"{:.0f}\" width=\"{:.1f}\" "
        "height=\"{}\" fill=\"#eeeeee\"/>\n",
        y + 14, rank, kLeft, y, times.step * scale_, kBar);
    for (size_t slot = 0; slot < table_.ranks[rank].size(); ++slot) {
      const Cell& each = table_.ranks[rank][slot];
      if (each.idle() || !computes(each.first.work)) continue;
      const double x = kLeft + times.start[rank][slot] * scale_;
      const double width = (times.end[rank][slot] - times.start[rank][slot]) * scale_;
      if (!each.overlapped()) {
        box(each.first, x, y, width, kBar);
      } else {
        box(each.first, x, y, width, kBar / 2);
        box(each.second, x, y + kBar / 2, width, kBar / 2);
      }
    }
  }

  void box(const Action& action, double x, double y, double width, double height) {
    text_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
        "stroke=\"#555555\" stroke-width=\"0.5\"><title>{}</title></rect>\n",
        x, y, width, height, look_of(action.work).color, text_of(action));
    const std::string label = label_of(action, one_stage_a_rank(table_));
    if (width >= 5.5 * static_cast<double>(label.size()) + 2)
      text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"{}\">{}</text>\n",
                           x + width / 2, y + height / 2 + (height < kBar ? 3.2 : 4), height < kBar ? 9 : 10, label);
  }

  const PipelineTable& table_;
  double scale_;
  std::string text_;
};

}  // namespace
}  // namespace tessera::schedule

namespace tessera {
inline namespace v1 {

std::string pipeline_text(const PipelineTable& table, size_t width) {
  using namespace schedule;
  const std::vector<std::vector<Column>> rows = columns_of(table);
  size_t all = 0, label = 1;
  for (const std::vector<Column>& row : rows)
    for (const Column& each : row) {
      all = std::max(all, each.begin + each.size);
      label = std::max(label, each.label.size() / std::max<size_t>(1, each.size));
      if (each.size == 1) label = std::max(label, each.label.size());
    }
  const size_t name = 6 + std::to_string(rows.size() - 1).size();
  const size_t count = width > name + label + 1 ? (width - name) / (label + 1) : 1;
  std::string text;
  for (size_t first = 0; first < all; first += count) {
    if (first > 0) text += '\n';
    for (size_t rank = 0; rank < rows.size(); ++rank)
      text += fmt::format("{:<{}}{}\n", fmt::format("rank {}", rank), name,
                          band_of(rows[rank], first, std::min(count, all - first), label + 1));
  }
  return text;
}

std::string pipeline_svg(const PipelineTable& table, const PipelineTimes& times) {
  return schedule::Drawing(table, times).take();
}

}  // namespace v1
}  // namespace tessera
