#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/report/page.h"
#include "tessera/report/sections.h"

namespace tessera::report {
namespace {

std::string tile_html(const std::string& value, const std::string& words) {
  return fmt::format("<div class=tile><b>{}</b><span>{}</span></div>\n", escaped(value), escaped(words));
}

std::string time_html(double ms, const std::string& words) {
  return ms > 0 ? tile_html(ms_text(ms, ms) + " ms", words) : "";
}

double number_of(const Json* value) {
  return value && value->is_number() ? value->get<double>() : 0;
}

// Measured milliseconds of a step or run: the median where there are several.
double measured_ms(const Inputs& inputs) {
  for (const char* path : {"measured/step_ms", "latency_ms/median"})
    if (const double ms = number_of(inputs.find(path)); ms > 0) return ms;
  const Json* seconds = inputs.find("measured") ? nullptr : inputs.find("seconds");
  return 1e3 * number_of(seconds);
}

// The peak of the rank that needs most.
double peak_bytes(const Inputs& inputs) {
  double peak = number_of(inputs.find("peak_bytes"));
  if (const Json* ranks = inputs.find("ranks"); ranks && ranks->is_array())
    for (const Json& each : *ranks) peak = std::max(peak, number_at(each, "peak_bytes"));
  return peak;
}

std::string tiles_html(const Inputs& inputs) {
  const double predicted = number_of(inputs.find("predicted/step_ms")), measured = measured_ms(inputs);
  std::string html = time_html(predicted, "predicted for a step") + time_html(measured, "measured");
  if (predicted > 0 && measured > 0)
    html += tile_html(fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)), "prediction against measurement");
  if (predicted > 0) {
    const auto share = [&](const char* path) { return percent_text(number_of(inputs.find(path)) / predicted); };
    html += tile_html(share("predicted/compute_ms"), "of it, computing");
    html += tile_html(share("predicted/exposed_ms"), "exposed communication");
    html += tile_html(share("predicted/idle_ms"), "idle");
  }
  if (const double peak = peak_bytes(inputs); peak > 0) html += tile_html(amount_text(peak), "peak memory of a rank");
  return html.empty() ? "" : "<div class=tiles>\n" + html + "</div>\n";
}

}  // namespace

std::string mesh_text(const Json& mesh) {
  std::string text;
  for (const auto& [axis, size] : mesh.items())
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis, size.is_number() ? size.get<int64_t>() : 0);
  return text;
}

std::string summary_section(const Inputs& inputs) {
  const Json* model = inputs.find("model");
  const std::string path = model && model->is_string() ? model->get<std::string>() : "";
  std::string html = fmt::format("<h1>{}</h1>\n", escaped(path.empty() ? "Timeline" : path));
  std::string about;
  if (const Json* mesh = inputs.find("mesh"); mesh && mesh->is_object()) {
    double ranks = 1;
    for (const auto& [axis, size] : mesh->items()) ranks *= size.is_number() ? size.get<double>() : 1;
    about = (mesh->empty() ? "" : "mesh " + mesh_text(*mesh) + ", ") + number_text(ranks, 0) +
            (ranks == 1 ? " rank" : " ranks");
  }
  if (const Json* machine = inputs.find("predicted/machine"); machine && machine->is_string())
    about += (about.empty() ? "" : ", ") + ("on " + machine->get<std::string>());
  if (!about.empty()) html += fmt::format("<p class=quiet>{}</p>\n", escaped(about));
  return html + tiles_html(inputs);
}

std::string notes_section(const Inputs& inputs) {
  std::string html;
  for (const char* kind : {"warnings", "notes"})
    for (const Answer& answer : inputs.answers)
      for (const Json& each : list_at(answer.object, kind))
        if (each.is_string())
          html += fmt::format("<li>{}{}</li>\n", std::string(kind) == "warnings" ? "Warning: " : "",
                              escaped(each.get<std::string>()));
  std::string files;
  const auto add = [&](const std::string& file) {
    const std::string item = fmt::format("<code>{}</code>", escaped(file));
    if (files.find(item) == std::string::npos) files += (files.empty() ? "" : ", ") + item;
  };
  for (const Answer& answer : inputs.answers) add(answer.file);
  for (const Timeline& timeline : inputs.timelines) add(timeline.file);
  for (const MemoryPlan& plan : inputs.memory) add(plan.file);
  return section_html("notes", "Notes",
                      (html.empty() ? "" : "<ul>\n" + html + "</ul>\n") + "<p>Read from " + files + ".</p>\n");
}

}  // namespace tessera::report
