#include "tessera/report/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/report/page.h"

namespace tessera::report {
namespace {

constexpr int kMainHeight = 13, kBandTop = 15, kBandHeight = 5, kHeight = 20;

// The share of each bin that intervals cover.
class Bins {
 public:
  Bins(int count, double end) : share_(static_cast<size_t>(count)), width_(end / count) {}

  void add(const Interval& interval) {
    if (!(width_ > 0) || interval.length() <= 0) return;
    const double begin = interval.begin / width_, end = interval.end / width_;
    const auto last = static_cast<int64_t>(share_.size()) - 1;
    const int64_t from = std::clamp<int64_t>(static_cast<int64_t>(begin), 0, last);
    const int64_t to = std::clamp<int64_t>(static_cast<int64_t>(end), 0, last);
    for (int64_t bin = from; bin <= to; ++bin) {
      const auto at = static_cast<double>(bin);
      share_[static_cast<size_t>(bin)] += std::max(0.0, std::min(end, at + 1) - std::max(begin, at));
    }
  }
  double operator[](size_t bin) const { return std::min(1.0, share_[bin]); }
  size_t size() const { return share_.size(); }

 private:
  std::vector<double> share_;
  double width_;
};

Interval exposed_part(const Operation& operation) {
  return {operation.when.begin + operation.waiting, operation.when.end};
}

// A path of the runs of bins for which `holds`; "" if there are none.
template <typename Holds>
std::string path_svg(const char* kind, size_t bins, int top, int height, const Holds& holds) {
  std::string path;
  for (size_t bin = 0; bin < bins;) {
    if (!holds(bin)) {
      ++bin;
      continue;
    }
    const size_t first = bin;
    while (bin < bins && holds(bin)) ++bin;
    path += fmt::format("M{} {}h{}v{}h-{}z", first, top, bin - first, height, bin - first);
  }
  return path.empty() ? "" : fmt::format("<path class={} d=\"{}\"/>", kind, path);
}

std::string title_of(const Operation& operation, const Timeline& timeline) {
  const auto text = [&](size_t index) { return timeline.texts[index]; };
  const double scale = operation.when.length() * 1e-3;
  std::string title = text(operation.op) + " " + text(operation.name);
  if (!text(operation.axes).empty()) title += " over " + text(operation.axes);
  title += fmt::format(": {} ms from {} ms", ms_text(scale, scale), ms_text(operation.when.begin * 1e-3, 100));
  if (operation.waiting > 0) title += fmt::format(", of which {} ms wait", ms_text(operation.waiting * 1e-3, scale));
  return title;
}

}  // namespace

TrackTimes times_of(const Track& track, double end) {
  TrackTimes times;
  for (const Operation& operation : track.operations) {
    if (!operation.communication) {
      times.computing += operation.when.length();
      continue;
    }
    times.exposed += exposed_part(operation).length();
    times.moving += operation.moving.length();
  }
  times.idle = std::max(0.0, end - times.computing - times.exposed);
  return times;
}

double least_named(const Timeline& timeline, int bins, size_t most) {
  constexpr double kLeastBins = 3;  // what is narrower cannot be pointed at
  const double least = kLeastBins * timeline.end / bins;
  std::vector<double> lengths;
  for (const Track& track : timeline.tracks)
    for (const Operation& operation : track.operations)
      if (operation.when.length() >= least) lengths.push_back(operation.when.length());
  if (lengths.size() <= most) return least;
  std::nth_element(lengths.begin(), lengths.begin() + static_cast<int64_t>(most), lengths.end(), std::greater<>());
  return std::nextafter(lengths[most], INFINITY);
}

std::string lane_svg(const Track& track, const Timeline& timeline, int bins, double least_named) {
  Bins computing(bins, timeline.end), exposed(bins, timeline.end), moving(bins, timeline.end);
  for (const Operation& operation : track.operations) {
    if (!operation.communication) {
      computing.add(operation.when);
      continue;
    }
    exposed.add(exposed_part(operation));
    moving.add(operation.moving);
  }
  const auto idle = [&](size_t bin) { return 1 - computing[bin] - exposed[bin]; };
  const auto is_computing = [&](size_t bin) {
    return computing[bin] >= exposed[bin] && computing[bin] >= idle(bin) && computing[bin] > 0;
  };
  const auto is_exposed = [&](size_t bin) {
    return !is_computing(bin) && exposed[bin] > 0 && exposed[bin] >= idle(bin);
  };
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=none role=img><rect class=rest width={} height={} />",
                  bins, kHeight, bins, kMainHeight);
  const size_t count = computing.size();
  svg += path_svg("compute", count, 0, kMainHeight, is_computing);
  svg += path_svg("exposed", count, 0, kMainHeight, is_exposed);
  svg += path_svg("hidden", count, kBandTop, kBandHeight, [&](size_t bin) { return moving[bin] >= 0.5; });
  for (size_t run = 1; run < timeline.runs.size(); ++run) {
    const double at = timeline.runs[run] / timeline.end * bins;
    svg += fmt::format("<path class=run d=\"M{:.1f} 0V{}\"/>", at, kHeight);
  }
  for (const Operation& operation : track.operations) {
    if (operation.when.length() < least_named) continue;
    const double scale = bins / timeline.end;
    svg += fmt::format("<rect class=tip x={:.1f} width={:.1f} height={} ><title>{}</title></rect>",
                       operation.when.begin * scale, operation.when.length() * scale, kMainHeight,
                       escaped(title_of(operation, timeline)));
  }
  return svg + "</svg>";
}

}  // namespace tessera::report
