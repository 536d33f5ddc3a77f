#include <fmt/format.h>

#include <algorithm>

#include "tessera/report/axis.h"
#include "tessera/report/lanes.h"
#include "tessera/report/page.h"
#include "tessera/report/sections.h"

namespace tessera::report {
namespace {

// A lane takes at most some 30 bytes for each bin, so these bound the size of all lanes and titles together.
constexpr size_t kMostTracks = 256, kMostTitles = 4000, kMostLaneBytes = 2'400'000;
constexpr int kMostBins = 1200, kBytesOfBin = 30;
constexpr size_t kMany = 16;  // tracks from which lanes are narrow

std::string lanes_html(const Timeline& timeline) {
  const size_t tracks = std::min(timeline.tracks.size(), kMostTracks);
  const int bins = std::min(kMostBins, static_cast<int>(kMostLaneBytes / kBytesOfBin / std::max<size_t>(tracks, 1)));
  const double least = least_named(timeline, bins, kMostTitles);
  const double ms = timeline.end * 1e-3;
  std::string html =
      fmt::format("<div class=\"lanes{}\">\n<span></span>{}<span class=shares>compute, comm., idle</span>\n",
                  tracks >= kMany ? " many" : "", axis_html(ticks(ms, 8), ms, "ms"));
  for (size_t t = 0; t < tracks; ++t) {
    const Track& track = timeline.tracks[t];
    const TrackTimes times = times_of(track, timeline.end);
    const auto share = [&](double time) { return number_text(timeline.end > 0 ? 100 * time / timeline.end : 0, 0); };
    html += fmt::format("<span>{}</span><div class=lane>{}</div><span class=shares>{} %, {} %, {} %</span>\n",
                        escaped(track.name), lane_svg(track, timeline, bins, least), share(times.computing),
                        share(times.exposed), share(times.idle));
  }
  html += "</div>\n";
  if (tracks < timeline.tracks.size())
    html += fmt::format("<p class=quiet>{} more tracks are not shown.</p>\n", timeline.tracks.size() - tracks);
  return html;
}

std::string about(const Timeline& timeline) {
  std::string text = fmt::format("{} ms", ms_text(timeline.end * 1e-3, timeline.end * 1e-3));
  if (timeline.runs.size() > 1) text += fmt::format(" in {} runs, which lines separate", timeline.runs.size());
  return text + ". Where a dot of the picture holds several operations, it shows what takes most of it.";
}

}  // namespace

std::string timeline_section(const Inputs& inputs, const Words& words) {
  if (inputs.timelines.empty())
    return missing_html(
        "timeline", "Timeline",
        words("No input has the times of single operators. tessera simulate, bench and train print them with "
              "`json` and `details`; `trace` of simulate, and `profile` of bench and train, write them "
              "as traces."));
  std::string html = legend_html({{"compute", "computing"},
                                  {"exposed", "communication that nothing hides"},
                                  {"rest", "idle: waiting for other ranks, or between operators"},
                                  {"hidden", "narrow band: transfers under way"}});
  for (const Timeline& timeline : inputs.timelines)
    html += fmt::format("<h3>{}</h3>\n<p class=quiet>{}</p>\n{}", escaped(timeline.title), about(timeline),
                        lanes_html(timeline));
  return section_html("timeline", "Timeline", html);
}

}  // namespace tessera::report
