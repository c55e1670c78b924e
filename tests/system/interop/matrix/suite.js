// A server and a client of a part of gRPC's interop suite, for @grpc/grpc-js: no generated code, no protobuf.
//   node suite.js serve HOST:PORT
//   node suite.js play CASE TARGET [AUTHORITY]
"use strict";

const assert = require("node:assert");

const grpc = require("@grpc/grpc-js");

const VERSION = `grpc-js ${require("@grpc/grpc-js/package.json").version}`;
const SERVICE = "grpc.testing.TestService";
const [INITIAL, TRAILING] = ["x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"];
const TIMEOUT_MS = 30000;
const STREAM = [31415, 9, 2653, 58979];
const SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";

const varint = (number) => (number < 128 ? [number] : [(number % 128) | 128, ...varint(Math.floor(number / 128))]);

function field(number, value) {
  if (typeof value === "number") return Buffer.from([...varint(number * 8), ...varint(value)]);
  return Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(value.length)]), value]);
}

const payload = (number, size) => field(number, field(2, Buffer.alloc(size)));

// Returns {number: values} of a message with varints and bytes.
function fields(data) {
  const found = {};
  let at = 0;
  const take = () => {
    let number = 0;
    for (let factor = 1; ; factor *= 128) {
      number += (data[at] & 127) * factor;
      if (data[at++] < 128) return number;
    }
  };
  while (at < data.length) {
    const key = take();
    let value = take();
    if ((key & 7) === 2) value = data.subarray(at, (at += value));
    (found[key >> 3] ??= []).push(value);
  }
  return found;
}

const sizeOf = (message) => (fields(fields(message)[1]?.[0] ?? Buffer.alloc(0))[2]?.[0] ?? "").length;

const method = (name, requestStream, responseStream, service = SERVICE) => ({
  path: `/${service}/${name}`,
  requestStream,
  responseStream,
  requestSerialize: (bytes) => bytes,
  requestDeserialize: (bytes) => bytes,
  responseSerialize: (bytes) => bytes,
  responseDeserialize: (bytes) => bytes,
});
const METHODS = {
  EmptyCall: method("EmptyCall", false, false),
  UnaryCall: method("UnaryCall", false, false),
  StreamingOutputCall: method("StreamingOutputCall", false, true),
  FullDuplexCall: method("FullDuplexCall", true, true),
};

function echo(call) {
  const [initial] = call.metadata.get(INITIAL);
  if (initial !== undefined) {
    const metadata = new grpc.Metadata();
    metadata.set(INITIAL, initial);
    call.sendMetadata(metadata);
  }
  const trailing = new grpc.Metadata();
  for (const value of call.metadata.get(TRAILING)) trailing.set(TRAILING, value);
  return trailing;
}

function statusOf(message, metadata) {
  if (!message[7]) return undefined;
  const status = fields(message[7][0]);
  return {code: status[1][0], details: (status[2]?.[0] ?? "").toString(), metadata};
}

function unary(call, done) {
  const trailing = echo(call);
  const message = fields(call.request);
  const status = statusOf(message, trailing);
  status ? done(status) : done(null, payload(1, message[2]?.[0] ?? 0), trailing);
}

async function respond(call, request, trailing) {
  const message = fields(request);
  for (const each of message[2] ?? []) {
    const parameters = fields(each);
    await new Promise((resolve) => setTimeout(resolve, (parameters[2]?.[0] ?? 0) / 1000));
    call.write(payload(1, parameters[1]?.[0] ?? 0));
  }
  const status = statusOf(message, trailing);
  if (status) call.emit("error", status);
}

function duplex(call) {
  const trailing = echo(call);
  let last = Promise.resolve();
  call.on("data", (request) => (last = last.then(() => respond(call, request, trailing))));
  call.on("end", () => last.then(() => call.end(trailing)));
}

function serve(address) {
  const server = new grpc.Server();
  server.addService(METHODS, {
    EmptyCall: (call, done) => done(null, Buffer.alloc(0), echo(call)),
    UnaryCall: unary,
    StreamingOutputCall: async (call) => {
      const trailing = echo(call);
      await respond(call, call.request, trailing);
      call.end(trailing);
    },
    FullDuplexCall: duplex,
  });
  server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error) => {
    if (error) throw error;
    console.log(`${VERSION} serves`);
  });
}

function client(target, authority) {
  const options = {"grpc.enable_http_proxy": 0, ...(authority && {"grpc.default_authority": authority})};
  return new grpc.Client(target, grpc.credentials.createInsecure(), options);
}

const deadline = (ms = TIMEOUT_MS) => ({deadline: Date.now() + ms});

// Resolves to the response, its metadata, and its status.
function call(stub, {path}, request, metadata = new grpc.Metadata()) {
  return new Promise((resolve) => {
    const end = {};
    const running = stub.makeUnaryRequest(path, (b) => b, (b) => b, request, metadata, deadline(), (error, response) => {
      end.response = response;
    });
    running.on("metadata", (initial) => (end.initial = initial));
    running.on("status", (status) => resolve(Object.assign(end, {status})));
  });
}

// Resolves to the response; rejects with the status if it is not OK.
async function responseOf(stub, method, request) {
  const {response, status} = await call(stub, method, request);
  assert.strictEqual(status.code, grpc.status.OK, status.details);
  return response;
}

async function responses(stream) {
  const found = [];
  stream.on("data", (message) => found.push(message));
  return new Promise((resolve, reject) => stream.on("error", reject).on("end", () => resolve(found)));
}

async function expectStatus(stub, text) {
  const request = field(7, Buffer.concat([field(1, 2), field(2, Buffer.from(text))]));
  const {status} = await call(stub, METHODS.UnaryCall, request);
  assert.deepStrictEqual([status.code, status.details], [grpc.status.UNKNOWN, text]);
}

const CASES = {
  async empty_unary(stub) {
    assert.strictEqual((await responseOf(stub, METHODS.EmptyCall, Buffer.alloc(0))).length, 0);
  },
  async large_unary(stub) {
    const request = Buffer.concat([field(2, 314159), payload(3, 271828)]);
    assert.strictEqual(sizeOf(await responseOf(stub, METHODS.UnaryCall, request)), 314159);
  },
  async server_streaming(stub) {
    const request = Buffer.concat(STREAM.map((size) => field(2, field(1, size))));
    const {path} = METHODS.StreamingOutputCall;
    const stream = stub.makeServerStreamRequest(path, (b) => b, (b) => b, request, new grpc.Metadata(), deadline());
    assert.deepStrictEqual((await responses(stream)).map(sizeOf), STREAM);
  },
  async custom_metadata(stub) {
    const metadata = new grpc.Metadata();
    metadata.set(INITIAL, "test_initial_metadata_value");
    metadata.set(TRAILING, Buffer.from([0xab, 0xab, 0xab]));
    const {initial, status} = await call(stub, METHODS.UnaryCall, field(2, 1), metadata);
    assert.deepStrictEqual(initial.get(INITIAL), ["test_initial_metadata_value"]);
    assert.deepStrictEqual(status.metadata.get(TRAILING), [Buffer.from([0xab, 0xab, 0xab])]);
  },
  status_code_and_message: (stub) => expectStatus(stub, "test status message"),
  special_status_message: (stub) => expectStatus(stub, SPECIAL),
  async unimplemented_method(stub) {
    const {status} = await call(stub, {path: `/${SERVICE}/UnimplementedCall`}, Buffer.alloc(0));
    assert.strictEqual(status.code, grpc.status.UNIMPLEMENTED);
  },
  async timeout_on_sleeping_server(stub) {
    const {path} = METHODS.FullDuplexCall;
    const stream = stub.makeBidiStreamRequest(path, (b) => b, (b) => b, new grpc.Metadata(), deadline(100));
    stream.write(field(2, Buffer.concat([field(1, 1), field(2, 10000000)])));
    // A server that resets the stream at the deadline, such as grpc-go's, may be earlier than the client's timer.
    const codes = [grpc.status.DEADLINE_EXCEEDED, grpc.status.CANCELLED];
    await assert.rejects(() => responses(stream), (error) => codes.includes(error.code));
  },
  async health_check(stub) {
    const response = await responseOf(stub, {path: "/grpc.health.v1.Health/Check"}, Buffer.alloc(0));
    assert.deepStrictEqual([...response], [8, 1]);
  },
};

async function play(name, target, authority) {
  const stub = client(target, authority);
  await CASES[name](stub);
  stub.close();
  console.log(`${VERSION}: ${name} passed`);
}

({serve, play})[process.argv[2]](...process.argv.slice(3));
