#include "tessera/onnx/opset_imports.h"

#include "tessera/base/error.h"

namespace tessera::codec {
namespace {

std::string domain_of(const onnx::OperatorSetIdProto& entry) {
  return entry.domain() == "ai.onnx" ? "" : entry.domain();
}

}  // namespace

std::map<std::string, int64_t> opset_map(const OpsetImports& imports, const std::string& where) {
  std::map<std::string, int64_t> versions;
  for (const auto& entry : imports) {
    auto [known, added] = versions.emplace(domain_of(entry), entry.version());
    if (!added && known->second != entry.version())
      fail("import", "{} imports versions {} and {} of the operator set '{}'; keep one", where, known->second,
           entry.version(), entry.domain());
  }
  return versions;
}

void put_opsets(const std::map<std::string, int64_t>& versions, OpsetImports& imports) {
  std::map<std::string, int64_t> missing = versions;
  for (int i = 0; i < imports.size();) {
    auto wanted = versions.find(domain_of(imports[i]));
    if (wanted == versions.end()) {
      imports.DeleteSubrange(i, 1);
      continue;
    }
    if (imports[i].version() != wanted->second) imports[i].set_version(wanted->second);
    missing.erase(wanted->first);
    ++i;
  }
  for (const auto& [domain, version] : missing) {
    auto* entry = imports.Add();
    entry->set_domain(domain);
    entry->set_version(version);
  }
}

}  // namespace tessera::codec
