// The snippets of docs/guides/proxy-by-language.md for Node: client.js environment|authority|tls|fan-out|package WORKER...
const fs = require("node:fs");

const grpc = require("@grpc/grpc-js");
const sluice = require("sluice-rpc");

const bytes = (value) => value; // raw bytes, so that no generated code is needed

function byAuthority(worker) {
  // [snippet]
  return new grpc.Client("unix:/run/sluice/proxy.sock", grpc.credentials.createInsecure(), {"grpc.default_authority": worker});
  // [snippet]
}

function byTls() {
  // [snippet]
  const [authority, key, certificate] = ["ca.pem", "client.key", "client.pem"].map((file) => fs.readFileSync(file));
  return new grpc.Client("127.0.0.1:7443", grpc.credentials.createSsl(authority, key, certificate));
  // [snippet]
}

function workerMetadata(worker) {
  const metadata = new grpc.Metadata();
  // [snippet]
  metadata.set("x-worker", worker);
  // [snippet]
  return metadata;
}

function fanOutMetadata(workers) {
  // [snippet]
  const metadata = new grpc.Metadata();
  metadata.set("sluice-block", require("node:crypto").randomUUID());
  metadata.set("sluice-weight", String(workers.length));
  // [snippet]
  return metadata;
}

function throughPackage(worker) {
  // [snippet]
  return new grpc.Client(sluice.DEFAULT_PROXY, grpc.credentials.createInsecure(), sluice.proxiedOptions(worker));
  // [snippet]
}

async function checkByPackage(clients) {
  const calls = clients.map((client) => (options, done) => callHealth(client, new grpc.Metadata(), options, done));
  // [snippet]
  const result = await sluice.fanOut(calls, {timeoutMs: 30000, quorum: calls.length});
  // [snippet]
  result.check();
}

const HEALTH = "/grpc.health.v1.Health/Check";
const callHealth = (client, ...rest) => client.makeUnaryRequest(HEALTH, bytes, bytes, Buffer.alloc(0), ...rest);

function check(client, metadata) {
  return new Promise((resolve, reject) => {
    const options = {deadline: Date.now() + 30000};
    callHealth(client, metadata, options, (error, answer) => {
      if (error) return reject(error);
      return answer.equals(Buffer.from([8, 1])) ? resolve() : reject(new Error(`the worker says ${answer.toString("hex")}`));
    });
  });
}

async function main(way, ...workers) {
  const plain = (worker) => new grpc.Client(worker, grpc.credentials.createInsecure());
  const connect = {environment: plain, tls: byTls, package: throughPackage}[way] ?? byAuthority;
  const metadata = {tls: workerMetadata, "fan-out": () => fanOutMetadata(workers)}[way] ?? (() => new grpc.Metadata());
  const clients = workers.map(connect);
  if (way === "package") await checkByPackage(clients);
  else await Promise.all(clients.map((client, i) => check(client, metadata(workers[i]))));
  clients.forEach((client) => client.close());
  console.log(`${workers.length} served`);
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
