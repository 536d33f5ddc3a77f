#include "tessera/report.h"

#include "tessera/report/inputs.h"
#include "tessera/report/page.h"
#include "tessera/report/sections.h"

namespace tessera {
inline namespace v1 {

std::string report_page(const std::vector<std::filesystem::path>& files, const ReportSettings& settings) {
  using namespace report;
  const Inputs inputs = read_inputs(files);
  const Words words = settings.words ? settings.words : [](std::string_view text) { return std::string(text); };
  const Json* model = inputs.find("model");
  const std::string name =
      model && model->is_string() ? std::filesystem::path(model->get<std::string>()).string() : "timeline";
  return page_html("Tessera: " + name, summary_section(inputs) + timeline_section(inputs, words) +
                                           times_section(inputs, words) + collectives_section(inputs, words) +
                                           memory_section(inputs, words) + blocks_section(inputs, words) +
                                           alternatives_section(inputs, words) + notes_section(inputs));
}

}  // namespace v1
}  // namespace tessera
