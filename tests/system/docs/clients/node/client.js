// The snippets of docs/guides/proxy-by-language.md for Node: client.js environment|authority|fan-out WORKER...
const grpc = require("@grpc/grpc-js");

const bytes = (value) => value; // raw bytes, so that no generated code is needed

function byAuthority(worker) {
  // [snippet]
  return new grpc.Client("unix:/run/sluice/proxy.sock", grpc.credentials.createInsecure(), {"grpc.default_authority": worker});
  // [snippet]
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
  const clients = workers.map(way === "environment" ? plain : byAuthority);
  const metadata = way === "fan-out" ? fanOutMetadata(workers) : new grpc.Metadata();
  await Promise.all(clients.map((client) => check(client, metadata)));
  clients.forEach((client) => client.close());
  console.log(`${workers.length} served`);
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
