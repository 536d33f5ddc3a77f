// The command bench, and bench comm, as a person would run them.
#include "cli/command_line.h"

namespace tessera {
namespace {

TEST_F(CommandLine, bench_says_where_the_time_went) {
  const std::string words = "bench " + model_ + " --mesh tp=2 --shapes batch=4 --iterations 5 --warmup 1";
  Ran ran = tessera(words);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out,
              AllOf(HasSubstr("throughput"), HasSubstr("p99"), HasSubstr("prepared in"), HasSubstr("a new shape"),
                    HasSubstr("floor"), HasSubstr("idle"), HasSubstr("all_reduce"), HasSubstr("MatMul")));
  json object = parsed(words);
  const json latency = object["latency_ms"];
  EXPECT_GT(latency["min"], 0);
  EXPECT_LE(latency["min"], latency["median"]);
  EXPECT_LE(latency["median"], latency["p90"]);
  EXPECT_LE(latency["p90"], latency["p99"]);
  EXPECT_GT(object["floor_ms"], 0);
  EXPECT_EQ(object["dtype"], "float32");
  for (const char* part : {"compile", "load", "bind"}) EXPECT_GT(object["prepare_ms"][part], 0) << part;
  ASSERT_EQ(object["ranks"].size(), 2u);
  for (const json& rank : object["ranks"]) {
    EXPECT_GT(rank["compute_ms"], 0);
    EXPECT_GE(rank["exposed_comm_ms"], 0);
    EXPECT_GE(rank["overlapped_ms"], 0);
    EXPECT_GE(rank["idle_ms"], 0);
    EXPECT_GT(rank["peak_bytes"], 0);
  }
  EXPECT_EQ(object["process"]["ranks"], 2);
  EXPECT_GT(object["process"]["resident_bytes"], 0);
  ASSERT_EQ(object["collectives"].size(), 1u);
  EXPECT_EQ(object["collectives"][0]["kind"], "all_reduce");
  EXPECT_EQ(object["collectives"][0]["count"], 1);
  EXPECT_GT(object["collectives"][0]["ms"], 0);
}

TEST_F(CommandLine, bench_writes_a_trace_with_a_track_per_rank) {
  const std::string trace = (folder_ / "trace.json").string();
  EXPECT_EQ(tessera("bench " + model_ + " --mesh tp=2 --iterations 2 --quiet --profile " + trace).code, 0);
  std::set<std::string> tracks;
  std::set<std::pair<int, std::string>> spans;
  const json written = json::parse(contents(trace));
  for (const json& event : written["traceEvents"])
    if (event["name"] == "thread_name")
      tracks.insert(event["args"]["name"]);
    else if (event["ph"] == "X")
      spans.emplace(event["tid"], event["cat"]);
  EXPECT_EQ(tracks, (std::set<std::string>{"rank 0", "rank 1"}));
  for (int rank : {0, 1})
    for (const char* category : {"compute", "communication"}) EXPECT_TRUE(spans.contains({rank, category}));
  EXPECT_THAT(mistake("bench " + model_ + " --iterations 1 --profile /nowhere/trace.json"), HasSubstr("/nowhere"));
}

TEST_F(CommandLine, bench_grows_a_size_at_each_run) {
  json object = parsed("bench " + model_ + " --mesh tp=2 --grow batch --iterations 20 --warmup 1");
  EXPECT_EQ(object["grow"], "batch");
  EXPECT_TRUE(parsed("bench " + model_ + " --iterations 1")["grow"].is_null());
  EXPECT_THAT(mistake("bench " + model_ + " --grow length"), AllOf(HasSubstr("'length'"), HasSubstr("batch")));
  EXPECT_THAT(mistake("bench " + model_ + " --grow batch --inputs none.npz"),
              AllOf(HasSubstr("--grow"), HasSubstr("--inputs"), HasSubstr("--shapes")));
}

// A row takes 4 KiB, so that the limit is 256 of them.
TEST_F(CommandLine, bench_grows_inputs_within_the_limit_on_memory) {
  const test::TemporaryFolder other;
  const std::string model =
      test::write_model(other, "most (float[batch, 1024] x) => (float y) { y = ReduceMax <keepdims = 0> (x) }")
          .string();
  const std::string words =
      "bench " + model + " --shapes batch=200 --grow batch --memory-limit 1M --quiet --iterations ";
  EXPECT_EQ(tessera(words + "20").code, 0);
  EXPECT_THAT(mistake(words + "100"), AllOf(HasSubstr("'x'"), HasSubstr("--memory-limit")));
}

TEST_F(CommandLine, bench_takes_written_programs_on_given_inputs) {
  const std::string out = (folder_ / "out").string(), in = npz("in.npz", "x", test::ramp({5, 8}));
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 --quiet -o " + out).code, 0);
  json object = parsed("bench " + out + " --iterations 2 --inputs " + in);
  EXPECT_TRUE(object["floor_ms"].is_null()) << "the whole model's FLOPs are not in a written program";
  EXPECT_TRUE(object["prepare_ms"]["bind"].is_null());
  EXPECT_THAT(mistake("bench " + out), HasSubstr("give --inputs"));
  EXPECT_THAT(mistake("bench " + out + " --mesh tp=2 --inputs " + in), HasSubstr("written program"));
}

TEST_F(CommandLine, topology_makes_collectives_hierarchical) {
  std::string file = (folder_ / "cluster.json").string();
  testing_io::put(file, R"({"axes": {"tp": [{"size": 2, "alpha": 1e-6, "bandwidth": 5e9, "name": "memory"},
                                            {"size": 2, "alpha": 5e-5, "bandwidth": 1.25e8, "name": "ethernet"}]}})");
  const std::string mesh = " --mesh tp=4 --topology " + file;
  EXPECT_THAT(tessera("shard " + model_ + mesh + " --dry-run").out,
              HasSubstr("all-reduce over tp is hierarchical: 2 by memory, then 2 by ethernet; predicted"));
  EXPECT_THAT(tessera("explain " + model_ + mesh + " y").out,
              HasSubstr("by ReduceScatter tp:(2)2 + AllReduce tp:(1)2 + AllGather tp:(2)2"));
  EXPECT_THAT(tessera("run " + model_ + mesh + " --dump hierarchical").out, HasSubstr("axes = [\"tp:(1)2\"]"));
  EXPECT_EQ(parsed("verify " + model_ + mesh)["pass"], true);
  EXPECT_EQ(parsed("bench " + model_ + mesh + " --iterations 1")["collectives"].size(), 3u);
}

TEST_F(CommandLine, bench_comm_writes_the_links_that_planning_reads) {
  const std::string file = (folder_ / "cluster.json").string();
  json object = parsed(
      "bench comm --mesh dp=2,tp=4 --per-host 2 --max 4MiB --min 4KiB --seconds 0 "
      "--collectives all_reduce,all_gather,barrier -o " +
      file);
  std::set<std::string> groups;
  int copies = 0, barriers = 0, by_levels = 0;
  for (const json& entry : object["times"]) {
    EXPECT_GT(entry["seconds"], 0);
    copies += entry["collective"] == "copy";
    barriers += entry["collective"] == "barrier";
    by_levels += entry["collective"] == "all_reduce by levels";
    groups.insert(entry["axes"].dump() + " " + entry["ranks"].dump());
    if (entry["collective"] != "barrier") {
      EXPECT_GT(entry["floor_seconds"], 0);
    }
    if (entry["collective"] == "all_reduce") {
      const double n = entry["ranks"], bytes = entry["bytes"], seconds = entry["seconds"];
      EXPECT_NEAR(entry["bus_bandwidth"], 2 * (n - 1) / n * bytes / seconds, 1e-6 * bytes / seconds);
    }
  }
  EXPECT_EQ(copies, 6) << "4 KiB to 4 MiB by fours";
  EXPECT_EQ(groups, (std::set<std::string>{"[] 1", R"(["dp"] 2)", R"(["tp"] 4)", R"(["tp:(2)2"] 2)", R"(["tp:(1)2"] 2)",
                                           R"(["dp","tp"] 8)"}));
  EXPECT_EQ(barriers, 5) << "one a group, whatever the sizes";
  EXPECT_EQ(by_levels, 6) << "of tp, which crosses hosts";
  ASSERT_EQ(object["fits"].size(), 3u);
  EXPECT_EQ(object["fits"][0]["name"], "network") << "dp crosses hosts";
  EXPECT_EQ(object["fits"][1]["name"], "threads");
  EXPECT_EQ(object["fits"][2]["name"], "network");
  EXPECT_EQ(json::parse(contents(file))["axes"]["tp"].size(), 2u);
  EXPECT_EQ(tessera("shard " + model_ + " --mesh dp=2,tp=4 --dry-run --topology " + file).code, 0);
  EXPECT_THAT(tessera("bench comm --mesh tp=2 --max 1KiB --seconds 0 --collectives broadcast").out,
              AllOf(HasSubstr("  collective   axes"), HasSubstr("broadcast"), HasSubstr("1.0 KiB"),
                    HasSubstr("bus bandwidth")));
}

TEST_F(CommandLine, bench_comm_compares_with_times_of_others) {
  const std::string file = (folder_ / "times.txt").string();
  testing_io::put(file, "all_reduce 1024 7\nall_reduce 4096 8.5\n");
  const std::string words = "bench comm --mesh dp=2,tp=2 --collectives all_reduce --max 1KiB --seconds 0 --beside MPI=";
  json object = parsed(words + file);
  for (const json& entry : object["times"]) {
    const bool of_all = entry["ranks"] == 4;
    EXPECT_EQ(entry.contains("beside"), of_all) << entry;
    if (of_all) {
      EXPECT_DOUBLE_EQ(entry["beside"]["MPI"], 7e-6);
    }
  }
  EXPECT_THAT(tessera(words + file).out, AllOf(HasSubstr("MPI / time"), HasSubstr("7.0 µs")));
  EXPECT_THAT(mistake(words + "/nowhere"), HasSubstr("cannot read '/nowhere'; name a file of times"));
  testing_io::put(file, "all_reduce much\n");
  EXPECT_THAT(mistake(words + file), HasSubstr("has no lines of COLLECTIVE"));
}

TEST_F(CommandLine, bench_comm_leaves_out_sizes_beyond_one_that_took_too_long) {
  const std::string words =
      "bench comm --mesh dp=2,tp=2 --per-host 1 --seconds 0 --collectives all_reduce,barrier --max 1MiB --longest ";
  std::map<std::string, int> points;
  const json measured = parsed(words + "0");
  for (const json& entry : measured["times"]) ++points[entry["collective"]];
  EXPECT_EQ(points["copy"], 6);
  EXPECT_EQ(points["all_reduce"], 3) << "the smallest, along each axis and both";
  EXPECT_EQ(points["barrier"], 3);
  EXPECT_THAT(tessera(words + "0").out, HasSubstr("larger sizes are left out where one would take longer than 0"));
  EXPECT_THAT(tessera(words + "60").out, Not(HasSubstr("left out")));
}

#ifndef TESSERA_THREAD_SANITIZER  // it keeps for itself the addresses where ranks share memory
TEST_F(CommandLine, bench_comm_measures_processes) {
  const std::string file = (folder_ / "cluster.json").string();
  json object = parsed("bench comm --mesh tp=2 --spawn 2 --max 8MiB --seconds 0 --collectives all_reduce -o " + file);
  EXPECT_EQ(object["fits"][0]["name"], "processes");
  EXPECT_EQ(json::parse(contents(file))["axes"]["tp"][0]["size"], 2);
  EXPECT_THAT(mistake("bench comm --mesh tp=3 --spawn 2"),
              HasSubstr("the mesh 'tp=3' has 3 ranks, but 2 were started"));
}
#endif

TEST_F(CommandLine, mistakes_in_bench_comm) {
  EXPECT_THAT(mistake("bench comm --mesh tp=2 --beside times.txt"), HasSubstr("write NAME=FILE"));
  EXPECT_THAT(mistake("bench"), HasSubstr("name an ONNX file, or a folder that tessera shard wrote; or comm"));
  EXPECT_THAT(mistake("bench comm"), HasSubstr("--mesh is required"));
  EXPECT_THAT(mistake("bench comm --mesh tp=2 --collectives all_scatter"), HasSubstr("no collective 'all_scatter'"));
  EXPECT_THAT(mistake("bench comm --mesh tp=2 --min 2KiB --max 1KiB"), HasSubstr("sizes from 2048 to 1024 bytes"));
  EXPECT_THAT(mistake("bench comm --mesh tp=6 --per-host 4"), HasSubstr("hosts of 4 ranks do not divide axis 'tp'"));
  EXPECT_THAT(mistake("bench comm --mesh tp=2 --max 1000TiB"), HasSubstr("give a smaller --max"));
  EXPECT_THAT(mistake("bench comm --mesh tp=300"), HasSubstr("at most 256"));
}

}  // namespace
}  // namespace tessera
