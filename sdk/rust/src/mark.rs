use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use tonic::metadata::errors::InvalidMetadataValue;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// The maximum number of calls of a fan-out.
pub const MAX_CALLS: usize = 65536;

const BLOCK: &str = "sluice-block";
/// Time by which the deadline of a call is later than the deadline of its fan-out, which decides.
const GRACE: Duration = Duration::from_millis(10);

tokio::task_local! {
    static MARK: Mark;
}

/// The metadata of calls: their fan-out, their class of traffic, and the size of their responses.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    block: Option<(MetadataValue<Ascii>, usize)>,
    class: Option<MetadataValue<Ascii>>,
    response_bytes: Option<u64>,
    deadline: Option<Instant>,
}

impl Mark {
    /// Marks the calls of one fan-out.
    ///
    /// # Panics
    ///
    /// If `calls`, their number, is not 1 to [`MAX_CALLS`].
    pub fn fan_out(calls: usize) -> Self {
        assert!((1..=MAX_CALLS).contains(&calls), "a fan-out of {calls} calls; it has 1 to {MAX_CALLS}");
        Self { block: Some((ascii(uuid::Uuid::new_v4()), calls)), ..Self::default() }
    }

    /// Puts the calls into a class of traffic, one of the proxy's `schedule.classes`.
    pub fn class(self, class: &str) -> Result<Self, InvalidMetadataValue> {
        Ok(Self { class: Some(class.parse()?), ..self })
    }

    /// States the size of the responses, if the caller can predict it. A wrong size only costs time. Without it, the
    /// proxy learns the size from earlier responses.
    pub fn response_bytes(self, bytes: u64) -> Self {
        Self { response_bytes: Some(bytes), ..self }
    }

    /// Marks the calls that this future makes. A task that the future spawns has no mark: clone the mark for it.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        MARK.scope(self, future).await
    }

    pub(crate) fn deadline(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Without the fan-out.
    pub(crate) fn alone(&self) -> Self {
        Self { block: None, ..self.clone() }
    }

    fn apply(&self, request: &mut Request<()>) {
        if let Some(deadline) = self.deadline {
            if !request.metadata().contains_key("grpc-timeout") {
                request.set_timeout(deadline.saturating_duration_since(Instant::now()) + GRACE);
            }
        }
        let metadata = request.metadata_mut();
        if let Some((id, calls)) = self.block.as_ref().filter(|_| !metadata.contains_key(BLOCK)) {
            metadata.insert(BLOCK, id.clone());
            metadata.insert("sluice-weight", ascii(calls));
        }
        if let Some(class) = self.class.as_ref().filter(|_| !metadata.contains_key("sluice-class")) {
            metadata.insert("sluice-class", class.clone());
        }
        if let Some(bytes) = self.response_bytes.filter(|_| !metadata.contains_key("sluice-response-bytes")) {
            metadata.insert("sluice-response-bytes", ascii(bytes));
        }
    }
}

fn ascii(value: impl Display) -> MetadataValue<Ascii> {
    value.to_string().parse().expect("digits and dashes are ASCII")
}

/// Adds the metadata of the current [`Mark`] to the calls of a client: `SearchClient::with_interceptor(channel,
/// FanOutInterceptor)`. Calls that carry such metadata keep them.
#[derive(Clone, Copy, Debug, Default)]
pub struct FanOutInterceptor;

impl Interceptor for FanOutInterceptor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let _ = MARK.try_with(|mark| mark.apply(&mut request)); // an error: there is no mark
        Ok(request)
    }
}
