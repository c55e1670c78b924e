"use strict";

const assert = require("node:assert");
const {afterEach, beforeEach, test} = require("node:test");

const grpc = require("@grpc/grpc-js");

const sluice = require("./index.js");

const METHOD = {
  path: "/test.Test/Method",
  requestStream: false,
  responseStream: false,
  requestSerialize: Buffer.from,
  requestDeserialize: String,
  responseSerialize: Buffer.from,
  responseDeserialize: String,
};
const PROXY = process.env.SLUICE_TEST_PROXY; // a real sluice-proxy
const ADMIN = process.env.SLUICE_TEST_ADMIN; // its admin address
const LISTENS = (process.env.SLUICE_TEST_WORKERS ?? "127.0.0.1:0").split(","); // of workers that the proxy permits
const TIMEOUT = {timeoutMs: 30000};

// One server at several addresses. The request decides about the response: "wait" waits for release(), "unavailable" and
// "internal" fail, and any other request is the response.
class Workers {
  calls = []; // metadata of the calls that arrived
  cancelled = 0;
  #waiting = [];
  #watchers = [];
  #server = new grpc.Server();

  async start() {
    this.#server.addService({Method: METHOD}, {Method: (call, done) => this.#method(call, done)});
    const bind = (listen) =>
      new Promise((resolve, reject) => {
        const credentials = grpc.ServerCredentials.createInsecure();
        this.#server.bindAsync(listen, credentials, (error, port) => (error ? reject(error) : resolve(port)));
      });
    const ports = await Promise.all(LISTENS.map(bind));
    this.addresses = LISTENS.map((listen, i) => listen.replace(/:0$/, `:${ports[i]}`));
  }

  stop() {
    this.#server.forceShutdown();
  }

  release() {
    this.#waiting.splice(0).forEach((respond) => respond());
  }

  async until(condition) {
    while (!condition()) await new Promise((resolve) => this.#watchers.push(resolve));
  }

  #changed() {
    this.#watchers.splice(0).forEach((resolve) => resolve());
  }

  #method(call, done) {
    call.on("cancelled", () => {
      this.cancelled++;
      this.#changed();
    });
    const code = grpc.status[call.request.toUpperCase()];
    if (call.request === "wait") this.#waiting.push(() => done(null, "waited"));
    else if (code !== undefined) done({code, details: "as requested"});
    else done(null, call.request);
    this.calls.push(call.metadata.getMap());
    this.#changed();
  }
}

let workers;
let clients;

function client(proxy, worker) {
  const made = new grpc.Client(proxy, grpc.credentials.createInsecure(), sluice.proxiedOptions(worker));
  clients.push(made);
  return made;
}

// The tests without a proxy call the worker, and read the metadata that a proxy would receive.
const direct = () => client(workers.addresses[0], "worker:1");

const call = (client, request) => (options, done) =>
  client.makeUnaryRequest(METHOD.path, Buffer.from, String, request, new grpc.Metadata(), options, done);

const blocks = () => workers.calls.map((metadata) => metadata["sluice-block"]);

beforeEach(async () => {
  clients = [];
  workers = new Workers();
  await workers.start();
});

afterEach(() => {
  clients.forEach((client) => client.close());
  workers.stop();
});

test("responses are in the order of the calls", async () => {
  const worker = direct();
  const calls = ["a", "b", "c"].map((request) => call(worker, request));
  const result = (await sluice.fanOut(calls, {...TIMEOUT, trafficClass: "queries"})).check();
  assert.deepStrictEqual(result.responses, ["a", "b", "c"]);
  assert.deepStrictEqual(result.errors, [null, null, null]);
  assert.strictEqual(result.coverage, 1);
  for (const metadata of workers.calls) {
    assert.strictEqual(metadata["sluice-weight"], "3");
    assert.strictEqual(metadata["sluice-class"], "queries");
  }
  await sluice.fanOut(calls.slice(1), TIMEOUT);
  assert.strictEqual(new Set(blocks()).size, 2);
});

test("errors are kept", async () => {
  const worker = direct();
  const result = await sluice.fanOut([call(worker, "a"), call(worker, "internal")], TIMEOUT);
  assert.deepStrictEqual(result.responses, ["a", undefined]);
  assert.strictEqual(result.errors[1].code, grpc.status.INTERNAL);
  assert.strictEqual(result.coverage, 0.5);
  assert.throws(() => result.check(), {
    name: "FanOutError",
    message: "1 of 2 calls responded, 2 must respond; call 1: 13 INTERNAL: as requested",
  });
});

test("a quorum ends the fan-out and cancels the rest", async () => {
  const worker = direct();
  const late = (options, done) => {
    let running;
    workers.until(() => workers.calls.length === 1).then(() => (running = call(worker, "b")(options, done)));
    return {cancel: () => running?.cancel()};
  };
  const result = (await sluice.fanOut([call(worker, "wait"), late], {...TIMEOUT, quorum: 1})).check();
  assert.deepStrictEqual(result.responses, [undefined, "b"]);
  assert.deepStrictEqual(result.errors, [null, null]);
  await workers.until(() => workers.cancelled === 1);
});

test("a quorum that cannot be reached ends the fan-out", async () => {
  const worker = direct();
  const calls = ["wait", "internal", "internal"].map((request) => call(worker, request));
  const result = await sluice.fanOut(calls, {...TIMEOUT, quorum: 2});
  assert.strictEqual(result.ok, false);
  assert.strictEqual(result.answered, 0);
});

test("a worker that is unavailable is replaced", async () => {
  const worker = direct();
  const ask = {call: call(worker, "unavailable"), replicas: [call(worker, "replica")]};
  const result = await sluice.fanOut([ask, call(worker, "b")], TIMEOUT);
  assert.deepStrictEqual(result.responses, ["replica", "b"]);
  assert.deepStrictEqual([result.retries, result.hedges], [1, 0]);
  assert.strictEqual(blocks().filter((block) => block).length, 2, "a replica's call is a block of its own");
});

test("a late call is hedged within the ratio", async () => {
  const worker = direct();
  const ask = {call: call(worker, "wait"), replicas: [call(worker, "wait")]};
  const running = sluice.fanOut([ask, ask], {...TIMEOUT, hedgeAfterMs: 0});
  await workers.until(() => workers.calls.length === 3);
  workers.release();
  const result = (await running).check();
  assert.strictEqual(result.hedges, 1);
});

test("a failure is replaced at once while a hedge hangs", async () => {
  const worker = direct();
  const fails = (options, done) => {
    const error = Object.assign(new Error("as requested"), {code: grpc.status.UNAVAILABLE});
    workers.until(() => workers.calls.length === 1).then(() => done(error));
    return {cancel() {}};
  };
  const ask = {call: fails, replicas: [call(worker, "wait"), call(worker, "third")]};
  const result = await sluice.fanOut([ask], {...TIMEOUT, hedgeAfterMs: 0});
  assert.deepStrictEqual(result.responses, ["third"]);
  assert.deepStrictEqual([result.retries, result.hedges], [1, 1]);
});

test("a deadline and a signal end the fan-out", async () => {
  const worker = direct();
  const result = await sluice.fanOut([call(worker, "wait")], {timeoutMs: 50});
  assert.strictEqual(result.errors[0].code, grpc.status.DEADLINE_EXCEEDED);
  const stop = new AbortController();
  const running = sluice.fanOut([call(worker, "wait")], {...TIMEOUT, signal: stop.signal});
  stop.abort();
  assert.strictEqual((await running).ok, false);
});

test("options out of bounds", async () => {
  await assert.rejects(() => sluice.fanOut([], {}), /timeoutMs undefined/);
  await assert.rejects(() => sluice.fanOut([], {...TIMEOUT, quorum: 1}), /quorum 1 is not a number from 1 to 0/);
  await assert.rejects(() => sluice.fanOut([], {...TIMEOUT, replicaRatio: 2}), /replicaRatio 2/);
  const broken = () => {
    throw new TypeError("no such method");
  };
  await assert.rejects(() => sluice.fanOut([call(direct(), "wait"), broken], TIMEOUT), /no such method/);
  assert.throws(() => sluice.withFanOut(0, () => {}), /a fan-out of 0 calls; it has 1 to 65536/);
  assert.strictEqual((await sluice.fanOut([], TIMEOUT)).check().coverage, 1);
});

test("marked calls are one fan-out", async () => {
  const worker = direct();
  const one = (request) => new Promise((resolve, reject) => call(worker, request)({}, (error) => (error ? reject(error) : resolve())));
  await sluice.withFanOut(2, async () => {
    await one("a");
    await one("b");
  });
  await one("c");
  const [first, second, outside] = workers.calls;
  assert.ok(first["sluice-block"]);
  assert.strictEqual(second["sluice-block"], first["sluice-block"]);
  assert.strictEqual(second["sluice-weight"], "2");
  assert.strictEqual(outside["sluice-block"], undefined);
});

test("the proxy knows the fan-outs", {skip: !PROXY && "SLUICE_TEST_PROXY names no proxy"}, async () => {
  const calls = workers.addresses.map((address) => call(client(PROXY, address), "wait"));
  const running = [1, 2, 3].map(() => sluice.fanOut(calls, TIMEOUT));
  await workers.until(() => workers.calls.length === 3 * calls.length);
  const page = await (await fetch(`http://${ADMIN}/metrics`)).text();
  assert.match(page, /^sluice_queued_blocks 3$/m);
  assert.deepStrictEqual(workers.calls.flatMap(Object.keys).filter((key) => key.startsWith("sluice-") && key !== "sluice-client"), []);
  workers.release();
  for (const result of await Promise.all(running)) assert.ok(result.check());
});

test("a worker that is not permitted", {skip: !PROXY && "SLUICE_TEST_PROXY names no proxy"}, async () => {
  const result = await sluice.fanOut([call(client(PROXY, "192.0.2.1:7000"), "a")], TIMEOUT);
  assert.strictEqual(result.errors[0].code, grpc.status.PERMISSION_DENIED);
});
