#include "tessera/report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "error_of.h"
#include "io/temporary_folder.h"
#include "tessera/report/axis.h"
#include "tessera/report/lanes.h"
#include "tessera/report/page.h"
#include "tessera/report/sections.h"

namespace tessera::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Json event(const char* category, int track, double begin, double length, const std::string& name,
           const std::string& op = "MatMul") {
  return {{"name", name}, {"cat", category}, {"ph", "X"},     {"pid", 0},
          {"tid", track}, {"ts", begin},     {"dur", length}, {"args", {{"op", op}, {"axes", {"tp"}}}}};
}

/// A page of files with these texts.
class ReportPage : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& text) {
    testing_io::put(folder_.path() / name, text);
    return folder_.path() / name;
  }
  std::string page(const std::vector<Json>& inputs) {
    std::vector<std::filesystem::path> files;
    for (const Json& input : inputs) files.push_back(file(fmt::format("{}.json", files.size()), input.dump()));
    return report_page(files);
  }

  testing_io::TemporaryFolder folder_;
};

// What simulate prints, with round numbers.
Json simulated() {
  return Json::parse(testing_io::contents(std::filesystem::path(TESSERA_TEST_DATA) / "report" / "simulated.json"));
}

/// The elements that are opened and not closed, or closed and not opened.
std::vector<std::string> unbalanced(const std::string& html) {
  static const std::regex tag(R"(<(/?)([a-z][a-z0-9]*)((?:"[^"]*"|[^">])*)>)");
  std::vector<std::string> open, wrong;
  const std::string body = html.substr(html.find("<html"));
  for (std::sregex_iterator match(body.begin(), body.end(), tag), end; match != end; ++match) {
    const std::string name = (*match)[2], rest = (*match)[3];
    if (name == "meta" || name == "br" || name == "wbr" || rest.ends_with("/")) continue;
    if ((*match)[1] == "") {
      if (name != "td" && name != "th" && name != "tr" && name != "li") open.push_back(name);
      continue;
    }
    if (name == "td" || name == "th" || name == "tr" || name == "li") continue;
    if (open.empty() || open.back() != name) {
      wrong.push_back("/" + name);
      continue;
    }
    open.pop_back();
  }
  wrong.insert(wrong.end(), open.begin(), open.end());
  return wrong;
}

TEST_F(ReportPage, ShowsAPrediction) {
  const std::string html = page({simulated()});
  EXPECT_THAT(html, AllOf(HasSubstr("<h1>gpt.onnx</h1>"), HasSubstr("mesh dp=2,tp=2, 4 ranks, on H100-SXM"),
                          HasSubstr("<b>4.000 ms</b>"), HasSubstr("1.0 MiB"), HasSubstr("4 like rank 0"),
                          HasSubstr("No order of the same operators beats 3.500 ms"), HasSubstr("25.0 %")));
  EXPECT_THAT(html, HasSubstr("<td>MatMul</td><td class=n>12</td><td class=n>3.000</td><td class=n>75.0 %</td>"));
  // Two ms of transfers, of which half a ms is exposed.
  EXPECT_THAT(html, HasSubstr("<td>all_reduce</td><td>tp</td><td class=n>3</td><td class=n>2.0 KiB</td><td "
                              "class=n>2.000</td><td class=n>0.500</td><td class=n>75.0 %</td>"));
  EXPECT_THAT(html, HasSubstr("Warning: mind the gap"));
}

TEST_F(ReportPage, SaysWhatHidesCommunicationAndWhyRanksWait) {
  Json answer = simulated();
  answer["overlap"] = {{"communications",
                        {{{"kind", "all_gather"},
                          {"axes", {"dp"}},
                          {"tensor", "h.*.<w>"},
                          {"count", 12},
                          {"bytes", 2048},
                          {"hidden", 0.75},
                          {"ms", 4},
                          {"waits", {{"ms", 1.5}, {"late_peer_ms", 0.5}, {"memory_ms", 1}}},
                          {"measured", {{"exposed_ms", 1.25}, {"late_peer_ms", 0.5}, {"moving_ms", 4.5}}},
                          {"behind", {"MatMul h.*.q", "Gelu h.*.g"}}}}},
                       {"waits", {{"ms", 1.5}, {"late_peer_ms", 0.5}, {"memory_ms", 1}}},
                       {"rings",
                        {{{"collective", "AllGather over tp of 'x'"},
                          {"count", 1},
                          {"bytes", 1024},
                          {"taken", false},
                          {"why", "it would take longer"}}}}};
  const std::string html = page({answer});
  EXPECT_THAT(html,
              AllOf(HasSubstr("predicted to wait 1.500 ms for communication"),
                    HasSubstr("<td>memory</td><td class=n>1.000</td><td class=n>66.7 %</td>"),
                    HasSubstr("<td>all_gather over dp</td>"), HasSubstr("h.<wbr>*.<wbr>&lt;w&gt;"),
                    HasSubstr("<td class=n>75.0 %</td><td class=n>1.500</td><td>memory</td>"),
                    HasSubstr("<td class=n>1.750</td>"), HasSubstr("MatMul h.<wbr>*.<wbr>q, Gelu h.<wbr>*.<wbr>g"),
                    HasSubstr("<td>whole</td><td>it would take longer</td>")));
  EXPECT_THAT(html, Not(HasSubstr("Measured times need")));
  EXPECT_THAT(page({simulated()}), AllOf(Not(HasSubstr("Collectives beside products")),
                                         HasSubstr("Measured times need tessera bench, or train with")));
}

TEST_F(ReportPage, SaysOfEachMissingSectionWhatGivesIt) {
  const std::string html = page({simulated()});
  EXPECT_THAT(html,
              AllOf(HasSubstr("No input has the times of single operators. tessera simulate"),
                    HasSubstr("No input has memory by operation"), HasSubstr("No input has the layouts of tensors"),
                    HasSubstr("No input compares plans; give what tessera plan prints")));
  const std::string trace = page({{{"traceEvents", {event("compute", 0, 0, 5, "a")}}}});
  EXPECT_THAT(trace, AllOf(HasSubstr("No input has times. `machine`"), HasSubstr("No input lists collectives")));
  const auto words = [](std::string_view text) { return std::regex_replace(std::string(text), std::regex("`"), "|"); };
  EXPECT_THAT(report_page({folder_.path() / "0.json"}, {words}), HasSubstr("|machine| or |cluster|"));
}

TEST_F(ReportPage, ComparesWithWhatWasMeasured) {
  Json answer = simulated();
  answer["latency_ms"] = {{"median", 5}};
  answer["collectives"][0]["ms"] = 0.75;
  answer["ranks"] = {{{"rank", 0},
                      {"compute_ms", 3.5},
                      {"overlapped_ms", 0.5},
                      {"exposed_comm_ms", 1.25},
                      {"idle_ms", 0.25},
                      {"peak_bytes", 4096}}};
  answer["predicted"]["operators"] = {{{"op", "Gelu"}, {"predicted_ms", 1}, {"measured_ms", 1.5}}};
  const std::string html = page({answer});
  EXPECT_THAT(html,
              AllOf(HasSubstr("<b>5.000 ms</b><span>measured"), HasSubstr("<b>-20.0 %</b>"),
                    HasSubstr("<td class=n>0.750</td>"), HasSubstr("Measured, a run"),
                    HasSubstr("<td>Gelu</td><td class=n>1.000</td><td class=n>1.500</td><td class=n>-0.500</td>")));
}

TEST_F(ReportPage, TakesAnAnswerAndItsTrace) {
  Json trace = {{"traceEvents",
                 {{{"name", "process_name"}, {"ph", "M"}, {"pid", 0}, {"args", {{"name", "measured"}}}},
                  {{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", 1}, {"args", {{"name", "rank 1"}}}},
                  event("compute", 1, 0, 6000, "a"),
                  event("communication", 1, 6000, 4000, "b", "AllReduce")}}};
  trace["traceEvents"].back()["args"]["waiting_us"] = 1000;
  trace["traceEvents"].back()["args"]["moving_us"] = {1000, 10000};
  const std::string html = page({simulated(), trace});
  EXPECT_THAT(html, AllOf(HasSubstr("<h3>measured</h3>"), HasSubstr("<span>rank 1</span>"),
                          HasSubstr("60 %, 30 %, 10 %"), HasSubstr("AllReduce b over tp: 4.000 ms")));
  // Measured beside predicted: 3 ms exposed of a transfer that took at most 9.
  EXPECT_THAT(html, HasSubstr("<td class=n>3.000</td><td class=n>66.7 %</td>"));
}

TEST(Lanes, AreMadeOfWhatTakesMostOfEachBin) {
  Timeline timeline;
  timeline.texts = {"a"};
  timeline.end = 100;
  Track track;
  track.operations.push_back({.when = {0, 50}});
  for (int i = 0; i < 10; ++i) track.operations.push_back({.when = {50 + i * 1.0, 50 + i + 0.6}});  // below a bin
  track.operations.push_back({.when = {70, 100}, .moving = {90, 100}, .waiting = 20, .communication = true});
  const std::string svg = lane_svg(track, timeline, 10, 1000);
  EXPECT_THAT(svg, HasSubstr("<path class=compute d=\"M0 0h6v13h-6z\"/>"));
  EXPECT_THAT(svg, HasSubstr("<path class=exposed d=\"M9 0h1v13h-1z\"/>"));
  EXPECT_THAT(svg, HasSubstr("<path class=hidden d=\"M9 15h1v5h-1z\"/>"));
  EXPECT_THAT(svg, Not(HasSubstr("<title>")));
  EXPECT_THAT(lane_svg(track, timeline, 10, 40), HasSubstr("<title>a a over a: 0.0500 ms from 0.0 ms</title>"));
  const TrackTimes times = times_of(track, timeline.end);
  EXPECT_DOUBLE_EQ(times.computing, 56);
  EXPECT_DOUBLE_EQ(times.exposed, 10);
  EXPECT_DOUBLE_EQ(times.idle, 34);
}

TEST(Lanes, NameTheLongestOperations) {
  Timeline timeline;
  timeline.end = 100;
  Track& track = timeline.tracks.emplace_back();
  for (int i = 0; i < 4; ++i) track.operations.push_back({.when = {i * 25.0, i * 25.0 + 10 + i}});
  EXPECT_DOUBLE_EQ(least_named(timeline, 100, 10), 3) << "three bins";
  EXPECT_GT(least_named(timeline, 100, 2), 11);
  EXPECT_LE(least_named(timeline, 100, 2), 12);
}

TEST(Names, MayWrapBetweenTheirParts) {
  EXPECT_EQ(wrappable("h.0.fc+<b>"), "h.<wbr>0.<wbr>fc+<wbr>&lt;b&gt;");
  EXPECT_EQ(wrappable("end."), "end.");
  EXPECT_EQ(wrappable(""), "");
}

TEST(Axis, HasRoundNumbers) {
  EXPECT_THAT(ticks(1.7, 4), ElementsAre(0, 0.5, 1, 1.5));
  EXPECT_THAT(ticks(100, 4), ElementsAre(0, 50, 100));
  EXPECT_THAT(ticks(0, 4), ElementsAre(0));
}

TEST_F(ReportPage, DrawsMemoryByClass) {
  const Json memory = Json::parse(R"({"model": "m", "memory": {"rank": 3, "operations": ["MatMul 'a'", "Gelu 'b'"],
    "states": [1024, 1024], "activations": [0, 2048], "gradients": [0, 0], "buffers": [512, 1024]}})");
  const std::string html = page({memory});
  EXPECT_THAT(html,
              AllOf(HasSubstr("<h3>Rank 3</h3>"), HasSubstr("operation 2 of 2, Gelu &#39;b&#39;, it holds 4.0 KiB"),
                    HasSubstr("<td>activations</td><td class=n>2.0 KiB</td><td class=n>50.0 %</td>")));
  // From the bottom: states up to a quarter of 220, in both of the two columns.
  EXPECT_THAT(html, HasSubstr("<path class=states d=\"M0 165H1H2V220.0H1V220.0H0z\"/>"));
  // The trace of a memory plan is drawn in the same way.
  Json counters = Json::array();
  counters.push_back(
      {{"name", "bytes"}, {"ph", "C"}, {"pid", 3}, {"ts", 0}, {"args", {{"states", 1024}, {"buffers", 1024}}}});
  counters.push_back({{"name", "MatMul 'a'"}, {"ph", "X"}, {"pid", 3}, {"tid", 0}, {"ts", 0}, {"dur", 1}});
  EXPECT_THAT(page({counters}), HasSubstr("operation 1 of 1, MatMul &#39;a&#39;, it holds 2.0 KiB"));
}

TEST_F(ReportPage, ShowsHowBlocksAreSplitAndWhy) {
  const std::string html = page({Json::parse(R"({"model": "m", "layouts": [
    {"tensor": "h.*.fc.weight", "count": 12, "block": "h.*", "kind": "state", "dtype": "float32", "shape": [768, 3072],
     "bytes": 1024, "layout": "[-, 3072{tp}]", "uses": ["[-, -]"], "why": ["tp on dimension 1: annotated by megatron"],
     "lost": ["not dp on dimension 0: it is closed"],
     "reshards": [{"to": "[-, -]", "steps": ["AllGather tp"], "bytes": 4096, "consumer": "y", "reason": null}]},
    {"tensor": "addmm_*", "count": 12, "block": "h.*", "kind": "result", "dtype": "float32", "shape": ["batch", 3072],
     "layout": "[batch{dp}, 3072{tp}] sum over x", "uses": [], "why": [], "lost": [], "reshards": []}]})")});
  EXPECT_THAT(html,
              AllOf(HasSubstr("<b>h.*</b> 12 tensors of parameters and other states, of which a rank stores 12.0 KiB"),
                    HasSubstr("<span class=dim>768</span><span class=\"dim split\">3072{tp}</span>"),
                    HasSubstr("used as <span class=dims><span class=dim>768</span><span class=dim>3,072</span>"),
                    HasSubstr("tp on dimension 1: annotated by megatron<br>not dp on dimension 0: it is closed<br>"
                              "AllGather tp (4.0 KiB) for y"),
                    HasSubstr("12 tensors that its operators make"), HasSubstr("h.<wbr>*.<wbr>fc.<wbr>weight"),
                    HasSubstr("<code> sum over x</code>")));
}

TEST_F(ReportPage, ComparesPlans) {
  Json planned = Json::parse(R"({"model": "m", "devices": 8, "machine": "H100-SXM", "objective": "time",
    "best": [{"text": "dp=8", "step_ms": 10, "compute_ms": 9, "exposed_ms": 1, "idle_ms": 0, "peak_bytes": 1024},
             {"text": "tp=8", "step_ms": 12, "compute_ms": 8, "exposed_ms": 4, "idle_ms": 0, "peak_bytes": 512,
              "decided": "3 ms more exposed", "wins": ["if nvlink were 1.40 times as fast"]}],
    "bound_ms": 5, "distance": 2, "candidates": 40, "evaluated": 12, "unfit": 2, "too_slow": 20,
    "not_searched": ["pipelines"]})");
  const std::string html = page({planned});
  EXPECT_THAT(html,
              AllOf(HasSubstr("Plans for 8 devices of H100-SXM, the fastest first"),
                    HasSubstr("3 ms more exposed; the better one if nvlink were 1.40 times as fast"),
                    HasSubstr("40 candidates: 10 simulated, 2 compiled, but too large, 20 whose bound is no better."),
                    HasSubstr("Not searched: pipelines.")));
  EXPECT_THAT(html,
              HasSubstr("No plan beats 5.000 ms, the products at the peak rate of all devices; the best takes 2.00"));
  planned["distance"] = 1e298;
  EXPECT_THAT(page({planned}), Not(HasSubstr("No plan beats"))) << "a bound that says nothing";
}

constexpr const char* kHostile = "<script>alert('x')</script>\"&\x01";

// Texts of `json`, keys of its objects, and their numbers where texts are read.
void spoil(Json& json) {
  if (json.is_string() && json != "X" && json != "M" && json != "compute" && json != "communication") json = kHostile;
  if (json.is_structured())
    for (Json& each : json) spoil(each);
}

TEST_F(ReportPage, EscapesAllTexts) {
  Json answer = simulated();
  answer["layouts"] = Json::parse(R"([{"tensor": "t", "block": "b", "kind": "state", "dtype": "d", "shape": ["s"],
    "layout": "[s{tp}]", "uses": ["[-]"], "why": ["w"], "lost": ["l"], "reshards": [{"steps": ["s"], "consumer": "c",
    "reason": "r"}]}])");
  answer["best"] = Json::parse(R"([{"text": "t"}, {"text": "t", "decided": "d", "wins": ["w"]}])");
  answer["memory"] = Json::parse(R"({"operations": ["o"], "states": [1], "activations": [1]})");
  answer["mesh"] = {{kHostile, 2}};
  answer["traceEvents"] = {event("compute", 0, 0, 5, "n"),
                           {{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", 0}, {"args", {{"name", "t"}}}}};
  for (auto& [key, value] : answer.items())
    if (key != "traceEvents") spoil(value);
  for (Json& each : answer["traceEvents"]) spoil(each["args"]);
  answer["traceEvents"][0]["name"] = kHostile;
  answer["layouts"][0]["layout"] = "[<b>{tp}]";
  const std::string html = page({answer});
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<b>{tp}")), Not(HasSubstr("\x01")),
                          HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;\xEF\xBF\xBD")));
  EXPECT_THAT(unbalanced(html), ElementsAre());
}

TEST_F(ReportPage, IsOneFileThatLoadsNothing) {
  Json answer = simulated();
  answer["traceEvents"] = {event("compute", 0, 0, 5, "n")};
  const std::string html = page({answer});
  for (const char* loader : {"<script", "<link", "<img", "src=", "url(", "@import", "http:", "https:"})
    EXPECT_THAT(html, Not(HasSubstr(loader)));
  EXPECT_THAT(html, AllOf(HasSubstr("prefers-color-scheme: dark"), HasSubstr("@media print")));
  EXPECT_THAT(unbalanced(html), ElementsAre());
}

// 64 ranks and 3 steps, whose operators alternate at the resolution of the picture, which is the worst case. Other
// sections do not grow with ranks or steps.
TEST(TimelineSection, StaysBelowFourMegabytes) {
  constexpr int kRanks = 64, kSteps = 3, kOperators = 400;
  Inputs inputs;
  Timeline& timeline = inputs.timelines.emplace_back();
  timeline.texts = {"model.transformer.h.11.attn.c_attn.weight"};
  timeline.runs = {0, 4000, 8000};
  timeline.end = kSteps * kOperators * 10;
  for (int rank = 0; rank < kRanks; ++rank) {
    Track& track = timeline.tracks.emplace_back();
    track.name = fmt::format("rank {}", rank);
    for (int i = 0; i < kSteps * kOperators; ++i) {
      const double begin = i * 10.0, end = begin + 9 + (rank + i) % 3 * 0.4;
      track.operations.push_back(
          {.when = {begin, end}, .moving = {begin, i % 4 == 1 ? end : begin}, .communication = i % 2 == 1});
    }
  }
  const std::string html = timeline_section(inputs, [](std::string_view text) { return std::string(text); });
  EXPECT_THAT(html, AllOf(HasSubstr("in 3 runs, which lines separate"), HasSubstr("<span>rank 63</span>")));
  EXPECT_LT(html.size(), 4'000'000U);
  EXPECT_GT(html.size(), 1'000'000U) << "it is no worst case any more";
}

TEST_F(ReportPage, RefusesWhatItCannotShow) {
  const auto refusal = [&](const std::string& text) {
    return test::error_of([&] { report_page({file("bad.json", text)}); });
  };
  EXPECT_THAT(refusal(R"({"model": "m", "predicted": {"step_ms")"),
              HasSubstr("bad.json is not JSON: parse error at line 1"));
  EXPECT_THAT(refusal(R"({"dependencies": {}})"), HasSubstr("bad.json is JSON, but neither the answer of a run"));
  EXPECT_THAT(refusal(R"({"traceEvents": [{"ph": "X", "name": "js", "cat": "v8", "ts": 1, "dur": 2}]})"),
              HasSubstr("nor a trace of one"));
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("nor a trace of one"));
  EXPECT_THAT(refusal(R"({"error": "[mesh] no axis"})"),
              HasSubstr("bad.json is the answer of a command that failed: [mesh] no axis"));
  EXPECT_THAT(test::error_of([&] { report_page({folder_.path() / "none.json"}); }), HasSubstr("none.json"));
}

// Values of other forms than commands write show nothing, and break nothing.
TEST_F(ReportPage, TakesStrangeValues) {
  Json answer = simulated();
  for (auto& [key, value] : answer["predicted"].items()) value = {{"x", nullptr}};
  answer["collectives"] = {1, "two", nullptr};
  answer["layouts"] = {nullptr, 3};
  answer["best"] = {nullptr};
  answer["ranks"] = {nullptr};
  answer["memory"] = {{"operations", {1, 2}}, {"states", "many"}};
  answer["traceEvents"] = {nullptr, {{"ph", 1}}, {{"ph", "X"}, {"cat", "compute"}, {"args", 7}, {"ts", "now"}}};
  EXPECT_THAT(unbalanced(page({answer})), ElementsAre());
}

}  // namespace
}  // namespace tessera::report
