#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sluice/block_reader.h"
#include "sluice/link.h"
#include "sluice/v1/sru_service.grpc.pb.h"

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "lib/blocks/block_cache.h"
#include "lib/serving/mid_level_server.h"
#include "lib/serving/rpc_server.h"
#include "lib/stripe/stripe_name.h"
#include "lib/telemetry/mid_level_metrics.h"
#include "prometheus/registry.h"
#include "tests/rpc/test_cluster.h"
#include "tests/rpc/test_worker.h"
#include "tests/stripe/striped_folder.h"

namespace sluice::testing {

// A mid-level aggregator in this process, over workers of its own that a test can spoil.
class TestMidLevel {
 public:
  struct Options {
    uint64_t cache_bytes = 64 << 20;
    BlockReader::Options reader;  // its workers are filled in
    MidLevelServer::Options server;
  };

  TestMidLevel(const std::string& root, uint32_t workers, Options options) {
    for (uint32_t i = 0; i < workers; ++i) {
      workers_.push_back(std::make_unique<TestWorker>(root));
      options.reader.workers.push_back(workers_.back()->address());
    }
    link_ = Link::Create(LinkProfile()).value();
    reader_ = BlockReader::Create(link_, options.reader).value();
    cache_ = std::make_unique<BlockCache>(SourceOf(*reader_), options.cache_bytes, metrics_);
    server_ = std::make_unique<MidLevelServer>(*cache_, worker_metrics_, reports_, options.server);
    rpc_server_ =
        RpcServer::Start({.listen = {"127.0.0.1:0"}, .drain_timeout = absl::ZeroDuration()}, {server_.get()}).value();
  }

  const std::string& address() const { return rpc_server_->addresses().front(); }
  TestWorker& worker(size_t index) { return *workers_[index]; }
  BlockCache& cache() { return *cache_; }
  void DestroyCache() { cache_.reset(); }
  void SpoilSrus(const TestWorker::SruFault& fault) {
    for (const auto& worker : workers_) worker->SpoilSrus(fault);
  }
  int Requests() const {
    int requests = 0;
    for (const auto& worker : workers_) requests += worker->counts().requests;
    return requests;
  }

  // Of a counter or a gauge of this aggregator; -1: there is none.
  double Metric(const std::string& name, const std::string& label_value = "") const {
    for (const prometheus::MetricFamily& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        const std::string value = metric.label.empty() ? "" : metric.label.front().value;
        if (value == label_value) return metric.counter.value + metric.gauge.value;
      }
    }
    return -1;
  }

 private:
  std::vector<std::unique_ptr<TestWorker>> workers_;
  prometheus::Registry registry_;
  WorkerMetrics worker_metrics_{registry_};
  MidLevelMetrics metrics_{registry_};
  TcpReports reports_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<BlockReader> reader_;
  std::unique_ptr<BlockCache> cache_;
  std::unique_ptr<MidLevelServer> server_;
  std::unique_ptr<RpcServer> rpc_server_;
};

// A file "data" that is striped over mid-level aggregators in this process and their workers, and a reader on top.
class TestTree {
 public:
  struct Options {
    uint32_t aggregators = 2;
    uint32_t replicas = 1;  // of the top level
    uint32_t workers = 4;   // of each aggregator
    uint32_t sru_bytes = 1000;
    size_t file_bytes = 50000;
    TestMidLevel::Options mid_level;
    BlockReader::Options reader;  // its workers are filled in
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
