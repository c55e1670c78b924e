// The snippets of docs/guides/proxy-by-language.md for Node: client.js environment|authority|tls|fan-out WORKER...
const fs = require("node:fs");

const grpc = require("@grpc/grpc-js");

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

function check(client, metadata) {
  return new Promise((resolve, reject) => {
    const options = {deadline: Date.now() + 30000};
    const method = "/grpc.health.v1.Health/Check";
    client.makeUnaryRequest(method, bytes, bytes, Buffer.alloc(0), metadata, options, (error, answer) => {
      if (error) return reject(error);
      return answer.equals(Buffer.from([8, 1])) ? resolve() : reject(new Error(`the worker says ${answer.toString("hex")}`));
    });
  });
}

async function main(way, ...workers) {
  const plain = (worker) => new grpc.Client(worker, grpc.credentials.createInsecure());
  const connect = {environment: plain, tls: byTls}[way] ?? byAuthority;
  const metadata = {tls: workerMetadata, "fan-out": () => fanOutMetadata(workers)}[way] ?? (() => new grpc.Metadata());
  const clients = workers.map(connect);
  await Promise.all(clients.map((client, i) => check(client, metadata(workers[i]))));
  clients.forEach((client) => client.close());
  console.log(`${workers.length} served`);
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
