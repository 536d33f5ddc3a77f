#include "tessera/whatif/recording.h"

#include <map>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/cost/links.h"
#include "tessera/device/device.h"
#include "tessera/mesh/group.h"

namespace tessera::whatif {
namespace {

// Of the part of traces that only we write and read.
constexpr int kVersion = 2;

Json step_json(const bind::Step& step, const bind::StepWork& work, const std::vector<int>& needs) {
  Json json = {{"op", step.info.op},
               {"name", step.info.name},
               {"needs", needs},
               {"read", step.cost.read},
               {"written", step.cost.written}};
  if (work.runs != 1) json["runs"] = work.runs;
  if (step.info.communication) {
    json["axes"] = step.info.axes;
    if (work.joined) json["joined"] = true;
    json["members"] = step.info.members;
    json["received"] = step.cost.received;
    json["sent"] = step.cost.sent;
    if (step.info.from >= 0) json["from"] = step.info.from;
    if (step.info.to >= 0) json["to"] = step.info.to;
    return json;
  }
  json["signature"] = work.signature;
  if (work.flops == 0) return json;
  json["flops"] = work.flops;
  json["dtype"] = name_of(work.dtype);
  json["product"] = {work.rows, work.columns, work.depth};
  return json;
}

Json program_json(const sim::ClassWork& rank) {
  const bind::MachineProgram& machine = *rank.machine;
  Json steps = Json::array(), actions = Json::array();
  for (size_t s = 0; s < machine.steps.size(); ++s)
    steps.push_back(step_json(*machine.steps[s], (*rank.works)[s], (*machine.needs)[s]));
  for (const bind::Enqueued& it : *machine.actions)
    actions.push_back({it.action.task, static_cast<int>(it.action.phase), it.queue, it.after});
  size_t inputs = 0, outputs = 0;
  for (const bind::HostCopy& copy : machine.inputs) inputs += copy.bytes;
  for (const bind::HostCopy& copy : machine.outputs) outputs += copy.bytes;
  return {{"inputs", inputs}, {"outputs", outputs}, {"queues", machine.queues}, {"steps", steps}, {"actions", actions}};
}

void read_step(const Json& json, bind::Step& step, bind::StepWork& work) {
  json.at("op").get_to(step.info.op);
  json.at("name").get_to(step.info.name);
  json.at("read").get_to(step.cost.read);
  json.at("written").get_to(step.cost.written);
  work.runs = json.value("runs", 1.0);
  work.bytes = static_cast<double>(step.cost.read + step.cost.written);
  step.info.communication = json.contains("axes");
  if (step.info.communication) {
    json.at("axes").get_to(step.info.axes);
    json.at("members").get_to(step.info.members);
    json.at("received").get_to(step.cost.received);
    json.at("sent").get_to(step.cost.sent);
    work.joined = json.value("joined", false);
    step.info.from = json.value("from", -1);
    step.info.to = json.value("to", -1);
    return;
  }
  json.at("signature").get_to(work.signature);
  if (!json.contains("flops")) return;
  step.cost.flops = work.flops = json.at("flops").get<double>();
  const auto dtype = json.at("dtype").get<std::string>();
  work.dtype = dtype_named(dtype);
  if (work.dtype == DType::undefined) throw std::out_of_range(fmt::format("element type '{}'", dtype));
  std::tie(work.rows, work.columns, work.depth) = json.at("product").get<std::tuple<double, double, double>>();
}

// Numbers below are places in lists, which must exist.
int place_in(size_t count, const Json& json, int least = 0) {
  const int at = json.get<int>();
  if (at < least || at >= static_cast<int>(count)) throw std::out_of_range(fmt::format("{} of {}", at, count));
  return at;
}

sim::ClassWork read_program(const Json& json) {
  const Json &steps = json.at("steps"), &actions = json.at("actions");
  auto machine = std::make_shared<bind::MachineProgram>();
  auto works = std::make_shared<std::vector<bind::StepWork>>();
  auto needs = std::make_shared<std::vector<std::vector<int>>>();
  for (const Json& each : steps) {
    read_step(each, *machine->steps.emplace_back(std::make_shared<bind::Step>()), works->emplace_back());
    std::vector<int>& needed = needs->emplace_back();
    for (const Json& need : each.at("needs")) needed.push_back(place_in(needs->size() - 1, need));
  }
  json.at("queues").get_to(machine->queues);
  if (machine->queues.empty()) throw std::out_of_range("a program without queues");
  auto enqueued = std::make_shared<std::vector<bind::Enqueued>>();
  auto infos = std::make_shared<std::vector<bind::StepInfo>>();
  std::vector<int> started(steps.size(), -1);
  for (const Json& each : actions) {
    const auto at = static_cast<int>(enqueued->size());
    bind::Enqueued it;
    it.action.task = place_in(steps.size(), each.at(0));
    it.action.phase = static_cast<bind::Phase>(place_in(3, each.at(1)));
    const bool only_computes = it.action.phase != bind::Phase::start;  // as do all runs and waits
    it.queue = place_in(only_computes ? 1 : machine->queues.size(), each.at(2));
    it.after = place_in(enqueued->size(), each.at(3), -1);
    const auto task = static_cast<size_t>(it.action.task);
    if (it.action.phase == bind::Phase::start) started[task] = at;
    infos->push_back(machine->steps[task]->info);
    if (it.action.phase == bind::Phase::wait) infos->back().started = place_in(enqueued->size(), Json(started[task]));
    enqueued->push_back(it);
  }
  machine->needs = std::move(needs);
  machine->actions = std::move(enqueued);
  machine->infos = std::move(infos);
  machine->inputs.resize(1);
  machine->outputs.resize(1);
  json.at("inputs").get_to(machine->inputs.front().bytes);
  json.at("outputs").get_to(machine->outputs.front().bytes);
  return {std::move(machine), std::move(works)};
}

void read_ranks(const Json& json, Recording& recording) {
  std::vector<sim::ClassWork> programs;
  for (const Json& program : json.at("programs")) programs.push_back(read_program(program));
  for (const Json& number : json.at("program_of"))
    recording.ranks.push_back(programs[static_cast<size_t>(place_in(programs.size(), number))]);
  if (recording.ranks.size() != static_cast<size_t>(recording.mesh.size()))
    throw std::out_of_range(fmt::format("programs of {} ranks", recording.ranks.size()));
  for (const sim::ClassWork& rank : recording.ranks)
    for (const auto& step : rank.machine->steps) {
      const bind::StepInfo& info = step->info;
      if (!info.communication) continue;
      parse_axes(info.axes, recording.mesh);  // or throws
      const int64_t ranks = recording.mesh.size();
      if (!collective_of_op(info.op) || info.from >= ranks || info.to >= ranks) throw std::out_of_range(info.op);
    }
}

[[noreturn]] void damaged(const std::string& source, std::string_view why) {
  fail("whatif", "{}: what it says of the program is damaged ({}); record it again with `profile`", source, why);
}

}  // namespace

bool Recording::is_asynchronous() const {
  return device::make_device(device)->is_asynchronous();
}

bool Recording::moves_in_background() const {
  return engine == "gloo" || engine == "mpi" || is_asynchronous();
}

std::vector<std::string> Recording::links_of(const bind::Step& step) const {
  std::vector<std::string> names;
  if (step.info.members == 1) return names;
  for (const cost::GroupLevel& level : cost::levels_of(parse_axes(step.info.axes, mesh), mesh, topology))
    names.push_back(level.name);
  return names.empty() ? std::vector{engine} : names;
}

Recording record(const runtime::DryRun& run, const Topology& topology, const std::string& engine) {
  Recording recording;
  recording.mesh = run.programs->mesh();
  recording.topology = topology;
  recording.engine = engine;
  recording.device = run.options.device;
  recording.conditions = {runtime::threads_of_rank(*run.programs, run.options), run.options.machine_ranks};
  recording.cores = static_cast<int>(std::thread::hardware_concurrency());
  recording.overlap = run.options.overlap;
  recording.sizes = run.symbols;
  recording.ranks = sim::planned(run, sim::single_ranks(recording.mesh.size()), run.options.device);
  return recording;
}

Json to_json(const Recording& recording) {
  Json programs = Json::array(), program_of = Json::array(), sizes = Json::object();
  std::map<std::string, size_t> known;
  for (const sim::ClassWork& rank : recording.ranks) {
    Json program = program_json(rank);
    const auto [found, fresh] =
        known.emplace(program.dump(-1, ' ', false, Json::error_handler_t::replace), programs.size());
    program_of.push_back(found->second);
    if (fresh) programs.push_back(std::move(program));
  }
  for (const auto& [name, size] : recording.sizes) sizes[name] = size;
  return {{"version", kVersion},
          {"mesh", recording.mesh.str()},
          {"engine", recording.engine},
          {"device", recording.device},
          {"threads", recording.conditions.threads},
          {"machine_ranks", recording.conditions.machine_ranks},
          {"cores", recording.cores},
          {"overlap", recording.overlap},
          {"sizes", sizes},
          {"topology", recording.topology.empty() ? Json() : Json::parse(recording.topology.to_json())},
          {"programs", programs},
          {"program_of", program_of}};
}

Recording from_json(const Json& json, const std::string& source) {
  if (const int version = json.value("version", 0); version != kVersion)
    fail("whatif",
         "{} was recorded by another version of tessera: its program is in format {}, and only format {} can be read; "
         "record it again with `profile`",
         source, version, kVersion);
  try {
    Recording recording;
    recording.mesh = Mesh::parse(json.at("mesh").get<std::string>());
    json.at("engine").get_to(recording.engine);
    json.at("device").get_to(recording.device);
    json.at("threads").get_to(recording.conditions.threads);
    json.at("machine_ranks").get_to(recording.conditions.machine_ranks);
    json.at("cores").get_to(recording.cores);
    if (recording.conditions.threads < 1 || recording.conditions.machine_ranks < 0 || recording.cores < 0)
      throw std::out_of_range("threads, ranks of a machine or cores are too few");
    recording.is_asynchronous();  // or throws
    json.at("overlap").get_to(recording.overlap);
    for (const auto& [name, size] : json.at("sizes").items()) recording.sizes[name] = size.get<int64_t>();
    if (!json.at("topology").is_null())
      recording.topology = Topology::from_json(json.at("topology").dump(), source + ": topology");
    read_ranks(json, recording);
    return recording;
  } catch (const Json::exception& error) {
    damaged(source, error.what());
  } catch (const std::out_of_range& error) {
    damaged(source, error.what());
  } catch (const Error& error) {  // of a mesh, a topology or a device
    damaged(source, error.message());
  }
}

}  // namespace tessera::whatif
