// Fan-outs of gRPC calls through sluice-proxy, which serves one fan-out before the next.
import type {ChannelOptions, ClientOptions, Interceptor, ServiceError} from "@grpc/grpc-js";

/** The Unix socket of the proxy's default config. */
export const DEFAULT_PROXY: string;

/** Adds the metadata of withFanOut and fanOut to the calls of a client. Calls that carry such metadata keep them. */
export const interceptor: Interceptor;

/**
 * Options of a client that reaches a worker (host:port) by the proxy, with the interceptor:
 * new SearchClient(DEFAULT_PROXY, grpc.credentials.createInsecure(), proxiedOptions("10.0.0.1:7000")).
 */
export function proxiedOptions(worker: string, options?: Partial<ChannelOptions> & Partial<ClientOptions>): Partial<ClientOptions>;

/** Runs a function whose calls, 1 to 65536, are one fan-out. Its promises inherit the mark. Returns its value. */
export function withFanOut<T>(calls: number, run: () => T, options?: {trafficClass?: string}): T;

/**
 * Makes one unary call with these options, and returns it:
 * (options, done) => client.query(request, new grpc.Metadata(), options, done).
 */
export type Call<T> = (
  options: {deadline: Date},
  done: (error: ServiceError | null, response?: T) => void,
) => {cancel(): void};

/** A call, and calls that make the same request at other workers. */
export interface Ask<T> {
  call: Call<T>;
  replicas?: Call<T>[];
}

export interface FanOutOptions {
  /** Time for the whole fan-out, above 0. */
  timeoutMs: number;
  /** Ends the fan-out after this number of responses, or once it cannot reach it. Default: wait for all calls. */
  quorum?: number;
  /**
   * Time after which calls without a response are repeated at a replica. The time that a response waits for the link
   * counts. A worker that is unavailable is replaced at once.
   */
  hedgeAfterMs?: number;
  /** Bounds the retries, and the hedges, as a share of the calls, 0 to 1; above 0 one of each or more. Default: 0.2. */
  replicaRatio?: number;
  /** One of the proxy's schedule.classes. Default: the first. */
  trafficClass?: string;
  /** Ends the fan-out. */
  signal?: AbortSignal;
}

/** How a fan-out ended. A call that was cancelled has neither a response nor an error. */
export interface FanOutResult<T> {
  responses: (T | undefined)[];
  errors: (ServiceError | null)[];
  asked: number;
  answered: number;
  quorum: number;
  hedges: number;
  retries: number;
  readonly coverage: number;
  readonly ok: boolean;
  /** Returns itself. Throws FanOutError if fewer calls than the quorum have responded. */
  check(): FanOutResult<T>;
}

export class FanOutError extends Error {
  result: FanOutResult<unknown>;
}

/** Makes all calls at once, as one fan-out. Errors of workers are in the result. */
export function fanOut<T>(calls: (Call<T> | Ask<T>)[], options: FanOutOptions): Promise<FanOutResult<T>>;
