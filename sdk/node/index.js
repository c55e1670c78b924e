// Fan-outs of gRPC calls through sluice-proxy, which serves one fan-out before the next. index.d.ts describes the
// functions.
"use strict";

const {AsyncLocalStorage} = require("node:async_hooks");
const {randomUUID} = require("node:crypto");

const grpc = require("@grpc/grpc-js");

const DEFAULT_PROXY = "unix:/run/sluice/proxy.sock";
const MAX_CALLS = 65536;
const BLOCK = "sluice-block";

const marks = new AsyncLocalStorage(); // {block, calls, trafficClass}; no block: the call belongs to no fan-out

function newMark(calls, trafficClass) {
  if (!(Number.isInteger(calls) && calls >= 1 && calls <= MAX_CALLS)) {
    throw new RangeError(`a fan-out of ${calls} calls; it has 1 to ${MAX_CALLS}`);
  }
  return {block: randomUUID(), calls, trafficClass};
}

function withFanOut(calls, run, {trafficClass} = {}) {
  return marks.run(newMark(calls, trafficClass), run);
}

function interceptor(options, nextCall) {
  const mark = marks.getStore();
  return new grpc.InterceptingCall(nextCall(options), {
    start(metadata, listener, next) {
      if (mark && metadata.get(BLOCK).length === 0) {
        metadata = metadata.clone(); // the caller may use it for other calls
        if (mark.block) {
          metadata.set(BLOCK, mark.block);
          metadata.set("sluice-weight", String(mark.calls));
        }
        if (mark.trafficClass) metadata.set("sluice-class", mark.trafficClass);
      }
      next(metadata, listener);
    },
  });
}

function proxiedOptions(worker, options = {}) {
  // grpc.enable_http_proxy: a proxy of the environment would be asked for a tunnel to sluice-proxy.
  const own = {"grpc.default_authority": worker, "grpc.enable_http_proxy": 0};
  return {...own, ...options, interceptors: [...(options.interceptors ?? []), interceptor]};
}

class FanOutError extends Error {
  constructor(result) {
    const index = result.errors.findLastIndex((error) => error);
    const last = index < 0 ? "" : `; call ${index}: ${result.errors[index].message}`;
    super(`${result.answered} of ${result.asked} calls responded, ${result.quorum} must respond${last}`);
    this.name = "FanOutError";
    this.result = result;
  }
}

async function fanOut(calls, {timeoutMs, quorum, hedgeAfterMs, replicaRatio = 0.2, trafficClass, signal} = {}) {
  const asks = calls.map((call) => (typeof call === "function" ? {call} : call));
  const count = asks.length;
  if (!(timeoutMs > 0)) throw new RangeError(`timeoutMs ${timeoutMs} is not a number above 0`);
  if (quorum !== undefined && !(Number.isInteger(quorum) && quorum >= 1 && quorum <= count)) {
    throw new RangeError(`quorum ${quorum} is not a number from 1 to ${count}, the number of calls`);
  }
  if (!(replicaRatio >= 0 && replicaRatio <= 1)) throw new RangeError(`replicaRatio ${replicaRatio} is not from 0 to 1`);
  const first = count ? newMark(count, trafficClass) : undefined;
  const alone = {trafficClass}; // of replicas: the first calls use up the number of calls of the fan-out

  return new Promise((resolve, reject) => {
    const deadline = new Date(Date.now() + timeoutMs);
    const needed = quorum ?? count;
    const result = {
      responses: Array(count).fill(undefined),
      errors: Array(count).fill(null),
      asked: count,
      answered: 0,
      quorum: needed,
      hedges: 0,
      retries: 0,
      get coverage() {
        return count ? this.answered / count : 1;
      },
      get ok() {
        return this.answered >= needed;
      },
      check() {
        if (!this.ok) throw new FanOutError(this);
        return this;
      },
    };
    const states = asks.map((ask) => ({untried: [...(ask.replicas ?? [])], running: new Set(), responded: false}));
    const most = replicaRatio > 0 ? Math.max(1, Math.floor(replicaRatio * count)) : 0; // of retries, and of hedges
    let open = count; // calls that have neither responded nor failed
    let ended = false;
    let timer;

    const end = () => {
      ended = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", finish);
      for (const state of states) for (const running of state.running) running.cancel();
    };
    const finish = () => {
      end();
      resolve(result);
    };
    const look = () => {
      const impossible = quorum !== undefined && result.answered + open < needed;
      if (!ended && (open === 0 || result.answered >= needed || impossible)) finish();
    };
    const start = (index, call, mark) => {
      const state = states[index];
      let running;
      const done = (error, response) => {
        state.running.delete(running);
        if (ended || state.responded) return;
        if (!error) {
          state.responded = true;
          result.responses[index] = response;
          result.answered++;
          open--;
        } else if (error.code === grpc.status.UNAVAILABLE && replica(index, "retries")) {
          return; // even if another attempt is open, because it may hang
        } else if (state.running.size === 0) {
          result.errors[index] = error;
          open--;
        }
        look();
      };
      running = marks.run(mark, () => call({deadline}, done));
      state.running.add(running);
    };
    const replica = (index, kind) => {
      const state = states[index];
      if (state.untried.length === 0 || result[kind] === most) return false;
      result[kind]++;
      start(index, state.untried.shift(), alone);
      return true;
    };
    const hedge = () => {
      states.forEach((state, index) => {
        if (!state.responded && state.running.size > 0) replica(index, "hedges");
      });
    };

    if (signal?.aborted) return finish();
    signal?.addEventListener("abort", finish);
    try {
      asks.forEach((ask, index) => start(index, ask.call, first));
    } catch (error) {
      end();
      return reject(error);
    }
    if (hedgeAfterMs !== undefined) timer = setTimeout(hedge, hedgeAfterMs);
    look();
  });
}

module.exports = {DEFAULT_PROXY, FanOutError, fanOut, interceptor, proxiedOptions, withFanOut};
