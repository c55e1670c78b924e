use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tonic::{Code, Status};

use crate::mark::{Mark, MAX_CALLS};

type Call<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;
type Attempt<T> = Pin<Box<dyn Future<Output = (usize, Result<T, Status>)> + Send>>;

/// One request of a fan-out.
pub struct Ask<T> {
    call: Call<T>,
    replicas: VecDeque<Call<T>>,
}

impl<T> Ask<T> {
    /// A future that makes the call.
    pub fn new(call: impl Future<Output = Result<T, Status>> + Send + 'static) -> Self {
        Self { call: Box::pin(call), replicas: VecDeque::new() }
    }

    /// Adds a future that makes the same request at another worker. It runs only if the fan-out needs it.
    pub fn replica(mut self, call: impl Future<Output = Result<T, Status>> + Send + 'static) -> Self {
        self.replicas.push_back(Box::pin(call));
        self
    }
}

/// Options of a fan-out: `Options { quorum: Some(60), ..Options::new(timeout) }`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for the whole fan-out.
    pub timeout: Duration,
    /// Ends the fan-out after this number of responses, or once it cannot reach it, and cancels the rest. Default: wait
    /// for all calls.
    pub quorum: Option<usize>,
    /// Time after which calls without a response are repeated at a replica. The time that a response waits for the link
    /// counts. A worker that is unavailable is replaced at once. Default: never.
    pub hedge_after: Option<Duration>,
    /// Bounds the retries, and the hedges, as a share of the calls, 0 to 1; above 0 one of each or more. Default: 0.2.
    pub replica_ratio: f64,
    /// One of the proxy's `schedule.classes`. Default: the first.
    pub traffic_class: Option<String>,
}

impl Options {
    /// Waits for every call.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, quorum: None, hedge_after: None, replica_ratio: 0.2, traffic_class: None }
    }
}

/// An option that is out of its bounds. No call was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError(String);

impl fmt::Display for OptionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

/// How a fan-out ended. Both vectors are in the order of the asks. A call that was cancelled has neither a response nor
/// an error.
#[derive(Debug)]
pub struct FanOutResult<T> {
    /// The response of each call.
    pub responses: Vec<Option<T>>,
    /// The error of each call.
    pub errors: Vec<Option<Status>>,
    /// Calls that had to respond.
    pub quorum: usize,
    /// Calls that responded.
    pub answered: usize,
    /// Calls to replicas after `hedge_after`.
    pub hedges: usize,
    /// Calls to replicas of workers that were unavailable.
    pub retries: usize,
}

impl<T> FanOutResult<T> {
    /// The share of the calls that responded, 0 to 1.
    pub fn coverage(&self) -> f64 {
        if self.responses.is_empty() {
            return 1.0;
        }
        self.answered as f64 / self.responses.len() as f64
    }

    /// Whether enough calls have responded.
    pub fn is_ok(&self) -> bool {
        self.answered >= self.quorum
    }

    /// Returns the result, or an error with the last call that failed if fewer calls than the quorum have responded.
    pub fn check(self) -> Result<Self, FanOutError> {
        if self.is_ok() {
            return Ok(self);
        }
        let last = self.errors.iter().enumerate().rev().find_map(|(index, error)| Some((index, error.clone()?)));
        Err(FanOutError { answered: self.answered, asked: self.responses.len(), quorum: self.quorum, last })
    }
}

/// Fewer calls than the quorum have responded.
#[derive(Clone, Debug)]
pub struct FanOutError {
    answered: usize,
    asked: usize,
    quorum: usize,
    last: Option<(usize, Status)>,
}

impl FanOutError {
    /// The status of the last call that failed.
    pub fn status(&self) -> Option<&Status> {
        self.last.as_ref().map(|(_, status)| status)
    }
}

impl fmt::Display for FanOutError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {} calls responded, {} must respond", self.answered, self.asked, self.quorum)?;
        match &self.last {
            Some((index, status)) => write!(formatter, "; call {index}: {:?}: {}", status.code(), status.message()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FanOutError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.status().map(|status| status as _)
    }
}

/// Makes all calls at once, as one fan-out, and waits for its end. Errors of workers are in the result. Dropping the
/// future cancels the calls.
pub async fn fan_out<T: Send + 'static>(
    asks: impl IntoIterator<Item = Ask<T>>,
    options: Options,
) -> Result<FanOutResult<T>, OptionError> {
    let asks: Vec<_> = asks.into_iter().collect();
    let deadline = Instant::now() + options.timeout;
    let mark = first_mark(asks.len(), &options)?.deadline(deadline);
    let mut run = FanOut::new(asks, &options, mark);
    let ends = tokio::time::sleep_until(deadline.into());
    let hedges = tokio::time::sleep(options.hedge_after.unwrap_or(options.timeout));
    tokio::pin!(ends, hedges);
    let mut may_hedge = options.hedge_after.is_some();
    while !run.ended() {
        tokio::select! {
            biased;
            Some((index, response)) = run.running.next() => run.take(index, response),
            () = &mut hedges, if may_hedge => {
                may_hedge = false;
                run.hedge();
            }
            () = &mut ends => run.expire(),
        }
    }
    Ok(run.result)
}

fn first_mark(calls: usize, options: &Options) -> Result<Mark, OptionError> {
    if let Some(quorum) = options.quorum.filter(|quorum| !(1..=calls).contains(quorum)) {
        return Err(OptionError(format!("quorum {quorum} is not a number from 1 to {calls}, the number of calls")));
    }
    if !(0.0..=1.0).contains(&options.replica_ratio) {
        return Err(OptionError(format!("replica_ratio {} is not from 0 to 1", options.replica_ratio)));
    }
    if calls > MAX_CALLS {
        return Err(OptionError(format!("{calls} calls; a fan-out has at most {MAX_CALLS}")));
    }
    let mark = if calls == 0 { Mark::default() } else { Mark::fan_out(calls) };
    match &options.traffic_class {
        Some(class) => mark.class(class).map_err(|error| OptionError(format!("traffic_class {class:?}: {error}"))),
        None => Ok(mark),
    }
}

/// The state of one fan-out.
struct FanOut<T> {
    result: FanOutResult<T>,
    running: FuturesUnordered<Attempt<T>>,
    attempts: Vec<usize>, // that run, of each call
    replicas: Vec<VecDeque<Call<T>>>,
    most: usize, // of retries, and of hedges
    open: usize, // calls that have neither responded nor failed
    fails_early: bool,
    alone: Mark, // of replicas: the first calls use up the number of calls of the fan-out
}

impl<T: Send + 'static> FanOut<T> {
    fn new(asks: Vec<Ask<T>>, options: &Options, mark: Mark) -> Self {
        let calls = asks.len();
        let most =
            if options.replica_ratio > 0.0 { ((options.replica_ratio * calls as f64) as usize).max(1) } else { 0 };
        let mut run = Self {
            result: FanOutResult {
                responses: (0..calls).map(|_| None).collect(),
                errors: vec![None; calls],
                quorum: options.quorum.unwrap_or(calls),
                answered: 0,
                hedges: 0,
                retries: 0,
            },
            running: FuturesUnordered::new(),
            attempts: vec![0; calls],
            replicas: Vec::with_capacity(calls),
            most,
            open: calls,
            fails_early: options.quorum.is_some(),
            alone: mark.alone(),
        };
        for (index, ask) in asks.into_iter().enumerate() {
            run.replicas.push(ask.replicas);
            run.start(index, ask.call, mark.clone());
        }
        run
    }

    fn start(&mut self, index: usize, call: Call<T>, mark: Mark) {
        self.attempts[index] += 1;
        self.running.push(Box::pin(async move { (index, mark.scope(call).await) }));
    }

    fn is_open(&self, index: usize) -> bool {
        self.result.responses[index].is_none() && self.result.errors[index].is_none()
    }

    fn take(&mut self, index: usize, response: Result<T, Status>) {
        self.attempts[index] -= 1;
        if !self.is_open(index) {
            return; // another attempt has decided
        }
        match response {
            Ok(response) => {
                self.result.responses[index] = Some(response);
                self.result.answered += 1;
                self.open -= 1;
            }
            // Even if another attempt is open, because it may hang.
            Err(status) if status.code() == Code::Unavailable && self.replica(index, self.result.retries) => {
                self.result.retries += 1
            }
            Err(_) if self.attempts[index] > 0 => {} // the other attempt decides
            Err(status) => self.fail(index, status),
        }
    }

    fn fail(&mut self, index: usize, status: Status) {
        self.result.errors[index] = Some(status);
        self.open -= 1;
    }

    fn hedge(&mut self) {
        for index in 0..self.replicas.len() {
            if self.is_open(index) && self.replica(index, self.result.hedges) {
                self.result.hedges += 1;
            }
        }
    }

    fn replica(&mut self, index: usize, made: usize) -> bool {
        if made == self.most {
            return false;
        }
        let Some(call) = self.replicas[index].pop_front() else { return false };
        self.start(index, call, self.alone.clone());
        true
    }

    fn expire(&mut self) {
        for index in 0..self.replicas.len() {
            if self.is_open(index) {
                self.fail(index, Status::deadline_exceeded("the time of the fan-out has passed"));
            }
        }
    }

    fn ended(&self) -> bool {
        let quorum = self.result.quorum;
        self.open == 0
            || self.result.answered >= quorum
            || (self.fails_early && self.result.answered + self.open < quorum)
    }
}
