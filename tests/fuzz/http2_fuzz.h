#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/http2/session.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {

// One session against a peer from the input: raw bytes, or frames with a correct length. Between them, and within
// callbacks, the input calls the session's own functions. Checks the session's guarantees, whatever the peer sends.
class Http2Fuzz : SessionEvents {
 public:
  Http2Fuzz(Http2Session::Side side, FuzzInput input) : input_(input) {
    const uint8_t choice = input_.Byte();
    session_ = *Http2Session::Create({.side = side,
                                      .stream_window_bytes = choice % 2 == 0 ? 6u : 1000u,
                                      .connection_window_bytes = 65535,
                                      .max_header_list_bytes = 500,
                                      .max_concurrent_streams = 5,
                                      .max_unsent_bytes_per_stream = 1000},
                                     *this);
    // Let most inputs pass the handshake.
    if (choice < 240) {
      Receive(absl::StrCat(side == Http2Session::Side::kServer ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "",
                           Frame(4, 0, 0, ""), Frame(4, 1, 0, "")));
    }
    if (side == Http2Session::Side::kClient) {
      for (int i = 0; i < choice % 4; ++i) Open();
    }
  }

  void Run() {
    while (!input_.empty() && status_.ok()) Step();
    Output();
    session_->Lose();
    FUZZ_CHECK(session_->streams() == 0);
    FUZZ_CHECK(!session_->wants_write());
    for (const auto& [id, stream] : streams_) FUZZ_CHECK(stream->closed);
  }

 private:
  struct Stream : StreamEvents {
    explicit Stream(Http2Fuzz& owner) : fuzz(owner) {}
    Http2Fuzz& fuzz;
    uint64_t granted = 0, updated = 0, bytes = 0, padding = 0;
    int header_blocks = 0;
    bool ended = false, closed = false;

    void OnHeaders(HeaderList headers, bool end_stream) override {
      size_t list_bytes = 0;
      for (const HeaderField& field : headers) list_bytes += field.name.size() + field.value.size() + 32;
      FUZZ_CHECK(list_bytes <= 500);
      FUZZ_CHECK(++header_blocks <= 2);
      FUZZ_CHECK(header_blocks == 1 || end_stream);
      Note(end_stream);
      fuzz.MaybeAct();
    }
    void OnData(absl::string_view data, size_t window_bytes, bool end_stream) override {
      FUZZ_CHECK(header_blocks == 1);
      FUZZ_CHECK(window_bytes >= data.size());
      bytes += data.size();
      padding += window_bytes - data.size();
      // The window is 65,535 until SETTINGS are acknowledged. nghttp2 does not count padding against a peer that
      // exceeds it.
      FUZZ_CHECK(bytes <= 65535 + granted + padding);
      Note(end_stream);
      fuzz.MaybeAct();
    }
    void OnWritable() override {
      FUZZ_CHECK(!closed);
      fuzz.MaybeAct();
    }
    void OnClosed(StreamEnd end) override {
      FUZZ_CHECK(!closed);
      FUZZ_CHECK(end.kind != StreamEnd::Kind::kComplete || ended);
      FUZZ_CHECK(end.kind != StreamEnd::Kind::kUnhandled || header_blocks == 0);
      closed = true;
      fuzz.MaybeAct();
    }
    void Note(bool end_stream) {
      FUZZ_CHECK(!closed && !ended);
      ended = end_stream;
    }
  };

  StreamEvents* OnStream(int32_t id) override {
    if (id % 16 == 15) return nullptr;
    FUZZ_CHECK(streams_.count(id) == 0);
    return streams_.emplace(id, std::make_unique<Stream>(*this)).first->second.get();
  }
  void OnSlots() override { MaybeAct(); }

  static std::string Frame(uint8_t type, uint8_t flags, int32_t stream, absl::string_view payload) {
    std::string frame(9, '\0');
    frame[1] = static_cast<char>(payload.size() >> 8);
    frame[2] = static_cast<char>(payload.size());
    frame[3] = static_cast<char>(type);
    frame[4] = static_cast<char>(flags);
    frame[8] = static_cast<char>(stream);
    return absl::StrCat(frame, payload);
  }

  void Step() {
    const uint8_t op = input_.Byte();
    if (op < 64) {
      Receive(std::string(input_.Take(op + 1)));
    } else if (op < 192) {
      const uint8_t flags = input_.Byte(), stream = input_.Byte(), size = input_.Byte();
      Receive(Frame(op % 12, flags, stream, input_.Take(size)));
    } else if (op < 200) {
      Output();
    } else {
      Act(op);
    }
  }

  void MaybeAct() {
    if (const uint8_t op = input_.Byte(); op >= 192) Act(op);
  }

  // Does something that an owner may do at any time, also within a callback.
  void Act(uint8_t op) {
    const int32_t id = input_.Byte();
    switch (op % 8) {
      case 0:
        Open();
        break;
      case 1:
        if (const auto it = streams_.find(id); it != streams_.end() && !it->second->ended && !it->second->closed) {
          const uint32_t bytes = input_.Byte() + 1u;
          it->second->granted += bytes;
          session_->Grant(id, bytes);
        }
        break;
      case 2:
        session_->Reset(id, static_cast<Http2Error>(input_.Byte() % 12));
        break;
      case 3: {
        const auto kept = session_->SendData(id, std::string(input_.Byte() * 20u, 'x'), op % 16 < 8);
        FUZZ_CHECK(!kept.ok() || *kept <= 1000);
        break;
      }
      case 4:
        session_->SendHeaders(id, {{":status", "200"}, {"a", "b"}}, false);
        break;
      case 5:
        session_->SendHeaders(id, {{"grpc-status", "0"}}, true);
        break;
      case 6:
        if (op >= 250) {
          session_->GoAway(Http2Error::kNoError);
        } else {
          session_->Send(op < 125 ? Http2Session::Probe::kPing : Http2Session::Probe::kSettings);
        }
        break;
      case 7:
        if (op == 255) session_->Lose();
        break;
    }
  }

  void Open() {
    const size_t slots = session_->open_slots();
    auto stream = std::make_unique<Stream>(*this);
    const uint32_t granted = input_.Byte();
    stream->granted = granted;
    const uint8_t shape = input_.Byte();
    const auto id = session_->Open({{":method", "POST"}, {":scheme", "http"}, {":path", "/a/B"}, {"secret", "s", true}},
                                   std::string(shape / 2u * 10, 'b'), shape % 2 == 0, granted, *stream);
    // With a free slot, opening may fail only if the peer's limit on headers is below the size of these headers.
    FUZZ_CHECK(slots > 0 ? id.ok() || absl::IsInvalidArgument(id.status()) : absl::IsResourceExhausted(id.status()));
    if (id.ok()) streams_.emplace(*id, std::move(stream));
  }

  void Receive(const std::string& bytes) {
    if (status_.ok()) status_ = session_->Receive(bytes);
    FUZZ_CHECK(status_.ok() || session_->open_slots() == 0);
  }

  // Output must consist of whole frames. Window updates must belong to streams with grants, and must not be 0.
  void Output() {
    std::string out;
    session_->Output(out);
    FUZZ_CHECK(!session_->wants_write());
    absl::string_view rest = out;
    if (rest.substr(0, 3) == "PRI") rest.remove_prefix(24);
    const auto number = [&](size_t offset, size_t size) {
      uint32_t value = 0;
      for (size_t i = offset; i < offset + size; ++i) value = value << 8 | static_cast<uint8_t>(rest[i]);
      return value;
    };
    while (!rest.empty()) {
      FUZZ_CHECK(rest.size() >= 9);
      const size_t size = number(0, 3);
      const auto id = static_cast<int32_t>(number(5, 4));
      FUZZ_CHECK(rest.size() >= 9 + size);
      if (rest[3] == 8) {
        FUZZ_CHECK(number(9, 4) > 0);
        if (id != 0) {
          Stream& stream = *streams_.at(id);
          stream.updated += number(9, 4);
          FUZZ_CHECK(stream.updated <= stream.granted);
        }
      }
      rest.remove_prefix(9 + size);
    }
    for (const auto& [id, stream] : streams_) {
      FUZZ_CHECK(stream->closed || stream->ended || !status_.ok() || stream->updated == stream->granted);
    }
  }

  FuzzInput input_;
  absl::Status status_;
  std::map<int32_t, std::unique_ptr<Stream>> streams_;  // before the session, because they must outlive their streams
  std::unique_ptr<Http2Session> session_;
};

}  // namespace sluice
