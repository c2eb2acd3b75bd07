//! Puts together how it is with the whole gateway, for those who ask: the status page, its API, the operator's socket.

use crate::admin::{
    self, AuditStanding, CertificateStanding, Configuration, Refused, Standing, TracesStanding, UpstreamStanding,
};
use crate::audit::Audit;
use crate::metrics::{Metric, Metrics};
use crate::otlp::Exporter;
use crate::reload::Reloader;
use crate::snapshot::Snapshot;
use crate::upstream::Upstream;
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// All that is looked at.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) began: Instant,
    pub(super) snapshots: Arc<ArcSwap<Snapshot>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) audit: Audit,
    pub(super) reloader: Arc<Reloader>,
    pub(super) traces: Exporter,
    pub(super) metrics_listener: Option<SocketAddr>,
}

impl Parts {
    /// How it is right now.
    pub(super) fn look(&self) -> Standing {
        let snapshot = self.snapshots.load();
        let numbers = |metric: Metric| self.metrics.samples(metric);
        let number = |metric: Metric| numbers(metric).first().map(|(_, value)| *value);
        let refused = self.reloader.refused();
        Standing {
            version: env!("CARGO_PKG_VERSION"),
            up_s: self.began.elapsed().as_secs(),
            configuration: Configuration {
                hash: snapshot.hash.clone(),
                loaded_unix_s: number(Metric::ConfigLoadedAt).unwrap_or_default(),
                refused: refused.map(|(unix_ms, problems)| Refused { unix_ms, problems }),
            },
            in_flight: self.metrics.in_flight(),
            decisions: numbers(Metric::Decisions).iter().map(|(_, n)| u64::try_from(*n).unwrap_or_default()).sum(),
            upstreams: snapshot.upstreams.iter().map(|upstream| self.upstream(upstream)).collect(),
            audit: AuditStanding {
                is_available: self.audit.is_available(),
                queued: self.audit.queued(),
                dropped: self.audit.dropped(),
                checkpoint_unix_s: number(Metric::CheckpointAt).filter(|at| *at > 0),
                sinks: numbers(Metric::SinkLag).into_iter().map(|(labels, lag_s)| (labels.concat(), lag_s)).collect(),
            },
            metrics_listener: self.metrics_listener.map(|address| address.to_string()),
            certificates: self.certificates(),
            traces: snapshot.tracing.as_ref().map(|tracing| self.traces(tracing)),
        }
    }

    fn upstream(&self, upstream: &Upstream) -> UpstreamStanding {
        let (health, process) = (upstream.health(), upstream.process());
        // A process that has ended is known of before it is asked again.
        let has_ended = process.as_deref().is_some_and(|process| process.starts_with("does not run"));
        UpstreamStanding {
            name: upstream.name.to_string(),
            is_up: if has_ended { Some(false) } else { health.is_up },
            since_s: health.lasts().as_secs(),
            tools: upstream.definitions().tools.len(),
            // What a server says of itself is a stranger's text.
            last_error: health.last_error.map(|text| self.audit.redactor().text(&text).into_owned()),
            process,
        }
    }

    /// 0 stands for none.
    fn certificates(&self) -> Vec<CertificateStanding> {
        let known = self.metrics.samples(Metric::CertificateExpiry).into_iter().filter(|(_, expires)| *expires > 0);
        known.map(|(labels, expires_unix_s)| CertificateStanding { used_by: labels.concat(), expires_unix_s }).collect()
    }

    fn traces(&self, tracing: &crate::trace::Tracing) -> TracesStanding {
        let counts = self.traces.counts();
        TracesStanding {
            collector: format!("{:?}", tracing.collector),
            waiting: self.traces.n_waiting(),
            exported: counts.exported(),
            dropped: counts.dropped().iter().map(|(_, n)| n).sum(),
        }
    }

    /// What the operator's socket answers.
    pub(super) fn operator_router(self) -> axum::Router {
        let this = self.clone();
        let reload = move || match tokio::task::block_in_place(|| this.reloader.reload()) {
            Ok(hash) => this.answer(true, format!("configuration {hash} is in force")),
            Err(problems) => {
                let hash = this.snapshots.load().hash.clone();
                this.answer(false, format!("{problems}\nthe old configuration ({hash}) stays in force"))
            }
        };
        let status = move || {
            let standing = self.look();
            let json = serde_json::to_value(&standing).ok();
            admin::Answer { standing: json, ..self.answer(true, standing.to_string()) }
        };
        admin::operator_router(reload, status)
    }

    fn answer(&self, ok: bool, text: String) -> admin::Answer {
        let snapshot = self.snapshots.load();
        let (hash, public_url) = (snapshot.hash.clone(), snapshot.public_url.to_string());
        admin::Answer { ok, snapshot: hash, public_url, text, standing: None }
    }
}
