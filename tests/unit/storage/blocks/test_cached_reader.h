#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sluice/block_reader.h"
#include "sluice/link.h"

#include "lib/storage/blocks/block_cache.h"
#include "lib/storage/blocks/mid_level_metrics.h"
#include "prometheus/registry.h"
#include "tests/unit/storage/blocks/test_worker.h"

namespace sluice::testing {

// A block cache over a reader. Its workers run in this process, and a test can spoil their responses.
class TestCachedReader {
 public:
  struct Options {
    uint64_t cache_bytes = 64 << 20;
    BlockReader::Options reader;  // the constructor sets its workers
  };

  TestCachedReader(const std::string& root, uint32_t workers, Options options) {
    for (uint32_t i = 0; i < workers; ++i) {
      workers_.push_back(std::make_unique<TestWorker>(root));
      options.reader.workers.push_back(workers_.back()->address());
    }
    link_ = Link::Create(LinkProfile()).value();
    reader_ = BlockReader::Create(link_, options.reader).value();
    cache_ = std::make_unique<BlockCache>(SourceOf(*reader_), options.cache_bytes, metrics_);
  }

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

  // Returns the value of a counter or a gauge; -1 if it is missing.
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
  prometheus::Registry& registry() { return registry_; }

 private:
  std::vector<std::unique_ptr<TestWorker>> workers_;
  prometheus::Registry registry_;
  MidLevelMetrics metrics_{registry_};
  std::shared_ptr<Link> link_;
  std::unique_ptr<BlockReader> reader_;
  std::unique_ptr<BlockCache> cache_;
};

}  // namespace sluice::testing
