//! Spans on their way to a collector, over OTLP/HTTP, in a program with the feature `otel`. Without it there are none.

use checkrein::plugin::Configuration;
use tracing_subscriber::{Layer, Registry};

use super::code::Code;
use super::problem::Problem;

/// What sends spans to a collector, if anything does.
pub(super) struct Export {
    #[cfg(feature = "otel")]
    provider: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// What hands spans on.
type Hears = Box<dyn Layer<Registry> + Send + Sync>;

#[cfg(not(feature = "otel"))]
impl Export {
    /// Nothing is sent.
    pub(super) fn nothing() -> Export {
        Export {}
    }

    /// Refuses an endpoint: nothing could be sent there.
    pub(super) fn new(configuration: &Configuration) -> Result<Export, Problem> {
        match &configuration.telemetry.otlp_endpoint {
            None => Ok(Export::nothing()),
            Some(_) => {
                let key = ["telemetry", "otlp-endpoint"];
                let refused = configuration.refuse(&key, &"this program cannot send spans");
                Err(Problem::because(Code::Usage, "could not use the configuration", refused)
                    .advise("build it with the feature `otel`, or take that line out"))
            }
        }
    }

    pub(super) fn layer(&self) -> Option<Hears> {
        None
    }

    pub(super) fn finish(self) {}
}

#[cfg(feature = "otel")]
mod sending {
    use std::sync::Arc;
    use std::time::Duration;

    use opentelemetry::trace::TracerProvider;
    use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::Level;
    use tracing_subscriber::filter::filter_fn;

    use super::*;

    /// How long one request to the collector may take, and at the end all that is left.
    const PATIENCE: Duration = Duration::from_secs(5);

    impl Export {
        /// Nothing is sent.
        pub(in crate::cli) fn nothing() -> Export {
            Export { provider: None }
        }

        /// Sends to where the configuration says. To be called outside a runtime, because the client has one of its own: what
        /// is left is sent when that of the host has ended.
        pub(in crate::cli) fn new(configuration: &Configuration) -> Result<Export, Problem> {
            let Some(endpoint) = &configuration.telemetry.otlp_endpoint else {
                return Ok(Export::nothing());
            };
            let refused = |error: anyhow::Error| {
                let attempt = format!("could not set up the export of spans to {endpoint}");
                Problem::because(Code::Refused, attempt, error)
            };
            let client = client().map_err(refused)?;
            let exporter = SpanExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(endpoint)
                .with_timeout(PATIENCE)
                .build()
                .map_err(|error| refused(error.into()))?;
            let provider = SdkTracerProvider::builder()
                .with_batch_exporter(exporter)
                .with_resource(Resource::builder().with_service_name("checkrein").build())
                .build();
            Ok(Export { provider: Some(provider) })
        }

        /// What hands on the spans of work and what was said inside them. Guests' own words stay here.
        pub(in crate::cli) fn layer(&self) -> Option<Hears> {
            let tracer = self.provider.as_ref()?.tracer("checkrein");
            let ours = filter_fn(|said| {
                let target = said.target();
                let ours = target == "checkrein::run" || target.starts_with("checkrein::session");
                ours && *said.level() <= Level::INFO
            });
            Some(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours).boxed())
        }

        /// Sends what is left.
        pub(in crate::cli) fn finish(self) {
            let ended = self.provider.map(|provider| provider.shutdown_with_timeout(PATIENCE));
            if let Some(Err(error)) = ended {
                tracing::warn!(%error, "some spans were not sent to the collector");
            }
        }
    }

    fn client() -> anyhow::Result<reqwest::blocking::Client> {
        let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = reqwest::blocking::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .build()?;
        Ok(client)
    }
}
