#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/report/page.h"
#include "tessera/report/sections.h"

namespace tessera::report {
namespace {

/// Tensors of a block, or of blocks that are alike, in their order.
struct Block {
  std::string name;
  std::vector<const Json*> states, results;
};

std::vector<Block> blocks_of(const Json& layouts) {
  std::vector<Block> blocks;
  std::map<std::string, size_t> known;
  for (const Json& each : layouts) {
    if (!each.is_object()) continue;
    const std::string name = text_at(each, "block");
    const auto [found, fresh] = known.try_emplace(name, blocks.size());
    if (fresh) blocks.push_back({name, {}, {}});
    Block& block = blocks[found->second];
    (text_at(each, "kind") == "state" ? block.states : block.results).push_back(&each);
  }
  return blocks;
}

// The entries between the brackets of a layout: "batch{dp}" and "-" of "[batch{dp}, -]"; none where it has another
// form.
std::vector<std::string> dims_of(const std::string& layout) {
  std::vector<std::string> dims;
  if (layout.size() < 2 || layout.front() != '[') return dims;
  int depth = 0;
  std::string dim;
  for (const char c : layout) {
    depth += c == '[' || c == '{' || c == '(' ? 1 : 0;
    depth -= c == ']' || c == '}' || c == ')' ? 1 : 0;
    if (depth == 0 || (depth == 1 && c == ',')) {
      if (!dim.empty()) dims.push_back(dim);
      dim.clear();
      if (depth == 0) break;
    } else if (!(depth == 1 && (c == '[' || (c == ' ' && dim.empty())))) {
      dim += c;
    }
  }
  return dims;
}

std::string extent_text(const Json& extent) {
  return extent.is_string()   ? extent.get<std::string>()
         : extent.is_number() ? number_text(extent.get<double>(), 0)
                              : "?";
}

// A box for each dimension; those that axes split are marked.
std::string layout_html(const std::string& layout, const Json& shape) {
  const std::vector<std::string> dims = dims_of(layout);
  if (dims.size() != shape.size() || dims.empty()) return fmt::format("<code>{}</code>", escaped(layout));
  std::string html = "<span class=dims>";
  for (size_t d = 0; d < dims.size(); ++d)
    html += dims[d] == "-" ? fmt::format("<span class=dim>{}</span>", escaped(extent_text(shape[d])))
                           : fmt::format("<span class=\"dim split\">{}</span>", escaped(dims[d]));
  html += "</span>";
  const size_t end = layout.rfind(']');
  if (end + 1 < layout.size()) html += fmt::format(" <code>{}</code>", escaped(layout.substr(end + 1)));
  return html;
}

std::string layouts_html(const Json& tensor) {
  const Json& shape = list_at(tensor, "shape");
  std::string html = layout_html(text_at(tensor, "layout"), shape);
  for (const Json& use : list_at(tensor, "uses"))
    if (use.is_string()) html += "<br>used as " + layout_html(use.get<std::string>(), shape);
  return html;
}

std::string why_html(const Json& tensor) {
  std::string html;
  const auto add = [&](const std::string& text) { html += (html.empty() ? "" : "<br>") + escaped(text); };
  for (const char* key : {"why", "lost"})
    for (const Json& each : list_at(tensor, key))
      if (each.is_string()) add(each.get<std::string>());
  for (const Json& reshard : list_at(tensor, "reshards")) {
    std::string steps;
    for (const Json& step : list_at(reshard, "steps"))
      if (step.is_string()) steps += (steps.empty() ? "" : " + ") + step.get<std::string>();
    const std::string reason = text_at(reshard, "reason");
    add(fmt::format("{} ({}) for {}{}", steps, amount_text(number_at(reshard, "bytes")), text_at(reshard, "consumer"),
                    reason.empty() ? "" : ": " + reason));
  }
  return html;
}

std::string tensors_html(const std::vector<const Json*>& tensors) {
  std::vector<std::vector<Cell>> rows;
  const bool have_bytes =
      std::any_of(tensors.begin(), tensors.end(), [](const Json* each) { return each->contains("bytes"); });
  for (const Json* each : tensors) {
    const double count = number_at(*each, "count", 1);
    std::vector<Cell> row = {html_cell("<div class=name>" + wrappable(text_at(*each, "tensor")) + "</div>"),
                             number_cell(count > 1 ? "× " + number_text(count, 0) : ""), text_at(*each, "dtype"),
                             html_cell(layouts_html(*each))};
    if (have_bytes) row.push_back(number_cell(amount_text(number_at(*each, "bytes"))));
    row.push_back(html_cell(fmt::format("<div class=why>{}</div>", why_html(*each))));
    rows.push_back(std::move(row));
  }
  std::vector<std::string> header = {"tensor", "", "type", "dimensions, and the axes that split them"};
  if (have_bytes) header.emplace_back("a rank stores");
  header.emplace_back("why");
  return table_html(header, rows);
}

std::string tensors_text(double count) {
  return number_text(count, 0) + (count == 1 ? " tensor" : " tensors");
}

std::string block_html(const Block& block, bool open) {
  double bytes = 0, states = 0, results = 0;
  for (const Json* result : block.results) results += number_at(*result, "count", 1);
  for (const Json* state : block.states) {
    bytes += number_at(*state, "bytes") * number_at(*state, "count", 1);
    states += number_at(*state, "count", 1);
  }
  std::string about;
  if (states > 0)
    about = fmt::format("{} of parameters and other states, of which a rank stores {}", tensors_text(states),
                        amount_text(bytes));
  std::string html = fmt::format("<details class=block{}><summary><b>{}</b> {}</summary>\n", open ? " open" : "",
                                 escaped(block.name.empty() ? "inputs" : block.name), escaped(about));
  if (!block.states.empty()) html += tensors_html(block.states);
  if (block.results.empty()) return html + "</details>\n";
  if (block.states.empty()) return html + tensors_html(block.results) + "</details>\n";
  return html + fmt::format("<details><summary>{} that its operators make</summary>\n", tensors_text(results)) +
         tensors_html(block.results) + "</details></details>\n";
}

}  // namespace

std::string blocks_section(const Inputs& inputs, const Words& words) {
  const Json* layouts = inputs.find("layouts");
  if (!layouts || !layouts->is_array() || layouts->empty())
    return missing_html(
        "blocks", "How the model is split",
        words("No input has the layouts of tensors. tessera simulate, shard, run, bench and train print "
              "them with `json` and `details`."));
  constexpr size_t kOpen = 6;  // blocks whose tensors are shown at once
  std::string html =
      "<p class=quiet>Names that differ in a number only, and are split alike, share a line with * in its place. A "
      "marked "
      "dimension is split over the axes in braces.</p>\n";
  size_t opened = 0;
  for (const Block& block : blocks_of(*layouts)) {
    const bool open = !block.states.empty() && opened < kOpen;
    opened += open ? 1 : 0;
    html += block_html(block, open);
  }
  return section_html("blocks", "How the model is split", html);
}

}  // namespace tessera::report
