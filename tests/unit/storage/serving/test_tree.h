#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sluice/block_reader.h"
#include "sluice/link.h"

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "lib/storage/serving/mid_level_server.h"
#include "lib/storage/serving/rpc_server.h"
#include "lib/storage/stripe/stripe_name.h"
#include "tests/unit/storage/blocks/test_cached_reader.h"
#include "tests/unit/storage/blocks/test_cluster.h"
#include "tests/unit/storage/blocks/test_worker.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice::testing {

// A mid-level aggregator in this process, with its own workers, whose responses a test can spoil.
class TestMidLevel : public TestCachedReader {
 public:
  struct Options {
    TestCachedReader::Options blocks;
    MidLevelServer::Options server;
  };

  TestMidLevel(const std::string& root, uint32_t workers, const Options& options)
      : TestCachedReader(root, workers, options.blocks), server_(cache(), worker_metrics_, reports_, options.server) {
    rpc_server_ =
        RpcServer::Start({.listen = {"127.0.0.1:0"}, .drain_timeout = absl::ZeroDuration()}, {&server_}).value();
  }

  const std::string& address() const { return rpc_server_->addresses().front(); }

 private:
  WorkerMetrics worker_metrics_{registry()};
  TcpReports reports_;
  MidLevelServer server_;
  std::unique_ptr<RpcServer> rpc_server_;
};

// A file "data" striped over mid-level aggregators in this process and their workers, and a reader of the top level.
class TestTree {
 public:
  struct Options {
    uint32_t aggregators = 2;
    uint32_t replicas = 1;  // of the top level
    uint32_t workers = 4;   // of each aggregator
    uint32_t sru_bytes = 1000;
    size_t file_bytes = 50000;
    TestMidLevel::Options mid_level;
    BlockReader::Options reader;  // the constructor sets its workers
  };

  explicit TestTree(Options options) : options_(std::move(options)), source_(SourceBytes(options_.file_bytes)) {
    Stripe(source_, /*replace=*/false);
    for (uint32_t i = 0; i < options_.aggregators; ++i) {
      aggregators_.push_back(
          std::make_unique<TestMidLevel>(root() + "/" + MidLevelFolderName(i), options_.workers, options_.mid_level));
      options_.reader.workers.push_back(aggregators_.back()->address());
    }
    link_ = Link::Create(LinkProfile()).value();
    reader_ = BlockReader::Create(link_, options_.reader).value();
  }

  void Stripe(const std::string& source, bool replace) {
    const auto manifest = StripeBytes(source, {.root = root(),
                                               .file = "data",
                                               .workers = options_.workers,
                                               .sru_bytes = options_.sru_bytes,
                                               .levels_above = {{options_.aggregators, options_.replicas}},
                                               .replace = replace});
    EXPECT_TRUE(manifest.ok()) << manifest.status();
  }

  std::string root() const { return folder_.path() / "data"; }
  const std::string& source() const { return source_; }
  BlockReader& reader() { return *reader_; }
  TestMidLevel& aggregator(size_t index) { return *aggregators_[index]; }
  size_t size() const { return aggregators_.size(); }
  uint64_t SruBytes() const { return uint64_t{options_.workers} * options_.sru_bytes; }  // of the top level

  void ForgetBlocks() {
    for (size_t i = 0; i < size(); ++i) {
      for (const char* stripe : {".s0", ".s1"}) {
        aggregator(i).cache().Forget(LowerManifestName("data", static_cast<uint32_t>(i)).value());
        aggregator(i).cache().Forget(absl::StrFormat("data.w%04d%s", i, stripe));
      }
    }
  }

  ReadResult ReadFile(bool allow_partial = false) {
    return Drain(*reader_->Open("data", std::nullopt, {.allow_partial = allow_partial}));
  }

 private:
  Options options_;
  TemporaryFolder folder_;
  const std::string source_;
  std::vector<std::unique_ptr<TestMidLevel>> aggregators_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<BlockReader> reader_;
};

}  // namespace sluice::testing
